"""Compile a schema into the structure that records decode into.

A schema compiled for `msgspec`: a struct class per `StructType`, whose leaves are `Raw` (the exact
text of a value, not yet looked at), lists and dictionaries for arrays and maps. Decoding into it
checks the JSON and, with unknown fields forbidden, that the record has no field too many.

Fields outside the schema that keep coming, record after record, are decoded, too.

When a source has drifted for good, every record has the same field too many, or the same column
in another case. Explaining each of them would be slow, so a reader learns these fields and decodes
with a struct that has them too; what they hold is rescued just as if it had been explained.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import quote
from airflow_cloudfiles.engine.formats.json.converters import (
    DEFAULT_RULES,
    JsonConvert,
    JsonScalarRules,
    converter,
)
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.types import NO_ROOM, ROOM, Room, is_column_name, short_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns

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
    room: Room = ROOM


JsonShape = JsonLeaf | JsonList | JsonMap | JsonStruct


def compile_struct(
    schema: StructType,
    *,
    forbid_unknown: bool,
    rules: JsonScalarRules = DEFAULT_RULES,
    matcher: NameMatcher = CASE_INSENSITIVE,
    room: Room = ROOM,
) -> JsonStruct:
    """Compile a schema; `room` is that of its fields.

    Raises:
        IncompatibleSchemaError: A map has keys that are not strings, which JSON has not.
    """
    names = tuple(schema.names)
    children = tuple(
        _compile(each.dataType, forbid_unknown, rules, matcher, room) for each in schema.fields
    )
    attributes = tuple(f"f{index}" for index in range(len(names)))
    make = _struct_class(attributes, names, children, forbid_unknown=forbid_unknown)
    return JsonStruct(
        names=names,
        attributes=attributes,
        children=children,
        index={name: index for index, name in enumerate(names)},
        folded={matcher.key(name): index for index, name in enumerate(names)},
        make=make,
        missing=make(),
        room=room,
    )


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


def _compile(
    kind: DataType,
    forbid_unknown: bool,  # noqa: FBT001 - private
    rules: JsonScalarRules,
    matcher: NameMatcher,
    room: Room,
) -> JsonShape:
    inside = room.within(type(kind)) or NO_ROOM
    if isinstance(kind, StructType):
        return compile_struct(
            kind, forbid_unknown=forbid_unknown, rules=rules, matcher=matcher, room=inside
        )
    if isinstance(kind, ArrayType):
        return JsonList(_compile(kind.elementType, forbid_unknown, rules, matcher, inside))
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            message = (
                f"A JSON object cannot be read as {short_type(kind)}: its keys are strings. "
                "Declare the keys of the map as string."
            )
            raise IncompatibleSchemaError(message)
        return JsonMap(_compile(kind.valueType, forbid_unknown, rules, matcher, inside))
    return JsonLeaf(kind, converter(kind, rules), rules.patterns, rules.numbers)


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
class Extended:
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
        self.extended: Extended | None = None

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
        self.extended = Extended(msgspec.json.Decoder(make), tuple(fields), self._drops_nulls)
