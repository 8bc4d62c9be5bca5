"""What does an element have to look like for a column?

A schema compiled once per reader: names to positions, leaf types to conversions.

The places of a schema are where elements and attributes may stand.

A schema as a flat list of places, and tables from place and name to place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.types import NO_ROOM, ROOM, Room, short_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from airflow_cloudfiles.engine.formats.base import Positions
    from airflow_cloudfiles.engine.formats.scalars.strings import Convert


@dataclass(frozen=True, slots=True)
class XmlLeaf:
    """A text."""

    kind: DataType
    convert: Convert

    @property
    def is_string(self) -> bool:
        """Whether every text fits."""
        return isinstance(self.kind, StringType)


@dataclass(frozen=True, slots=True)
class XmlList:
    """An element that may come many times."""

    element: XmlShape


@dataclass(frozen=True, slots=True)
class XmlMap:
    """An element with children of any name."""

    value: XmlShape


@dataclass(frozen=True, slots=True)
class XmlStruct:
    """An element with known children and attributes.

    Attributes:
        names: Field names, as in the schema.
        index: Position by name.
        folded: Position by the name's key.
        matcher: How names of columns are compared.
        room: How deep its fields may be nested.
    """

    names: tuple[str, ...]
    children: tuple[XmlShape, ...]
    index: dict[str, int]
    folded: dict[str, int]
    matcher: NameMatcher
    room: Room = ROOM

    def find(self, name: str, *, case_sensitive: bool) -> int | None:
        """The field of a name."""
        found = self.index.get(name)
        if found is None and not case_sensitive:
            found = self.folded.get(self.matcher.key(name))
        return found


XmlShape = XmlLeaf | XmlList | XmlMap | XmlStruct


def compile_struct(
    schema: StructType,
    converter: Callable[[DataType], Convert],
    matcher: NameMatcher,
    room: Room = ROOM,
) -> XmlStruct:
    """Compile a schema; `room` is that of its fields.

    Raises:
        IncompatibleSchemaError: A column has a type that XML cannot be read into.
    """
    names = tuple(schema.names)
    return XmlStruct(
        names=names,
        children=tuple(_compile(each.dataType, converter, matcher, room) for each in schema.fields),
        index={name: index for index, name in enumerate(names)},
        folded={matcher.key(name): index for index, name in enumerate(names)},
        matcher=matcher,
        room=room,
    )


def _compile(
    kind: DataType, converter: Callable[[DataType], Convert], matcher: NameMatcher, room: Room
) -> XmlShape:
    inside = room.within(type(kind)) or NO_ROOM
    if isinstance(kind, StructType):
        return compile_struct(kind, converter, matcher, inside)
    if isinstance(kind, ArrayType):
        if isinstance(kind.elementType, ArrayType):
            raise IncompatibleSchemaError(
                f"XML has no arrays of arrays, so it cannot be read into {short_type(kind)}. "
                "Declare the column as string, which takes the XML as it is."
            )
        return XmlList(_compile(kind.elementType, converter, matcher, inside))
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise IncompatibleSchemaError(
                f"XML cannot be read as {short_type(kind)}: the names of elements are strings. "
                "Declare the keys of the map as string."
            )
        return XmlMap(_compile(kind.valueType, converter, matcher, inside))
    return XmlLeaf(kind, converter(kind))


NOWHERE: Final = -1


@dataclass(slots=True)
class SchemaNode:
    """A place where elements may stand.

    Attributes:
        shape: Of one element.
        kind: The Arrow type of one element.
        whole_kind: Of all elements that have one parent: `kind`, or a list of it.
        is_list: Whether it may come many times.
        struct: Its number among the structs; `NOWHERE` for others.
        children: The places in it, in the order of the schema.
    """

    shape: XmlShape
    kind: pa.DataType
    whole_kind: pa.DataType
    is_list: bool
    struct: int = NOWHERE
    children: list[int] = field(default_factory=list)

    @property
    def is_leaf(self) -> bool:
        """Whether texts stand here."""
        return isinstance(self.shape, XmlLeaf)


class SchemaNodes:
    """All places of a schema, the row itself first.

    Args:
        shape: The schema.
        kind: The schema as one Arrow struct.
        case_sensitive: Whether `Foo` is another field than `foo`.
    """

    def __init__(self, shape: XmlStruct, kind: pa.DataType, *, case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self._all: list[SchemaNode] = []
        self._structs: list[SchemaNode] = []
        self._add(shape, kind)
        self.structs = np.array([place.struct for place in self._all])
        self.are_leaves = np.array([place.is_leaf for place in self._all])

    def __getitem__(self, number: int) -> SchemaNode:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def size(self) -> int:
        """How many structs there are."""
        return len(self._structs)

    def table(self, names: Iterable[str], field_of: Callable[[str], str | None]) -> Positions:
        """The place of each name in each struct; `NOWHERE` where it has none.

        Args:
            names: As they stand in the rows.
            field_of: The name of a field; `None` for what is no field.
        """
        columns = [self._column(field_of(name)) for name in names]
        return np.array(columns, np.int64).reshape(len(columns), len(self._structs)).T

    def _column(self, name: str | None) -> list[int]:
        """Where a field is, in each struct."""
        found = []
        for place in self._structs:
            index = None
            if name is not None and isinstance(place.shape, XmlStruct):
                index = place.shape.find(name, case_sensitive=self._case_sensitive)
            found.append(NOWHERE if index is None else place.children[index])
        return found

    def _add(self, shape: XmlShape, kind: pa.DataType) -> int:
        whole_kind = kind
        is_list = isinstance(shape, XmlList)
        if isinstance(shape, XmlList):
            shape, kind = shape.element, kind.value_type
        place = SchemaNode(shape, kind, whole_kind, is_list)
        number = len(self._all)
        self._all.append(place)
        if isinstance(shape, XmlStruct):
            place.struct = len(self._structs)
            self._structs.append(place)
            place.children = [
                self._add(child, kind.field(index).type)
                for index, child in enumerate(shape.children)
            ]
        return number
