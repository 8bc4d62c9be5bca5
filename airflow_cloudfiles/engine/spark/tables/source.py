"""Read and stream Delta tables without jars.

`spark.read.format("deltalake").load(path)` (and `format("delta")` where no Delta jar is): one
version of the table, its data files shared out over tasks. `delta.read` knows the table's log and
its files; a table with a feature that it does not support is refused by name.

Spark tells a Python source its options only. So for the sources `delta` and `deltalake`,

1. `readStream...load()` says that the read is a stream, and raises our errors as themselves;
2. `writeStream...start()` tells each of them where the checkpoint of the query is, which of its
   sources it is, and what Delta's SQL configurations allow (`handoff`). Where Spark cannot reach
   the checkpoint location, it gets a local one that is mirrored there (`checkpoint_mirror`);
3. `read...load()` passes on `spark.databricks.delta.checkLatestSchemaOnRead`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from airflow_cloudfiles.engine.batches.task_process import marking_errors
from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.spark import checkpoint_mirror, handoff
from airflow_cloudfiles.engine.spark.calls import raising_ours
from airflow_cloudfiles.engine.spark.data_source_api import DataSourceReader, InputPartition
from airflow_cloudfiles.engine.spark.tables.stream_reader import IS_STREAM, TOKEN
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import TablePart, shared_out
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog, requested_snapshot
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns
from airflow_cloudfiles.engine.tables.delta.stream.evolution import PREFIX, changes_between
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.tables.delta.read.snapshot import Snapshot

CHECK_CONF = "spark.databricks.delta.checkLatestSchemaOnRead"
"""SQL configuration: whether a table must not have changed since the DataFrame was created."""
CHECK_OPTION = "checkLatestSchemaOnRead"
"""The same, as an option of the reader."""
_WITH_PARTS = (ArrayType, DecimalType, MapType, StructType)


def version_to_read(target: str, options: Mapping[str, str]) -> Snapshot:
    """Open the version that a batch read asks for.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It needs a feature that is not supported.
    """
    return requested_snapshot(TableLog(DeltaLocation.to_read(target)), options)


@marking_errors
class DeltaTableReader(DataSourceReader):
    """Reads the version that is newest when the query is planned, unless the options name one.

    Args:
        target: The table.
        schema: The columns that Spark expects.
        options: As the user gave them.
        defined: The columns when the DataFrame was created, with Delta's notes; `None` where that
            is unknown.
    """

    def __init__(
        self,
        target: str,
        schema: StructType,
        options: Mapping[str, str] | None = None,
        defined: StructType | None = None,
    ) -> None:
        self._target = target
        self._schema = schema
        self._defined = defined
        self._options = {key.lower(): value for key, value in (options or {}).items()}

    def partitions(self) -> Sequence[InputPartition]:
        """Share the data files out, by their sizes."""
        snapshot = version_to_read(self._target, self._options)
        columns = TableColumns.of(snapshot)
        is_checked = self._options.get(CHECK_OPTION.lower(), "true").lower() != "false"
        if is_checked or columns.mode != "none":  # as Delta: a column may have another name by now
            self._refuse_change(columns)
        else:
            columns = _as_defined(columns, self._schema)
        return [InputPartition(part) for part in shared_out(columns, snapshot.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some files; columns a file lacks are null."""
        part: TablePart = partition.value
        yield from part.read(self._schema)

    def _refuse_change(self, columns: TableColumns) -> None:
        """Refuse a table whose columns are not those that the query was defined with.

        Raises:
            IncompatibleSchemaError: A column is gone, or has another type (B139), or is another one
                of the same name.
        """
        kinds = {each.name: each.dataType for each in columns.public_schema.fields}
        changes = []
        for each in self._schema.fields:
            if each.name not in kinds:
                changes.append(f"Latest schema is missing field: {each.name}")
            elif kinds[each.name] != each.dataType:
                changes.append(
                    f"Latest type for {each.name} is different from existing schema:\n"
                    f"Latest: {_typed(kinds[each.name])}\nExisting: {_typed(each.dataType)}"
                )
        if not changes and self._defined is not None:
            by_file = changes_between(self._defined, columns.schema)
            changes = [str(each) for each in by_file if not each.is_additive]
        if changes:
            way = (
                "This check can be turned off by setting the session configuration key "
                f"{CHECK_CONF} to false, before load(), or the reader option {CHECK_OPTION}."
            )
            raise IncompatibleSchemaError(
                f"The schema of your Delta table {self._target} has changed in an incompatible way "
                "since your DataFrame or DeltaTable object was created. Please redefine your "
                "DataFrame or DeltaTable object.\nChanges:\n"
                + "\n".join([*changes, *([way] if columns.mode == "none" else [])])
            )


