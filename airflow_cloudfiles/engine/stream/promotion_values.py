"""What column do rescued values make?

They are read by the very code that reads records: each value becomes a record of one field, in a
line of JSON, and the JSON reader gives an Arrow array, and back what does not fit. So a promoted
value is what the stream itself would have read, had it known the column.

CSV and XML have only texts. There, a text that looks like a number or a boolean is one, where the
column asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    FractionalType,
    IntegralType,
    MapType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.json_infer import JsonInference
from airflow_cloudfiles.engine.formats.json_reader import JsonReader, Piece
from airflow_cloudfiles.engine.formats.json_scalars import text_of
from airflow_cloudfiles.engine.formats.json_tokens import DEFAULT as TOKENS
from airflow_cloudfiles.engine.options import CloudFilesOptions
from airflow_cloudfiles.engine.stream.promotion_rescued import as_object, find, key_name, members
from airflow_cloudfiles.engine.types import canonical, find_field

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_FORMATS: Final = frozenset({"csv", "xml"})
"""Formats whose values are texts, and rescued as JSON strings."""
_KEPT_OPTIONS: Final = (
    "cloudFiles.inferColumnTypes",
    "dateFormat",
    "locale",
    "prefersDecimal",
    "primitivesAsString",
    "readerCaseSensitive",
    "timeZone",
    "timestampFormat",
    "timestampNTZFormat",
)
"""Options of the stream that say how values are read; JSON has all of them."""
_FIELD: Final = "value"
_RESCUED: Final = "rescued"
_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<exponent>[eE][+-]?[0-9]+)?",
    re.ASCII,
)


def reading_options(options: Mapping[str, str]) -> CloudFilesOptions:
    """Options of a JSON reader that reads values as a stream does.

    Args:
        options: Of the stream.
    """
    given = {name.lower(): value for name, value in options.items()}
    kept = {name: given[name.lower()] for name in _KEPT_OPTIONS if name.lower() in given}
    fixed = {
        "cloudFiles.format": "json",
        "cloudFiles.schemaEvolutionMode": "rescue",
        "rescuedDataColumn": _RESCUED,
    }
    return CloudFilesOptions.parse({**kept, **fixed}, path="rescued")


class Converter:
    """Reads values of one field into one type.

    Args:
        kind: The type.
        options: As `reading_options` gives them.
        are_texts: Whether the stream's format is one of `TEXT_FORMATS`.

    Raises:
        IncompatibleSchemaError: Files are not read into such a type.
    """

    def __init__(self, kind: DataType, options: CloudFilesOptions, *, are_texts: bool) -> None:
        self._kind = kind
        self._are_texts = are_texts
        self._reader = JsonReader(StructType([StructField(_FIELD, kind)]), options)

    def read(self, values: Sequence[bytes]) -> tuple[pa.Array, list[bytes | None]]:
        """Read values.

        Args:
            values: Strict JSON texts.

        Returns:
            The column, and of each value what does not fit: `None` for nothing. A value of which
            nothing fits is null in the column.
        """
        lines = (_line(self._plain(value)) for value in values)
        batch = self._reader.read([Piece("", b"".join(lines))])
        left: list[bytes | None] = []
        for text, value in zip(batch.column(1).to_pylist(), values, strict=True):
            found = None if text is None else find(text.encode(), [_FIELD], case_sensitive=True)
            # What the reader takes for no record, for instance by its depth, is left as it was.
            left.append(value if text is not None and found is None else found)
        return batch.column(0), left

    def _plain(self, value: bytes) -> bytes:
        return plain(value, self._kind) if self._are_texts else value


class TypeFinder:
    """Infers the type of one field by the rules of the stream."""

    def __init__(self, options: CloudFilesOptions, *, are_texts: bool) -> None:
        self._inference = JsonInference(options)
        self._are_texts = are_texts and options.infer_column_types
        self.values = 0

    def add(self, values: Iterable[bytes]) -> None:
        """Look at values."""
        found = [plain(value, None) if self._are_texts else value for value in values]
        self.values += len(found)
        if found:
            self._inference.add(b"".join(map(_line, found)))

    def result(self, name: str) -> DataType:
        """The type that holds the values.

        Args:
            name: The field, for the error.

        Raises:
            OptionError: There was no value, or none that has a type.
        """
        observed = self._inference.result()
        kind = canonical(observed.fields[0].dataType) if observed.fields else None
        if kind is None:
            seen = "No value" if not self.values else "No value with a type"
            raise OptionError(
                f"{seen} of the field {name} is in the rescued data, so its type cannot be "
                "inferred. Check the spelling, or give the type to have the column all the same."
            )
        return kind


def plain(value: bytes, kind: DataType | None) -> bytes:
    """A value whose leaves are texts, with numbers and booleans where a type asks for them.

    Args:
        value: Strict JSON.
        kind: What is asked for; `None`: whatever a text looks like.
    """
    first = value[:1]
    if first == b'"':
        return _plain_leaf(value, kind)
    if first == b"{" and (kind is None or isinstance(kind, StructType | MapType)):
        inner = [(key, plain(text, _inside(kind, key))) for key, text in members(value)]
        return as_object(inner)
    if first == b"[" and (kind is None or isinstance(kind, ArrayType)):
        element = None if kind is None else kind.elementType
        return b"[" + b",".join(plain(each, element) for each in TOKENS.elements(value)) + b"]"
    return value


def _inside(kind: StructType | MapType | None, key: bytes) -> DataType | None:
    """The type of a member."""
    if isinstance(kind, MapType):
        return kind.valueType
    found = None if kind is None else find_field(kind, key_name(key))
    return None if found is None else found.dataType


def _plain_leaf(value: bytes, kind: DataType | None) -> bytes:
    text = text_of(value) or ""
    if kind is None or isinstance(kind, BooleanType):
        word = text.lower()
        if word in {"true", "false"}:
            return word.encode()
    if kind is None or isinstance(kind, IntegralType | FractionalType):
        number = _NUMBER.fullmatch(text)
        if number is not None:
            sign = "-" if number["sign"] == "-" else ""
            fraction = f".{number['fraction']}" if number["fraction"] else ""
            whole = number["whole"].lstrip("0") or "0"
            return f"{sign}{whole}{fraction}{number['exponent'] or ''}".encode()
    return value


def _line(value: bytes) -> bytes:
    """A record with one field, on one line; strict JSON has line breaks between its words only."""
    flat = value.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"%b":%b}\n' % (_FIELD.encode(), flat)
