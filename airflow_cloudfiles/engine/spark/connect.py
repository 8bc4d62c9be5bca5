"""Teach a Spark Connect session `format("cloudFiles")`.

A session of Spark Connect is a client: what a query reads and writes is a message that it sends to
the server. `register` puts the same few things around it as around a session with a JVM
(`register`), but has them done by the server's Python:

1. `load()` checks the options, completes a given schema, and raises our errors as themselves, also
   that of a batch.
2. `start()` completes the message: a `cloudFiles` source without a
   `checkpointLocation` gets the query's, and a target below the source is left out of it.
3. `awaitTermination()` raises `UnknownFieldException` and the others by class and message.
4. Each source carries the version of this package, so that another one on the server is an error
   that says so (`client_version`).

Source, state and target are the server's: a path is one of its file system.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.connect_tasks import parallelism_of, start_query
from airflow_cloudfiles.engine.batches.task_process import CLIENT_VERSION, explained, marking
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.spark.calls import not_clustered, require_places, wrap
from airflow_cloudfiles.engine.spark.messages import as_query_exception
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import completed, zone_warning
from airflow_cloudfiles.version import __version__

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FORMAT = "cloudfiles"
_OUR_SINKS = {"deltalake", "pyiceberg"}
_CHECKPOINT = "checkpointLocation"
_PARALLELISM = "cloudFiles.internal.parallelism"
_EXCLUDE = "cloudFiles.internal.exclude"
_CASE_SENSITIVE = "cloudFiles.internal.caseSensitive"
_IS_BATCH = "cloudFiles.internal.isBatch"
_IN_A_PIPELINE = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
_log = logging.getLogger(__name__)


@functools.cache
def wrap_connect(sample_confs: tuple[tuple[str, str], ...]) -> None:
    """Wrap the classes of PySpark's Connect client once a process.

    Args:
        sample_confs: SQL configurations, each with the option of the source that it stands for.
    """
    from pyspark.sql.connect.plan import WriteStreamOperation  # noqa: PLC0415
    from pyspark.sql.connect.readwriter import DataFrameReader  # noqa: PLC0415
    from pyspark.sql.connect.streaming.query import StreamingQuery  # noqa: PLC0415
    from pyspark.sql.connect.streaming.readwriter import (  # noqa: PLC0415
        DataStreamReader,
        DataStreamWriter,
    )

    wrap(DataStreamReader, "load", functools.partial(_load, dict(sample_confs), {}))
    batch = {_IS_BATCH: "true"}
    wrap(DataFrameReader, "load", functools.partial(_load, dict(sample_confs), batch))
    wrap(DataStreamWriter, "foreachBatch", _foreach_batch)
    wrap(DataStreamWriter, "start", _start)
    wrap(DataStreamWriter, "toTable", _start)
    wrap(WriteStreamOperation, "command", _complete)
    wrap(StreamingQuery, "awaitTermination", _translated)
    wrap(StreamingQuery, "processAllAvailable", _translated)


def _load(  # noqa: PLR0913, PLR0917 - Spark's arguments
    sample_confs: Mapping[str, str],
    of_kind: Mapping[str, str],
    original: Callable[..., Any],
    self: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    schema: Any = None,
    **options: Any,
) -> Any:
    """`load` of a stream or a batch of `cloudFiles`; other formats pass through."""
    source = format or self._format
    if not isinstance(source, str) or source.lower() != _FORMAT:
        return original(self, path, format, schema, **options)
    self.options(**options)
    if schema is not None:
        self.schema(schema)
    set_before = dict(self._options)
    in_lower = {key.lower(): value for key, value in set_before.items()}
    where = path or in_lower.get("path")
    parsed = CloudFilesOptions.parse(
        set_before, has_schema=bool(self._schema), path=where and str(where)
    )
    if of_kind:
        parsed.check_batch()
    if self._schema:
        self.schema(completed(_given(self), parsed))
    confs: Mapping[str, str] = self._client.conf.getAll
    more = {
        **{option: confs.get(conf) for conf, option in sample_confs.items()},
        _PARALLELISM: parallelism_of(confs),
        _CASE_SENSITIVE: confs.get("spark.sql.caseSensitive"),
        CLIENT_VERSION: __version__,
        **of_kind,
    }
    for option, value in more.items():
        if value is not None and option.lower() not in in_lower:
            self.option(option, value)
    frame = original(self, path, format)
    _check(frame, self._client, parsed, is_batch=bool(of_kind))
    return frame


def _given(reader: Any) -> StructType:
    """Parse the schema that a reader was given, which it keeps as text."""
    text: str = reader._schema  # noqa: SLF001 - there is no public way
    if text.lstrip().startswith("{"):
        return StructType.fromJson(json.loads(text))
    try:
        found = reader._client._parse_ddl(text)  # noqa: SLF001 - as Spark's own `fromDDL`
    except PySparkException as error:
        if error.getCondition() != _IN_A_PIPELINE:
            raise
        found = parse_schema(text)  # the server parses nothing while flows are defined
    if not isinstance(found, StructType):
        raise OptionError(f"The schema of a stream must be columns, got {text!r}.")
    return found


def _check(frame: Any, session: Any, options: CloudFilesOptions, *, is_batch: bool) -> None:
    """Have the server resolve the source now, as a session with a JVM does."""
    try:
        warning = zone_warning(frame.schema, options, session.conf.get(SESSION_ZONE, None))
    except PySparkException as error:
        if error.getCondition() == _IN_A_PIPELINE:
            # Spark resolves the flows of a declarative pipeline together, later.
            if not is_batch:
                _require_checkpoint(options)
            return
        raise _as_ours(error, session) from None
    if warning is not None:
        _log.warning("%s", warning)


def _require_checkpoint(options: CloudFilesOptions) -> None:
    """Refuse what would fail when the pipeline runs: sources do not learn its checkpoints."""
    if options.checkpoint_location is None:
        raise OptionError(
            "A cloudFiles source in a declarative pipeline needs .option('checkpointLocation', "
            "...) on readStream: it records there which files it has read. Give each source a "
            "location of its own, outside of the pipeline's storage."
        )


def _foreach_batch(original: Callable[..., Any], self: Any, func: Any) -> Any:
    """Wrap the function: it runs on the server, which passes on the text of its errors."""
    return original(self, marking(func))


def _start(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """`start` and `toTable`, again where the server's Python starts too slowly."""
    return start_query(lambda: _translated(original, self, *args, **kwargs))


