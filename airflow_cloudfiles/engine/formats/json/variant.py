"""How do whole JSON records become one VARIANT column (`singleVariantColumn`)?

Every record is a value of the column, whatever it is: an object, an array, a number. What is no
JSON, or has no VARIANT, is a corrupt record. So is a value with something behind it on its line:
the value is in the column, as in Spark's reader, and the line where corrupt records go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from airflow_cloudfiles.engine.formats.base import LinePiece, path_end
from airflow_cloudfiles.engine.formats.json import tokens as json_lines
from airflow_cloudfiles.engine.formats.json.converters import grammar_of, json_options
from airflow_cloudfiles.engine.formats.json.tokens import NotJsonError, printable
from airflow_cloudfiles.engine.formats.record_policy import (
    RecordOutcomes,
    RecordReader,
    require_variant_column,
)
from airflow_cloudfiles.engine.formats.variant.encode import NotVariantError, encode_json
from airflow_cloudfiles.engine.types import VARIANT, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_Encoded = tuple[bytes, bytes]
_BEGINS_NUMBER: Final = b"-0123456789"
_WHITE: Final = b" \t\r\n"


class JsonVariantReader(RecordReader):
    """Reads JSON records into one VARIANT column; see `RecordReader`.

    The schema has the column that `singleVariantColumn` names, and maybe one for corrupt records;
    any other is NULL.

    Raises:
        IncompatibleSchemaError: The schema has no such column.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        column = str(options.single_variant_column)
        require_variant_column(self._policy.parsed, column)
        self._parsed = to_arrow(self._policy.parsed)
        self._position = self._parsed.get_field_index(column)
        self._own = json_options(options)
        self.grammar = grammar_of(self._own)

    def read(self, pieces: Sequence[LinePiece]) -> pa.RecordBatch:
        """Read lines of one or many files into one batch, rows in the order of the lines.

        Raises:
            CorruptRecordError: A line is no record, in mode `FAILFAST`.
        """
        records = ((each.file_uri, line) for each in pieces for line in self._lines(each.data))
        return self._read(records)

    def read_records(self, file_uri: str, records: Sequence[bytes]) -> pa.RecordBatch:
        """Read records of one file into one batch, whatever separated them."""
        return self._read((file_uri, record) for record in records)

    def _lines(self, data: bytes) -> list[bytes]:
        separator = self._own.line_sep
        if separator is not None:
            return data.split(separator.encode())
        return json_lines.with_line_breaks(data).split(b"\n")

    def _read(self, records: Iterator[tuple[str, bytes]]) -> pa.RecordBatch:
        values: list[_Encoded | None] = []
        corrupt: dict[int, tuple[str, str]] = {}
        outcomes = RecordOutcomes(self._policy)
        for uri, record in records:
            begin = self.grammar.begin(record)
            if begin == len(record):
                continue
            value, reason = self._encoded(record, begin)
            if reason is not None:
                text = printable(record)
                if outcomes.is_dropped(uri, text, reason, has_value=value is not None):
                    continue
                corrupt[len(values)] = uri, text
            values.append(value)
        return self._batch(values, corrupt, outcomes)

    def _encoded(self, record: bytes, begin: int) -> tuple[_Encoded | None, str | None]:
        """A record as a value, and why it is not valid: quickly when it is strict JSON."""
        try:
            return encode_json(record), None
        except NotVariantError:
            pass  # maybe by the tolerant rules
        try:
            end = self.grammar.value_end(record, begin)
            strict = self.grammar.strict(record[begin:end], words=True)
            value = encode_json(strict, checked=True)
        except (NotJsonError, NotVariantError) as error:
            return None, str(error)
        if not self.grammar.has_more(record, end):
            return value, None
        # A number ends with white space: `1}` is none, to Spark neither.
        is_part = record[begin] in _BEGINS_NUMBER and record[end] not in _WHITE
        return None if is_part else value, f"more after the record, at byte {end}"

    def _batch(
        self,
        values: list[_Encoded | None],
        corrupt: dict[int, tuple[str, str]],
        outcomes: RecordOutcomes,
    ) -> pa.RecordBatch:
        columns = [pa.nulls(len(values), each.type) for each in self._parsed]
        columns[self._position] = variants(values)
        for row, (_, record) in corrupt.items():
            outcomes.keep(row, record)
        rescued = None
        if self._policy.rescues:
            ends = {row: path_end(uri).encode() for row, (uri, _) in corrupt.items()}
            rescued = outcomes.rescued_column(len(values), ends.__getitem__)
        return self._counted(outcomes.batch(columns, len(values), rescued), outcomes)


def variants(values: Sequence[_Encoded | None]) -> pa.StructArray:
    """Encoded values as an Arrow array that Spark takes for a VARIANT."""
    parts = [
        pa.array([b"" if each is None else each[index] for each in values], pa.binary())
        for index in range(2)
    ]
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)
