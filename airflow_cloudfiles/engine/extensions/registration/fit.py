"""Decide whether a Parquet file can be a data file of a table, just as it is.

It can when its rows, read as those of a data file, are those that copying it would write. So:

- each of its columns is one of the stream and of the table, under the very same name, and of the
  type that a data file has: the same Parquet type, nested in the same way. Names that differ in
  case, unknown fields and other types are for who copies: they are rescued, cast, or change the
  schema.
- what the table has and the file lacks is null either way: at the top level only, where all readers
  agree.
- columns that come from the path are those that the table is partitioned by, whose values the log
  has; or they are null.
- it says of its dates that they are those of today's calendar.
- a column that is NOT NULL has no null, by the counts of its footer.
- all readers of tables know its compression and its encodings.

Whatever is in doubt is a reason to copy the file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.formats.columnar.casts import Calendar
from airflow_cloudfiles.engine.formats.columnar.types import (
    holds,
    holds_variant,
    is_bytes,
    is_text,
    leaf_types,
)
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.reading.file_columns import ColumnSources, FileColumns
from airflow_cloudfiles.engine.tables.delta.statistics import FileStatistics
from airflow_cloudfiles.engine.tables.delta.write.layout import (
    ColumnLayout,
    FileLayout,
    plain_layout,
)
from airflow_cloudfiles.engine.tables.delta.write.rows import value_text

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions
    from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite

_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS: Final = frozenset(
    ("PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED",
     "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"),
)  # fmt: skip
_OF_DECIMALS: Final = frozenset({"INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"})
_PLAIN_INTEGERS: Final = {"INT32": 32, "INT64": 64}
Leaf = tuple[str, str, int, tuple[tuple[str, Any], ...]]
"""A leaf as Parquet has it: its path, its type, how it repeats, and what the type stands for."""


class Copied(Exception):  # noqa: N818 - it is no error: the file is copied
    """The file is to be copied; the text says why."""


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """A file that becomes a data file of a table.

    Attributes:
        rows: How many rows it has.
        statistics: What the log says of its columns, as JSON.
        partition_values: By name of the partition column; `None` is null.
        values: How many values the columns have that were asked for.
    """

    rows: int
    statistics: str
    partition_values: tuple[tuple[str, str | None], ...]
    values: dict[str, int]


class FileFit:
    """Compares files with the columns of a stream and of its table.

    Args:
        sources: The columns of the stream, file by file.
        write: The table.
        target: Its path or URI, for errors.
        rescued: Name of the rescued data column; `None` without.
        options: Of the format.
        required: Columns whose values are counted.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what there is to compare
        self,
        sources: ColumnSources,
        write: TableWrite,
        target: str,
        rescued: str | None,
        options: ParquetOptions,
        required: Sequence[str],
    ) -> None:
        schema = sources.arrow_schema
        layout = write.layout(schema) or plain_layout(schema)
        self._sources = sources
        self._target = target
        self._rescued = rescued
        self._options = options
        self._required = {CASE_INSENSITIVE.key(each): each for each in required}
        self._indexed = write.settings.indexed
        self._layout: FileLayout = layout
        self._rows = schema
        self._columns = {
            field.name: _Column(field, column)
            for field, column in zip(schema, layout.columns, strict=True)
        }
        self._last: tuple[pq.FileMetaData, FileColumns, list[pa.Field]] | None = None

    def of(self, path: str, footer: pq.FileMetaData) -> RegisteredFile:
        """Describe a file as a data file.

        Args:
            path: Of the file.
            footer: Of the file.

        Raises:
            Copied: It cannot be one.
        """
        found = self._sources.of(path)
        partitions = self._partition_values(path, found)
        fields = self._compared(footer, found)
        groups = _row_groups(footer)
        known = self._without_nulls(fields, groups)
        names = [each.name for each in fields]
        kinds = pa.schema([self._columns[name].field for name in names])
        # By it, a promotion knows that it need not read the file.
        lacking = [] if self._rescued not in self._columns else [str(self._rescued)]
        statistics = FileStatistics(kinds, self._indexed, is_seen=False).to_json(footer, lacking)
        values = {
            asked: self._count(key, footer.num_rows, known, partitions)
            for key, asked in self._required.items()
        }
        return RegisteredFile(footer.num_rows, statistics, partitions, values)

    def _partition_values(
        self, path: str, found: FileColumns
    ) -> tuple[tuple[str, str | None], ...]:
        """Find the values of the partition columns of the table in the path of a file."""
        values, lost = self._sources.path_values(path, found.partitions)
        if lost:
            raise Copied(f"the value of {next(iter(lost))} in its path does not fit")
        given = {name: value for name, value in values.items() if value.is_valid}
        written: list[tuple[str, str | None]] = []
        for name, place in self._layout.partitions:
            column = None if place is None else self._rows.field(place).name
            if place is None or column is None:
                written.append((name, None))
            elif column not in values:
                raise Copied(f"the table is partitioned by {column}, which is not in its path")
            else:
                text = self._partition_text(name, place, given.pop(column, None))
                written.append((name, text))
        if given:
            raise Copied(f"{next(iter(given))} is in its path, and not a partition of the table")
        return tuple(written)

    def _partition_text(self, name: str, place: int, value: pa.Scalar | None) -> str | None:
        """Write the value of a partition column as the log has it."""
        layout = self._layout.columns[place]
        if value is not None and value.type != layout.field.type:
            raise Copied(f"{name} has another type in the table")
        if layout.lengths[1] is not None:
            raise Copied(f"the length of {name} is limited")
        text = None if value is None else value_text(value, name, self._target)
        if text is None and layout.required:
            raise Copied(f"{name} is NOT NULL, and its path has no value")
        return text

    def _compared(self, footer: pq.FileMetaData, found: FileColumns) -> list[pa.Field]:
        """Compare the columns of a file; most files of a stream have the same."""
        last = self._last
        is_same = (
            last is not None
            and last[1] is found
            and footer.schema.equals(last[0].schema)
            and footer.metadata == last[0].metadata
        )
        if last is None or not is_same:
            last = self._last = footer, found, self._fields(footer, found)
        return last[2]

    def _fields(self, footer: pq.FileMetaData, found: FileColumns) -> list[pa.Field]:
        """Compare the columns of a file with those of the table; all that it has, in order."""
        fields = list(footer.schema.to_arrow_schema())
        of_records = set(found.reader.arrow_schema.names) - {self._rescued}
        leaves = _leaves(footer.schema)
        seen: set[str] = set()
        has_times = False
        for each in fields:
            if each.name not in of_records:
                raise Copied(f"the stream has no column {each.name}")
            if each.name in seen:
                raise Copied(f"it has {each.name} twice")
            seen.add(each.name)
            column = self._columns[each.name]
            count = sum(1 for _ in leaf_types(each.type))
            column.require(each.type, tuple(islice(leaves, count)))
            has_times = has_times or column.has_times
        if next(leaves, None) is not None:
            raise Copied("its columns are nested in an unusual way")
        if has_times and not Calendar.of(footer.metadata, self._options).is_ours:
            raise Copied("its dates may be of another calendar")
        for name, column in self._columns.items():
            is_there = name in seen or name in found.partitions.names
            if column.layout.required and not is_there:
                raise Copied(f"{name} is NOT NULL, and it lacks the column")
        return fields

    def _without_nulls(
        self, fields: Sequence[pa.Field], groups: Sequence[pq.RowGroupMetaData]
    ) -> dict[str, int | None]:
        """Count the nulls of columns that are no struct, list or map, as far as they are known.

        Raises:
            Copied: One that is NOT NULL may have some.
        """
        found: dict[str, int | None] = {}
        place = 0
        for each in fields:
            count = sum(1 for _ in leaf_types(each.type))
            required = self._columns[each.name].layout.required
            if required or CASE_INSENSITIVE.key(each.name) in self._required:
                nulls = None if pa.types.is_nested(each.type) else _nulls(groups, place)
                found[CASE_INSENSITIVE.key(each.name)] = nulls
                if required and nulls != 0:
                    raise Copied(f"{each.name} is NOT NULL, and its footer does not say that it is")
            place += count
        return found

    def _count(
        self,
        key: str,
        rows: int,
        known: dict[str, int | None],
        partitions: tuple[tuple[str, str | None], ...],
    ) -> int:
        """Count the values of a column that is expected to have some."""
        if key in known:
            nulls = known[key]
            if nulls is None:
                raise Copied(f"its footer does not say how many values {self._required[key]} has")
            return rows - nulls
        values = {CASE_INSENSITIVE.key(name): text for name, text in partitions}
        return rows if values.get(key) is not None else 0


