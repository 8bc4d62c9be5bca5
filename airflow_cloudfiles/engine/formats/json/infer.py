"""Infer the fields of JSON records, and their types.

What is known so far is compiled into a check that whole blocks of records either pass (then they
have nothing to add and are done with at the speed of parsing) or fail (then the records that fail
are walked, one by one, and widen what is known). The result does not depend on how the records
were cut into blocks.

What clashes with a schema that is known beforehand teaches nothing (the reader rescues it), so
that it cannot hide new fields beside it.

Types follow `spark.read.json` with its options (`JsonInferSchema.inferField`), in string mode with
`primitivesAsString`: null and the empty string say nothing about a type; whole numbers past 64 bits
are decimals; whatever clashes is a string. Ours: the order of first appearance, names equal but for
case are one column (B15); what is not a JSON object (or an array of them) is passed over here, and
the reader accounts for it; a field that is an empty object in one record but null in another is a
string, not nothing, for the reader calls a null field new; and a decimal with a negative scale,
which Spark refuses together with its record, is a whole number.

The value of one line is read by the tolerant rules of the reader.
"""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast
from zlib import crc32

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

from airflow_cloudfiles.engine.formats.base import OpenedFile, line_blocks
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.json import tokens as json_lines
from airflow_cloudfiles.engine.formats.json.shape import can_be_told, grammar_of
from airflow_cloudfiles.engine.formats.json.tokens import DEFAULT, Grammar, NotJsonError, key_text
from airflow_cloudfiles.engine.formats.scalars import (
    JAVA_NUMBER,
    decimal_text,
    decimal_type,
    digits_of,
    exact_decimal,
    integer_type,
)
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.types import (
    MAX_DECIMAL_PRECISION,
    canonical,
    is_column_name,
    merge_types,
    seen_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from airflow_cloudfiles.engine.options.formats.nested import JsonOptions


def _fraction(text: str) -> Decimal | float:
    """Parse a fraction or exponent; a double where no `Decimal` has such an exponent."""
    found = exact_decimal(text)
    return float(text) if found is None else found


PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_EXACT: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(float_hook=_fraction)

STRING: Final = StringType()
BOOLEAN: Final = BooleanType()
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
        self._patterns = TimePatterns(options)
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
            return integer_type(value, LongType)
        return decimal_type(value) if isinstance(value, Decimal) else DOUBLE

    def _of_text(self, text: str) -> DataType:
        if self._decimals:
            found = _text_type(decimal_text(text, self._patterns.locale))
            if found is not None:
                return found
        if self._timestamps and self._patterns.timestamp_micros(text) is not None:
            return _TIMESTAMP
        return STRING


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


_LONG_DIGITS: Final = 20
"""Digits of the decimal that holds every long, in Spark's arithmetic of types."""

_KEPT_UNSEEN: Final = 100
"""Records that are learned from after all when the share that is looked at had none."""
_CHUNK_BYTES: Final = 64 * 1024
"""Checked at once: small enough for the processor's cache, large enough to spread the call."""
_WALKED_BEFORE_COMPILING: Final = 64
"""Compiling a check costs as much as walking some dozens of records of as many fields."""
_MOST_FIELDS_COMPILED: Final = 4000
"""Past this the keys are likely data (ids as keys), and every compiled check is soon outdated."""

_NOTHING: Final[Any] = Literal[""] | None
_PLAIN_TIMESTAMP: Final[Any] = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:|[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])[ T](?:[01][0-9]|2[0-3])"
        r":[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-]0[0-9]:?[0-5][0-9])?)\Z"
    ),
]
"""What surely is a timestamp by Spark's default, or empty: most of them, cheaply."""
_ANY_LONG: Final[Any] = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class JsonInference:
    """Learns the schema of line-delimited JSON.

    Args:
        options: Of the source. With `cloudFiles.inferColumnTypes` booleans, longs and doubles are
            inferred (B6), otherwise every leaf is a string (B5).
        known: A schema the records are read with already; what they have besides is appended to
            it, its own types stay.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        own = self._own = cast("JsonOptions", options.format_options)
        self._leaves = LeafTypes(own, typed=options.infer_column_types)
        self._grammar = grammar_of(own)
        self._separator = None if own.line_sep is None else own.line_sep.encode()
        self._drops_nulls = own.drop_field_if_all_null
        # What is new beside a known schema must be found, however rare it is.
        self._ratio = own.sampling_ratio if known is None else 1.0
        self._unseen = b""
        self._matcher = options.matcher
        self._key_of = self._matcher.key
        self._root = ObjectEvidence() if known is None else known_object(known, self._matcher)
        self._size = 0
        self._check: msgspec.json.Decoder[Any] | None = None
        self._is_outdated = True
        self._walked = 0

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from the records of one file, block by block."""
        for block in line_blocks(file, self._own):
            self.add(block)
            yield len(block)

    def add(self, data: bytes) -> None:
        """Learn from complete lines, without a byte order mark, in UTF-8."""
        if self._separator is not None:
            data = json_lines.as_lines(data.split(self._separator), self._grammar, [])
        for begin, end in json_lines.chunks(data, _CHUNK_BYTES):
            chunk = data[begin:end]
            some = chunk if self._ratio == 1.0 else self._sampled(chunk)
            if some and not (self._check is not None and _takes(self._check.decode_lines, some)):
                self._learn(some.splitlines())

    def _sampled(self, chunk: bytes) -> bytes:
        """Select the lines that are looked at: the same ones however the records are cut."""
        limit = int(self._ratio * 2**32)
        lines = chunk.splitlines(keepends=True)
        if not self._unseen and self._ratio < 1:
            self._unseen = b"".join(lines[:_KEPT_UNSEEN])
        return b"".join(line for line in lines if crc32(line.rstrip()) < limit)

    def result(self) -> StructType:
        """Return what is known: `NullType` where no value has shown a type, maybe empty structs."""
        if not self._root.fields:  # better a few records than none
            self._learn(self._unseen.splitlines())
        found = struct_type(self._root)
        return (seen_part(found) or StructType()) if self._drops_nulls else found

    def _learn(self, lines: Iterable[bytes]) -> None:
        """Walk the records that do not fit what is known; renew the check as it pays."""
        for line in lines:
            if self._check is not None and _takes(self._check.decode, line):
                continue
            self._walk(parse_line(line, self._grammar, self._leaves.decoder))
            self._walked += 1
            if self._is_outdated and self._walked >= max(_WALKED_BEFORE_COMPILING, self._size):
                self._compile()

    def _compile(self) -> None:
        self._walked = 0
        self._is_outdated = False
        too_many = self._size > _MOST_FIELDS_COMPILED
        self._check = None if too_many else msgspec.json.Decoder(_checked_object(self._root))

    def _walk(self, record: object) -> None:
        """Learn from one line: an object, or (as Spark reads it) an array of objects."""
        records = record if isinstance(record, list) else [record]
        objects = [each for each in records if isinstance(each, dict)]
        if len(objects) == len(records):
            for each in objects:
                self._widen_object(self._root, each, 1)

    def _widen_object(self, known: ObjectEvidence, value: dict[str, object], depth: int) -> None:
        for name, child in value.items():
            field = known.spellings[name] if name in known.spellings else self._spell(known, name)
            if field is None or field.kind is STRING:
                continue
            field.kind = self._noted(field.kind, self._widen(field.kind, child, depth + 1))

    def _spell(self, known: ObjectEvidence, name: str) -> FieldEvidence | None:
        """Take down a new spelling: of a new field, or of one known under another."""
        key = self._key_of(name)
        field = known.fields.get(key)
        if field is None and is_column_name(name):
            field = known.fields[key] = FieldEvidence(name)
        known.spellings[name] = field
        self._size += 1
        self._is_outdated = True
        return field

    def _widen(self, kind: Evidence, value: object, depth: int) -> Evidence:
        """Build the kind that also holds a value; the same object when it already does."""
        if kind is STRING or isinstance(kind, FixedType):
            return kind
        if value is None or value == "":
            return self._widen_by_null(kind)
        if depth <= MAX_DEPTH and isinstance(value, dict):
            return self._widen_by_object(kind, value, depth)
        if depth <= MAX_DEPTH and isinstance(value, list):
            return self._widen_by_array(kind, value, depth)
        if not isinstance(kind, DataType):
            return clash(kind)
        leaf = self._leaves.of(value)
        return leaf if isinstance(kind, NullType) or kind is leaf else widen_leaf(kind, leaf)

    def _widen_by_null(self, kind: Evidence) -> Evidence:
        if isinstance(kind, ObjectEvidence | ArrayEvidence) and not kind.was_null:
            kind.was_null = True
            self._is_outdated = True
        return NULL if kind is UNSEEN else kind

    def _widen_by_object(self, kind: Evidence, value: dict[str, object], depth: int) -> Evidence:
        known = ObjectEvidence(was_null=kind is NULL) if isinstance(kind, NullType) else kind
        if isinstance(known, MapEvidence):
            for each in value.values():
                known.value = self._noted(known.value, self._widen(known.value, each, depth + 1))
        elif isinstance(known, ObjectEvidence):
            self._widen_object(known, value, depth)
        else:
            return clash(known)
        return known

    def _widen_by_array(self, kind: Evidence, value: list[object], depth: int) -> Evidence:
        known = ArrayEvidence(was_null=kind is NULL) if isinstance(kind, NullType) else kind
        if not isinstance(known, ArrayEvidence):
            return clash(known)
        for each in value or (None,):
            known.element = self._noted(known.element, self._widen(known.element, each, depth + 1))
        return known

    def _noted(self, before: Evidence, after: Evidence) -> Evidence:
        """Take down whether something was learnt."""
        self._is_outdated = self._is_outdated or after is not before
        return after


