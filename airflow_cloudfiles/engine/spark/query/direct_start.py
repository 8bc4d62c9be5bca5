"""Have the tasks of a query write what they read, where `start()` finds that they may.

They may where the query has one source, `cloudFiles`, of which it selects, drops and renames
columns at most, and appends to a table of ours. Else the rows pass Spark (`direct_write` says what
differs).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import StaleSchemaError
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.query.calls import calls_of
from airflow_cloudfiles.engine.spark.query.direct_write import (
    OPTION,
    DirectCommit,
    DirectDataSource,
    DirectWrite,
)
from airflow_cloudfiles.engine.spark.query.plan import STATE_HANDOFF, columns_of_leaf

_OF_SINK: Final = {"format", "partitionBy", "foreach", "foreachBatch"}
_log = logging.getLogger(__name__)


class DirectQueries:
    """Finds them; knows the sources that `load()` has defined by their tokens."""

    def __init__(self) -> None:
        self._is_given: dict[str, bool] = {}

    def defined(self, token: str, *, is_given: bool) -> None:
        """Take note of a source.

        Args:
            token: By which it is handed the checkpoint location.
            is_given: Whether the user gave its schema.
        """
        self._is_given[token] = is_given

    def instead_of(self, writer: Any, sink: str, target: str, options: Mapping[str, Any]) -> Any:
        """The writer to start in the place of one, or `None` where the rows pass Spark.

        Args:
            writer: PySpark's `DataStreamWriter`, which appends.
            sink: Name of its format, one of ours.
            target: The table.
            options: Of the sink, by their names in lower case.
        """
        if "checkpointlocation" not in options:  # `start()` will say so
            return None
        found = columns_of_leaf(writer._df)  # noqa: SLF001
        if isinstance(found, str):
            _log.info("The rows pass Spark, since the query has %s.", found)
            return None
        columns, of_source, source_schema = found
        is_given = self._is_given.get(of_source.get(STATE_HANDOFF, ""))
        if is_given is None:  # another source, or one that would be inferred once more
            return None
        direct = DirectWrite(
            sink=sink,
            target=target,
            options={key: str(value) for key, value in options.items()},
            columns=columns,
            schema=writer._df.schema.json(),  # noqa: SLF001
            source_schema=source_schema,
            is_given=is_given,
        )
        try:
            again = _writer(writer, direct, of_source)
        except PySparkException as error:
            ours = errors.from_text(str(error))
            if not isinstance(ours, StaleSchemaError):
                raise ours or error from None
            _log.info("The rows pass Spark, since the schema has changed meanwhile.")
            return None
        _log.info("Tasks write to %s what they read; no row passes Spark.", target)
        return again


def _writer(writer: Any, direct: DirectWrite, of_source: Mapping[str, str]) -> Any:
    """Define the query that is started instead."""
    reader = writer._spark.readStream.format(DirectDataSource.name()).options(**of_source)  # noqa: SLF001
    reader.option(STATE_HANDOFF, handoff.new_token()).option(OPTION, direct.to_json())
    frame = reader.load()
    frame.schema  # noqa: B018 - Spark resolves the source only when it is asked for it
    again = frame.writeStream
    for call, args, kwargs in calls_of(writer):
        if call not in _OF_SINK:
            getattr(again, call)(*args, **kwargs)
    commit = DirectCommit(direct, direct.options["checkpointlocation"], writer._spark)  # noqa: SLF001
    return again.foreachBatch(commit)