class _Column:
    """A column of the stream, and how data files of the table have it."""

    def __init__(self, field: pa.Field, layout: ColumnLayout) -> None:
        self.field = field
        self.layout = layout

    @cached_property
    def has_times(self) -> bool:
        """Whether it has dates or timestamps."""
        return holds(self.field.type, lambda k: pa.types.is_date(k) or pa.types.is_timestamp(k))

    @cached_property
    def _wrong(self) -> str:
        """Why no file can have it as it is; empty where one can."""
        name, layout, kind = self.field.name, self.layout, self.field.type
        if layout.field_id is not None or layout.field.name != name:
            return f"{name} has another name in the files of the table"
        if layout.field.type != kind:
            return f"{name} has another type in the table"
        if any(each.checks_values for each in layout.inside) or layout.checks_texts:
            return f"the table checks the values of {name}"
        if holds_variant(kind) or holds(kind, pa.types.is_null):
            return f"{name} has a type that is written anew"
        return ""

    @cached_property
    def _expected(self) -> tuple[Leaf, ...]:
        """The leaves that a data file of ours has for it."""
        content = io.BytesIO()
        pq.ParquetWriter(content, pa.schema([self.field])).close()
        return tuple(_leaves(pq.read_metadata(content).schema))

    def require(self, kind: pa.DataType, leaves: tuple[Leaf, ...]) -> None:
        """Compare it with a column of a file.

        Raises:
            Copied: A data file of the table has another one.
        """
        if self._wrong:
            raise Copied(self._wrong)
        if leaves != self._expected or not _is_alike(kind, self.field.type):
            raise Copied(f"{self.field.name} has another type")


