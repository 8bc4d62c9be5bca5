"""What column do rescued values make?

They are read by the very code that reads records: each value becomes a record of one field, in a
line of JSON, and the JSON reader gives an Arrow array, and back what does not fit. So a promoted
value is what the stream itself would have read, had it known the column. Strings of CSV and XML go
through the conversions of their own readers first (`strings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import DataType, NullType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.json.converters import text_of
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.promotion.rescued_json import find
from airflow_cloudfiles.engine.promotion.strings import (
    StringConverter,
    has_string_values,
    unwrapped,
    with_guessed_types,
)
from airflow_cloudfiles.engine.types import canonical

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.csv.infer import TypeFinder as CsvTypeFinder

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
_TYPED: Final = frozenset({"avro", "orc", "parquet"})
"""Formats whose fields have types, whatever the options are."""
_FIELD: Final = "value"
_RESCUED: Final = "rescued"


def reading_options(stream: CloudFilesOptions, given: Mapping[str, str]) -> CloudFilesOptions:
    """Options of a JSON reader that reads values as a stream does.

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
    if stream.format in _TYPED:
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
            left = [None if each is None else unwrapped(each) for each in left]
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
        """The type that holds the values.

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


def _csv_finder(stream: CloudFilesOptions) -> CsvTypeFinder | None:
    """What finds the types of CSV, where they are asked for."""
    if not isinstance(stream.format_options, CsvOptions) or not stream.infer_column_types:
        return None
    from airflow_cloudfiles.engine.formats.csv.infer import (  # noqa: PLC0415 - of this format
        TypeFinder as CsvTypeFinder,
    )

    return CsvTypeFinder(stream.format_options)


def _line(value: bytes) -> bytes:
    """A record with one field, on one line; strict JSON has line breaks between its words only."""
    flat = value.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"%b":%b}\n' % (_FIELD.encode(), flat)
