"""Give `df.write.format("deltalake")` its save modes.

Spark offers a Python data source `append` and `overwrite` only. `errorifexists`, which is the
default, and `ignore` are decided here, before Spark sees them. So is `partitionBy`: Spark compares
it with the partitioning of a table that, to it, has none. Errors of this package are raised as
themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError, SinkError
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option
from airflow_cloudfiles.engine.spark.wrapping import raising_ours, wrap
from airflow_cloudfiles.engine.tables.delta.opening import open_table

_NOTED = "_cloudfiles_given"
_SPARKS = ("append", "overwrite")
_OURS = ("ignore", "error", "errorifexists")


@dataclass(frozen=True, slots=True)
class _SaveCall:
    """What `save` was given, there and before."""

    format: str
    mode: str
    path: str | None

    @classmethod
    def of(cls, writer: Any, names: dict[str, Any], options: dict[str, Any]) -> _SaveCall:
        """Collect what a writer was given."""
        noted: dict[str, Any] = writer.__dict__.get(_NOTED, {})
        found = {key: names.get(key) or noted.get(key) for key in ("format", "mode", "path")}
        found["path"] = found["path"] or _path_in(options)
        path = found["path"]
        return cls(
            str(found["format"] or "").lower(),
            str(found["mode"] or "errorifexists").lower(),
            None if path is None else str(path),
        )

    def mode_for_spark(self) -> str | None:
        """Choose the mode that Spark is given; `None` where nothing is to be written.

        Raises:
            SinkError: There is a table, and there must be none.
            OptionError: There is no such mode.
        """
        if self.mode in _SPARKS:
            return self.mode
        if self.mode not in _OURS:
            raise OptionError(
                f"mode must be append, overwrite, ignore or errorifexists, got {self.mode!r}."
            )
        if self.path is None or open_table(self.path) is None:
            return "append"
        if self.mode == "ignore":
            return None
        raise SinkError(
            f"There is a Delta table at {self.path} already, and the mode is {self.mode}. Use "
            'mode("append") or mode("overwrite"), or another path.'
        )


def wrap_save(formats: set[str]) -> None:
    """Wrap PySpark's writer, once a process.

    Args:
        formats: Names of our formats; more may be added later.
    """
    from pyspark.sql.readwriter import DataFrameWriter  # noqa: PLC0415 - needs a JVM

    for name in ("format", "mode", "option", "options", "partitionBy"):
        wrap(DataFrameWriter, name, _note)
    wrap(DataFrameWriter, "save", functools.partial(_save, formats))


def _note(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Note the format, the mode and the path."""
    noted: dict[str, Any] = self.__dict__.setdefault(_NOTED, {})
    name, values = original.__name__, [*args, *kwargs.values()]
    if name in {"format", "mode"} and values:
        noted[name] = values[0]
    elif name == "partitionBy":
        noted[name] = values
    elif name == "option" and len(values) > 1:
        noted["path"] = _path_in({str(values[0]): values[1]}) or noted.get("path")
    elif name == "options":
        noted["path"] = _path_in(kwargs) or noted.get("path")
    return original(self, *args, **kwargs)


def _save(
    formats: set[str], original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """`DataFrameWriter.save` for our formats; others pass through."""
    names = dict(zip(("path", "format", "mode", "partitionBy"), args, strict=False))
    names |= {key: kwargs[key] for key in ("path", "format", "mode") if key in kwargs}
    call = _SaveCall.of(self, names, kwargs)
    if call.format not in formats:
        return original(self, *args, **kwargs)
    mode = call.mode_for_spark()
    if mode is None:
        return None
    path, format_name, _, partitions = (*args, None, None, None, None)[:4]
    named = {"path": path, "format": format_name, "partitionBy": partitions, **kwargs, "mode": mode}
    columns = _hand_partitions(self, named.pop("partitionBy"))
    try:
        with raising_ours():
            return original(self, **named)
    finally:
        self.__dict__[_NOTED]["mode"] = call.mode  # the writer may be used again
        if columns:
            self.partitionBy(*columns)


def _hand_partitions(writer: Any, given: Any) -> list[str]:
    """Give partition columns as the option that a Python data source is given."""
    noted: dict[str, Any] = writer.__dict__.get(_NOTED, {})
    columns = flattened([given] if given else noted.get("partitionBy") or ())
    if columns:
        writer.option(PARTITION_BY, partition_option(columns))
        writer.partitionBy()
    return columns


def flattened(given: Iterable[Any]) -> list[str]:
    """Flatten what `partitionBy` names; Spark takes names and lists of names."""
    return [name for each in given for name in (each if isinstance(each, list | tuple) else [each])]


def _path_in(options: dict[str, Any]) -> Any:
    """Find the path among options."""
    return next((value for key, value in options.items() if key.lower() == "path"), None)