def _takes(decode: Callable[[bytes], object], records: bytes) -> bool:
    """Tell whether records fit what is known, so that there is nothing to learn."""
    try:
        decode(records)
    except UNPARSABLE:
        return False
    return True


def _checked_object(known: ObjectEvidence) -> Any:
    """Build a msgspec type that takes the objects with nothing to add to what is known.

    A name that msgspec cannot have is left out: records with it never pass and are walked.
    """
    fields: list[tuple[str, Any, None]] = []
    names: dict[str, str] = {}
    for name, field in known.spellings.items():
        if field is None or not can_be_told(name):
            continue
        names[f"f{len(fields)}"] = name
        fields.append((f"f{len(fields)}", _checked(field.kind), None))
    return msgspec.defstruct(
        "Checked", fields, rename=names, forbid_unknown_fields=True, gc=False, frozen=False
    )


def _checked(kind: Evidence) -> Any:
    """Build a msgspec type that takes the values with nothing to add to a kind."""
    if kind is STRING or isinstance(kind, FixedType):
        return msgspec.Raw
    if isinstance(kind, ObjectEvidence):
        found = _checked_object(kind)
    elif isinstance(kind, ArrayEvidence):
        of_some = msgspec.Meta(min_length=0 if _was_null(kind.element) else 1)
        found = Annotated[list[_checked(kind.element)], of_some]  # type: ignore[misc]
    elif isinstance(kind, MapEvidence):
        found = dict[str, _checked(kind.value)]  # type: ignore[misc]
    else:
        return _checked_leaf(kind)
    return found | _NOTHING if _was_null(kind) else found


