"""Take a field out of rescued data, and read its values as the reader of their format would.

They are read by the very code that reads records: each value becomes a record of one field, in a
line of JSON, and the JSON reader gives an Arrow array, and back what does not fit. So a promoted
value is what the stream itself would have read, had it known the column. Strings of CSV and XML go
through the conversions of their own readers first.

In these formats every value is a string, and rescued as a JSON string. Their own readers know which
strings are numbers, dates or booleans, and by which options. What they make of one is written as
JSON, in the one form that the JSON reader takes for that type; what they refuse is wrapped, so
that the JSON reader refuses it too.

Rescued data is one JSON object that is the record without everything that found its column; nested
fields keep their path, `_file_path` comes last. Values are cut out, not parsed and written again:
what stays keeps its digits, its escapes and its order.
"""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.columnar.strings import iso_year
from airflow_cloudfiles.engine.formats.json import tokens as json_tokens
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece
from airflow_cloudfiles.engine.formats.json.shape import text_of
from airflow_cloudfiles.engine.formats.json.tokens import DEFAULT as TOKENS
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.scalars import MISFIT
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.nested import XmlOptions
from airflow_cloudfiles.engine.types import canonical

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.csv.infer import StringTypeFinder


_MARK: Final = uuid.uuid4().hex.encode()
_WRAPPED: Final = re.compile(rb'\{"' + _MARK + rb'":("(?:[^"\\]|\\.)*")\}', re.DOTALL)
_FIRST_MOMENT: Final = "-290308-12-21T19:59:05.224192"
"""The earliest timestamp, whose number is what `numpy` takes for no time."""
_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<exponent>[eE][+-]?[0-9]+)?",
    re.ASCII,
)


def has_string_values(options: CloudFilesOptions) -> bool:
    """Tell whether the values of a format are strings."""
    return isinstance(options.format_options, CsvOptions | XmlOptions)


class StringConverter:
    """Values of a stream of CSV or XML.

    Args:
        options: Of the stream.
    """

    def __init__(self, options: CloudFilesOptions) -> None:
        self._convert = _converters(options)
        self._matcher = options.matcher
        self._is_flat = isinstance(options.format_options, CsvOptions)
        self._known: dict[DataType, Callable[[str], object]] = {}

    def check(self, kind: DataType) -> None:
        """Refuse a type that the format's own reader cannot read.

        Raises:
            IncompatibleSchemaError: It cannot.
        """
        if self._is_flat or not isinstance(kind, StructType | ArrayType | MapType):
            self._convert(kind)

    def as_json(self, value: bytes, kind: DataType) -> bytes:
        """Convert a value to what the JSON reader takes for a type.

        Args:
            value: Strict JSON, whose leaves are strings.
            kind: The type.
        """
        first = value[:1]
        if first == b'"' and not isinstance(kind, StringType | StructType | ArrayType | MapType):
            return self._leaf(value, kind)
        if first == b"{" and isinstance(kind, StructType | MapType):
            inner = [(key, self._member(key, text, kind)) for key, text in members(value)]
            return as_object(inner)
        if first == b"[" and isinstance(kind, ArrayType):
            found = (self.as_json(each, kind.elementType) for each in TOKENS.elements(value))
            return b"[" + b",".join(found) + b"]"
        return value

    def _member(self, key: bytes, text: bytes, kind: StructType | MapType) -> bytes:
        if isinstance(kind, MapType):
            return self.as_json(text, kind.valueType)
        field = self._matcher.find(kind, key_name(key))
        return text if field is None else self.as_json(text, field.dataType)

    def _leaf(self, value: bytes, kind: DataType) -> bytes:
        if kind not in self._known:
            self._known[kind] = self._convert(kind)
        text = text_of(value)
        found = MISFIT if text is None else self._known[kind](text)
        if found is MISFIT:
            return b'{"%b":%b}' % (_MARK, value)
        return _written(found, kind).encode()


