"""Make task groups or DAGs of the streams of a YAML file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DAG

from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from airflow_cloudfiles.hooks.keywords import IngestKeywords, SensorKeywords
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.task_groups.cloud_files import CloudFilesTaskGroup

if TYPE_CHECKING:
    from os import PathLike

_OF_THE_GROUP = ("task_id", "task_group", "dag", "batch")
"""Arguments of its tasks that a group gives itself."""


def streams_from_file(path: str | PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read the streams that a YAML file describes.

    Args:
        path: The file; beside that of a DAG, `Path(__file__).with_name("streams.yaml")`.

    Returns:
        The arguments of a `CloudFilesTaskGroup` for each stream, by its name, in the order of the
        file: `CloudFilesTaskGroup(name, **arguments)`. What `dag` says is left out.

    Raises:
        OptionError: The file cannot be read, or has mistakes; the message has each with its line.
    """
    return {
        name: {key: value for key, value in stream.items() if key != "dag"}
        for name, stream in _read(path).items()
    }


def dags_from_file(
    path: str | PathLike[str], *, only: str | None = None, dag_id_prefix: str = "", **given: Any
) -> dict[str, DAG]:
    """Make a DAG of each stream that a YAML file describes; Airflow finds them by itself.

    Args:
        path: As for `streams_from_file`.
        only: The id of the DAG to make; `None` for all. `get_parsing_context().dag_id` says which
            one a task needs.
        dag_id_prefix: What the id of each DAG begins with, before the name of its stream.
        given: Arguments of every DAG, such as `start_date`; what `dag` says in the file wins.

    Returns:
        The DAGs by the names of their streams. Each has the tasks of one `CloudFilesTaskGroup`,
        whose ids are `arrived`, `ingest` and perhaps `infer_schema`.

    Raises:
        OptionError: As for `streams_from_file`.
    """
    dags = {}
    for name, stream in _read(path).items():
        arguments = {"schedule": None, **given, **(stream.pop("dag", None) or {})}
        dag_id = f"{dag_id_prefix}{name}"
        if only not in {None, dag_id}:
            continue
        for key in ("start_date", "end_date"):
            if isinstance(day := arguments.get(key), date) and not isinstance(day, datetime):
                arguments[key] = datetime(day.year, day.month, day.day, tzinfo=UTC)
        with DAG(dag_id, **arguments) as dag:  # noqa: AIR002 - it is among them
            CloudFilesTaskGroup(name, **stream, prefix_group_id=False)
        dags[name] = dag
    return dags


def _read(path: str | PathLike[str]) -> dict[str, dict[str, Any]]:
    sensor = {*SensorKeywords.__annotations__, *_arguments(CloudFilesSensor)}
    ingest = {*IngestKeywords.__annotations__, *_arguments(CloudFilesIngestOperator)}
    known: Mapping[str, set[str]] = {
        "sensor": sensor.difference(_OF_THE_GROUP),
        "ingest": ingest.difference(_OF_THE_GROUP),
        "dag": _arguments(DAG) - {"dag_id"},
    }
    return read_streams(path, known)


def _arguments(kind: type) -> set[str]:
    """List the names of the arguments that a class takes."""
    found = inspect.signature(kind).parameters.values()
    return {each.name for each in found if each.kind is not each.VAR_KEYWORD}
