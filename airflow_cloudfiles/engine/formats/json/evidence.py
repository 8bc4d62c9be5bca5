"""Gather what is known of JSON records, place by place.

An object, an array, a map or a leaf: what values have shown so far, which is more than the type it
comes to (whether a null was met beside an empty object, say).

One value that is neither null, empty nor nested tells a type of its column.

Spark's rules (`JsonInferSchema.inferField`), with the options `primitivesAsString`,
`prefersDecimal` and `inferTimestamp`. A decimal with a negative scale, which Spark refuses together
with its record, is a whole number here.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.scalars import (
    JAVA_NUMBER,
    decimal_text,
    decimal_type,
    digits_of,
    exact_decimal,
)
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, canonical, merge_types

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.json import JsonOptions


def _fraction(text: str) -> Decimal | float:
    """Parse a fraction or exponent; a double where no `Decimal` has such an exponent."""
    found = exact_decimal(text)
    return float(text) if found is None else found


PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_EXACT: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(float_hook=_fraction)

STRING: Final = StringType()
BOOLEAN: Final = BooleanType()
LONG: Final = LongType()
DOUBLE: Final = DoubleType()
_TIMESTAMP: Final = TimestampType()
_LONGEST: Final = 100


class LeafTypes:
    """Tells types by the options of a source.

    Args:
        options: The options of JSON.
        typed: Whether there are other types than strings (`cloudFiles.inferColumnTypes`; B23).

    Attributes:
        decoder: Decodes records so that `of` can tell.
    """

    def __init__(self, options: JsonOptions, *, typed: bool) -> None:
        self._typed = typed
        self._has_primitives = typed and not options.primitives_as_string
        self._decimals = typed and options.prefers_decimal
        self._patterns = TimePatterns.of(options)
        self._timestamps = typed and options.infer_timestamp
        self.decoder = _EXACT if self._decimals else PLAIN

    def of(self, value: object) -> DataType:
        """Find the type of a value as `decoder` gives it, or of something nested taken as text."""
        if not self._typed or isinstance(value, dict | list):
            return STRING
        if isinstance(value, str):
            return self._of_text(value)
        if not self._has_primitives:
            return STRING
        if isinstance(value, bool):
            return BOOLEAN
        if isinstance(value, int):
            return _integer_type(value)
        return decimal_type(value) if isinstance(value, Decimal) else DOUBLE

    def _of_text(self, text: str) -> DataType:
        if self._decimals:
            found = _text_type(decimal_text(text, self._patterns.locale))
            if found is not None:
                return found
        if self._timestamps and self._patterns.timestamp_micros(text) is not None:
            return _TIMESTAMP
        return STRING


def _integer_type(value: int) -> DataType:
    """Long, or the decimal of just its digits, or double past 38 digits."""
    if -(2**63) <= value < 2**63:
        return LONG
    if abs(value) >= 10**MAX_DECIMAL_PRECISION:
        return DOUBLE
    return DecimalType(len(str(abs(value))), 0)


def _text_type(text: str) -> DataType | None:
    """Find the decimal that a text is, if it is one that Spark can name."""
    if len(text) > _LONGEST or not JAVA_NUMBER.fullmatch(text):
        return None
    number = exact_decimal(text)
    if number is None:
        return None
    precision, scale = digits_of(number)
    named = 0 <= scale <= precision <= MAX_DECIMAL_PRECISION
    return DecimalType(precision, scale) if named else None


class UnseenType(NullType):
    """No value yet, not even null. A class of its own, since leaf types are singletons."""


UNSEEN: Final = UnseenType()
NULL: Final = NullType()
"""No value yet but null or the empty string."""


@dataclasses.dataclass(slots=True, eq=False)
class FixedType:
    """A column whose type is known beforehand and has nothing inside that could be new."""

    data_type: DataType


@dataclasses.dataclass(slots=True, eq=False)
class FieldEvidence:
    """What is known of one field: the first spelling of its name, and its kind."""

    name: str
    kind: Evidence = UNSEEN


@dataclasses.dataclass(slots=True, eq=False)
class ObjectEvidence:
    """What is known of the objects in one place: their fields by every spelling met."""

    fields: dict[str, FieldEvidence] = dataclasses.field(default_factory=dict)
    spellings: dict[str, FieldEvidence | None] = dataclasses.field(default_factory=dict)
    was_null: bool = False
    is_fixed: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class ArrayEvidence:
    """What is known of the elements of the arrays in one place."""

    element: Evidence = UNSEEN
    was_null: bool = False
    is_fixed: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class MapEvidence:
    """What is known of the values of a column that is known to be a map."""

    key_type: DataType
    value: Evidence


Evidence = DataType | FixedType | ObjectEvidence | ArrayEvidence | MapEvidence
"""What is known in one place; a `DataType` is a leaf that values may still widen."""


def clash(kind: Evidence) -> Evidence:
    """Combine with another shape: a string holds both, unless the type is known beforehand."""
    fixed = isinstance(kind, MapEvidence) or (
        isinstance(kind, ObjectEvidence | ArrayEvidence) and kind.is_fixed
    )
    return kind if fixed else STRING


def widen_leaf(kind: DataType, leaf: DataType) -> DataType:
    """Merge two leaves; the very same object when nothing changes, and for all strings."""
    merged = merge_types(kind, leaf)
    if merged == kind:
        return kind
    return STRING if isinstance(merged, StringType) else merged


def known_object(schema: StructType, matcher: NameMatcher) -> ObjectEvidence:
    """Build what is known beforehand of records that have a schema."""
    known = ObjectEvidence(is_fixed=True)
    for column in schema.fields:
        field = known.fields.setdefault(matcher.key(column.name), FieldEvidence(column.name))
        field.kind = known_type(column.dataType, matcher)
        known.spellings[column.name] = field
    return known


def known_type(kind: DataType, matcher: NameMatcher) -> Evidence:
    """Build what is known beforehand of a column of a type."""
    if isinstance(kind, StructType):
        return known_object(kind, matcher)
    if isinstance(kind, ArrayType):
        return ArrayEvidence(known_type(kind.elementType, matcher), is_fixed=True)
    if isinstance(kind, MapType):
        return MapEvidence(kind.keyType, known_type(kind.valueType, matcher))
    return FixedType(kind)


def struct_type(known: ObjectEvidence) -> StructType:
    """Return the type that objects come to."""
    return StructType(
        [StructField(field.name, data_type(field.kind)) for field in known.fields.values()]
    )


def data_type(kind: Evidence) -> DataType:
    """Return the type that values come to; `NullType` where none has shown any."""
    found: DataType
    if isinstance(kind, ObjectEvidence):
        found = struct_type(kind)
    elif isinstance(kind, ArrayEvidence):
        found = ArrayType(data_type(kind.element))
    elif isinstance(kind, MapEvidence):
        return MapType(kind.key_type, data_type(kind.value))
    else:
        found = kind.data_type if isinstance(kind, FixedType) else kind
        return NULL if found is UNSEEN else found
    return NULL if kind.was_null and canonical(found) is None else found
