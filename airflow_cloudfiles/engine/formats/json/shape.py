"""Compile a schema into the structure that records decode into, and convert its leaves.

A schema compiled for `msgspec`: a struct class per `StructType`, whose leaves are `Raw` (the exact
text of a value, not yet looked at), lists and dictionaries for arrays and maps. Decoding into it
checks the JSON and, with unknown fields forbidden, that the record has no field too many.

When a source has drifted for good, every record has the same field too many, or the same column
in another case. Explaining each of them would be slow, so a reader learns these fields and decodes
with a struct that has them too; what they hold is rescued just as if it had been explained.

The reference for every leaf: the conversions of Spark's JSON reader (`JacksonParser.makeConverter`,
Spark 4.3), one value at a time. The columnar conversions of `json.columns` must agree with
it for whatever they take on themselves, and hand the rest to it.

A value that Spark would change into another one does not fit where a rescued data column takes it:
a byte from 128, a decimal with more digits than the column has, a number beyond the largest double.
Where nothing takes it, it becomes what Spark makes of it (`exact`). A double is the
nearest one to its text; which of them are too far from it, `record_policy` says.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import quote
from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    Locale,
    numbered_days,
)
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.json.tokens import Grammar, key_text
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    INTEGER_BITS,
    MISFIT,
    decimal_text,
    floating,
    to_decimal,
    to_integer,
)
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.types import NO_ROOM, ROOM, Room, is_column_name, short_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.nested import JsonOptions


JsonConvert = Callable[[bytes], object]
"""From the strict JSON text of a value that is not `null` to the value Arrow stores, or `MISFIT`.

Timestamps are microseconds, dates are days since 1970-01-01.
"""

NUMBER_STARTS: Final = b"-0123456789"
_NOT_FINITE: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_MICROS: Final = 1_000_000
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_BASE64: Final = re.compile(
    r"[\x00- ]*+(?:[A-Za-z0-9+/]{4}[\x00- ]*+)*+"
    r"(?:(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)[\x00- ]*+)?"
)
"""White space between groups of four, and padding: Jackson's default variant."""


def text_of(value: bytes) -> str | None:
    """Decode a JSON string; `None` when the value is not a string or has no UTF-8."""
    if value[:1] != b'"':
        return None
    return key_text(value)  # a lone surrogate has no UTF-8, so no string column can hold it


class JsonConverters:
    """The conversions of leaves, as the options say.

    Args:
        options: Of JSON.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a value that Spark would change does not fit.

    Attributes:
        patterns: Of dates and timestamps; `None` for the default ones.
        numbers: As above.

    Raises:
        OptionError: A pattern, zone or locale that is none.
    """

    def __init__(
        self, options: JsonOptions, numbers: NumberRule = SPARK, *, exact: bool = True
    ) -> None:
        self._times = TimePatterns(options, exact=exact)
        self._not_finite, self._exact = options.allow_non_numeric_numbers, exact
        self.patterns = None if self._times.are_default else self._times
        self.numbers = numbers

    def to(self, kind: DataType) -> JsonConvert:
        """Find the conversion to a leaf type; types without one are refused by `types.to_arrow`."""
        exact, times = self._exact, self._times
        if (bits := INTEGER_BITS.get(type(kind))) is not None:
            return _to_integer(bits) if exact or bits > 8 else _to_wrapped_byte  # noqa: PLR2004
        if isinstance(kind, DecimalType):
            return _to_decimal(kind, times.locale, exact=exact)
        if isinstance(kind, DoubleType | FloatType):
            words = _NOT_FINITE if self._not_finite else {}
            return _to_floating(self.numbers, words, is_float=isinstance(kind, FloatType))
        has_day_numbers = self.patterns is None and not exact
        found = {
            StringType: _to_string,
            BooleanType: _to_boolean,
            BinaryType: _to_binary,
            DateType: _to_time(
                _or_numbered(times.date_days) if has_day_numbers else times.date_days
            ),
            TimestampType: _to_timestamp(times.timestamp_micros, exact=exact),
            TimestampNTZType: _to_time(times.local_micros),
        }.get(type(kind))
        if found is None:
            raise TypeError(f"{kind.simpleString()} is no leaf type of a JSON column")
        return found


def _to_string(value: bytes) -> object:
    if value[:1] != b'"':
        return value.decode()  # numbers, objects and arrays keep their text as it stands
    text = text_of(value)
    return MISFIT if text is None else text


def _to_boolean(value: bytes) -> object:
    return {b"true": True, b"false": False}.get(value, MISFIT)


def _to_integer(bits: int) -> JsonConvert:
    convert = to_integer(bits, _INTEGER)
    return lambda value: convert(value.decode())


def _to_wrapped_byte(value: bytes) -> object:
    """Read a byte as Jackson does: what would fit without a sign is taken for a negative one."""
    number = _to_integer(16)(value)
    if not isinstance(number, int) or not -(2**7) <= number < 2**8:
        return MISFIT
    return number if number < 2**7 else number - 2**8


