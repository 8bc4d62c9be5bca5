"""Write a stream in one statement: wait for its files, then ingest them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskGroup

from airflow_cloudfiles.hooks.keywords import SparkOnly, StreamOnly
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import XComArg

    from airflow_cloudfiles.hooks.keywords import AssetLocation, Location, Options

_WHERE = SparkOnly.__annotations__.keys() - StreamOnly.__annotations__.keys()
"""The arguments that say where Spark runs."""


class CloudFilesTaskGroup(TaskGroup):
    """Wait for the files of a stream and ingest them: a sensor and an operator as one group.

    The tasks are `arrived` and `ingest`, with `infer_schema` between them if it is asked for, each
    behind the id of the group (`orders.arrived`). The sensor gives its worker slot back while it
    waits, and is skipped when nothing arrives in its `timeout`; the ingestion is skipped then, too.
    A mistake in an argument fails when the DAG is parsed.

    Args:
        group_id: Id of the group; the stream's name, for instance.
        source: As for `StreamTask`. (templated)
        format: As for `StreamTask`.
        checkpoint_location: As for `StreamTask`. (templated)
        target: The table. (templated)
        schema_location: As for `StreamTask`. (templated)
        options: As for `StreamTask`. (templated)
        conn_id: As for `StreamTask`.
        infer_schema: Whether a task of its own writes the first version of the schema, so that it
            can be seen before any row is written.
        sensor: More arguments of `CloudFilesSensor` (`{"timeout": 1800, "deferrable": True}`).
        ingest: More arguments of `CloudFilesIngestOperator` (`{"write": "merge", "keys": ["id"]}`).
        kwargs: Airflow's own arguments of a task group.

    Attributes:
        arrived: The sensor.
        infer_schema: The task that infers; `None` without one.
        ingest: The ingestion.
    """

    arrived: CloudFilesSensor
    infer_schema: CloudFilesInferSchemaOperator | None
    ingest: CloudFilesIngestOperator

    def __init__(  # noqa: PLR0913 - a stream's arguments are its interface
        self,
        group_id: str,
        *,
        source: AssetLocation,
        format: str,  # noqa: A002 - Spark's word
        checkpoint_location: Location,
        target: AssetLocation,
        schema_location: Location | None = None,
        options: Options | None = None,
        conn_id: str | None = None,
        infer_schema: bool = False,
        sensor: Mapping[str, Any] | None = None,
        ingest: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(group_id, **kwargs)
        stream: dict[str, Any] = {
            "source": source,
            "format": format,
            "checkpoint_location": checkpoint_location,
            "target": target,
            "schema_location": schema_location,
            "options": options,
            "conn_id": conn_id,
        }
        waiting = {"mode": "reschedule", "soft_fail": True}
        with self:
            self.arrived = CloudFilesSensor(
                task_id="arrived", **{**stream, **waiting, **(sensor or {})}
            )
            self.ingest = CloudFilesIngestOperator(
                task_id="ingest", batch=self.arrived.output, **{**stream, **(ingest or {})}
            )
            self.infer_schema = None
            if infer_schema:
                # Where Spark runs is the same for both.
                where = {name: value for name, value in (ingest or {}).items() if name in _WHERE}
                self.infer_schema = CloudFilesInferSchemaOperator(
                    task_id="infer_schema", **{**stream, **where}
                )
                self.arrived >> self.infer_schema >> self.ingest

    @property
    def output(self) -> XComArg:
        """The report of the run, for tasks behind the group."""
        return self.ingest.output