def _leaves(schema: pq.ParquetSchema) -> Iterator[Leaf]:
    """Describe the leaves of a file; annotations that mean nothing are left out."""
    for place in range(len(schema)):
        column = schema.column(place)
        physical = column.physical_type
        meaning = json.loads(column.logical_type.to_json())
        if meaning["Type"] == "Int" and meaning["isSigned"]:
            if meaning["bitWidth"] == _PLAIN_INTEGERS.get(physical):
                meaning = {"Type": "None"}
        elif meaning["Type"] == "Decimal" and physical in _OF_DECIMALS:
            physical = "DECIMAL"
        said = tuple(sorted(each for each in meaning.items() if "converted" not in each[0]))
        yield column.path, physical, column.max_repetition_level, said


def _is_alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether types are nested alike, and their leaves not read as something else.

    Args:
        kind: Of a file, with what its writer has noted of Arrow's types.
        wanted: Of the column.
    """
    if pa.types.is_struct(wanted):
        return (
            pa.types.is_struct(kind)
            and [each.name for each in kind] == [each.name for each in wanted]
            and all(_is_alike(*each) for each in zip(_inside(kind), _inside(wanted), strict=True))
        )
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return is_list and _is_alike(kind.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(kind)
            and _is_alike(kind.key_type, wanted.key_type)
            and _is_alike(kind.item_type, wanted.item_type)
        )
    return _is_alike_leaf(kind.value_type if pa.types.is_dictionary(kind) else kind, wanted)


def _is_alike_leaf(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell the same of a type that has none inside, whose Parquet type is known to be right."""
    if is_text(wanted):
        return is_text(kind)
    if pa.types.is_binary(wanted):
        return is_bytes(kind) and not pa.types.is_fixed_size_binary(kind)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(kind):
        return bool(kind.unit == wanted.unit and (kind.tz is None) == (wanted.tz is None))
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(kind):
        return (kind.precision, kind.scale) == (wanted.precision, wanted.scale)
    return bool(kind == wanted)


def _inside(kind: pa.StructType) -> list[pa.DataType]:
    return [each.type for each in kind]


def _row_groups(footer: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    """List the row groups, whose chunks all readers of tables know.

    Raises:
        Copied: They do not; or the numbers of rows contradict each other.
    """
    groups = [footer.row_group(each) for each in range(footer.num_row_groups)]
    if sum(each.num_rows for each in groups) != footer.num_rows:
        raise Copied("its row groups do not have as many rows as it says")
    for group in groups:
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.file_path:
                raise Copied("it has columns in other files")
            if chunk.compression not in _CODECS:
                raise Copied(f"not all readers know its compression {chunk.compression}")
            if not _ENCODINGS.issuperset(chunk.encodings):
                unusual = sorted(set(chunk.encodings) - _ENCODINGS)
                raise Copied(f"not all readers know its encoding {', '.join(unusual)}")
    return groups


def _nulls(groups: Sequence[pq.RowGroupMetaData], place: int) -> int | None:
    """Count the nulls of a leaf; `None` where the footer does not say it."""
    found = 0
    for group in groups:
        chunk = group.column(place)
        known = chunk.statistics if chunk.is_stats_set else None
        if known is None or not known.has_null_count:
            return None
        found += known.null_count
    return found