def with_guessed_types(value: bytes) -> bytes:
    """Turn strings of an XML value into the numbers and booleans they hold, for inference."""
    first = value[:1]
    if first == b"{":
        return as_object([(key, with_guessed_types(text)) for key, text in members(value)])
    if first == b"[":
        return b"[" + b",".join(map(with_guessed_types, TOKENS.elements(value))) + b"]"
    text = text_of(value) if first == b'"' else None
    if text is None:
        return value
    if text.lower() in {"true", "false"}:
        return text.lower().encode()
    number = _NUMBER.fullmatch(text)
    if number is None:
        return value
    sign = "-" if number["sign"] == "-" else ""
    fraction = f".{number['fraction']}" if number["fraction"] else ""
    whole = number["whole"].lstrip("0") or "0"
    return f"{sign}{whole}{fraction}{number['exponent'] or ''}".encode()


def _converters(options: CloudFilesOptions) -> Callable[[DataType], Callable[[str], object]]:
    """Return the conversions of a format's own reader."""
    own, numbers = options.format_options, NumberRule.of(options)
    if isinstance(own, CsvOptions):
        from airflow_cloudfiles.engine.formats.csv.columns import (  # noqa: PLC0415 - of this format
            CsvConverters,
        )

        of_csv = CsvConverters(own, numbers)
        return lambda kind: of_csv.to(kind, "that is promoted")
    from airflow_cloudfiles.engine.formats.xml.shape import (  # noqa: PLC0415 - of this format
        TextCasts,
    )

    return TextCasts(cast("XmlOptions", own), numbers).converter