def _to_floating(rule: NumberRule, words: Mapping[str, float], *, is_float: bool) -> JsonConvert:
    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            return floating(value.decode(), rule, is_float=is_float)
        return words.get(text_of(value) or "", MISFIT)

    return convert


def _to_decimal(kind: DecimalType, locale: Locale, *, exact: bool) -> JsonConvert:
    fit = to_decimal(kind, exact=exact)

    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            return fit(value.decode())
        return fit(decimal_text(text_of(value) or "", locale))

    return convert


def _to_time(parse: Callable[[str], int | None]) -> JsonConvert:
    def convert(value: bytes) -> object:
        text = text_of(value)
        number = parse(text) if text else None
        return MISFIT if number is None else number

    return convert


def _or_numbered(parse: Callable[[str], int | None]) -> Callable[[str], int | None]:
    """Dates, or day numbers."""

    def parsed(text: str) -> int | None:
        days = parse(text)
        return numbered_days(text) if days is None else days

    return parsed


def _to_timestamp(parse: Callable[[str], int | None], *, exact: bool) -> JsonConvert:
    from_text = _to_time(parse)

    def convert(value: bytes) -> object:
        if value[0] not in NUMBER_STARTS:
            return from_text(value)
        seconds = _to_integer(64)(value)
        if not isinstance(seconds, int):
            return MISFIT
        micros = seconds * _MICROS
        if -(2**63) <= micros < 2**63:
            return micros
        return MISFIT if exact else (micros + 2**63) % 2**64 - 2**63

    return convert


def _to_binary(value: bytes) -> object:
    text = text_of(value)
    if text is None or not _BASE64.fullmatch(text):
        return MISFIT
    return base64.b64decode(text)


def grammar_of(options: JsonOptions) -> Grammar:
    """Choose what is taken for JSON."""
    return Grammar(
        comments=options.allow_comments,
        single_quotes=options.allow_single_quotes,
        unquoted_names=options.allow_unquoted_field_names,
        leading_zeros=options.allow_numeric_leading_zeros,
        any_escape=options.allow_backslash_escaping_any_character,
        control_characters=options.allow_unquoted_control_chars,
        not_finite=options.allow_non_numeric_numbers,
    )


EMPTY: Final = Raw(b"")
"""What a leaf that the record does not have decodes to."""


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """A value taken as its text.

    Attributes:
        kind: The type of its column.
        convert: Converts one text.
        patterns: Converts dates and times all at once, where there are patterns for them.
        numbers: Which numbers a floating column holds.
    """

    kind: DataType
    convert: JsonConvert
    patterns: TimePatterns | None = None
    numbers: NumberRule = SPARK


@dataclass(frozen=True, slots=True)
class JsonList:
    """An array."""

    element: JsonShape


@dataclass(frozen=True, slots=True)
class JsonMap:
    """An object with keys of its own choice."""

    value: JsonShape


@dataclass(frozen=True, slots=True)
class JsonStruct:
    """An object with known fields.

    Attributes:
        names: Field names, as in the schema.
        attributes: Names of the attributes that hold them in an instance, in their order there.
        index: Position by name; `folded`: by the name's key (`NameMatcher`).
        make: The struct class.
        missing: The instance without any field.
        room: How deep its fields may be nested.
    """

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    children: tuple[JsonShape, ...]
    index: dict[str, int]
    folded: dict[str, int]
    make: Any
    missing: Any
    room: Room


JsonShape = JsonLeaf | JsonList | JsonMap | JsonStruct


def compile_struct(
    schema: StructType, converters: JsonConverters, matcher: NameMatcher, *, forbid_unknown: bool
) -> JsonStruct:
    """Compile a schema.

    Raises:
        IncompatibleSchemaError: A map has keys that are not strings, which JSON has not.
    """

    def struct(schema: StructType, room: Room) -> JsonStruct:
        names = tuple(schema.names)
        children = tuple(shape(each.dataType, room) for each in schema.fields)
        attributes = tuple(f"f{index}" for index in range(len(names)))
        make = _struct_class(attributes, names, children, forbid_unknown=forbid_unknown)
        index = {name: index for index, name in enumerate(names)}
        folded = {matcher.key(name): index for index, name in enumerate(names)}
        return JsonStruct(names, attributes, children, index, folded, make, make(), room)

    def shape(kind: DataType, room: Room) -> JsonShape:
        inside = room.within(type(kind)) or NO_ROOM
        if isinstance(kind, StructType):
            return struct(kind, inside)
        if isinstance(kind, ArrayType):
            return JsonList(shape(kind.elementType, inside))
        if not isinstance(kind, MapType):
            return JsonLeaf(kind, converters.to(kind), converters.patterns, converters.numbers)
        if not isinstance(kind.keyType, StringType):
            raise IncompatibleSchemaError(
                f"A JSON object cannot be read as {short_type(kind)}: its keys are strings. "
                "Declare the keys of the map as string."
            )
        return JsonMap(shape(kind.valueType, inside))

    return struct(schema, ROOM)


