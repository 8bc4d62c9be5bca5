"""How are data files of a table replaced by others?

1. A file is read batch by batch, as the columns the table has by now.
2. What becomes of the rows is written to new files, which no reader sees yet.
3. One commit removes the old files and adds the new ones, unless another writer has removed one of
   the old, or changed the columns: then the commit fails, and the rewriter reads the table again.

Memory holds a batch, and in a cloud the file that is being written, never a table. Killed at
any point, this leaves the table as it was, or as it was to be; files of no version go with
the table's vacuum.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction
from pyspark.sql.types import StructType  # noqa: TC002 - read when the module is

from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import DataFile, DataFileWriter, FileSettings
from airflow_cloudfiles.engine.delta.durability import durable_commit
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.paths import decoded
from airflow_cloudfiles.engine.delta.schema import refuse_features, schema_of
from airflow_cloudfiles.engine.delta.variant import as_read
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from pyarrow.dataset import ParquetFileFragment

BATCH_ROWS = 64 * 1024
"""Rows that are in memory at once."""
REPLACE_TRIES = 20
"""How often a commit is tried at the newest version while others append."""
_NULLS = "null_count."
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._/=-]+")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a version of a table has.

    Attributes:
        name: Its path in the table's folder, as the table's log has it.
        size: Its bytes.
        nulls: How many nulls each column has, as far as the log has it.
        rows: How many rows, if the log has it.
        partition_values: Of all its rows, as the log has them.
    """

    name: str
    size: int
    rows: int | None
    nulls: dict[str, int]
    partition_values: tuple[tuple[str, str | None], ...] = ()

    def has_only_nulls(self, column: str) -> bool:
        """Whether, by the log, a column has no value in this file."""
        return self.rows is not None and self.nulls.get(column) == self.rows


