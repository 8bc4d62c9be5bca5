"""How do whole JSON records become one VARIANT column (`singleVariantColumn`)?

Every record is a value of the column, whatever it is: an object, an array, a number. What is no
JSON, or has no VARIANT, is a corrupt record. So is a value with something behind it on its line:
the value is in the column, as in Spark's reader, and the line where corrupt records go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import CorruptRecordError, IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import BadRecord, Piece, ReadCounts
from airflow_cloudfiles.engine.formats.json import lines as json_lines
from airflow_cloudfiles.engine.formats.json.options import grammar_of, json_options
from airflow_cloudfiles.engine.formats.json.rescue import corrupt_member, printable, with_path
from airflow_cloudfiles.engine.formats.json.tokens import NotJsonError
from airflow_cloudfiles.engine.formats.variant.encode import NotVariantError, encode_json
from airflow_cloudfiles.engine.types import VARIANT, to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_Encoded = tuple[bytes, bytes]
_BEGINS_NUMBER: Final = b"-0123456789"
_WHITE: Final = b" \t\r\n"


class JsonVariantReader:
    """Reads JSON records into one VARIANT column.

    Args:
        data_schema: Has the column that `singleVariantColumn` names, and maybe one for corrupt
            records; any other is NULL.
        options: The options of the source.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: Corrupt records on their way to `badRecordsPath`; the stream empties it.

    Raises:
        IncompatibleSchemaError: The schema has no such column.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        rescued = options.rescued_data_column
        extra = [] if rescued is None else [StructField(rescued, StringType())]
        self.arrow_schema: pa.Schema = to_arrow(StructType([*data_schema.fields, *extra]))
        self._place = self.arrow_schema.get_field_index(str(options.single_variant_column))
        if self._place < 0 or self.arrow_schema.field(self._place).type != VARIANT:
            raise IncompatibleSchemaError(
                f"singleVariantColumn names {options.single_variant_column!r}, which the schema "
                "does not have as a column of type VARIANT. Leave the schema out."
            )
        self._options = options
        self._own = json_options(options)
        self.grammar = grammar_of(self._own)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []

    def read(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
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
        corrupt: dict[int, tuple[str, bytes]] = {}
        for uri, record in records:
            begin = self.grammar.begin(record)
            if begin == len(record):
                continue
            value, reason = self._encoded(record, begin)
            if reason is not None:
                if not self._keep(uri, record, reason, has_value=value is not None):
                    continue
                corrupt[len(values)] = uri, record
            values.append(value)
        self.counts.rows += len(values)
        return self._batch(values, corrupt)

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

    def _keep(self, uri: str, record: bytes, reason: str, *, has_value: bool) -> bool:
        """Whether a corrupt record is to have a row; fails if the mode says so."""
        self.counts.corrupt_records += 1
        if self._options.bad_records_path is not None:
            self.bad_records.append(BadRecord(uri, printable(record), reason))
            self.counts.dropped_records += 1
            return False
        if self._options.mode == "FAILFAST":
            raise CorruptRecordError(
                f"{uri}: record {printable(record)[:200]!r} is not valid ({reason}), and mode is "
                "FAILFAST. Correct or remove the file, or set mode to PERMISSIVE, which keeps such "
                "records apart."
            )
        # Spark's reader does not even notice what is behind a value: such a row is never dropped.
        keeps = has_value or self._options.mode == "PERMISSIVE"
        self.counts.dropped_records += not keeps
        return keeps

    def _batch(
        self, values: list[_Encoded | None], corrupt: dict[int, tuple[str, bytes]]
    ) -> pa.RecordBatch:
        columns = [pa.nulls(len(values), each.type) for each in self.arrow_schema]
        columns[self._place] = variants(values)
        name = self._options.corrupt_record_column
        place = self.arrow_schema.get_field_index(name)
        texts: list[str | None] = [None] * len(values)
        if place >= 0:
            for row, (_, record) in corrupt.items():
                texts[row] = printable(record)
        elif self._options.rescued_data_column is not None:
            place = len(columns) - 1
            self.counts.rescued_rows += len(corrupt)
            for row, (uri, record) in corrupt.items():
                texts[row] = with_path(corrupt_member(name, record), uri).decode()
        if place >= 0:
            columns[place] = pa.array(texts, pa.string())
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def variants(values: Sequence[_Encoded | None]) -> pa.StructArray:
    """Encoded values as an Arrow array that Spark takes for a VARIANT."""
    parts = [
        pa.array([b"" if each is None else each[index] for each in values], pa.binary())
        for index in range(2)
    ]
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)
