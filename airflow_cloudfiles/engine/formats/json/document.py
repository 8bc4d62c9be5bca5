"""What is in a file that is one JSON document (`multiLine`)?

An object is a record, an array of objects is one record each, as Spark reads them. Where Spark goes
no further than the first document of a file, and loses the others without a word, all documents
are read here, with a warning: most likely the file has one record a line, and `multiLine` is wrong
(B146).

What is no JSON, from where it begins to be none to the end of the file, is one corrupt record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.base import BadRecord, OpenedFile, ReadCounts, is_utf8
from airflow_cloudfiles.engine.formats.json import tokens as json_lines
from airflow_cloudfiles.engine.formats.json.converters import json_options
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.formats.json.tokens import Grammar, NotJsonError
from airflow_cloudfiles.engine.formats.json.variant import JsonVariantReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

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
        self._own = json_options(options)
        self.arrow_schema = self._reader.arrow_schema
        self.counts: ReadCounts = self._reader.counts
        self.bad_records: list[BadRecord] = self._reader.bad_records

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
        group: list[bytes] = []
        size = 0
        documents = _documents_in(file, self._own, self._reader.grammar)
        for record in documents if self._is_whole else _records_of(documents):
            group.append(record)
            size += len(record)
            if size >= BATCH_BYTES:
                yield self._reader.read_records(file.uri, group)
                group, size = [], 0
        if group:
            yield self._reader.read_records(file.uri, group)


class JsonDocumentInference(JsonInference):
    """Learns the schema of files that are one JSON document each."""

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        super().__init__(options, known)
        self._own = json_options(options)

    def add_file(self, file: OpenedFile) -> None:
        """Learn from one file."""
        group: list[bytes] = []
        size = 0
        for record in _records_of(_documents_in(file, self._own, self._grammar)):
            group.append(record)
            size += len(record)
            if size >= BATCH_BYTES:
                self.add(json_lines.as_lines(group, self._grammar, []))
                group, size = [], 0
        self.add(json_lines.as_lines(group, self._grammar, []))


def _documents_in(file: OpenedFile, own: JsonOptions, grammar: Grammar) -> list[bytes]:
    """The documents of a file, which is read as a whole: it must fit in memory some times over."""
    with file.text_stream(own.encoding) as stream:
        data = stream.read(own.max_record_bytes + 1)
    if len(data) > own.max_record_bytes:
        raise FileUnreadableError(
            f"{file.uri} has more than {own.max_record_bytes} bytes, too many for one JSON "
            "document (maxRecordBytes). If it has one record a line, leave multiLine out; "
            "otherwise split the file."
        )
    documents = list(documents_of(data, grammar))
    if len(documents) > 1:
        _log.warning(
            "%s holds %d JSON documents, not one, though multiLine is true. All are read. If the "
            "file has one record a line, leave multiLine out: it is read faster then.",
            file.uri,
            len(documents),
        )
    return documents


def _records_of(documents: list[bytes]) -> Iterator[bytes]:
    for document in documents:
        yield from _elements_of(document)


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
    """The records of a document; the document itself when it is not surely an array of objects."""
    document = document.strip()
    if not document.startswith(b"["):
        return [document]
    try:
        found = [bytes(each) for each in _ELEMENTS.decode(document)]
    except (msgspec.DecodeError, RecursionError):
        return [document]
    return found if all(each.startswith(b"{") for each in found) else [document]