class TableSnapshot:
    """One version of a table, whose files can be read and replaced.

    Args:
        table: The table, loaded.
        location: Where it is.

    Attributes:
        files: Its data files by name.
        columns: Its columns.
        schema: Those that are in its files, in Arrow.
        takes_partitions: Whether tables with partitions are taken.
        takes_mapping: Whether tables with column mapping are taken.

    Raises:
        SinkError: The table has rules or features with which a file cannot be replaced here.
    """

    takes_partitions: ClassVar[bool] = False
    takes_mapping: ClassVar[bool] = False

    def __init__(self, table: DeltaTable, location: DeltaLocation) -> None:
        self.table = table
        self.location = location
        self.refuse_rules()
        self.columns: StructType = schema_of(table)
        self.schema: pa.Schema = to_arrow(self.columns)
        self.files: dict[str, TableFile] = self._read_files()

    def _read_files(self) -> dict[str, TableFile]:
        with self.location.translate_errors("cannot be read"):
            self._paths = {str(each.path).lstrip("/"): each for each in fragments_of(self.table)}
            listed = _listed(self.table)
        found = {each["path"]: _table_file(each) for each in listed}
        self._refuse_names(found)
        return found

    def batches(
        self,
        file: TableFile,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read a file; columns that it lacks, also inside structs, are null.

        Args:
            file: One of this version's files.
            columns: Only these, in the table's order; `None` for all.
            schema: Read it as a table with these columns would; `None` for the table's own.

        Raises:
            SinkError: The file is damaged, or gone.
            TargetUnreachableError: Its storage failed.
        """
        wanted = pa.schema(
            [each for each in schema or self.schema if columns is None or each.name in columns]
        )
        try:
            with self.location.translate_errors(f"has a file that cannot be read ({file.name})"):
                yield from self._read(file, wanted)
        except pa.ArrowException as error:
            raise SinkError(
                f"The file {file.name} of the Delta table {self.location.target} cannot be read: "
                f"{error}. Restore it, or the table to an earlier version."
            ) from error

    def _read(self, file: TableFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._opened(file) as source:
            parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            there = [name for name in wanted.names if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=there):
                arrays = [
                    as_read(batch.column(each.name), each, self.location.target)
                    if each.name in there
                    else pa.nulls(batch.num_rows, each.type)
                    for each in wanted
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    def write(self, rows: Iterable[pa.RecordBatch], settings: FileSettings) -> list[DataFile]:
        """Write rows of these columns to data files nobody sees yet.

        Args:
            rows: The rows.
            settings: What the files are to be like; with the partition that all rows are of.

        Raises:
            TargetUnreachableError: The storage failed.
        """
        return DataFileWriter(self.location.target, self.schema, settings).write(rows)

    @contextmanager
    def _opened(self, file: TableFile) -> Iterator[IO[bytes] | pa.NativeFile]:
        """The content of a file, seekable."""
        fragment = self._paths[file.name]
        with fragment.filesystem.open_input_file(fragment.path) as source:
            yield source

    def refuse_rules(self) -> None:
        """Refuse tables whose files must stay, or whose files hold rows that are deleted.

        Raises:
            SinkError: The table is such a one by now.
        """
        target = self.location.target
        refuse_features(
            self.table,
            target,
            takes_partitions=self.takes_partitions,
            takes_mapping=self.takes_mapping,
        )
        if self.table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
            raise SinkError(
                f"{target} has delta.appendOnly=true: its rows must not change. Set it to false, "
                "or choose another target."
            )
        if "deletionVectors" in (self.table.protocol().reader_features or []):
            raise SinkError(
                f"{target} has deletion vectors, which are not read here. Remove them with "
                "REORG TABLE ... APPLY (PURGE) and ALTER TABLE ... DROP FEATURE deletionVectors."
            )

    def _refuse_names(self, names: Iterable[str]) -> None:
        """Refuse names that are not what the log writes.

        `deltalake` (1.6), asked to remove `a%20b`, removes `a%2520b`, and its rows are there twice.
        """
        odd = next((name for name in names if not _PLAIN_NAME.fullmatch(name)), None)
        if odd is not None:
            raise SinkError(
                f"{self.location.target} has a data file whose name is not of the form "
                f"part-....parquet ({odd}), so its files are not replaced here. Rewrite the table "
                "once, for instance with OPTIMIZE."
            )

    def require_unchanged(self, files: Iterable[TableFile]) -> None:
        """Look at the newest version: files can be replaced only while it has them.

        Raises:
            CommitFailedError: Another writer has removed one, or changed the columns.
            SinkError: The table has rules by now with which they cannot be replaced.
        """
        self.table.update_incremental()
        self.refuse_rules()  # a deleted row of an old file would come back
        there = names_of(self.table)
        is_gone = any(decoded(each.name) not in there for each in files)
        if is_gone or schema_of(self.table) != self.columns:
            raise CommitFailedError("another writer has removed a file, or changed the columns")


def replace(
    snapshot: TableSnapshot,
    removed: Iterable[TableFile],
    added: Iterable[DataFile],
    note: dict[str, Any],
    *,
    data_change: bool = True,
) -> None:
    """Commit new files in the place of old ones; the columns stay.

    The commit is tried at the newest version only, after a look at its files: `deltalake` (1.6),
    left to try again by itself, removes a file a second time that was compacted meanwhile, and so
    doubles its rows.

    Args:
        snapshot: The version that the old files were read in.
        removed: The old files.
        added: The new files.
        note: Goes into the commit's own metadata; under keys of this package.
        data_change: Whether rows change; otherwise streams that read the table skip the commit.

    Raises:
        CommitFailedError: Another writer has removed an old file, or changed the columns, or was
            first each time. The commit may be there nevertheless, when its answer was lost: look
            at the files.
        DataFileLostError: A new file vanished meanwhile; nothing was committed.
        TargetUnreachableError: The storage failed; the commit may be there or not.
    """
    table = snapshot.table
    old, new = list(removed), list(added)
    data_files.require(snapshot.location, new)
    now_ms = time.time_ns() // 10**6
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(each.name, data_change, now_ms, each.size, {}) for each in old),
        *(add_action(each, data_change=data_change) for each in new),
    ]
    for left in reversed(range(REPLACE_TRIES)):
        with durable_commit(snapshot.location, "may not have taken a commit", table) as hooks:
            snapshot.require_unchanged(old)
            try:
                table.create_write_transaction(
                    actions=actions,
                    mode="append",
                    schema=table.schema(),
                    commit_properties=CommitProperties(custom_metadata=note, max_commit_retries=0),
                    post_commithook_properties=hooks,
                )
            except CommitFailedError:
                if not left:
                    raise
            else:
                return


def replace_all(
    snapshot: TableSnapshot, schema: Schema, added: Iterable[DataFile], note: dict[str, Any]
) -> None:
    """Commit new files, with other columns, in the place of all old ones.

    Nothing else may have been committed since the version that was read: `deltalake` (1.6) would
    let rows of the old columns stay beside the new ones, if it were to try again by itself.

    Raises:
        CommitFailedError: Another writer was first. As for `replace`.
        DataFileLostError: As for `replace`.
        TargetUnreachableError: As for `replace`.
    """
    new = list(added)
    data_files.require(snapshot.location, new)
    what = "may not have taken a commit"
    with durable_commit(snapshot.location, what, snapshot.table) as hooks:
        snapshot.table.create_write_transaction(
            actions=[add_action(each) for each in new],
            mode="overwrite",
            schema=schema,
            commit_properties=CommitProperties(custom_metadata=note, max_commit_retries=0),
            post_commithook_properties=hooks,
        )


def add_action(file: DataFile, *, data_change: bool = True) -> AddAction:
    """A data file, as a commit adds it."""
    return AddAction(
        path=file.name,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=file.modification_time_ms,
        data_change=data_change,
        stats=file.statistics,
    )


def names_of(table: DeltaTable) -> set[str]:
    """Names of the data files of a version: as the log has them, and as they are on the storage."""
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    return {*paths, *map(decoded, paths)}


def fragments_of(table: DeltaTable) -> list[ParquetFileFragment]:
    """The data files of a version, without their bounds.

    `deltalake` would make a Python value of each bound of each column it is given, and fails where
    another writer has noted a date that Python has not. Only values of partition columns are not
    in the files themselves.
    """
    names = table.metadata().partition_columns
    whole = pa.schema(table.schema().to_arrow())
    only = pa.schema([whole.field(name) for name in names])
    return list(table.to_pyarrow_dataset(schema=only).get_fragments())


def _listed(table: DeltaTable) -> list[dict[str, Any]]:
    """The data files as the log lists them, without bounds: Python has not all of their dates."""
    actions = pa.table(table.get_add_actions(flatten=True))
    wanted = ("path", "size_bytes", "num_records")
    names = enumerate(actions.column_names)  # two columns may have one name
    places = [place for place, each in names if each in wanted or each.startswith(_NULLS)]
    return actions.select(places).to_pylist()  # type: ignore[no-any-return]


def _table_file(action: dict[str, Any]) -> TableFile:
    nulls = {
        key.removeprefix(_NULLS): value
        for key, value in action.items()
        if key.startswith(_NULLS) and value is not None
    }
    return TableFile(action["path"], action["size_bytes"], action["num_records"], nulls)
