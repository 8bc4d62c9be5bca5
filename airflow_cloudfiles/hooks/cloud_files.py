"""How does a task reach the engine: with which connection, and through which few calls?"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake import Intake
from airflow_cloudfiles.engine.stream.launch import JobSpec, LocalSpark, Run, launch
from airflow_cloudfiles.hooks.spark import SparkArguments, submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.hooks.arguments import StreamArguments

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")


class CloudFilesHook(BaseHook):
    """The engine as an Airflow task sees it.

    Args:
        conn_id: Connection of type *File (path)*: relative locations are below its path. Without
            one, every location must be absolute, because a worker has no fixed working directory.
    """

    conn_name_attr = "conn_id"
    hook_name = "Cloud Files"

    def __init__(self, conn_id: str | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id

    def locate(self, stream: StreamArguments) -> StreamArguments:
        """Validate a stream's options and make its locations absolute.

        Raises:
            OptionError: An option is not valid, or a location is relative to nothing.
            UnsupportedOptionError: The connection is of a kind this version cannot read with.
        """
        base = self._base_path()

        def absolute(location: str) -> str:
            if _ABSOLUTE.match(location):
                return location
            if base is None:
                raise OptionError(
                    f"The location {location!r} is relative, and a worker has no fixed working "
                    "directory. Give an absolute path, or conn_id of a File (path) connection."
                )
            return f"{base.rstrip('/')}/{location}"

        return stream.validated().located(absolute)

    def discover(self, stream: StreamArguments) -> dict[str, object] | None:
        """Record what has arrived and say what is still to be ingested.

        Repeating it is harmless: a file is recorded once, whoever finds it.

        Returns:
            The reference to the outstanding batch that a sensor leaves in XCom; `None` when
            everything is ingested.
        """
        located = self.locate(stream)
        outside = [uri for uri in (located.target, located.schema_location) if uri]
        intake = Intake.open(
            source=located.source,
            format=located.format,
            checkpoint_location=located.checkpoint_location,
            exclude=outside,
        )
        with closing(intake):
            intake.discover()
            backlog = intake.outstanding()
        if backlog.last_entry is None:
            return None
        return {
            "checkpoint_location": located.checkpoint_location,
            "first_entry": backlog.first_entry,
            "last_entry": backlog.last_entry,
            "files": backlog.files,
            "bytes": backlog.bytes,
            "sample": [printable_path(path) for path in backlog.sample],
        }

    def launch(self, spec: JobSpec, spark: SparkArguments, *, on_log: Callable[[str], Any]) -> Run:
        """Start a job on Spark.

        Args:
            spec: What to do.
            spark: Where: a Spark of the task's own, or a cluster.
            on_log: Called with each line of the job's log as it comes.
        """
        connection = self.get_connection(spark.conn_id) if spark.conn_id else None
        how = submission(spark, connection)
        if isinstance(how, LocalSpark):  # a cluster's goes to spark-submit, not into the state
            spec = replace(spec, spark_conf=dict(spark.conf))
        return launch(spec, how, on_log=on_log)

    def _base_path(self) -> str | None:
        """The folder that relative locations are below."""
        if self.conn_id is None:
            return None
        connection = self.get_connection(self.conn_id)
        if connection.conn_type != "fs":
            raise UnsupportedOptionError(
                f"Connection {self.conn_id!r} is of type {connection.conn_type!r}; this version "
                "reads local folders only. Use a connection of type fs (File (path)), or none."
            )
        return str(connection.extra_dejson.get("path") or "/")
