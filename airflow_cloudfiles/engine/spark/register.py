"""How does a Spark session learn `format("cloudFiles")`?

`register(spark)` adds the data source and the Delta sink, and five small things around PySpark's
own reader and writer that Spark's Python data sources cannot do by themselves:

1. `load()` raises our errors as themselves, not as a Java stack trace, and infers the first schema
   version itself, with Spark's help when the sample is large.
2. `load()` adds the rescued data column to a given schema in the modes that rescue what does not
   fit, and passes on the sample limits that Databricks keeps in SQL configurations.
3. `start()` tells the source the query's `checkpointLocation` (see `handoff`), and where no
   `cloudFiles.schemaLocation` is given lets the checkpoint serve as one. Where Spark cannot reach
   the location, it gets a local one that is mirrored there (see `checkpoint_mirror`). A checkpoint
   that a power failure has damaged is rebuilt first (see `checkpoint_healing`), and one that jobs
   have gone past is brought to where they are (see `checkpoint_after_jobs`).
4. For the Delta source, see `tables.queries`.
5. `awaitTermination()` raises `UnknownFieldException` (which is then also a
   `StreamingQueryException`) instead of a text that contains the word.

Other formats are not touched.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option
from airflow_cloudfiles.engine.spark import (
    checkpoint_healing,
    checkpoint_mirror,
    connect,
    handoff,
)
from airflow_cloudfiles.engine.spark.checkpoint_after_jobs import go_on_after_jobs
from airflow_cloudfiles.engine.spark.error_marks import marking
from airflow_cloudfiles.engine.spark.given_schema import completed, parsed
from airflow_cloudfiles.engine.spark.plan_leaves import (
    STATE_HANDOFF,
    streaming_leaves,
    streaming_options,
    tokens_of,
)
from airflow_cloudfiles.engine.spark.query_errors import as_query_exception
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.spark.state_source import CloudFilesStateDataSource
from airflow_cloudfiles.engine.spark.tables import queries
from airflow_cloudfiles.engine.spark.tables.iceberg_sink import IcebergDataSource
from airflow_cloudfiles.engine.spark.tables.save import wrap_save
from airflow_cloudfiles.engine.spark.tables.sink import DeltaDataSource, DeltaLakeDataSource
from airflow_cloudfiles.engine.spark.tables.stream_writer import STATE as SINK_STATE
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.locations import QueryLocations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror

RECEIVE_SECONDS = 60.0
"""How long `start()` waits for the planning process to take the checkpoint location."""
_CHECKPOINT = "checkpointlocation"
CASE_SENSITIVE = "cloudFiles.internal.caseSensitive"
SAMPLE_CONFS = {
    f"spark.databricks.{option}": option
    for option in (
        "cloudFiles.schemaInference.sampleSize.numBytes",
        "cloudFiles.schemaInference.sampleSize.numFiles",
    )
}
_LOAD = ("path", "format", "schema")
"""The first arguments of `load`."""
_OUR_SINKS = {DeltaLakeDataSource.name(), IcebergDataSource.name()}
_DELTA_JAR_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make `cloudFiles` and the jar-less sinks of Delta and Iceberg known to a Spark session.

    Calling it again, or for another session, is harmless.

    Args:
        spark: A session of Spark 4.2 or later, also one of Spark Connect, whose server needs this
            package on its Python.
    """
    remote = connect.is_connect(spark)
    if not remote:
        _use_this_python(spark)
    spark.dataSource.register(CloudFilesDataSource)
    spark.dataSource.register(CloudFilesStateDataSource)
    spark.dataSource.register(DeltaLakeDataSource)
    spark.dataSource.register(IcebergDataSource)
    if not remote and not _has_delta_jar(spark):
        spark.dataSource.register(DeltaDataSource)
        _OUR_SINKS.add(DeltaDataSource.name())
    if remote:
        connect.wrap_connect(tuple(SAMPLE_CONFS.items()))
    else:
        _wrap_pyspark()
        wrap_save(_OUR_SINKS)


