"""Give `df.write.format("deltalake")` its save modes.

Spark offers a Python data source `append` and `overwrite` only. `errorifexists`, which is the
default, and `ignore` are decided here, before Spark sees them. So is `partitionBy`: Spark compares
it with the partitioning of a table that, to it, has none. Errors of this package are raised as
themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError, SinkError
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option
from airflow_cloudfiles.engine.spark.calls import (
    calls_of,
    last_argument,
    options_of,
    partition_columns,
    raising_ours,
    remember,
    sink_of,
    wrap,
)
from airflow_cloudfiles.engine.tables.delta.opening import open_table

_SAVE = ("path", "format", "mode", "partitionBy")
"""The first arguments of `save`."""
_SPARKS = ("append", "overwrite")
_OURS = ("ignore", "error", "errorifexists")


def wrap_save(formats: set[str]) -> None:
    """Wrap PySpark's writer, once a process.

    Args:
        formats: Names of our formats; more may be added later.
    """
    from pyspark.sql.readwriter import DataFrameWriter  # noqa: PLC0415 - needs a JVM

    for name in ("format", "mode", "option", "options", "partitionBy"):
        wrap(DataFrameWriter, name, remember)
    wrap(DataFrameWriter, "save", functools.partial(_save, formats))


def _save(
    formats: set[str], original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """`DataFrameWriter.save` for our formats; others pass through."""
    call = dict(zip(_SAVE, args, strict=False)) | kwargs
    if sink_of(self, call) not in formats:
        return original(self, *args, **kwargs)
    given = str(call.get("mode") or last_argument(self, "mode") or "errorifexists").lower()
    mode = _mode_for_spark(given, call.get("path") or options_of(self, kwargs).get("path"))
    if mode is None:
        return None
    columns = partition_columns(self, call.pop("partitionBy", None))
    if columns:  # as the option that a Python data source is given
        self.option(PARTITION_BY, partition_option(columns))
        self.partitionBy()
    try:
        with raising_ours():
            return original(self, **{**call, "mode": mode})
    finally:
        calls_of(self).append(("mode", (given,), {}))  # the writer may be used again
        if columns:
            self.partitionBy(*columns)


def _mode_for_spark(mode: str, path: object) -> str | None:
    """Choose the mode that Spark is given; `None` where nothing is to be written.

    Raises:
        SinkError: There is a table, and there must be none.
        OptionError: There is no such mode.
    """
    if mode in _SPARKS:
        return mode
    if mode not in _OURS:
        raise OptionError(f"mode must be append, overwrite, ignore or errorifexists, got {mode!r}.")
    if path is None or open_table(str(path)) is None:
        return "append"
    if mode == "ignore":
        return None
    raise SinkError(
        f"There is a Delta table at {path} already, and the mode is {mode}. Use "
        'mode("append") or mode("overwrite"), or another path.'
    )
