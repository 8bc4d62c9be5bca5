"""What does an element have to look like for a column?

A schema compiled once per reader: names to positions, leaf types to conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from airflow_cloudfiles.engine.casing import NameMatcher
from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """

    names: tuple[str, ...]
    children: tuple[XmlShape, ...]
    index: dict[str, int]
    folded: dict[str, int]
    matcher: NameMatcher

    def find(self, name: str, *, case_sensitive: bool) -> int | None:
        """The field of a name."""
        found = self.index.get(name)
        if found is None and not case_sensitive:
            found = self.folded.get(self.matcher.key(name))
        return found


XmlShape = XmlLeaf | XmlList | XmlMap | XmlStruct


def compile_struct(
    schema: StructType, converter: Callable[[DataType], Convert], matcher: NameMatcher
) -> XmlStruct:
    """Compile a schema.

    Raises:
        IncompatibleSchemaError: A column has a type that XML cannot be read into.
    """
    names = tuple(schema.names)
    return XmlStruct(
        names=names,
        children=tuple(_compile(each.dataType, converter, matcher) for each in schema.fields),
        index={name: index for index, name in enumerate(names)},
        folded={matcher.key(name): index for index, name in enumerate(names)},
        matcher=matcher,
    )


def _compile(
    kind: DataType, converter: Callable[[DataType], Convert], matcher: NameMatcher
) -> XmlShape:
    if isinstance(kind, StructType):
        return compile_struct(kind, converter, matcher)
    if isinstance(kind, ArrayType):
        if isinstance(kind.elementType, ArrayType):
            raise IncompatibleSchemaError(
                f"XML has no arrays of arrays, so it cannot be read into {short_type(kind)}. "
                "Declare the column as string, which takes the XML as it is."
            )
        return XmlList(_compile(kind.elementType, converter, matcher))
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise IncompatibleSchemaError(
                f"XML cannot be read as {short_type(kind)}: the names of elements are strings. "
                "Declare the keys of the map as string."
            )
        return XmlMap(_compile(kind.valueType, converter, matcher))
    return XmlLeaf(kind, converter(kind))