def _written(value: Any, kind: DataType) -> str:
    """Write a value in JSON as the JSON reader takes it."""
    for base, write in _WRITERS.items():
        if isinstance(kind, base):
            return write(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _number_or_word(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    word = "NaN" if math.isnan(value) else "Infinity"
    return json.dumps(f"-{word}" if value < 0 else word)


def _moment(value: int, unit: Literal["D", "us"]) -> str:
    """Write a date or a timestamp of any year in ISO 8601."""
    found = np.datetime64(value, unit)
    return _FIRST_MOMENT if np.isnat(found) else iso_year(str(found))


_WRITERS: Final[dict[type[DataType], Callable[[Any], str]]] = {
    BooleanType: lambda value: str(value).lower(),
    BinaryType: lambda value: json.dumps(base64.b64encode(value).decode()),
    DateType: lambda value: json.dumps(_moment(value, "D")),
    DoubleType: _number_or_word,
    FloatType: _number_or_word,
    TimestampType: lambda value: json.dumps(f"{_moment(value, 'us')}Z"),
    TimestampNTZType: lambda value: json.dumps(_moment(value, "us")),
}


_KEPT_OPTIONS: Final = (
    "cloudFiles.inferColumnTypes",
    "cloudFiles.internal.caseSensitive",
    "readerCaseSensitive",
)
_OF_JSON: Final = (
    "cloudFiles.rescueInexactNumbers",
    "dateFormat",
    "inferTimestamp",
    "locale",
    "prefersDecimal",
    "primitivesAsString",
    "timeZone",
    "timestampFormat",
    "timestampNTZFormat",
)
"""Options that say how values are read; strings are read by the format's own reader."""
_FIELD: Final = "value"
_RESCUED: Final = "rescued"


def reading_options(stream: CloudFilesOptions, given: Mapping[str, str]) -> CloudFilesOptions:
    """Build the options of a JSON reader that reads values as a stream does.

    Args:
        stream: The options of the stream.
        given: The same, as strings.
    """
    lower = {name.lower(): value for name, value in given.items()}
    names = _KEPT_OPTIONS if has_string_values(stream) else (*_KEPT_OPTIONS, *_OF_JSON)
    kept = {name: lower[name.lower()] for name in names if name.lower() in lower}
    fixed = {
        "cloudFiles.format": "json",
        "cloudFiles.schemaEvolutionMode": "rescue",
        "rescuedDataColumn": _RESCUED,
    }
    if has_string_values(stream):
        fixed["cloudFiles.rescueInexactNumbers"] = "none"  # the format's own reader has judged
    if stream.format_options.HAS_TYPES:
        fixed["cloudFiles.inferColumnTypes"] = "true"
    return CloudFilesOptions.parse({**kept, **fixed}, path="rescued")


class Converter:
    """Reads values of one field into one type.

    Args:
        kind: The type.
        reading: As `reading_options` gives them.
        stream: The options of the stream.

    Raises:
        IncompatibleSchemaError: Files are not read into such a type.
    """

    def __init__(
        self, kind: DataType, reading: CloudFilesOptions, stream: CloudFilesOptions
    ) -> None:
        self._kind = kind
        self._strings = None
        if has_string_values(stream):
            self._strings = StringConverter(stream)
            self._strings.check(kind)
        self._reader = JsonReader(StructType([StructField(_FIELD, kind)]), reading)

    def read(self, values: Sequence[bytes]) -> tuple[pa.Array, list[bytes | None]]:
        """Read values.

        Args:
            values: Strict JSON.

        Returns:
            The column, and of each value what does not fit: `None` for nothing. A value of which
            nothing fits is null in the column.
        """
        lines = (_line(self._as_json(value)) for value in values)
        batch = self._reader.read([LinePiece("", b"".join(lines))])
        left: list[bytes | None] = []
        for text, value in zip(batch.column(1).to_pylist(), values, strict=True):
            found = None if text is None else find(text.encode(), [_FIELD], case_sensitive=True)
            # What the reader takes for no record, for instance by its depth, is left as it was.
            left.append(value if text is not None and found is None else found)
        if self._strings is not None:
            # The strings that the reader was meant to refuse are as they were.
            left = [None if each is None else _WRAPPED.sub(rb"\1", each) for each in left]
        return batch.column(0), left

    def _as_json(self, value: bytes) -> bytes:
        return value if self._strings is None else self._strings.as_json(value, self._kind)


class FieldTypeInference:
    """Infers the type of one field by the rules of the stream.

    Args:
        reading: As `reading_options` gives them.
        stream: The options of the stream.
    """

    def __init__(self, reading: CloudFilesOptions, stream: CloudFilesOptions) -> None:
        self._inference = JsonInference(reading)
        self._guesses = has_string_values(stream) and stream.infer_column_types
        self._of_csv = _csv_finder(stream)
        self._csv_type: DataType = NullType()
        self._values = 0

    def add(self, values: Iterable[bytes]) -> None:
        """Learn from values."""
        found = list(values)
        self._values += len(found)
        if not found:
            return
        if self._of_csv is not None:
            strings = pa.array([text_of(value) for value in found], pa.string())
            self._csv_type = self._of_csv.of(strings.drop_null(), self._csv_type)
        else:
            seen = map(with_guessed_types, found) if self._guesses else found
            self._inference.add(b"".join(map(_line, seen)))

    def result(self, name: str) -> DataType:
        """Return the type that holds the values.

        Args:
            name: The field, for the error.

        Raises:
            OptionError: There was no value, or none that has a type.
        """
        kind = None
        if self._values:
            observed = self._inference.result()
            kind = observed.fields[0].dataType if observed.fields else None
            kind = canonical(self._csv_type if self._of_csv is not None else kind or StructType([]))
        if kind is None:
            seen = "No value" if not self._values else "No value with a type"
            raise OptionError(
                f"{seen} of the field {name} is in the rescued data, so its type cannot be "
                "inferred. Check the spelling, or give the type to have the column all the same."
            )
        return kind


def _csv_finder(stream: CloudFilesOptions) -> StringTypeFinder | None:
    """Build the finder of CSV types; `None` where types are not inferred."""
    if not isinstance(stream.format_options, CsvOptions) or not stream.infer_column_types:
        return None
    from airflow_cloudfiles.engine.formats.csv.infer import (  # noqa: PLC0415 - of this format
        StringTypeFinder,
    )

    return StringTypeFinder(stream.format_options)


def _line(value: bytes) -> bytes:
    """Build a record of one field, on one line; strict JSON only has line breaks between tokens."""
    flat = value.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"%b":%b}\n' % (_FIELD.encode(), flat)


FILE_PATH: Final = "_file_path"
"""The member with the file that a row is from; without any other, nothing is rescued."""
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_QUOTE: Final = b'"'

Path = Sequence[str]


def find(rescued: bytes, path: Path, *, case_sensitive: bool) -> bytes | None:
    """Find the text of a field's value; `None` when it is not rescued.

    Of duplicate keys, the last one counts, as in the record.

    Args:
        rescued: Rescued data: strict JSON.
        path: The field, from the outside in.
        case_sensitive: Whether `Foo` is another field than `foo`.
    """
    value: bytes | None = rescued
    for name in path:
        if value is None or value[:1] != b"{":
            return None
        try:
            found = members(value)
        except json_tokens.NotJsonError:  # another writer wrote into the column
            return None
        place = _place(found, name, case_sensitive=case_sensitive)
        value = None if place is None else found[place][1]
    return value


def replace(
    rescued: bytes, path: Path, value: bytes | None, *, case_sensitive: bool
) -> bytes | None:
    """Replace the value of a field that `find` finds in rescued data, or remove the field.

    Args:
        rescued: Rescued data.
        path: The field.
        value: What is left of it; `None`: nothing.
        case_sensitive: As for `find`.

    Returns:
        The text; `None` when nothing is rescued any more.
    """
    found = _replace(rescued, path, value, case_sensitive=case_sensitive)
    if found is None:
        return None
    left = members(found)  # of two members of that name, the first is the record's own
    return None if len(left) == 1 and key_name(left[0][0]) == FILE_PATH else found


def members(value: bytes) -> list[tuple[bytes, bytes]]:
    """Parse keys and values of an object as they are written, including duplicate keys.

    Raises:
        NotJsonError: It is not an object.
    """
    if b"\\" not in value:
        try:
            decoded = _MEMBERS.decode(value)
        except (msgspec.DecodeError, RecursionError):
            decoded = {}
        found = [(_QUOTE + key.encode() + _QUOTE, bytes(text)) for key, text in decoded.items()]
        # Every key has two quotes; what is left over belongs to a key that came twice.
        if found and value.count(_QUOTE) == 2 * len(found) + sum(
            text.count(_QUOTE) for _, text in found
        ):
            return found
    if json_tokens.DEFAULT.value_end(value) != len(value):
        raise json_tokens.NotJsonError("more after the object")
    return json_tokens.DEFAULT.members(value)


def key_name(key: bytes) -> str:
    """Decode a key's text to the name it stands for; one without UTF-8 is its own text."""
    name = json_tokens.key_text(key)
    return key.decode() if name is None else name


def key_of(name: str) -> bytes:
    """Encode a name as the text of a key."""
    return json.dumps(name, ensure_ascii=False).encode()


def as_object(found: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode members as an object."""
    return b"{" + b",".join(key + b":" + text for key, text in found) + b"}"


def _place(found: list[tuple[bytes, bytes]], name: str, *, case_sensitive: bool) -> int | None:
    for place in range(len(found) - 1, -1, -1):
        other = key_name(found[place][0])
        if other == name or (not case_sensitive and other.lower() == name.lower()):
            return place
    return None


def _replace(value: bytes, path: Path, new: bytes | None, *, case_sensitive: bool) -> bytes | None:
    """Replace the value at a path of an object; return `None` when no member is left."""
    if not path:
        return new
    found = members(value)
    place = _place(found, path[0], case_sensitive=case_sensitive)
    if place is None:
        return value
    key, inner = found[place]
    rest = _replace(inner, path[1:], new, case_sensitive=case_sensitive)
    found[place : place + 1] = [] if rest is None else [(key, rest)]
    return as_object(found) if found else None
