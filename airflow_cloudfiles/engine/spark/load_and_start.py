"""Have PySpark's `load()`, `start()` and `awaitTermination()` do what its data sources cannot.

`register` adds the data source and the sinks of Delta and Iceberg, and five small things around
PySpark's own reader and writer that Spark's Python data sources cannot do by themselves:

1. `load()` raises our errors as themselves, not as a Java stack trace, and infers the first schema
   version itself, with Spark's help when the sample is large.
2. `load()` adds the rescued data column to a given schema in the modes that rescue what does not
   fit, and passes on the sample limits that Databricks keeps in SQL configurations.
3. `start()` tells the source the query's `checkpointLocation` (see `handoff`), and where no
   `cloudFiles.schemaLocation` is given lets the checkpoint serve as one. Where Spark cannot reach
   the location, it gets a local one that is mirrored there (see `checkpoint_mirror`). A checkpoint
   that a power failure has damaged is rebuilt first (see `checkpoint_healing`), and one that jobs
   have gone past is brought to where they are (the same module).
4. For the Delta source, see `tables.source`.
5. `awaitTermination()` raises `UnknownFieldException` (which is then also a
   `StreamingQueryException`) instead of a text that contains the word.

Other formats are not touched.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.task_process import marking
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.intake.opening import named_locations
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import PARTITION_BY
from airflow_cloudfiles.engine.spark import (
    checkpoint_healing,
    checkpoint_mirror,
    connect,
    handoff,
)
from airflow_cloudfiles.engine.spark.calls import (
    as_typed,
    calls_of,
    last_argument,
    options_of,
    partition_of,
    query_options,
    raising_ours,
    remember,
    require_one_folder,
    require_places,
    sink_of,
    wrap,
    wrap_save,
)
from airflow_cloudfiles.engine.spark.checkpoint_healing import go_on_after_jobs
from airflow_cloudfiles.engine.spark.direct_write import (
    STATE_HANDOFF,
    DirectDataSource,
    DirectQueries,
    streaming_leaves,
    streaming_options,
    tokens_of,
)
from airflow_cloudfiles.engine.spark.messages import (
    as_query_exception,
    quiet_log,
    show_metrics,
    warn,
)
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import completed, parsed, zone_warning
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.spark.state_source import CloudFilesStateDataSource
from airflow_cloudfiles.engine.spark.tables import source as tables
from airflow_cloudfiles.engine.spark.tables.sink import STATE as SINK_STATE
from airflow_cloudfiles.engine.spark.tables.sink import (
    DeltaDataSource,
    DeltaLakeDataSource,
    IcebergDataSource,
)
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.locations import QueryLocations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

    from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror

_CHECKPOINT = "checkpointlocation"
_INFERRED = "cloudFiles.internal.inferred"
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
_SOURCES = (
    CloudFilesDataSource,
    CloudFilesStateDataSource,
    DirectDataSource,
    DeltaLakeDataSource,
    IcebergDataSource,
)
_OUR_SINKS = {DeltaLakeDataSource.name(), IcebergDataSource.name()}
_FOUND_BY_SPARK = "pyspark_cloudfiles"
_SETTER = "dataSourceBuilders_$eq"
"""Of what Spark found."""
_PROFILER = "spark.sql.pyspark.dataSource.profiler"
_DELTA_JAR_CLASS = "io/delta/sql/DeltaSparkSessionExtension.class"
_DIRECT = DirectQueries()
_log = logging.getLogger(__name__)


def register_with_connect(spark: SparkSession) -> None:
    """Make the data sources known to a session of Spark Connect.

    Args:
        spark: One whose server has this package on its Python.
    """
    show_metrics()
    _register(spark, *_SOURCES)
    connect.wrap_connect(tuple(SAMPLE_CONFS.items()))


def register_with_jvm(spark: SparkSession, *, is_this_python: bool) -> None:
    """Make the data sources known to the active session of this process.

    Args:
        spark: The session.
        is_this_python: Whether Spark's Python processes run the Python of this one.
    """
    show_metrics()
    quiet_log(spark)
    lookup = _without_lookup(spark) if is_this_python else contextlib.nullcontext()
    with _without_accumulator(spark), lookup:
        _register(spark, *_SOURCES)
        if not _has_delta_jar(spark):
            _register(spark, DeltaDataSource)
            _OUR_SINKS.add(DeltaDataSource.name())
    _wrap_pyspark()


def _register(spark: SparkSession, *sources: type[DataSource]) -> None:
    for each in sources:
        spark.dataSource.register(each)


@contextlib.contextmanager
def _without_accumulator(spark: SparkSession) -> Iterator[None]:
    """Give the sources no accumulator, as Spark gives those of Connect none.

    They count nothing with it. Of what has one, each task sends its updates to this process, and
    `spark.stop()` waits up to a second for the connection. A profiler needs it.
    """
    context: Any = spark.sparkContext
    before = context._javaAccumulator  # noqa: SLF001
    if spark.conf.get(_PROFILER, None) is None:
        context._javaAccumulator = None  # noqa: SLF001
    try:
        yield
    finally:
        context._javaAccumulator = before  # noqa: SLF001


@contextlib.contextmanager
def _without_lookup(spark: SparkSession) -> Iterator[None]:
    """Spare Spark two Python processes that look for sources in modules named `pyspark_*`.

    They take two seconds and 70 MB. Where no other package brings such a module, each session finds
    what is registered meanwhile, as it would find what they return.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    package = jvm.org.apache.spark.sql.execution.datasources
    sources = getattr(getattr(package, "DataSourceManager$"), "MODULE$")
    named = {each for folder in sys.path for each in _named_for_spark(Path(folder))}
    # Spark has it for its tests: another version may have none.
    has_setter = any(each.getName() == _SETTER for each in sources.getClass().getMethods())
    if named - {_FOUND_BY_SPARK} or not has_setter or sources.dataSourceBuilders().isDefined():
        yield
        return
    found: dict[str, Any] = {}
    getattr(sources, _SETTER)(jvm.scala.Some(jvm.PythonUtils.toScalaMap(found)))
    yield
    name = CloudFilesDataSource.name().lower()
    manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    found[name] = manager.lookupDataSource(name)
    getattr(sources, _SETTER)(jvm.scala.Some(jvm.PythonUtils.toScalaMap(found)))


