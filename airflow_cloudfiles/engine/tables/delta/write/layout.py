"""Lay out rows as the columns of a table's data files.

By the table's own columns: under physical names and with field ids where it has column mapping, in
the table's types, without the partition columns. Driver and tasks compute the layout from the same
state of the table; at the commit it is computed again, and files of another layout are refused.

New columns get their physical names and ids in the same way: derived from the table's id and
highest column id, so that the tasks can write them before the table has them.

Enforce how long texts may be in a column that is VARCHAR(n) or CHAR(n).

Spark keeps such a column as a STRING, with its type in the metadata of the column; a type inside of
one is in the metadata of the column around it. Delta checks the length of what is written.

References:
    Spark's `CharVarcharUtils`, Delta's `CharVarcharConstraint`
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.tables.delta.merge_schema import SOURCE_NAME, partners
from airflow_cloudfiles.engine.tables.delta.read.columns import (
    ID,
    PHYSICAL_NAME,
    arrow_type,
    physical_name,
    rows_columns,
)
from airflow_cloudfiles.engine.tables.delta.read.table_state import MAX_ID, TableState
from airflow_cloudfiles.engine.types import inside_of, with_inside

_NO_LIMITS: Final[Mapping[tuple[str, ...], int]] = {}
_FIELD_ID: Final = "PARQUET:field_id"
_ANY_LENGTH: Final = (0, None)
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
        lengths: The least and the most characters of a text; `None` for any number.
        inside: What is inside of it: fields, the element, or key and value.
    """

    path: str
    field: pa.Field
    field_id: int | None
    required: bool
    inside: tuple[ColumnLayout, ...] = ()
    lengths: tuple[int, int | None] = _ANY_LENGTH

    @property
    def checks_texts(self) -> bool:
        """Whether a text in it must have a certain length."""
        return self.lengths != _ANY_LENGTH or any(each.checks_texts for each in self.inside)

    @property
    def checks_values(self) -> bool:
        """Whether anything of it must not be null, or have a certain length."""
        inside = any(each.checks_values for each in self.inside)
        return self.required or self.checks_texts or inside

    def serves(self, wanted: ColumnLayout) -> bool:
        """Tell whether what was written with this layout is what a table wants."""
        return (
            self.field.name == wanted.field.name
            and self.field.type == wanted.field.type
            and self.field_id == wanted.field_id
            and (self.required or not wanted.required)
            and wanted.lengths in {self.lengths, _ANY_LENGTH}
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
        """Which columns of the rows are in the files; those without a type are not."""
        taken = {place for _, place in self.partitions}
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if place not in taken and not pa.types.is_null(column.field.type)
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a data file."""
        return pa.schema([self.columns[place].field for place in self.places])

    @cached_property
    def checks_texts(self) -> bool:
        """Whether a text must have a certain length."""
        return any(each.checks_texts for each in self.columns)

    @cached_property
    def checks_values(self) -> bool:
        """Whether a value must not be null, or have a certain length."""
        return any(each.checks_values for each in self.columns)

    def serves(self, wanted: FileLayout) -> bool:
        """Tell whether files that were written with this layout are what a table wants.

        Files that were checked for more nulls than the table forbids are.
        """
        return (
            self.partitions == wanted.partitions
            and len(self.columns) == len(wanted.columns)
            and all(map(ColumnLayout.serves, self.columns, wanted.columns))
        )

    def is_plain(self, rows: pa.Schema) -> bool:
        """Tell whether rows are written just as they are."""
        return (
            not self.partitions
            and not self.checks_values
            and all(each.field_id is None for each in self.columns)
            and self.schema.names == rows.names
            and self.schema.types == rows.types
        )


def holds_void(kind: pa.DataType) -> bool:
    """Tell whether a type is void, or a struct with a field that is."""
    inside = list(kind) if pa.types.is_struct(kind) else []
    return bool(pa.types.is_null(kind)) or any(holds_void(each.type) for each in inside)


def plain_layout(rows: pa.Schema) -> FileLayout:
    """Return the layout of files that were written without looking at a table."""
    kinds = rows_columns(rows)
    walk = _LayoutWalk("none")
    pairs = zip(rows, kinds.fields, strict=True)
    return FileLayout(tuple(walk.column(each, kind, kind, ()) for each, kind in pairs))


def layout_of(
    state: TableState, columns: StructType, rows: pa.Schema, kinds: StructType
) -> FileLayout:
    """Plan how rows become data files of a table.

    Args:
        state: The table.
        columns: Its columns after its evolution, all of them mapped (`mapped`).
        rows: The rows.
        kinds: The same as a Delta table has them.

    Raises:
        SchemaMismatchError: The rows have partition columns only.
    """
    limits: dict[tuple[str, ...], int] = {}
    for each in columns.fields:
        limits |= character_limits(each, state.target)
    walk = _LayoutWalk(state.mode, limits, frozenset(state.partition_columns))
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
            f"The rows have no column of {state.target} besides those that it is partitioned by, "
            "or that have no type. "
            "Write at least one other column."
        )
    return layout


class _Numbering:
    """Gives ids to columns that have none."""

    def __init__(self, state: TableState) -> None:
        self._seed = f"{state.metadata.id}/{state.max_id}"
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
        return with_inside(kind, lambda name, each: self._type(each, (*at, name)))


def physical_path(columns: StructType, mode: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Find the names that a column, or something inside one, has in data files.

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
    """Return the table with other columns, which get ids where it has column mapping."""
    if state.mode == "none":
        return state.with_columns(columns)
    numbering = _Numbering(state)
    numbered = numbering.struct(columns, ())
    return state.with_columns(numbered, **{MAX_ID: str(numbering.highest)})


def _highest(kind: DataType) -> int:
    """Find the highest id of a column, at any depth."""
    fields = kind.fields if isinstance(kind, StructType) else ()
    own = (int((each.metadata or {}).get(ID, 0)) for each in fields)
    return max([0, *own, *(_highest(each) for _, each in inside_of(kind))])


class _LayoutWalk:
    """Walks rows and the columns of a table at once.

    Args:
        mode: The column mapping of the table.
        limits: The most characters of texts, by path.
        partitions: Names of the columns that the table is partitioned by.
    """

    def __init__(
        self,
        mode: str,
        limits: Mapping[tuple[str, ...], int] = _NO_LIMITS,
        partitions: frozenset[str] = frozenset(),
    ) -> None:
        self._mode = mode
        self._limits = limits
        self._partitions = partitions

    def column(
        self, rows: pa.Field, kind: StructField, table: StructField, at: tuple[str, ...]
    ) -> ColumnLayout:
        """Lay out a column of the rows, or a field of a struct, as data files have it."""
        path = (*at, table.name)
        own, inside = self._type(rows.type, kind.dataType, table.dataType, path)
        number = None if self._mode == "none" else int(table.metadata[ID])
        notes = None if number is None else {_FIELD_ID: str(number)}
        field = pa.field(physical_name(table, self._mode), own, metadata=notes)
        # The log has an empty text of a partition as null.
        is_text = pa.types.is_string(own) or pa.types.is_binary(own)
        is_filled = is_text and not table.nullable and path[0] in self._partitions
        lengths = (int(is_filled), self._limits.get(path))
        return ColumnLayout(dotted(path), field, number, not table.nullable, inside, lengths)

    def _type(
        self, rows: pa.DataType, kind: DataType, table: DataType, at: tuple[str, ...]
    ) -> tuple[pa.DataType, tuple[ColumnLayout, ...]]:
        """Find the type that a data file has, of the shape that the rows have."""
        if isinstance(kind, StructType) and isinstance(table, StructType):
            inside = tuple(self._fields(rows, kind, table, at))
            typed = [each.field for each in inside if not pa.types.is_null(each.field.type)]
            return (pa.struct(typed) if typed or not inside else pa.null()), inside
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
        """Lay out an element, a key or a value, of the rows and of the table."""
        own, inside = self._type(rows, *kinds, at)
        field, lengths = pa.field(at[-1], own), (0, self._limits.get(at))
        return ColumnLayout(dotted(at), field, None, not is_nullable, inside, lengths)


TYPE_KEY: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of the type in the metadata of a column."""
_CHARACTERS: Final = re.compile(r"(?:var)?char\((\d+)\)", re.IGNORECASE)
_LEAF: Final = re.compile(r"[^(),<>]*(?:\([^()]*\))?")

Path = tuple[str, ...]


def character_limits(column: StructField, target: str) -> dict[Path, int]:
    """Find the most characters that texts in a column may have, by path.

    Args:
        column: Of a table.
        target: The table, for errors.

    Raises:
        SinkError: The metadata has a type that is not that of the column.
    """
    text = (column.metadata or {}).get(TYPE_KEY)
    if text is None:
        return {}
    reading = _CatalogType(str(text))
    try:
        found = dict(reading.limits(column.dataType, (column.name,)))
        reading.end()
    except ValueError as error:
        raise SinkError(
            f"{target} cannot be written: the metadata of its column {dotted((column.name,))} has "
            f"{TYPE_KEY}={text!r}, which is not understood ({error}). Set the type of the column "
            "anew where the table is maintained (ALTER TABLE ... ALTER COLUMN ... TYPE STRING)."
        ) from error
    return found


class _CatalogType:
    """Reads a type as Spark's catalog has it, beside the same type without lengths."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def limits(self, kind: DataType, path: Path) -> Iterator[tuple[Path, int]]:
        """Yield the limits in the text that follows, which is a type."""
        if not isinstance(kind, StructType | ArrayType | MapType):
            found = _CHARACTERS.fullmatch(self._take_leaf())
            if found is not None and isinstance(kind, StringType):
                yield path, int(found[1])
            return
        self._take(f"{kind.typeName()}<")
        for place, (name, each) in enumerate(inside_of(kind)):
            self._take("," if place else "")
            if isinstance(kind, StructType):
                self._take_name(name)
            yield from self.limits(each, (*path, name))
        self._take(">")

    def end(self) -> None:
        """Refuse what is left."""
        if self._rest:
            raise ValueError(f"{self._rest!r} is not expected")

    @property
    def _rest(self) -> str:
        return self._text[self._at :]

    def _take(self, text: str) -> None:
        if not self._rest.startswith(text):
            raise ValueError(f"{self._rest!r} stands where {text!r} is expected")
        self._at += len(text)

    def _take_name(self, name: str) -> None:
        """Read a name, which may be the one before the field was renamed."""
        spelled = (f"{name}:", f"`{name.replace('`', '``')}`:")
        found = next((each for each in spelled if self._rest.startswith(each)), None)
        self._take(found or f"{self._rest.partition(':')[0]}:")

    def _take_leaf(self) -> str:
        found = _LEAF.match(self._rest)
        text = "" if found is None else found[0]
        self._take(text)
        return text
