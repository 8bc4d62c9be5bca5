"""Warn of what a query would do silently that nobody who writes it can want."""

from __future__ import annotations

import logging
from typing import Any, Final

from airflow_cloudfiles.engine.options.metadata_columns import NAME as METADATA_COLUMNS
from airflow_cloudfiles.engine.spark.query.calls import calls_of

MERGE_SCHEMA: Final = "mergeschema"
_log = logging.getLogger(__name__)


def warn(writer: Any, sink: str, options: dict[str, Any]) -> None:
    """Log a warning for each, with the line that mends it.

    Args:
        writer: PySpark's `DataStreamWriter` of a query that reads `cloudFiles`.
        sink: Name of its format; empty where none was set.
        options: Of the query, by their names in lower case.
    """
    called = {name for name, _, _ in calls_of(writer)}
    if not sink and MERGE_SCHEMA in options and not called & {"foreach", "foreachBatch"}:
        _log.warning(
            "The query has no format, so Spark writes Parquet files, which know no mergeSchema. "
            'For a Delta table, add .format("deltalake") to writeStream.'
        )
    plan = writer._df._jdf.queryExecution().analyzed().toString()  # noqa: SLF001
    if "input_file_name()" in plan:
        _log.warning(
            "input_file_name() is an empty text for rows of cloudFiles. Add "
            '.option("%s", "file_path") to readStream, and use the column file_path.',
            METADATA_COLUMNS,
        )
