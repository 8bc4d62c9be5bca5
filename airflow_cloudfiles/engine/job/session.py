"""How does the Spark session of a run start?

A local run starts its JVM and the server that forks its Python processes in the background, as
soon as it knows that there is work for them, and goes on with what needs no Spark. On a cluster,
and for whoever calls this without a driver of its own, PySpark starts Spark.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.inference.workers import local_workers
from airflow_cloudfiles.engine.job import forked_python
from airflow_cloudfiles.engine.job.jvm import Jvm
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, LAUNCHED, default_conf
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.storage.uri import is_iceberg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.errors import CloudFilesError
    from airflow_cloudfiles.engine.inference.workers import ProcessWorkers
    from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
    from airflow_cloudfiles.engine.job.connect.server import SparkConnect
    from airflow_cloudfiles.engine.job.forked_python import ForkServer
    from airflow_cloudfiles.engine.job.spec import JobSpec

WORKER_REUSE = "spark.python.worker.reuse"
_log = logging.getLogger(__name__)


class SparkStart:
    """The Spark of one run: begun in the background, then a session; stopped at the end.

    Args:
        spec: The run.
        python: What forks its Python processes, when it is there already; closed with this.
    """

    def __init__(self, spec: JobSpec, python: ForkServer | None = None) -> None:
        self._spec = spec
        self._conf = _configuration(spec)
        self._jvm: Jvm | None = None
        self._python = python
        self._launcher: str | None = None
        self._session: SparkSession | None = None

    is_elsewhere = False
    """Whether the lines that Spark's Python processes write are on another machine."""
    temporary = ""
    """There: the temporary directory of that machine, once there is a session."""

    @property
    def keeps_queries_on(self) -> SparkConnect | None:
        """The server on which a query goes on when its driver leaves; `None` where none does."""
        return None

    def check(self) -> None:
        """Refuse a run that this Spark cannot do, before anything is done."""

    def as_ours(self, error: Exception) -> CloudFilesError | None:  # noqa: ARG002 - of a server
        """What a failure of Spark means; `None` where nothing is known of it."""
        return None

    def begin(self) -> None:
        """Start Spark in the background, in a local run; once.

        Raises:
            JavaNotFoundError: There is no Java that will do.
        """
        if self._jvm is None and os.environ.get(LAUNCHED) == "local":
            _log.info("Starting Spark")
            self._forked_python()
            self._jvm = Jvm(handoff.process_folder(), self._conf)

    def local_workers(self, count: int | None = None) -> ProcessWorkers | None:
        """Processes on this machine that help to infer a schema.

        In a local run that needs the fork server anyway, forked ones. For an inference alone, the
        server would import more than it saves.

        Args:
            count: How many; default is one for each core.
        """
        has_server = os.environ.get(LAUNCHED) == "local" and self._spec.kind == "ingest"
        return local_workers(count, self._forked_python if has_server else None)

    def _forked_python(self) -> str:
        """What runs Python: what has it forked, where that is possible; asked for once."""
        if self._launcher is None:
            self._python = forked_python.start(
                handoff.process_folder(),
                self._conf,
                self._python,
                for_iceberg=is_iceberg(str(self._spec.target)),
            )
            forked = None if self._python is None else os.environ.get("PYSPARK_PYTHON")
            self._launcher = forked or sys.executable
        return self._launcher

    def session(self, *, is_one_batch: bool = False) -> SparkSession:
        """Give the session, with `cloudFiles` registered.

        The master comes from `spark-submit` or the specification; the default is `local[*]`.

        Args:
            is_one_batch: Whether it is for one micro-batch. Then Python workers end with their
                task, and so give their memory back. A fork is cheap, but not with each of many
                micro-batches.

        Raises:
            RunError: Java ended before Spark was there.
        """
        if self._session is None:
            asked = time.monotonic()
            self.begin()
            # While the JVM starts.
            from airflow_cloudfiles.engine.spark.register import register  # noqa: PLC0415

            if self._jvm is not None:
                self._jvm.connect()
            ends = is_one_batch and self._python is not None
            reuse = {WORKER_REUSE: "false"} if ends else {}
            self._session = _session(self._spec, {**reuse, **self._conf})
            register(self._session)
            _log.info("Spark is ready, after %.1f s of waiting", time.monotonic() - asked)
        return self._session

    def identify(self, query: StreamingQuery) -> LeftQuery:
        """Name a query for who comes back to it, where `keeps_queries_on` is a server."""
        raise NotImplementedError

    def leave_session(self) -> None:
        """Go without stopping the session, where `keeps_queries_on` is a server."""
        raise NotImplementedError

    def stop_session(self) -> None:
        """Stop the session; harmless when there is none."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def close(self) -> None:
        """Stop Spark; harmless when it was not begun.

        This may take a while, once a machine (`jvm_archive`).
        """
        self.stop_session()
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.close()
        python, self._python = self._python, None
        if python is not None:
            python.close()


def _configuration(spec: JobSpec) -> dict[str, str]:
    """The Spark configuration of a run."""
    # Whoever launched the driver has set master and defaults already, before the user's own.
    launched = os.environ.get(LAUNCHED)
    master = spec.spark_conf.get("spark.master", "local[*]")
    defaults: Mapping[str, str] = (
        {} if launched else {"spark.master": master, **default_conf(master)}
    )
    if launched == "local":
        # Where Spark keeps blocks that it spills, unless `spark.local.dir` says another place: it
        # leaves the folder open to whom the umask does.
        temporary = f'"-Djava.io.tmpdir={handoff.process_folder()}"'
        defaults = {"spark.driver.extraJavaOptions": f"{COORDINATOR_JVM} {temporary}"}
    return {**defaults, **spec.spark_conf}


def _session(spec: JobSpec, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(f"cloudfiles-{spec.run_id}")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("CLOUDFILES_SPARK_LOG_LEVEL", "FATAL"))
    return spark
