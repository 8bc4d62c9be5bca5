"""Read a file that is one JSON document, and whole records as one VARIANT column.

An object is a record, an array of objects is one record each, as Spark reads them. Where Spark goes
no further than the first document of a file, and loses the others without a word, all documents
are read here, with a warning: most likely the file has one record a line, and `multiLine` is wrong
(B146).

What is no JSON, from where it begins to be none to the end of the file, is one corrupt record.

Every record is a value of the column, whatever it is: an object, an array, a number. What is no
JSON, or has no VARIANT, is a corrupt record. So is a value with something behind it on its line:
the value is in the column, as in Spark's reader, and the line where corrupt records go.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.files import FileCounts, RecordError
from airflow_cloudfiles.engine.formats.base import (
    BadRecord,
    LinePiece,
    OpenedFile,
    ReadCounts,
    count_lines,
    is_utf8,
    path_end,
    with_line_breaks,
)
from airflow_cloudfiles.engine.formats.json import tokens as json_lines
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.formats.json.shape import grammar_of
from airflow_cloudfiles.engine.formats.json.tokens import Grammar, NotJsonError, printable
from airflow_cloudfiles.engine.formats.record_policy import (
    BadPlace,
    RecordOutcomes,
    RecordReader,
    require_variant_column,
)
from airflow_cloudfiles.engine.formats.variant import NotVariantError, encode_json
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
from airflow_cloudfiles.engine.types import VARIANT, to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType


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
        self._own = cast("JsonOptions", options.format_options)
        self.grammar = grammar_of(self._own)
        self.pieces: list[FileCounts] = []

    def read(self, pieces: Sequence[LinePiece]) -> pa.RecordBatch:
        """Read lines of one or many files into one batch, rows in the order of the lines.

        Raises:
            CorruptRecordError: A line is no record, in mode `FAILFAST`.
        """
        return self._read([(each.file_uri, self._lines(each.data)) for each in pieces])

    def read_records(self, file_uri: str, records: Sequence[bytes]) -> pa.RecordBatch:
        """Read records of one file into one batch, whatever separated them."""
        return self._read([(file_uri, records)])

    def _lines(self, data: bytes) -> list[bytes]:
        separator = self._own.line_sep
        if separator is not None:
            return data.split(separator.encode())
        return with_line_breaks(data).split(b"\n")

    def _read(self, pieces: Sequence[tuple[str, Sequence[bytes]]]) -> pa.RecordBatch:
        values: list[_Encoded | None] = []
        corrupt: dict[int, tuple[str, str]] = {}
        outcomes = RecordOutcomes(self._policy)
        self.pieces = []
        for uri, records in pieces:
            rows, bad, kept = len(values), len(outcomes.bad), len(corrupt)
            for place, record in enumerate(records):
                begin = self.grammar.begin(record)
                if begin == len(record):
                    continue
                value, reason = self._encoded(record, begin)
                if reason is not None:
                    text, has_value = printable(record), value is not None
                    if outcomes.is_dropped(uri, text, reason, place=place, has_value=has_value):
                        continue
                    corrupt[len(values)] = uri, text
                values.append(value)
            self.pieces.append(
                self._counts(len(values) - rows, len(corrupt) - kept, outcomes.bad[bad:])
            )
        columns = [pa.nulls(len(values), each.type) for each in self._parsed]
        columns[self._position] = variants(values)
        for row, (_, text) in corrupt.items():
            outcomes.keep(row, text)
        rescued = None
        if self._policy.rescues:
            ends = {row: path_end(uri).encode() for row, (uri, _) in corrupt.items()}
            rescued = outcomes.rescued_column(len(values), ends.__getitem__)
        return self._counted(outcomes.batch(columns, len(values), rescued), outcomes)

    def _counts(self, rows: int, kept: int, bad: Sequence[BadPlace]) -> FileCounts:
        """Count a piece; nothing but records that are not valid is rescued here."""
        rescues = self._policy.rescues and self._policy.corrupt_position is None
        error = RecordError(bad[0].reason, line=bad[0].place + 1) if bad else None
        dropped = sum(each.dropped for each in bad)
        return FileCounts(rows, kept if rescues else 0, len(bad), dropped, error=error)

    def _encoded(self, record: bytes, begin: int) -> tuple[_Encoded | None, str | None]:
        """Decode a record to a value, and say why it is not valid: fast when it is strict JSON."""
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


def variants(values: Sequence[_Encoded | None]) -> pa.StructArray:
    """Build an Arrow array of encoded values that Spark takes for a VARIANT."""
    parts = [
        pa.array([b"" if each is None else each[index] for each in values], pa.binary())
        for index in range(2)
    ]
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)


BATCH_BYTES: Final = 16 * 2**20
_RAW: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(msgspec.Raw)
_ELEMENTS: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(list[msgspec.Raw])
_log = logging.getLogger(__name__)


class JsonDocumentReader:
    """Reads files that are one JSON document each.

    Args:
        data_schema: The columns to fill (see `JsonReader`).
        options: The options of the source.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.

    Raises:
        IncompatibleSchemaError: A column has a type that JSON cannot be read into.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        self._is_whole = options.single_variant_column is not None
        self._reader: JsonReader | JsonVariantReader = (
            JsonVariantReader(data_schema, options)
            if self._is_whole
            else JsonReader(data_schema, options)
        )
        self._own = cast("JsonOptions", options.format_options)
        self.arrow_schema = self._reader.arrow_schema
        self.counts: ReadCounts = self._reader.counts
        self.bad_records: list[BadRecord] = self._reader.bad_records
        self.first_error: RecordError | None = None

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file; a document is not cut, so the part that has its beginning has it all.

        Raises:
            UnknownFields: There are new fields, in the modes that watch for them.
            CorruptRecordError: Something is no record, in mode `FAILFAST`.
            FileUnreadableError: The file is larger than `maxRecordBytes`.
        """
        del end
        if start:
            return
        data = _content_of(file, self._own)
        documents = _documents_in(data, file.uri, self._reader.grammar)
        before = 0
        for group in _groups(self._records(documents)):
            if group:
                yield self._reader.read_records(file.uri, group)
                error = self._reader.pieces[0].error
                if error is not None and self.first_error is None:
                    number = before + (error.line or 1)
                    line = _line_of(data, islice(self._records(documents), number))
                    self.first_error = replace(error, line=line)
                before += len(group)

    def _records(self, documents: list[bytes]) -> Iterable[bytes]:
        return documents if self._is_whole else _records_of(documents)


class JsonDocumentInference(JsonInference):
    """Learns the schema of files that are one JSON document each."""

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from one file, group by group."""
        documents = _documents_in(_content_of(file, self._own), file.uri, self._grammar)
        for group in _groups(_records_of(documents)):
            self.add(json_lines.as_lines(group, self._grammar, []))
            yield sum(map(len, group))


