"""Say what an element has to look like for a column, and give each its place in the schema.

A schema compiled once per reader: names to positions, leaf types to conversions. As a flat list,
its places are where elements and attributes may stand, with tables from place and name to place.

Places are found level by level, all rows at once. A row is refused, and explained one by one, when
something in it has no place, stands in two ways in one place, or is more than the text that should
be there.

Texts are cast one value at a time (`converter`) and whole columns at once (`cast`), which agree.
The conversions are those of Spark's XML reader (`StaxXmlParser.convertTo`, Spark 4.3), but a text
that Spark would change into another value does not fit where a rescued data column takes it: a
number with something behind it, out of range, or with more digits than the column has.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import Positions
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    INTEGER_BITS,
    MISFIT,
    Cast,
    Convert,
    decimal_text,
    java_double,
    plain_floating,
    to_decimal,
    to_integer,
    to_time,
)
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.options.formats.nested import XmlOptions
from airflow_cloudfiles.engine.types import NO_ROOM, ROOM, Room, short_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_cloudfiles.engine.formats.xml.pieces import Elements
    from airflow_cloudfiles.engine.formats.xml.tree import Values


_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")
_NOT_FINITE: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
_BEGINNING: Final = re.compile(r"(-?)(?=,*\.?\d)([\d,]*)(?:\.(\d*))?(?:E(-?\d+))?", flags=re.DOTALL)
"""A number at the beginning of a text, with commas between its digits."""
_NEGATED: Final = {"+": "-", "-": "+"}
_HEXADECIMAL: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


class TextCasts:
    """Converts texts as the options say.

    Args:
        options: Patterns, zone and locale.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text that Spark would change does not fit.

    Attributes:
        locale: How decimals are written.

    Raises:
        OptionError: A pattern, a time zone or a locale is none.
    """

    def __init__(
        self, options: XmlOptions, numbers: NumberRule = SPARK, *, exact: bool = True
    ) -> None:
        self._numbers, self._exact = numbers, exact
        # Spark's XML reader takes dates by this pattern where its JSON reader takes more.
        self._moments = TimePatterns(options, default_date="yyyy-MM-dd", exact=exact)
        self.locale = self._moments.locale

    def converter(self, kind: DataType) -> Convert:
        """Find the conversion to a leaf type.

        Raises:
            IncompatibleSchemaError: The type has none.
        """
        if isinstance(kind, StringType):
            return str
        if isinstance(kind, DecimalType):
            fit = to_decimal(kind, exact=self._exact)
            return lambda text: fit(decimal_text(text, self.locale))
        if type(kind) in INTEGER_BITS:
            convert = to_integer(INTEGER_BITS[type(kind)], _INTEGER)
            may_be_signed_twice = isinstance(kind, IntegerType | LongType) and not self._exact
            return _signed_twice(convert) if may_be_signed_twice else convert
        simple: dict[type[DataType], Convert] = {
            BooleanType: lambda text: _BOOLEANS.get(text.lower(), MISFIT),
            DoubleType: self._floating(is_float=False),
            FloatType: self._floating(is_float=True),
            BinaryType: lambda text: (
                bytes.fromhex(text) if _HEXADECIMAL.fullmatch(text) else MISFIT
            ),
        }
        found = simple.get(type(kind)) or to_time(kind, self._moments)
        if found is None:
            raise IncompatibleSchemaError(
                f"XML cannot be read into a column of type {short_type(kind)}. Declare it as "
                "string, or leave it out."
            )
        return found

    def _floating(self, *, is_float: bool) -> Convert:
        convert = plain_floating(self._numbers, is_float=is_float, words=_NOT_FINITE)
        return convert if self._exact else _or_its_beginning(convert, is_float=is_float)

    def cast(
        self, texts: pa.Array, kind: pa.DataType, convert: Convert
    ) -> tuple[pa.Array, Positions]:
        """Convert a column.

        Args:
            texts: Strings; what is null stays null.
            kind: Of the result.
            convert: The conversion of one text to that type.

        Returns:
            The array, and which values do not fit, which are null in it.
        """
        cast = Cast(kind, convert, self._moments, self._numbers)
        return cast.one_by_one(texts) if pa.types.is_binary(kind) else cast(texts)


def _signed_twice(convert: Convert) -> Convert:
    """Spark takes a sign off and parses the rest, which may have one of its own."""

    def converted(text: str) -> object:
        if text[:1] in {"+", "-"} and text[1:2] in {"+", "-"}:
            text = text[1:] if text[0] == "+" else _NEGATED[text[1]] + text[2:]
        return convert(text)

    return converted


def _or_its_beginning(convert: Convert, *, is_float: bool) -> Convert:
    """Spark also takes the number that a text begins with (Java's `NumberFormat.parse`)."""

    def converted(text: str) -> object:
        number = convert(text)
        if number is MISFIT:
            number = _beginning_of(text)
        is_wide = is_float and isinstance(number, float)
        return pa.scalar(number).cast(pa.float32(), safe=False).as_py() if is_wide else number

    return converted


def _beginning_of(text: str) -> object:
    sign, plain = (-1.0, text[1:]) if text[:1] == "-" else (1.0, text.removeprefix("+"))
    number = java_double(plain, infinite=True)
    if number is not None:
        return sign * number
    found = _BEGINNING.match(plain)
    if found is None:
        return MISFIT
    minus, whole, fraction, exponent = found.groups()
    number = float(f"{minus}{whole.replace(',', '') or 0}.{fraction or 0}e{exponent or 0}")
    return sign * number


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
    room: Room

    def find(self, name: str, *, case_sensitive: bool) -> int | None:
        """Find the field of a name."""
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

    def struct(schema: StructType, room: Room) -> XmlStruct:
        names = tuple(schema.names)
        children = tuple(shape(each.dataType, room) for each in schema.fields)
        index = {name: index for index, name in enumerate(names)}
        folded = {matcher.key(name): index for index, name in enumerate(names)}
        return XmlStruct(names, children, index, folded, matcher, room)

    def shape(kind: DataType, room: Room) -> XmlShape:
        inside = room.within(type(kind)) or NO_ROOM
        if isinstance(kind, StructType):
            return struct(kind, inside)
        if isinstance(kind, ArrayType):
            if isinstance(kind.elementType, ArrayType):
                raise IncompatibleSchemaError(
                    "XML has no arrays of arrays, so it cannot be read into "
                    f"{short_type(kind)}. Declare the column as string, which takes the XML as it "
                    "is."
                )
            return XmlList(shape(kind.elementType, inside))
        if not isinstance(kind, MapType):
            return XmlLeaf(kind, converter(kind))
        if not isinstance(kind.keyType, StringType):
            raise IncompatibleSchemaError(
                f"XML cannot be read as {short_type(kind)}: the names of elements are strings. "
                "Declare the keys of the map as string."
            )
        return XmlMap(shape(kind.valueType, inside))

    return struct(schema, ROOM)


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
        """Count the structs."""
        return len(self._structs)

    def table(self, names: Iterable[str], field_of: Callable[[str], str | None]) -> Positions:
        """Build the place of each name in each struct; `NOWHERE` where it has none.

        Args:
            names: As they stand in the rows.
            field_of: The name of a field; `None` for what is no field.
        """
        columns = [self._column(field_of(name)) for name in names]
        return np.array(columns, np.int64).reshape(len(columns), len(self._structs)).T

    def _column(self, name: str | None) -> list[int]:
        """Find where a field is, in each struct."""
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


_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class NodeValues:
    """Where the values of one place come from, in the order of the rows.

    Attributes:
        parents: For each its parent, by number among those that stand in the place above.
        rows: For each its row.
        texts: For each the piece before its text; -1 for an empty element.
        are_attributes: Whether they are attributes.
    """

    parents: Positions
    rows: Positions
    texts: Positions
    are_attributes: bool = False


@dataclass
class ElementPlaces:
    """The places of the elements of some rows.

    Attributes:
        elements: The elements.
        places: The schema.
        elements_at: The place of each name in each struct.
        attributes_at: The place of each attribute in each struct.
        texts_at: The place of `valueTag` in each struct.
        ignores_unknown: Whether fields that have no place are dropped.
        ignores_attributes: Whether attributes are.
        rescues_unknown: Whether elements that have no place, and nothing but text, stay in rows.
        count: How many rows there are.
        taken: The position that was given, for each row.
        bad: The rows that are refused.
        between: Pieces behind which no text may be.
        beside: Pieces behind which texts beside attributes may be.
        beside_is_blank: Whether there is none, for each.
        unknown: Elements that stay though they have no place.
    """

    elements: Elements
    places: SchemaNodes
    elements_at: Positions
    attributes_at: Positions
    texts_at: Positions
    ignores_unknown: bool
    ignores_attributes: bool
    rescues_unknown: bool

    def __post_init__(self) -> None:
        self.unknown = _NONE
        self.count, self.taken = self.elements.count, self.elements.taken
        # Whatever is nowhere (-1, the last one) is no struct and no leaf.
        self._structs = np.append(self.places.structs, NOWHERE)
        self._are_leaves = np.append(self.places.are_leaves, False)
        self.bad = np.zeros(self.elements.count, np.bool_)
        self._where = self._find()
        self._of_place = _grouped(self._where)
        self._numbers = np.zeros(len(self._where), np.int64)
        for members in self._of_place.values():
            self._numbers[members] = np.arange(len(members))
        self._attributes = self._find_attributes()
        self._tagged: dict[int, Positions] = {}

    def find_texts(self, values: Values) -> None:
        """Find the place of texts beside attributes, and refuse those beside elements."""
        every = self.elements
        self.between = every.between
        self.bad[every.between_rows[~values.are_blank(every.between)]] = True
        structs = self._structs[self._where]
        texts = np.flatnonzero((structs >= 0) & every.is_leaf & (every.texts >= 0))
        self.beside = every.texts[texts]
        self.beside_is_blank = values.are_blank(self.beside)
        texts = texts[~self.beside_is_blank]
        found = self.texts_at[structs[texts]]
        self._refuse_unknown(texts[found < 0])
        self._tagged = {place: texts[members] for place, members in _grouped(found).items()}

    def source(self, place: int) -> NodeValues:
        """Return what stands in a place: elements, or attributes, or texts."""
        every = self.elements
        elements = self._of_place.get(place, _NONE)
        attributes = self._attributes.get(place, _NONE)
        tagged = self._tagged.get(place, _NONE)
        single = self.places[place].is_leaf and not self.places[place].is_list
        owners = every.attribute_owners[attributes]
        if len(elements) or not single:
            self.bad[every.rows[owners]] = True
            self.bad[every.rows[tagged]] = True
            parents = self._numbers[every.parents[elements]]
            return NodeValues(parents, every.rows[elements], every.texts[elements])
        if len(attributes):
            self.bad[every.rows[tagged]] = True
            pieces = every.attributes[attributes]
            return NodeValues(
                self._numbers[owners], every.rows[owners], pieces, are_attributes=True
            )
        return NodeValues(self._numbers[tagged], every.rows[tagged], every.texts[tagged])

    def _find(self) -> Positions:
        """Find the place of each element."""
        every = self.elements
        where = np.zeros(len(every.rows), np.int64)
        for level in range(2, int(every.levels.max(initial=0)) + 1):
            here = np.flatnonzero(every.levels == level)
            inside = self._structs[where[every.parents[here]]]
            where[here] = np.where(inside < 0, NOWHERE, self.elements_at[inside, every.names[here]])
        self._refuse_unknown(self._without_rescued(np.flatnonzero(where < 0)))
        leaves, structs = self._are_leaves[where], self._structs[where] >= 0
        wrong = (leaves & ~every.is_leaf) | ((where >= 0) & ~leaves & ~structs)
        self.bad[every.rows[wrong]] = True
        return where

    def _without_rescued(self, unknown: Positions) -> Positions:
        """Select the elements that are not in a row itself, or have more than text."""
        if not self.rescues_unknown:
            return unknown
        every = self.elements
        simple = (every.levels[unknown] == 2) & every.is_leaf[unknown]  # noqa: PLR2004 - in a row
        simple &= ~np.isin(unknown, every.attribute_owners)
        self.unknown = unknown[simple]
        others: Positions = unknown[~simple]
        return others

    def names_at(self, place: int) -> list[int]:
        """List the numbers of the names of the elements in a place."""
        names: list[int] = self.elements.names[self._of_place.get(place, _NONE)].tolist()
        return names

    def unknown_elements(self) -> tuple[list[int], list[int]]:
        """List the numbers of the names of `unknown`, and the piece before the text of each."""
        every = self.elements
        return every.names[self.unknown].tolist(), every.texts[self.unknown].tolist()

    def _find_attributes(self) -> dict[int, Positions]:
        """Find the attributes in each place; one that comes twice is an error of the row."""
        every = self.elements
        owners = every.attribute_owners
        if not len(owners):
            return {}
        pairs = owners * (int(every.attribute_names.max()) + 1) + every.attribute_names
        _, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
        self.bad[every.rows[owners[firsts[counts > 1]]]] = True
        if self.ignores_attributes:
            return {}
        inside = self._structs[self._where[owners]]
        found = np.where(inside < 0, NOWHERE, self.attributes_at[inside, every.attribute_names])
        self._refuse_unknown(owners[found < 0])
        return _grouped(found)

    def _refuse_unknown(self, elements: Positions) -> None:
        if not self.ignores_unknown:
            self.bad[self.elements.rows[elements]] = True


def _grouped(places: Positions) -> dict[int, Positions]:
    """Group what is in each place, in order."""
    # NumPy sorts numbers of 16 bits by radix, in a fraction of the time.
    is_short = len(places) and int(places.max()) < np.iinfo(np.int16).max
    order = np.argsort(places.astype(np.int16) if is_short else places, kind="stable")
    ordered = places[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    parts = np.split(order, begins[1:])
    return {
        int(ordered[begin]): part
        for begin, part in zip(begins, parts, strict=False)
        if ordered[begin] >= 0
    }
