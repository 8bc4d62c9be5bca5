"""How does a run get its session on a warm Spark?

As on any Spark Connect server, but for the start: the driver asks the process that has forked it
for the JVM as soon as it knows that there is work, and gets port and token when that listens.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CloudFilesError, RunError, SparkUnreachableError
from airflow_cloudfiles.engine.job.connect.server import SparkConnect
from airflow_cloudfiles.engine.job.connect.session import ConnectStart
from airflow_cloudfiles.engine.job.warm import wire
from airflow_cloudfiles.engine.job.warm.instances import Instance
from airflow_cloudfiles.engine.job.warm.plan import is_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_cloudfiles.engine.job.spec import JobSpec

START_SECONDS = 300.0
"""How long the JVM may take until it listens."""
RETRIES = 2
"""How often a request is sent again: a server on this machine that refuses one has ended."""


class WarmStart(ConnectStart):
    """The session of one run on the warm Spark that its driver was forked from.

    Args:
        spec: The run.
    """

    def __init__(self, spec: JobSpec) -> None:
        conf = {key: value for key, value in spec.spark_conf.items() if is_of_session(key)}
        super().__init__(replace(spec, spark_conf=conf))
        self._instance = Instance(Path(os.environ.pop(wire.FOLDER)))

    @property
    def keeps_queries_on(self) -> SparkConnect | None:
        """None: it ends when nobody uses it."""
        return None

    def as_ours(self, error: Exception) -> CloudFilesError | None:
        """As of any server; one that was lost takes no more runs, so that a retry starts anew."""
        found = super().as_ours(error)
        if isinstance(found, SparkUnreachableError):
            self._retire()
        return found

    def _connected(self) -> SparkSession:
        try:
            self._server = self._asked()
            session = super()._connected()
        except SparkUnreachableError:
            self._retire()
            raise
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415

        client: Any = session.client
        client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
        return session

    def _asked(self) -> SparkConnect:
        """Have the JVM start, unless it runs.

        Raises:
            RunError: It has ended before it listened.
            SparkUnreachableError: The warm Spark does not answer.
        """
        try:
            answer = wire.ask(self._instance, wire.SPARK, START_SECONDS)
        except (OSError, EOFError) as error:
            raise SparkUnreachableError(
                f"The warm Spark of this machine ended before its JVM was there: {error}. Run "
                "again: the next run starts another."
            ) from error
        if "error" in answer:
            raise RunError(f"The JVM of the warm Spark did not start. {answer['error']}")
        return SparkConnect(f"sc://localhost:{answer['port']}/;token={answer['token']}")

    def _retire(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            wire.ask(self._instance, wire.RETIRE)