def _use_this_python(spark: SparkSession) -> None:
    """Let local workers run the Python that has this package, unless the user chose another.

    Spark takes `python3` from the path, which in an environment that is not activated is another
    one, and lacks this package.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not str(context.master).startswith("local"):
        return
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen:
        context.pythonExec = sys.executable


def _has_delta_jar(spark: SparkSession) -> bool:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(_DELTA_JAR_CLASS)
    except Exception as error:
        if "ClassNotFoundException" in str(error):
            return False
        raise
    return True


@functools.cache
def _wrap_pyspark() -> None:
    """Wrap PySpark's classes once a process."""
    from pyspark.sql import DataFrameReader  # noqa: PLC0415
    from pyspark.sql.streaming.query import StreamingQuery  # noqa: PLC0415
    from pyspark.sql.streaming.readwriter import (  # noqa: PLC0415
        DataStreamReader,
        DataStreamWriter,
    )

    for name in ("format", "schema", "option", "options"):
        _wrap(DataStreamReader, name, _remember)
        _wrap(DataFrameReader, name, _remember)
    _wrap(DataStreamReader, "load", _load)
    _wrap(DataFrameReader, "load", _load_batch)
    for name in _WRITER_CALLS:
        if hasattr(DataStreamWriter, name):
            _wrap(DataStreamWriter, name, _remember)
    _wrap(DataStreamWriter, "foreachBatch", _foreach_batch)
    _wrap(DataStreamWriter, "start", _start)
    _wrap(DataStreamWriter, "toTable", _start)
    _wrap(StreamingQuery, "awaitTermination", _await)
    _wrap(StreamingQuery, "processAllAvailable", _await)


_WRITER_CALLS = (
    "format",
    "outputMode",
    "option",
    "options",
    "partitionBy",
    "clusterBy",
    "queryName",
    "trigger",
    "foreach",
)


def _wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Put a function around a method; it gets the original, its name and the call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, name, self, args, kwargs)

    setattr(owner, name, wrapped)


def _calls(builder: Any) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The calls made so far on a reader or writer, kept on the object itself."""
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = builder.__dict__.setdefault(
        "_cloudfiles_calls", []
    )
    return calls


def _remember(original: Callable[..., Any], name: str, self: Any, args: Any, kwargs: Any) -> Any:
    result = original(self, *args, **kwargs)
    _calls(self).append((name, args, kwargs))
    return result


def _foreach_batch(
    original: Callable[..., Any], name: str, self: Any, args: Any, kwargs: Any
) -> Any:
    """The function runs in a callback of the JVM, which passes on the text of its errors."""
    function: Callable[..., Any] = args[0] if args else kwargs["func"]
    return _remember(original, name, self, (marking(function),), {})


def _options_of(builder: Any, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The options set so far, keyed in lower case (Spark's rule), the last one winning."""
    found: dict[str, Any] = {}
    for name, args, kwargs in _calls(builder):
        if name == "option":
            pair = dict(zip(("key", "value"), args, strict=False)) | kwargs
            found[str(pair["key"]).lower()] = pair["value"]
        elif name == "options":
            found.update({key.lower(): value for key, value in kwargs.items()})
    found.update({key.lower(): value for key, value in (extra or {}).items()})
    return {key: value for key, value in found.items() if value is not None}