def _named_for_spark(folder: Path) -> set[str]:
    """Name the modules in a folder of `sys.path` that Spark looks for sources in."""
    if folder.is_dir():  # `iter_modules` would list the folders of all other packages, too
        names = [each.partition(".")[0] for each in os.listdir(folder) if "-info" not in each]  # noqa: PTH208 - names
    else:
        names = [each.name for each in pkgutil.iter_modules([str(folder)])]
    return {each for each in names if each.startswith("pyspark_")}


def _has_delta_jar(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(_DELTA_JAR_CLASS) is not None


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
        wrap(DataStreamReader, name, remember)
        wrap(DataFrameReader, name, remember)
    wrap(DataStreamReader, "load", _load)
    wrap(DataFrameReader, "load", _load_batch)
    for name in _WRITER_CALLS:
        if hasattr(DataStreamWriter, name):
            wrap(DataStreamWriter, name, remember)
    wrap(DataStreamWriter, "foreachBatch", _foreach_batch)
    wrap(DataStreamWriter, "start", _start)
    wrap(DataStreamWriter, "toTable", _start)
    wrap(StreamingQuery, "awaitTermination", _await)
    wrap(StreamingQuery, "processAllAvailable", _await)
    wrap_save(_OUR_SINKS)


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


def _foreach_batch(original: Callable[..., Any], self: Any, func: Callable[..., Any]) -> Any:
    """Wrap the function: it runs in a callback of the JVM, which passes on its errors as text."""
    return remember(original, self, marking(func))


def _load(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """`DataStreamReader.load` for `cloudFiles`; other formats pass through."""
    call = dict(zip(_LOAD, args, strict=False)) | kwargs
    source = call.get("format") or last_argument(self, "format")
    if isinstance(source, str) and source.lower() in _OUR_SINKS:
        return tables.load_stream(original, self, call)
    if not isinstance(source, str) or source.lower() != "cloudfiles":
        return original(self, *args, **kwargs)
    options = _completed(self, call)
    location = options.schema_location or options.checkpoint_location
    if not options.has_schema:
        given = {key: value for key, value in call.items() if key not in _LOAD}
        _infer_first(self, given, options.path, has_log=location is not None)
    token = handoff.new_token()
    self.option(STATE_HANDOFF, token)
    frame = _defined(original, self, call, options)
    if location is None and not options.has_schema:
        # Only this very frame, not one derived from it, can be defined again in `_start`.
        frame._cloudfiles_reader = (self, call)  # noqa: SLF001
    else:
        _DIRECT.defined(token, is_given=options.has_schema)
    return frame


def _completed(reader: Any, call: dict[str, Any]) -> CloudFilesOptions:
    """Give a reader of files what only its session knows; a schema goes from the call to it."""
    schema = call.pop("schema", None) or last_argument(reader, "schema")
    set_before = options_of(reader, {key: value for key, value in call.items() if key not in _LOAD})
    path = call.get("path") or set_before.get("path")
    options = CloudFilesOptions.parse(
        as_typed(reader, set_before), has_schema=schema is not None, path=path and str(path)
    )
    named = (options.path, *named_locations(options))
    require_one_folder(reader._spark, named)  # noqa: SLF001
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


def _load_batch(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """`DataFrameReader.load`; formats that are not ours pass through."""
    call = dict(zip(_LOAD, args, strict=False)) | kwargs
    source = call.get("format") or last_argument(self, "format")
    if isinstance(source, str) and source.lower() in _OUR_SINKS:
        return tables.load_batch(original, self, args, kwargs)
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
    with raising_ours():
        frame = original(reader, **call)
        # Spark resolves the source only when it is asked for the schema.
        warning = zone_warning(frame.schema, options, reader._spark.conf.get(SESSION_ZONE, None))  # noqa: SLF001
    if warning is not None:
        _log.warning("%s", warning)
    return frame


def _infer_first(reader: Any, given: dict[str, Any], path: str, *, has_log: bool) -> None:
    """Infer the schema here, where an error needs no way through the JVM.

    The source, which runs in a process of its own without a session, then finds it in the schema
    log; where there is none yet, in an option, as the query does that writes the log.
    """
    from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

    options = CloudFilesOptions.parse(options_of(reader, given), path=path)
    options.check_query()
    if has_log:
        definition.resolve_schema(options)
    else:
        reader.option(_INFERRED, definition.infer(replace(options, inferred=None)).to_json())


def _start(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """`DataStreamWriter.start` and `toTable`: hand the checkpoint location over to the sources."""
    is_ours = sink_of(self, kwargs) in _OUR_SINKS
    if is_ours:
        named = query_options(self, kwargs)
        target = args[0] if args else kwargs.get("path", named.get("path"))
        places = [target] if original.__name__ == "start" else []  # `toTable` takes a name
        require_one_folder(self._spark, [*places, named.get(_CHECKPOINT)])
    partition_by = partition_of(self, original.__name__, kwargs) if is_ours else None
    direct = _direct(self, args, kwargs, partition_by) if is_ours else None
    if direct is not None:
        own = {"format", "partitionBy"}
        given = {key: value for key, value in kwargs.items() if key not in own}
        return direct.start(*args, **given)
    if partition_by is not None:
        self._jwrite = self._jwrite.option(PARTITION_BY, partition_by)
    checkpoint = options_of(self, kwargs).get(_CHECKPOINT)

    def start(mirrored: str | None) -> Any:
        given = kwargs if mirrored is None else _instead(self, kwargs, str(checkpoint), mirrored)
        return _start_query(original, self, args, given)

    leaves = streaming_options(self._df)
    return tables.started(
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


def _start_query(original: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
    tokens, located = tokens_of(self._df)
    if not tokens and not located:
        return original(self, *args, **kwargs)
    options = query_options(self, kwargs)
    warn(self, sink_of(self, kwargs), options)
    checkpoint = options.get(_CHECKPOINT)
    if not tokens and not checkpoint:
        return original(self, *args, **kwargs)
    require_places(tokens, checkpoint)
    require_one_folder(self._spark, [checkpoint])
    reader = getattr(self._df, "_cloudfiles_reader", None)
    if reader is not None and tokens:
        again = _defined_again(reader, self, str(checkpoint))
        return getattr(again, original.__name__)(*args, **kwargs)
    # `toTable` takes a table's name where `start` takes a path.
    is_path = original.__name__ == "start"
    target = (args[0] if args else kwargs.get("path")) if is_path else None
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
    handed = {(tokens or located)[0]: asdict(locations)}
    start = functools.partial(original, self, *args, **kwargs)
    return checkpoint_mirror.start_handing_over(start, handed, mirror)


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


def _direct(writer: Any, args: Any, kwargs: dict[str, Any], partition_by: str | None) -> Any:
    """Build the writer of a query whose tasks write what they read, where this may be one."""
    mode = str(kwargs.get("outputMode") or last_argument(writer, "outputMode") or "append")
    is_defined_later = hasattr(writer._df, "_cloudfiles_reader")  # noqa: SLF001
    if mode.lower() != "append" or is_defined_later or len(args) > 1:
        return None
    options = query_options(writer, kwargs)
    target = (args[0] if args else kwargs.get("path")) or options.get("path")
    if partition_by is not None:
        options[PARTITION_BY.lower()] = partition_by
    return (
        None
        if target is None
        else _DIRECT.instead_of(writer, sink_of(writer, kwargs), str(target), options)
    )


def _defined_again(reader: Any, writer: Any, checkpoint: str) -> Any:
    """Define the DataFrame again with the checkpoint as its schema location, and start that.

    The documentation's third example has no schema location; with it the stream evolves over
    restarts like any other.
    """
    defining, call = reader
    defining.option("cloudFiles.schemaLocation", checkpoint)
    again = defining.load(**call).writeStream
    for call, call_args, call_kwargs in calls_of(writer):
        getattr(again, call)(*call_args, **call_kwargs)
    return again


def _await(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Raise the error that a task or the planning process raised, as itself."""
    try:
        try:
            return original(self, *args, **kwargs)
        finally:
            checkpoint_mirror.ended(self)
    except StreamingQueryException as error:
        # Delta's sink says only that a task failed; why, the stack of Java has.
        stack = getattr(error, "_stackTrace", None) or ""
        ours = errors.from_text(str(error)) or errors.from_text(stack)
        if ours is None:
            raise
        raise as_query_exception(ours, error) from None
