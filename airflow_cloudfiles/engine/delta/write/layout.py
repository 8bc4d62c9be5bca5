"""How do rows become the columns of a table's data files?

By the table's own columns: under physical names and with field ids where it has column mapping, in
the table's types, without the partition columns. Driver and tasks compute the layout from the same
state of the table; at the commit it is computed again, and files of another layout are refused.

New columns get their physical names and ids in the same way: derived from the table's id and
highest column id, so that the tasks can write them before the table has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.casing import CASE_INSENSITIVE
from airflow_cloudfiles.engine.delta.merge_schema import SOURCE_NAME, partners
from airflow_cloudfiles.engine.delta.read.columns import (
    ID,
    PHYSICAL_NAME,
    arrow_type,
    physical_name,
)
from airflow_cloudfiles.engine.delta.schema import rows_columns
from airflow_cloudfiles.engine.delta.write.table_state import MAX_ID, TableState
from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.naming import dotted

_FIELD_ID: Final = "PARQUET:field_id"
_NAMES: Final = uuid.UUID("8f0a4cf5-3d2b-4a83-9a4e-0f8a55b0b6c1")
"""The namespace of physical names."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """A column of rows, or something inside one, as data files have it.

    Attributes:
        path: Its name in the table, for messages.
        field: Its physical name and type.
        field_id: Its id in column mapping; `None` without.
        required: Whether it must not be null.
        inside: What is inside of it: fields, the element, or key and value.
    """

    path: str
    field: pa.Field
    field_id: int | None
    required: bool
    inside: tuple[ColumnLayout, ...] = ()

    @property
    def checks_nulls(self) -> bool:
        """Whether anything of it must not be null."""
        return self.required or any(each.checks_nulls for each in self.inside)

    def serves(self, wanted: ColumnLayout) -> bool:
        """Whether what was written by this is what a table wants."""
        return (
            self.field.name == wanted.field.name
            and self.field.type == wanted.field.type
            and self.field_id == wanted.field_id
            and (self.required or not wanted.required)
            and all(map(ColumnLayout.serves, self.inside, wanted.inside))
        )


@dataclass(frozen=True)
class FileLayout:
    """How rows become data files.

    Attributes:
        columns: For each column of the rows, in their order.
        partitions: The partition columns in the table's order: their physical names, and which
            column of the rows has the values; `None` where none does.
    """

    columns: tuple[ColumnLayout, ...]
    partitions: tuple[tuple[str, int | None], ...] = ()

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Which columns of the rows are in the files."""
        taken = {place for _, place in self.partitions}
        return tuple(place for place in range(len(self.columns)) if place not in taken)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a data file."""
        return pa.schema([self.columns[place].field for place in self.places])

    @cached_property
    def checks_nulls(self) -> bool:
        """Whether a column must not be null."""
        return any(each.checks_nulls for each in self.columns)

    def serves(self, wanted: FileLayout) -> bool:
        """Whether files that were written by this are what a table wants.

        Files that were checked for more nulls than the table forbids are.
        """
        return (
            self.partitions == wanted.partitions
            and len(self.columns) == len(wanted.columns)
            and all(map(ColumnLayout.serves, self.columns, wanted.columns))
        )

    def is_plain(self, rows: pa.Schema) -> bool:
        """Whether rows are written just as they are."""
        fields = [each.field for each in self.columns]
        return (
            not self.partitions
            and not self.checks_nulls
            and all(each.field_id is None for each in self.columns)
            and [each.name for each in fields] == rows.names
            and [each.type for each in fields] == rows.types
        )


def plain_layout(rows: pa.Schema) -> FileLayout:
    """The layout of files that were written without looking at a table."""
    kinds = rows_columns(rows)
    walk = _Walk("none")
    pairs = zip(rows, kinds.fields, strict=True)
    return FileLayout(tuple(walk.column(each, kind, kind, ()) for each, kind in pairs))


def layout_of(
    state: TableState, columns: StructType, rows: pa.Schema, kinds: StructType
) -> FileLayout:
    """How rows become data files of a table.

    Args:
        state: The table.
        columns: Its columns after its evolution, all of them mapped (`mapped`).
        rows: The rows.
        kinds: The same as a Delta table has them.

    Raises:
        SchemaMismatchError: The rows have partition columns only.
    """
    walk = _Walk(state.mode)
    found, places = [], {}
    for place, at in enumerate(partners(columns, kinds)):
        assert at is not None  # noqa: S101 - merged schemas have all columns
        table = columns.fields[at]
        places[table.name] = place
        found.append(walk.column(rows.field(place), kinds.fields[place], table, ()))
    by_name = {each.name: each for each in columns.fields}
    partitions = [
        (physical_name(by_name[name], state.mode), places.get(name))
        for name in state.partition_columns
    ]
    layout = FileLayout(tuple(found), tuple(partitions))
    if found and not layout.places:
        raise SchemaMismatchError(
            f"The rows have no column of {state.target} besides those that it is partitioned by. "
            "Write at least one other column."
        )
    return layout


def mapped(state: TableState, columns: StructType) -> tuple[StructType, int]:
    """Columns of which each has an id and a physical name, and the highest id.

    Args:
        state: The table; without column mapping nothing changes.
        columns: Its columns after its evolution.
    """
    if state.mode == "none":
        return columns, state.max_id
    numbering = _Numbering(state)
    return numbering.struct(columns, ()), numbering.highest


class _Numbering:
    """Gives ids to columns that have none."""

    def __init__(self, state: TableState) -> None:
        self._seed = f"{state.table_id}/{state.max_id}"
        self.highest = max(state.max_id, _highest(state.columns))

    def struct(self, kind: StructType, at: tuple[str, ...]) -> StructType:
        return StructType([self._field(each, (*at, each.name)) for each in kind.fields])

    def _field(self, field: StructField, at: tuple[str, ...]) -> StructField:
        metadata = dict(field.metadata or {})
        if ID not in metadata:
            self.highest += 1
            unique = uuid.uuid5(_NAMES, f"{self._seed}/{dotted(at)}")
            metadata |= {ID: self.highest, PHYSICAL_NAME: f"col-{unique}", SOURCE_NAME: field.name}
        return StructField(field.name, self._type(field.dataType, at), field.nullable, metadata)

    def _type(self, kind: DataType, at: tuple[str, ...]) -> DataType:
        if isinstance(kind, StructType):
            return self.struct(kind, at)
        if isinstance(kind, ArrayType):
            return ArrayType(self._type(kind.elementType, (*at, "element")), kind.containsNull)
        if isinstance(kind, MapType):
            return MapType(
                self._type(kind.keyType, (*at, "key")),
                self._type(kind.valueType, (*at, "value")),
                kind.valueContainsNull,
            )
        return kind


def physical_path(columns: StructType, mode: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """The names that a column, or something inside one, has in data files.

    Args:
        columns: Of the table.
        mode: Its column mapping.
        path: Names in the table; one it lacks stays as it is, with what follows.
    """
    if not path:
        return ()
    found = CASE_INSENSITIVE.find(columns, path[0])
    if found is None:
        return path
    inner = found.dataType if isinstance(found.dataType, StructType) else StructType([])
    return (physical_name(found, mode), *physical_path(inner, mode, path[1:]))


def evolved_state(state: TableState, columns: StructType) -> TableState:
    """The table with other columns, which have ids where it has column mapping."""
    numbered, highest = mapped(state, columns)
    notes = {MAX_ID: str(highest)} if state.mode != "none" else {}
    return state.with_columns(numbered, **notes)


def _highest(kind: DataType) -> int:
    """The highest id of a column, at any depth."""
    if isinstance(kind, StructType):
        own = [int((each.metadata or {}).get(ID, 0)) for each in kind.fields]
        return max([0, *own, *(_highest(each.dataType) for each in kind.fields)])
    if isinstance(kind, ArrayType):
        return _highest(kind.elementType)
    if isinstance(kind, MapType):
        return max(_highest(kind.keyType), _highest(kind.valueType))
    return 0


class _Walk:
    """Walks rows and the columns of a table at once.

    Args:
        mode: The column mapping of the table.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def column(
        self, rows: pa.Field, kind: StructField, table: StructField, at: tuple[str, ...]
    ) -> ColumnLayout:
        """A column of the rows, or a field of a struct, as data files have it."""
        path = (*at, table.name)
        own, inside = self._type(rows.type, kind.dataType, table.dataType, path)
        number = None if self._mode == "none" else int(table.metadata[ID])
        notes = None if number is None else {_FIELD_ID: str(number)}
        field = pa.field(physical_name(table, self._mode), own, metadata=notes)
        return ColumnLayout(dotted(path), field, number, not table.nullable, inside)

    def _type(
        self, rows: pa.DataType, kind: DataType, table: DataType, at: tuple[str, ...]
    ) -> tuple[pa.DataType, tuple[ColumnLayout, ...]]:
        """The type that a data file has, of the shape that the rows have."""
        if isinstance(kind, StructType) and isinstance(table, StructType):
            inside = tuple(self._fields(rows, kind, table, at))
            return pa.struct([each.field for each in inside]), inside
        if isinstance(kind, ArrayType) and isinstance(table, ArrayType):
            pair = (kind.elementType, table.elementType)
            element = self._inner((*at, "element"), rows.value_type, pair, table.containsNull)
            return pa.list_(element.field), (element,)
        if isinstance(kind, MapType) and isinstance(table, MapType):
            keys, values = (kind.keyType, table.keyType), (kind.valueType, table.valueType)
            key = self._inner((*at, "key"), rows.key_type, keys, True)
            value = self._inner((*at, "value"), rows.item_type, values, table.valueContainsNull)
            return pa.map_(key.field.with_nullable(False), value.field), (key, value)
        return (rows if kind == table else arrow_type(table)), ()

    def _fields(
        self, rows: pa.DataType, kind: StructType, table: StructType, at: tuple[str, ...]
    ) -> Iterator[ColumnLayout]:
        for place, found in enumerate(partners(table, kind, at)):
            assert found is not None  # noqa: S101 - merged schemas have all fields
            yield self.column(rows.field(place), kind.fields[place], table.fields[found], at)

    def _inner(
        self,
        at: tuple[str, ...],
        rows: pa.DataType,
        kinds: tuple[DataType, DataType],
        is_nullable: bool,  # noqa: FBT001 - as Spark's types have it
    ) -> ColumnLayout:
        """An element, a key or a value, of the rows and of the table."""
        own, inside = self._type(rows, *kinds, at)
        return ColumnLayout(dotted(at), pa.field(at[-1], own), None, not is_nullable, inside)