def _groups(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield records in groups of `BATCH_BYTES`, or a little more; the last one may be empty."""
    group: list[bytes] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record)
        if size >= BATCH_BYTES:
            yield group
            group, size = [], 0
    yield group


def _line_of(data: bytes, records: Iterable[bytes]) -> int:
    """Find the line that the last of some records begins with, which are all up to that one."""
    begin = end = 0
    for record in records:
        begin = max(data.find(record, end), end)
        end = begin + len(record)
    return count_lines(data[:begin]) + 1


def _content_of(file: OpenedFile, own: JsonOptions) -> bytes:
    """Read a file as a whole: it must fit in memory some times over."""
    with file.text_stream(own.encoding) as stream:
        data = stream.read(own.max_record_bytes + 1)
    if len(data) > own.max_record_bytes:
        raise FileUnreadableError(
            f"{file.uri} has more than {own.max_record_bytes} bytes, too many for one JSON "
            "document (maxRecordBytes). If it has one record a line, leave multiLine out; "
            "otherwise split the file."
        )
    return data


def _documents_in(data: bytes, file_uri: str, grammar: Grammar) -> list[bytes]:
    """Split the content of a file into documents."""
    documents = list(documents_of(data, grammar))
    if len(documents) > 1:
        _log.warning(
            "%s holds %d JSON documents, not one, though multiLine is true. All are read. If the "
            "file has one record a line, leave multiLine out: it is read faster then.",
            file_uri,
            len(documents),
        )
    return documents


def _records_of(documents: list[bytes]) -> Iterator[bytes]:
    return chain.from_iterable(map(_elements_of, documents))


def documents_of(data: bytes, grammar: Grammar) -> Iterator[bytes]:
    """Cut a file into the documents that stand one after another; mostly there is one.

    The last one is no valid document when what is left of the file is none.
    """
    if is_utf8(data):
        try:
            found = _RAW.decode_lines(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            yield from map(bytes, found)
            return
    position = grammar.begin(data)
    while position < len(data):
        try:
            end = grammar.value_end(data, position)
        except NotJsonError:
            yield data[position:]
            return
        yield data[position:end]
        position = grammar.after(data, end)


def _elements_of(document: bytes) -> list[bytes]:
    """Split a document into records; it is one itself when it is not surely an array of objects."""
    document = document.strip()
    if not document.startswith(b"["):
        return [document]
    try:
        found = [bytes(each) for each in _ELEMENTS.decode(document)]
    except (msgspec.DecodeError, RecursionError):
        return [document]
    return found if all(each.startswith(b"{") for each in found) else [document]