def _translated(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Raise the error that a task or the planning process raised, as itself."""
    try:
        return original(self, *args, **kwargs)
    except PySparkException as error:
        raise _as_ours(error, self._session) from None


def _as_ours(error: PySparkException, session: Any) -> Exception:
    """Return an error of ours in place of Spark's, where there is one in it; else Spark's own."""
    text = str(error)
    ours = errors.from_text(text) or explained(text, str(session.client.host))
    if ours is None:
        return error
    return as_query_exception(ours, error) if isinstance(error, StreamingQueryException) else ours


def _complete(original: Callable[..., Any], self: Any, session: Any) -> Any:
    """`WriteStreamOperation.command`: give the sources what the query knows."""
    command = original(self, session)
    query = command.write_stream_operation_start
    sources = list(_sources(query.input))
    _hand_partitions_over(query)
    if sources:
        _inform(query, sources)
    checkpoint = _find(query.options, _CHECKPOINT)
    if checkpoint and len(sources) == 1 and query.format.lower() in _OUR_SINKS:
        from airflow_cloudfiles.engine.spark import connect_plan  # noqa: PLC0415

        matcher = NameMatcher(_find(sources[0].options, _CASE_SENSITIVE) == "true")
        connect_plan.write_directly(query, sources[0], checkpoint, session, matcher)
    return command


def _inform(query: Any, sources: list[Any]) -> None:
    """Give the sources of a query its checkpoint location, and its target."""
    checkpoint = _find(query.options, _CHECKPOINT)
    without = [source for source in sources if not _find(source.options, _CHECKPOINT)]
    require_places(without, checkpoint)
    for source in without:
        source.options[_CHECKPOINT] = checkpoint
    for source in sources if query.path else ():
        source.options[_EXCLUDE] = query.path


def _find(options: Mapping[str, str], name: str) -> str | None:
    """Find an option; Spark takes names in any case."""
    return next((options[key] for key in options if key.lower() == name.lower()), None)


def _hand_partitions_over(query: Any) -> None:
    """Spark does not tell a Python sink of partition columns: they become an option of it."""
    if query.format.lower() not in _OUR_SINKS:
        return
    if query.clustering_column_names:
        raise not_clustered(query.format)
    names = list(query.partitioning_column_names)
    if names:
        query.options[PARTITION_BY] = partition_option(names)
        del query.partitioning_column_names[:]


def _sources(message: Message) -> Iterator[Any]:
    """Yield the streams of `cloudFiles` in a plan, wherever they are in it."""
    if message.DESCRIPTOR.name == "DataSource":
        source: Any = message
        if source.format.lower() == _FORMAT and not _find(source.options, _IS_BATCH):
            yield source
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else (value,):
            yield from _sources(each)
