"""Wrap methods of PySpark's builders: remember the calls made on one, and give `save` its modes.

PySpark hands the calls to the JVM, and cannot say afterwards what was set.

Spark offers a Python data source `append` and `overwrite` only. `errorifexists`, which is the
default, and `ignore` are decided here, before Spark sees them. So is `partitionBy`: Spark compares
it with the partitioning of a table that, to it, has none. Errors of this package are raised as
themselves.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any

from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import OptionError, SinkError
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option

_START_NAMES = {"path", "tableName", "format", "outputMode", "partitionBy", "queryName"}
"""The arguments of `start` and `toTable` that are no options."""


def wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Put a function around a method; it gets the original, which knows its name, and the call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, *args, **kwargs)

    setattr(owner, name, wrapped)


@contextlib.contextmanager
def raising_ours() -> Iterator[None]:
    """Raise an error of ours that comes in the text of one of PySpark's as itself."""
    try:
        yield
    except PySparkException as error:
        raise (errors.from_text(str(error)) or error) from None


def remember(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a call, and keep it (`calls_of`)."""
    result = original(self, *args, **kwargs)
    calls_of(self).append((original.__name__, args, kwargs))
    return result


def calls_of(builder: Any) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """List the calls made so far on a reader or writer, kept on the object itself."""
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = builder.__dict__.setdefault(
        "_cloudfiles_calls", []
    )
    return calls


def options_of(builder: Any, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Collect the options set so far, keyed in lower case (Spark's rule), the last one winning."""
    found: dict[str, Any] = {}
    for name, args, kwargs in calls_of(builder):
        if name == "option":
            pair = dict(zip(("key", "value"), args, strict=False)) | kwargs
            found[str(pair["key"]).lower()] = pair["value"]
        elif name == "options":
            found.update({key.lower(): value for key, value in kwargs.items()})
    found.update({key.lower(): value for key, value in (extra or {}).items()})
    return {key: value for key, value in found.items() if value is not None}


def as_typed(builder: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names that the user typed, for messages."""
    typed: dict[str, str] = {}
    for name, args, kwargs in calls_of(builder):
        keys = [*args[:1], *([kwargs["key"]] if "key" in kwargs else [])]
        names = kwargs if name == "options" else keys if name == "option" else ()
        typed.update({str(key).lower(): str(key) for key in names})
    return {typed.get(key, key): value for key, value in options.items()}


def last_argument(builder: Any, name: str) -> Any:
    """Return the argument of the last call of a one-argument method; `None` when never called."""
    values = [[*args, *kwargs.values()][0] for n, args, kwargs in calls_of(builder) if n == name]
    return values[-1] if values else None


def sink_of(writer: Any, kwargs: dict[str, Any]) -> str:
    """Return the name of a query's format; empty where none was set."""
    return str(kwargs.get("format") or last_argument(writer, "format") or "").lower()


def partition_of(writer: Any, name: str, kwargs: dict[str, Any]) -> str | None:
    """Build the option for partition columns of a new table of ours: Spark hides them.

    Raises:
        OptionError: The table is to be clustered, or is given by its name in a catalog.
    """
    sink = sink_of(writer, kwargs)
    if name == "toTable":
        raise OptionError(
            f"The {sink} sink has no catalog, so it knows no table by name. Give the path of the "
            "table: .start('s3://bucket/tables/name')."
        )
    if any(call == "clusterBy" for call, _, _ in calls_of(writer)):
        raise not_clustered(sink)
    columns = partition_columns(writer, kwargs.get("partitionBy"))
    return partition_option(columns) if columns else None


def not_clustered(sink: str) -> OptionError:
    """Give the error of a sink of ours that is to cluster its table."""
    return OptionError(
        f"The {sink} sink cannot write clustered tables. Leave out clusterBy, use partitionBy, "
        "or use Delta's own jars."
    )


def require_places(without: Sized, checkpoint: object) -> None:
    """Refuse a query whose sources would not know where their state is.

    Args:
        without: Its cloudFiles sources whose definition names no place for their state.
        checkpoint: Its checkpoint location.

    Raises:
        OptionError: It has none, or several sources would have the same.
    """
    if without and not checkpoint:
        raise OptionError(
            "A cloudFiles stream needs .option('checkpointLocation', ...) on writeStream: it "
            "records there which files it has read."
        )
    if len(without) > 1:
        raise OptionError(
            "A query with several cloudFiles sources must say where each keeps its state: give "
            "each readStream an .option('checkpointLocation', ...) of its own."
        )


def require_one_folder(spark: Any, locations: Iterable[object]) -> None:
    """Refuse relative paths that would mean other places here and in Spark.

    A notebook that has changed its folder leaves Spark's JVM and its Python processes where they
    were started.

    Args:
        spark: A session with a JVM.
        locations: Paths and URIs; `None` for none.

    Raises:
        OptionError: There is one.
    """
    relative = [str(each) for each in locations if each and _is_relative(str(each))]
    if not relative:
        return
    here, there = str(Path.cwd()), str(spark._jvm.java.lang.System.getProperty("user.dir"))  # noqa: SLF001
    if here != there:
        raise OptionError(
            f"The path {relative[0]!r} is in {here} for this process, and in {there} for Spark, "
            f"which was started there. Give the whole path: {str(Path(here, relative[0]))!r}."
        )


def _is_relative(location: str) -> bool:
    return ":" not in location.partition("/")[0] and not location.startswith("/")


def query_options(writer: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Collect the options of a query: those of its writer, and those of `start()`."""
    return options_of(writer, {k: value for k, value in kwargs.items() if k not in _START_NAMES})


def partition_columns(writer: Any, given: Any) -> list[str]:
    """List what an argument `partitionBy` names, or else the last call of that name.

    Spark takes names and lists of names.
    """
    calls = [
        [*args, *kwargs.values()]
        for name, args, kwargs in calls_of(writer)
        if name == "partitionBy"
    ]
    named = [given] if given else calls[-1] if calls else ()
    return [name for each in named for name in (each if isinstance(each, list | tuple) else [each])]


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
    from airflow_cloudfiles.engine.tables.delta.opening import open_table  # noqa: PLC0415 - of save

    if path is None or open_table(str(path)) is None:
        return "append"
    if mode == "ignore":
        return None
    raise SinkError(
        f"There is a Delta table at {path} already, and the mode is {mode}. Use "
        'mode("append") or mode("overwrite"), or another path.'
    )