def _struct_class(
    attributes: tuple[str, ...],
    names: tuple[str, ...],
    children: tuple[JsonShape | None, ...],
    *,
    forbid_unknown: bool,
) -> Any:
    """Build a struct class; a child that is `None` is a leaf."""
    # The name of a field that msgspec cannot take is replaced by one that no record has, so
    # that records with that field take the slow path.
    spelled = {
        attribute: name if can_be_told(name) else f"airflow-cloudfiles:{attribute}"
        for attribute, name in zip(attributes, names, strict=True)
    }
    fields = [
        (attribute, Raw, EMPTY)
        if child is None or isinstance(child, JsonLeaf)
        else (attribute, _inner(child) | UnsetType, UNSET)
        for attribute, child in zip(attributes, children, strict=True)
    ]
    return msgspec.defstruct(
        "Record", fields, rename=spelled, forbid_unknown_fields=forbid_unknown, gc=False
    )


def _inner(shape: JsonShape) -> Any:
    """Build the type of this shape inside an array or map."""
    if isinstance(shape, JsonLeaf):
        return Raw
    if isinstance(shape, JsonList):
        return list[_inner(shape.element)] | None  # type: ignore[misc]
    if isinstance(shape, JsonMap):
        return dict[str, _inner(shape.value)] | None  # type: ignore[misc]
    return shape.make | None


def can_be_told(name: str) -> bool:
    """Tell whether `msgspec` takes it as a field name: UTF-8 that JSON need not escape."""
    return is_column_name(name) and not any(
        character in '"\\' or character < " " for character in name
    )


MAX_LEARNT: Final = 200
"""Fields a reader learns at most: a record of arbitrary keys would not stop otherwise."""


@dataclass(frozen=True, slots=True)
class ExtendedDecoder:
    """A decoder for the columns and some more fields.

    Attributes:
        decoder: Its instances have the attributes of the columns' struct, and more.
        fields: Of the fields besides, the key in rescued data and a function that gets the text.
        drops_nulls: Whether a field besides that is null is nothing at all.
    """

    decoder: msgspec.json.Decoder[Any]
    fields: tuple[tuple[bytes, Any], ...]
    drops_nulls: bool = False

    def members(self, rows: list[Any]) -> tuple[dict[int, bytes], int]:
        """Collect what other fields hold in rows, as members of rescued data by position.

        Returns:
            The members, and how many quotation marks they had in the source.
        """
        found: dict[int, bytes] = {}
        quotes = 0
        for key, getter in self.fields:
            values: list[Raw] = list(map(getter, rows))
            for index, value in enumerate(values):
                if value is EMPTY:
                    continue
                text = bytes(value)
                quotes += 2 + text.count(b'"')
                if self.drops_nulls and text == b"null":
                    continue
                before = found.get(index)
                found[index] = key + text if before is None else before + b"," + key + text
        return found, quotes


class UnknownFieldColumns:
    """The fields that a reader has learnt.

    Attributes:
        extended: Decodes them too; `None` as long as there are none.
    """

    def __init__(self, shape: JsonStruct, *, drops_nulls: bool = False) -> None:
        self._shape = shape
        self._drops_nulls = drops_nulls
        self._names: list[str] = []
        self._spelled: dict[int, str] = {}
        self._learnt = 0
        self.extended: ExtendedDecoder | None = None

    def learn(self, unknown: set[str], spelled: dict[int, str]) -> None:
        """Learn unknown fields, and how columns are spelled where case does not matter.

        Every call may be given all of what was met so far.
        """
        new = [name for name in unknown.difference(self._names) if can_be_told(name)]
        respelled = {
            index: name
            for index, name in spelled.items()
            if self._spelled.get(index) != name and can_be_told(name)
        }
        if not (new or respelled) or self._learnt >= MAX_LEARNT:
            return
        self._learnt += 1
        self._names = sorted([*self._names, *new])[:MAX_LEARNT]
        self._spelled |= respelled
        attributes = [f"x{index}" for index in range(len(self._names))]
        make = _struct_class(
            (*self._shape.attributes, *attributes),
            (*(self._spelled.get(*each) for each in enumerate(self._shape.names)), *self._names),
            (*self._shape.children, *[None] * len(attributes)),
            forbid_unknown=True,
        )
        fields = [
            (quote(name).encode() + b":", attrgetter(attribute))
            for attribute, name in zip(attributes, self._names, strict=True)
        ]
        self.extended = ExtendedDecoder(
            msgspec.json.Decoder(make), tuple(fields), self._drops_nulls
        )