def _as_typed(builder: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names that the user typed, for messages."""
    typed: dict[str, str] = {}
    for name, args, kwargs in _calls(builder):
        keys = [*args[:1], *([kwargs["key"]] if "key" in kwargs else [])]
        names = kwargs if name == "options" else keys if name == "option" else ()
        typed.update({str(key).lower(): str(key) for key in names})
    return {typed.get(key, key): value for key, value in options.items()}


def _last(builder: Any, name: str) -> Any:
    """The argument of the last call of a one-argument method; `None` when never called."""
    values = [[*args, *kwargs.values()][0] for n, args, kwargs in _calls(builder) if n == name]
    return values[-1] if values else None


def _load(original: Callable[..., Any], _name: str, self: Any, args: Any, kwargs: Any) -> Any:
    """`DataStreamReader.load` for `cloudFiles`; other formats pass through."""
    call = dict(zip(_LOAD, args, strict=False)) | kwargs
    source = call.get("format") or _last(self, "format")
    if isinstance(source, str) and source.lower() in _OUR_SINKS:
        return queries.load_stream(original, self, call)
    if not isinstance(source, str) or source.lower() != "cloudfiles":
        return original(self, *args, **kwargs)
    options = _completed(self, call)
    is_job = options.split_token is not None  # which has resolved the schema
    location = options.schema_location or options.checkpoint_location
    if not options.has_schema and location is not None and not is_job:
        given = {key: value for key, value in call.items() if key not in _LOAD}
        _resolve_first(self, given, options.path)
    self.option(STATE_HANDOFF, handoff.new_token())
    frame = _defined(original, self, call, options)
    if location is None and not options.has_schema:
        # Only this very frame, not one derived from it, can be defined again in `_start`.
        frame._cloudfiles_reader = (self, call)  # noqa: SLF001
    return frame


def _completed(reader: Any, call: dict[str, Any]) -> CloudFilesOptions:
    """Give a reader of files what only its session knows; a schema goes from the call to it."""
    schema = call.pop("schema", None) or _last(reader, "schema")
    set_before = _options_of(
        reader, {key: value for key, value in call.items() if key not in _LOAD}
    )
    path = call.get("path") or set_before.get("path")
    options = CloudFilesOptions.parse(
        _as_typed(reader, set_before), has_schema=schema is not None, path=path and str(path)
    )
    if schema is not None:
        reader.schema(completed(parsed(schema), options))
    conf = reader._spark.conf  # noqa: SLF001
    for name, option in SAMPLE_CONFS.items():
        value = conf.get(name, None)
        if value is not None and option.lower() not in set_before:
            reader.option(option, value)
    parallelism = reader._spark.sparkContext.defaultParallelism  # noqa: SLF001
    reader.option("cloudFiles.internal.parallelism", parallelism)
    reader.option(CASE_SENSITIVE, conf.get("spark.sql.caseSensitive", "false"))
    return options


def _load_batch(original: Callable[..., Any], _name: str, self: Any, args: Any, kwargs: Any) -> Any:
    """`DataFrameReader.load`; formats that are not ours pass through."""
    call = dict(zip(_LOAD, args, strict=False)) | kwargs
    source = call.get("format") or _last(self, "format")
    if isinstance(source, str) and source.lower() in _OUR_SINKS:
        return queries.load_batch(original, self, args, kwargs)
    if not isinstance(source, str) or source.lower() != "cloudfiles":
        return original(self, *args, **kwargs)
    if not isinstance(call.get("path") or "", str):
        raise OptionError("cloudFiles reads one path. Write a pattern, such as '/landing/{a,b}'.")
    options = _completed(self, call)
    options.check_batch()
    self.option("cloudFiles.internal.isBatch", "true")
    return _defined(original, self, call, options)


def _defined(
    original: Callable[..., Any], reader: Any, call: dict[str, Any], options: CloudFilesOptions
) -> Any:
    """Define the DataFrame; say so where its timestamps are not read in the session's zone."""
    try:
        frame = original(reader, **call)
        # Spark resolves the source only when it is asked for the schema.
        warning = zone_warning(frame.schema, options, reader._spark.conf.get(SESSION_ZONE, None))  # noqa: SLF001
    except PySparkException as error:
        raise (errors.from_text(str(error)) or error) from None
    if warning is not None:
        _log.warning("%s", warning)
    return frame


def _resolve_first(reader: Any, given: dict[str, Any], path: str) -> None:
    """Write the first schema version from here, where Spark can help to read a large sample.

    The source, which runs in a process of its own without a session, then finds it in the log.
    """
    from airflow_cloudfiles.engine.inference.workers import spark_workers  # noqa: PLC0415
    from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

    options = CloudFilesOptions.parse(_options_of(reader, given), path=path)
    definition.resolve_schema(options, workers=spark_workers(reader._spark))  # noqa: SLF001


def _start(original: Callable[..., Any], name: str, self: Any, args: Any, kwargs: Any) -> Any:
    """`DataStreamWriter.start` and `toTable`: hand the checkpoint location over to the sources."""
    _hand_partitions_over(self, name, kwargs)
    checkpoint = _options_of(self, kwargs).get(_CHECKPOINT)

    def start(mirrored: str | None) -> Any:
        given = kwargs if mirrored is None else _instead(self, kwargs, str(checkpoint), mirrored)
        return _start_query(original, name, self, args, given)

    leaves = streaming_options(self._df)
    return queries.started(
        start, self._spark, leaves, None if checkpoint is None else str(checkpoint)
    )


def _instead(
    writer: Any, kwargs: dict[str, Any], checkpoint: str, for_spark: str
) -> dict[str, Any]:
    """Let Spark write its checkpoint elsewhere, and the sink know where it is."""
    # Not `writer.option`, which would be remembered: the writer may be started again.
    writer._jwrite = writer._jwrite.option("checkpointLocation", for_spark)  # noqa: SLF001
    writer._jwrite = writer._jwrite.option(SINK_STATE, checkpoint)  # noqa: SLF001
    return {key: value for key, value in kwargs.items() if key.lower() != _CHECKPOINT}


def _start_query(original: Callable[..., Any], name: str, self: Any, args: Any, kwargs: Any) -> Any:
    tokens, located = tokens_of(self._df)
    if not tokens and not located:
        return original(self, *args, **kwargs)
    named = ("path", "tableName", "format", "outputMode", "partitionBy", "queryName")
    extra = {key: value for key, value in kwargs.items() if key not in named}
    checkpoint = _options_of(self, extra).get(_CHECKPOINT)
    if not tokens and not checkpoint:
        return original(self, *args, **kwargs)
    if not checkpoint:
        raise OptionError(
            "A cloudFiles stream needs .option('checkpointLocation', ...) on writeStream: it "
            "records there which files it has read."
        )
    reader = getattr(self._df, "_cloudfiles_reader", None)
    if reader is not None and tokens:
        again = _defined_again(reader, self, str(checkpoint))
        return getattr(again, name)(*args, **kwargs)
    if len(tokens) > 1:
        raise OptionError(
            "A query with several cloudFiles sources must say where each keeps its state: give "
            "each readStream an .option('checkpointLocation', ...) of its own."
        )
    # `toTable` takes a table's name where `start` takes a path.
    target = (args[0] if args else kwargs.get("path")) if name == "start" else None
    for_spark, mirror = checkpoint_mirror.for_spark(self._spark, str(checkpoint))
    if for_spark != str(checkpoint):
        kwargs = _instead(self, kwargs, str(checkpoint), for_spark)
    _heal_checkpoint(self._df, str(checkpoint), mirror)
    if mirror is None and not tokens:
        return original(self, *args, **kwargs)
    locations = QueryLocations(
        str(checkpoint),
        None if target is None else str(target),
        None if mirror is None else str(mirror.folder),
    )
    return _handed_over(
        lambda: original(self, *args, **kwargs), (tokens or located)[0], locations, mirror
    )


def _heal_checkpoint(frame: DataFrame, checkpoint: str, mirror: CheckpointMirror | None) -> None:
    """Rebuild, or refuse by name, what of Spark's checkpoint a power failure has damaged.

    Where jobs have gone on since, bring it to where they are.
    """
    state = open_store(checkpoint)
    spark = state if mirror is None else open_store(str(mirror.folder))
    try:
        has_state = next(state.list("_source/plans/"), None) is not None
        sources = streaming_leaves(frame)
        checkpoint_healing.heal(spark, state if has_state else None, sources=sources)
        if has_state:
            go_on_after_jobs(spark, state, sources=sources)
    except BaseException:
        if mirror is not None:
            mirror.finish()
        raise


def _hand_partitions_over(writer: Any, name: str, kwargs: dict[str, Any]) -> None:
    """Spark does not tell a Python sink of partition columns: they become an option of it.

    Raises:
        OptionError: The table is to be clustered, or is given by its name in a catalog.
    """
    sink = str(kwargs.get("format") or _last(writer, "format") or "").lower()
    if sink not in _OUR_SINKS:
        return
    if name == "toTable":
        raise OptionError(
            f"The {sink} sink has no catalog, so it knows no table by name. Give the path of the "
            "table: .start('s3://bucket/tables/name')."
        )
    if any(call == "clusterBy" for call, _, _ in _calls(writer)):
        raise OptionError(
            f"The {sink} sink cannot write clustered tables. Leave out clusterBy, use partitionBy, "
            "or use Delta's own jars."
        )
    columns = kwargs.get("partitionBy") or _partition_columns(writer)
    if columns:
        given = [columns] if isinstance(columns, str) else columns
        writer._jwrite = writer._jwrite.option(PARTITION_BY, partition_option(given))  # noqa: SLF001


def _partition_columns(writer: Any) -> list[str]:
    """What the last `partitionBy` names; Spark takes names and lists of names."""
    calls = [args for name, args, _ in _calls(writer) if name == "partitionBy"]
    given = calls[-1] if calls else ()
    return [name for each in given for name in (each if isinstance(each, list | tuple) else [each])]


def _handed_over(
    start: Callable[[], Any],
    token: str,
    locations: QueryLocations,
    mirror: CheckpointMirror | None,
) -> Any:
    """Start a query, and wait until its planning process knows where its state is."""
    handoff.hand_over(token, locations)
    try:
        try:
            query = start()
        except BaseException:
            if mirror is not None:
                mirror.finish()
            raise
        if mirror is not None:
            checkpoint_mirror.follow(query, mirror)
        deadline = time.monotonic() + RECEIVE_SECONDS
        while not handoff.is_received(token) and query.isActive and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        handoff.withdraw(token)
    return query


def _defined_again(reader: Any, writer: Any, checkpoint: str) -> Any:
    """Define the DataFrame again with the checkpoint as its schema location, and start that.

    The documentation's third example has no schema location; with it the stream evolves over
    restarts like any other.
    """
    defining, call = reader
    defining.option("cloudFiles.schemaLocation", checkpoint)
    again = defining.load(**call).writeStream
    for call, call_args, call_kwargs in _calls(writer):
        getattr(again, call)(*call_args, **call_kwargs)
    return again


def _await(original: Callable[..., Any], _name: str, self: Any, args: Any, kwargs: Any) -> Any:
    """Raise the error that a task or the planning process raised, as itself."""
    try:
        try:
            return original(self, *args, **kwargs)
        finally:
            checkpoint_mirror.ended(self)
    except StreamingQueryException as error:
        ours = errors.from_text(str(error))
        if ours is None:
            raise
        raise as_query_exception(ours, error) from None