def _was_null(kind: Evidence) -> bool:
    """Tell whether another null has nothing to add; leaves do not care."""
    return kind is not UNSEEN and getattr(kind, "was_null", True)


def _checked_leaf(kind: DataType) -> Any:
    """Build `_checked` for a leaf; null and the empty string fit every kind."""
    if isinstance(kind, BooleanType):
        return bool | _NOTHING
    if isinstance(kind, DoubleType):
        return float | _NOTHING
    if isinstance(kind, TimestampType):
        return _PLAIN_TIMESTAMP | None
    holds_longs = isinstance(kind, DecimalType) and kind.precision - kind.scale >= _LONG_DIGITS
    if isinstance(kind, LongType) or holds_longs:
        return _ANY_LONG | _NOTHING
    return _NOTHING


MAX_DEPTH: Final = 100
"""Objects and arrays nested deeper are kept as text in a string column."""
UNPARSABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for what is no strict JSON."""
_NOT_FINITE: Final = (b"NaN", b"Infinity", b"INF")
_SOME_STRING: Final = "?"


def parse_line(
    line: bytes, grammar: Grammar = DEFAULT, decoder: msgspec.json.Decoder[Any] = PLAIN
) -> object:
    """Parse one line with the tolerance of the reader (see `tokens`).

    Returns:
        The value; `None` when the line is blank, not UTF-8 or not JSON. What is nested too deep is
        a string.
    """
    try:
        return decoder.decode(line)
    except UNPARSABLE:
        text = line.rstrip()
    try:
        text.decode()
        begin = grammar.begin(text)
        end = grammar.value_end(text, begin)
    except (UnicodeDecodeError, NotJsonError):
        return None
    return None if grammar.has_more(text, end) else _tolerant(text[begin:end], 0, grammar, decoder)


def _tolerant(
    text: bytes, depth: int, grammar: Grammar, decoder: msgspec.json.Decoder[Any]
) -> object:
    """Decode a value that is valid by the tolerant rules."""
    if depth > MAX_DEPTH:
        return _SOME_STRING
    if text.startswith(b"{"):
        found = {}
        for key, value in grammar.members(text):
            name = key_text(grammar.strict_key(key))
            if name is not None:
                found[name] = _tolerant(value, depth + 1, grammar, decoder)
        return found
    if text.startswith(b"["):
        return [_tolerant(each, depth + 1, grammar, decoder) for each in grammar.elements(text)]
    if text.lstrip(b"+-") in _NOT_FINITE:
        return math.nan
    try:
        return decoder.decode(grammar.strict(text))
    except msgspec.DecodeError:  # a lone surrogate, or a number beyond every type but double
        return math.inf if text[:1] in b"-0123456789" else _SOME_STRING
