"""Keep rows that violate a rule in a Delta table beside the target, and bring them back.

The quarantine table has the columns of the rows, in their types, and behind them what is known of
each: which rules it violates, its file, when it was put aside, and an id. It is partitioned by the
stream, the batch, and the release of which the row is a part (`quarantine`): these are known when
files are committed, and a batch is replaced without reading its rows. Rows that are released are
brought to the columns that their target has by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.formats.base import path_end
from airflow_cloudfiles.engine.formats.columnar.strings import json_of, object_text
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.values import GIB
from airflow_cloudfiles.engine.tables.delta.commit import check_target, table_state
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_to_write
from airflow_cloudfiles.engine.tables.delta.read.columns import rows_columns
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules, create_table, layout_for
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout, plain_layout
from airflow_cloudfiles.engine.tables.delta.write.log_commit import retried
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles
from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite, write_rows
from airflow_cloudfiles.engine.types import simple_ddl

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState


ID, BROKEN, FILE, TIME = (
    "_quarantine_id",
    "_quarantine_rules",
    "_quarantine_file",
    "_quarantine_time",
)
STREAM, BATCH, RELEASE = "_quarantine_stream", "_quarantine_batch", "_quarantine_release"
OWN: Final = pa.schema(
    [
        pa.field(ID, pa.string()),
        pa.field(BROKEN, pa.list_(pa.field("element", pa.string()))),
        pa.field(FILE, pa.string()),
        pa.field(TIME, pa.timestamp("us", "UTC")),
    ]
)
"""What the data files have of each row, behind its own columns."""
PARTITIONS: Final = pa.schema(
    [pa.field(STREAM, pa.string()), pa.field(BATCH, pa.int64()), pa.field(RELEASE, pa.string())]
)
RULES: Final = WriteRules(
    merge_schema=True, widened_bytes=10 * GIB, partition_by=tuple(PARTITIONS.names)
)
"""How the table may change: it grows with the rows."""
_SUFFIX: Final = "_quarantine"
_NO_VALUES: Final = tuple((name, None) for name in PARTITIONS.names)


def table_of(target: str) -> str:
    """Name the quarantine table of a target, unless an option names another one."""
    return f"{target.rstrip('/')}{_SUFFIX}"


def with_own(rows: pa.Schema) -> pa.Schema:
    """Give the columns that data files have for rows.

    Raises:
        SchemaMismatchError: The rows have a column with one of these names.
    """
    taken = CASE_INSENSITIVE.keys((*OWN.names, *PARTITIONS.names))
    for name in rows.names:
        if CASE_INSENSITIVE.key(name) in taken:
            raise SchemaMismatchError(
                f"The rows have a column {name}, which the quarantine table has for itself. Rename "
                "the column in the files, or use onViolation=drop or fail."
            )
    return pa.schema([*rows, *OWN])


def placed(
    files: Iterable[DataFile], stream: str | None, batch: str | None, release: str | None
) -> list[DataFile]:
    """Say of data files in which partition they are."""
    values = tuple(zip(PARTITIONS.names, (stream, batch, release), strict=True))
    return [replace(each, partition_values=values) for each in files]


def place_of(file: TableFile) -> tuple[str | None, str | None, str | None]:
    """Give the stream, the batch and the release of a file of the table."""
    found = dict(file.partition_values)
    return found[STREAM], found[BATCH], found[RELEASE]


@dataclass(frozen=True, slots=True)
class QuarantineFiles:
    """Writes rows that are put aside to data files that nobody sees yet.

    Attributes:
        table: Path or URI of the quarantine table.
        state: The table as it is; `None` where there is none yet.
    """

    table: str
    state: TableState | None

    @classmethod
    def of(cls, table: str) -> QuarantineFiles:
        """Look at the table."""
        return cls(table, table_state(table))

    def rows(
        self,
        rows: pa.RecordBatch,
        ids: Sequence[str],
        broken: Sequence[Sequence[str]],
        files: pa.Array | None,
        now: datetime,
    ) -> pa.RecordBatch:
        """Put what is known of rows behind their columns.

        Args:
            rows: The rows.
            ids: An id for each.
            broken: The names of the rules that each violates.
            files: The URI of the file of each; `None` where that is not known.
            now: When they were put aside.
        """
        count = len(rows)
        arrays = [
            pa.array(ids, pa.string()),
            pa.array(broken, OWN.field(BROKEN).type),
            pa.nulls(count, pa.string()) if files is None else files.cast(pa.string()),
            pa.repeat(pa.scalar(now, OWN.field(TIME).type), count),
        ]
        return pa.RecordBatch.from_arrays([*rows.columns, *arrays], schema=with_own(rows.schema))

    def write(self, batches: Sequence[pa.RecordBatch]) -> tuple[list[DataFile], FileLayout]:
        """Write rows; give the files, and how the rows became columns of them."""
        schema = batches[0].schema
        found = TableWrite(self.state, RULES)
        layout = found.layout(schema) or plain_layout(schema)
        if self.state is None:
            layout = replace(layout, partitions=_NO_VALUES)
        plain = replace(layout, partitions=())
        return write_rows(self.table, schema, batches, plain, found.settings), layout


def check_table(table: str, rows: pa.Schema) -> None:
    """Create the quarantine table for rows, or check that it takes them.

    Raises:
        SchemaMismatchError: It does not, or is partitioned otherwise: it is no quarantine table.
        SinkError: There is something else, or it has rules of its own.
    """
    check_target(table, pa.schema([*with_own(rows), *PARTITIONS]), RULES)


def opened_or_made(table: str, schema: pa.Schema) -> DeltaTable:
    """Open the quarantine table; create it where there is none.

    Args:
        table: Path or URI of it.
        schema: Of the rows in its data files.
    """
    whole = pa.schema([*schema, *PARTITIONS])
    return retried(
        f"The quarantine table {table} could not be created",
        lambda: open_to_write(table) or create_table(table, whole, RULES),
    )


def files_of(table: DeltaTable, target: str) -> TableFiles:
    """List the data files of a quarantine table.

    Raises:
        SinkError: It is none.
    """
    found = TableFiles(table, DeltaLocation.of(target), "changed", takes_all=True)
    if found.state.partition_columns != PARTITIONS.names:
        raise SinkError(
            f"{target} is no quarantine table: it is not partitioned by "
            f"{', '.join(PARTITIONS.names)}. Name the table that expect.quarantineTable names."
        )
    return found


def split_rows(
    files: TableFiles, file: TableFile, is_chosen: Any
) -> tuple[list[DataFile], list[DataFile], int, int]:
    """Write the rows of a file to two sets of files, those that are chosen and the others.

    Args:
        files: Of the quarantine table.
        file: One of them.
        is_chosen: Tells for each row of a batch whether it is chosen.

    Returns:
        The files of the chosen rows, those of the others, and how many rows each of them has.
    """
    counts = []
    written = []
    for wanted in (True, False):
        rows = _matching(files, file, is_chosen, wanted=wanted)
        found = write_rows(files.location.target, files.schema, rows, None)
        written.append(found)
        counts.append(sum(each.rows for each in found))
    return written[0], written[1], counts[0], counts[1]


def _matching(
    files: TableFiles, file: TableFile, is_chosen: Any, *, wanted: bool
) -> Iterator[pa.RecordBatch]:
    for batch in files.batches(file):
        mask = is_chosen(batch)
        found = batch.filter(mask if wanted else pc.invert(mask))
        if len(found):
            yield found


APPENDED: Final = WriteRules()
"""A release appends, and changes no column."""


class PresentSchema:
    """Brings rows that were put aside to the columns that a target has now.

    Args:
        state: The target.
        schema: Of the rows, with what is known of each.
        rescued_column: Which takes what has no column.
    """

    def __init__(self, state: TableState, schema: pa.Schema, rescued_column: str) -> None:
        self._state = state
        self._asked = rescued_column
        is_there = rescued_column in state.columns.names
        self._rescued_column = rescued_column if is_there else None
        fields = [each for each in schema if each.name not in OWN.names]
        self._fitting = [each for each in fields if self._fits(each)]
        self._others = [each for each in fields if each not in self._fitting]

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the rows that are written."""
        found = pa.schema(self._fitting)
        if self._rescued_column is not None and self._rescued_column not in found.names:
            found = found.append(pa.field(self._rescued_column, pa.string()))
        return found

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Give the rows as they are written.

        Raises:
            SchemaMismatchError: A value has no column, and there is no rescued data column.
        """
        count = len(batch)
        arrays = {each.name: batch.column(each.name) for each in self._fitting}
        lost = [each for each in self._others if batch.column(each.name).null_count < count]
        if self._rescued_column is None:
            if lost:
                kinds = ", ".join(simple_ddl(rows_columns(pa.schema([each]))) for each in lost)
                raise SchemaMismatchError(
                    f"{self._state.target} has no column that takes {few([e.name for e in lost])} "
                    f"({kinds}) of quarantined rows, and no rescued data column "
                    f"{self._asked}. Add the column (cloudfiles table add-column), or name the "
                    "rescued data column. The rows stay in the quarantine table."
                )
        else:
            rescued = arrays.get(self._rescued_column)
            rescued = pa.nulls(count, pa.string()) if rescued is None else rescued
            arrays[self._rescued_column] = _with_lost(rescued, batch, lost)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema
        )

    def _fits(self, field: pa.Field) -> bool:
        try:
            layout_for(self._state, pa.schema([field, *self._besides(field)]), APPENDED)
        except SchemaMismatchError:
            return False
        return True

    def _besides(self, field: pa.Field) -> list[pa.Field]:
        """Give a column that fits for certain: a layout needs one that is in files."""
        name = self._rescued_column
        is_own = name is None or field.name == name
        return [] if is_own else [pa.field(name, pa.string())]


def _with_lost(rescued: pa.Array, batch: pa.RecordBatch, lost: Sequence[pa.Field]) -> pa.Array:
    """Add values that have no column to the rescued data of their rows."""
    if not lost:
        return rescued
    names = [each.name for each in lost]
    values = zip(*(json_of(batch.column(name)) for name in names), strict=True)
    files = batch.column(FILE).to_pylist()
    found = []
    for text, file, row in zip(rescued.to_pylist(), files, values, strict=True):
        own = object_text(list(zip(names, row, strict=True)))
        if own is None:
            found.append(text)
        else:
            end = path_end(file) if text is None else f",{text.removeprefix('{')}"
            found.append(own.removesuffix("}") + end)
    return pa.array(found, rescued.type)