def _typed(kind: DataType) -> str:
    """Format a type as Delta shows it: `integer`, and JSON where it has parts."""
    return short_type(kind) if isinstance(kind, _WITH_PARTS) else kind.typeName()


def _as_defined(columns: TableColumns, schema: StructType) -> TableColumns:
    """Build the columns of a DataFrame, found in the files of the table as it is now.

    A column that the table does not have any more is null.
    """
    now = {each.name: each for each in columns.schema.fields}
    fields = [
        StructField(
            each.name, each.dataType, metadata=now[each.name].metadata if each.name in now else {}
        )
        for each in schema.fields
    ]
    return replace(columns, schema=StructType(fields))


def load_stream(original: Callable[..., Any], reader: Any, call: dict[str, Any]) -> Any:
    """`DataStreamReader.load` of a Delta table.

    Args:
        original: PySpark's own method.
        reader: The reader.
        call: The arguments of the call.
    """
    reader.option(IS_STREAM, "true").option(TOKEN, handoff.new_token())
    with raising_ours():
        frame = original(reader, **call)
        # Spark resolves the source only when it is asked for the schema.
        frame.schema  # noqa: B018
    return frame


def load_batch(original: Callable[..., Any], reader: Any, args: Any, kwargs: Any) -> Any:
    """`DataFrameReader.load` of a Delta table."""
    check = reader._spark.conf.get(CHECK_CONF, None)  # noqa: SLF001
    if check is not None:
        reader.option(CHECK_OPTION, check)
    with raising_ours():
        return original(reader, *args, **kwargs)


def started(
    start: Callable[[str | None], Any],
    spark: Any,
    leaves: list[dict[str, str]],
    checkpoint: str | None,
) -> Any:
    """Start a query, and wait until its Delta sources know where its state is.

    Args:
        start: Starts it, with a folder in place of the checkpoint location if one is given.
        spark: The session.
        leaves: The options of its streaming sources, in their order.
        checkpoint: Its checkpoint location, if it is known.
    """
    tokens = list(_tokens(leaves))
    if not tokens or checkpoint is None:
        return start(None)
    # A source of files publishes the checkpoint itself.
    only_ours = len(tokens) == len(leaves)
    for_spark, mirror = (
        checkpoint_mirror.for_spark(spark, checkpoint) if only_ours else (checkpoint, None)
    )
    settings = {
        key: value
        for key, value in spark.conf.getAll.items()
        if key.lower().startswith(PREFIX.lower())
    }
    place = {
        "checkpoint": checkpoint,
        "settings": settings,
        "mirror": None if mirror is None else str(mirror.folder),
    }
    return checkpoint_mirror.start_handing_over(
        partial(start, for_spark if for_spark != checkpoint else None),
        {token: {**place, "ordinal": ordinal} for token, ordinal in tokens},
        mirror,
    )


def _tokens(leaves: list[dict[str, str]]) -> Iterator[tuple[str, int]]:
    """Yield the sources that track schemas, and their numbers; a frame used twice is one."""
    seen: list[str] = []
    for place, options in enumerate(leaves):
        token = options.get(TOKEN.lower())
        name = token or f"source {place}"
        if name not in seen:
            seen.append(name)
            if token:
                yield token, len(seen) - 1
