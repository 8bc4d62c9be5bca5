"""Declare what the stream asks of a format, and what its readers share.

Three protocols, each with one implementation a format (`registry.py` knows which):

- An `Inference` learns the schema of files.
- A `BlockReader` turns blocks of complete lines, of one or many files at once, into record batches.
- A `FileReader` turns one file, or one part of it, into record batches.

What they are given is an `OpenedFile`: bytes that the stream fetches when they are asked for.

Rescued data is one JSON object a row: members by the names in the file, the path of the file last.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.files import FileCounts, FileEntry, RecordError
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
    from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
    from airflow_cloudfiles.engine.options.formats.registry import TextOptions

MAX_COLUMN_DEPTH: Final = 100
"""A field that is nested deeper is never a column."""
SAMPLE_CHARACTERS: Final = 1000
"""A message shows no longer value."""


def cut_sample(text: str) -> str:
    """Format a value for a message, cut off when it is long."""
    return text if len(text) <= SAMPLE_CHARACTERS else text[:SAMPLE_CHARACTERS] + "…"


def add_sample(into: dict[str, object], path: Sequence[str], sample: object) -> None:
    """Add a sample of the field at a path; of one that is known, add what is new in the sample."""
    for name in path[:-1]:
        inner = into.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        into = inner
    known = into.setdefault(path[-1], sample)
    if known is not sample and isinstance(known, dict) and isinstance(sample, dict):
        for name, each in sample.items():
            add_sample(known, (name,), each)


@dataclass(frozen=True, slots=True)
class LinePiece:
    """Complete lines of one file, or of a part of it.

    Attributes:
        file_uri: The file, as it appears in rescued data: printable, UTF-8.
        data: The lines, decompressed, in UTF-8, without a byte order mark.
    """

    file_uri: str
    data: bytes


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is no record, on its way to `badRecordsPath`.

    Attributes:
        file_uri: The file it was in.
        record: Its text, in which bytes that are no UTF-8 are escaped.
        reason: Why it is none, in a sentence.
    """

    file_uri: str
    record: str
    reason: str


@dataclass(slots=True)
class Counts:
    """What is counted by parts."""

    def add(self, other: Self) -> None:
        """Count what another has counted, too."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class ReadCounts(Counts):
    """What was read so far.

    Attributes:
        rows: Rows given out.
        rescued_rows: Rows among them whose rescued data column is not NULL.
        corrupt_records: Records that are not valid, kept or dropped.
        dropped_records: Records that mode `DROPMALFORMED` dropped, or `badRecordsPath` took.
        error_cells: Cells of workbooks that hold an error such as `#N/A`, which are null.
        corrupt_by_file: Of the corrupt records, how many are in which file.
    """

    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    dropped_records: int = 0
    error_cells: int = 0
    corrupt_by_file: Counter[str] = field(default_factory=Counter, compare=False)


ENOUGH_RECORDS: Final = 100
"""Records that are explained once a new field was found. What comes later, sampling finds."""


class UnknownFields(Exception):  # noqa: N818 - a signal to the stream, which makes it an error
    """Records hold fields that the schema does not have, in a mode that must know.

    Attributes:
        fields: New top-level fields with a sample value each. A new field of a nested struct is
            reported under its top-level name.
        file_uri: The first file with such a field.
    """

    def __init__(self, fields: dict[str, object], file_uri: str) -> None:
        super().__init__(fields, file_uri)
        self.fields = fields
        self.file_uri = file_uri


class OpenedFile(Protocol):
    """A file whose bytes are fetched when they are asked for.

    Every method may raise what fetching raises (`FileMissingError`, `FileChangedError`,
    `FileUnreadableError` ...); readers let that pass.
    """

    @property
    def entry(self) -> FileEntry:
        """What discovery knows: path, size, modification time."""

    @property
    def container(self) -> FileEntry:
        """What of it is in the file log: itself, or the archive that it is a member of."""

    @property
    def uri(self) -> str:
        """The file, as it appears in rescued data and errors: printable, UTF-8."""

    @property
    def block_begin(self) -> int:
        """The first byte of the block that `blocks` gave last, where it reads a part."""

    def stream(self) -> IO[bytes]:
        """Open the whole file from its beginning, decompressed, to be read once."""

    def text_stream(self, encoding: str = "utf-8") -> IO[bytes]:
        """`stream()` in UTF-8 without a byte order mark, whatever encoding the file has."""

    def random_access(self) -> IO[bytes]:
        """Open the file's own bytes, seekable, as `pyarrow` and `fastavro` read files."""

    def blocks(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        encoding: str = "utf-8",
        separator: bytes | None = None,
        most: int | None = None,
    ) -> Iterator[bytes]:
        """Blocks of complete lines: those that start in `[start, end)`.

        Args:
            start: First byte; a part that starts later begins with the next line.
            end: Where the part ends; `None` for the whole file.
            encoding: Of the file; blocks are UTF-8, without a byte order mark.
            separator: What ends a line, in UTF-8; `None`: a newline (a carriage return before it,
                or a lone one, is the format's business).
            most: How many bytes a line may have.
        """


class BlockReader(Protocol):
    """Reads blocks of complete lines."""

    arrow_schema: pa.Schema
    """Of the batches: the data columns, then the rescued data column if any."""
    counts: ReadCounts
    bad_records: list[BadRecord]
    """Grows while reading when `badRecordsPath` is set; the stream empties it."""
    pieces: Sequence[FileCounts]
    """What became of each piece that was read last; lines count from the first one of each."""

    def read(self, pieces: Sequence[LinePiece]) -> pa.RecordBatch:
        """Read lines into one batch, rows in the order of the lines.

        Raises:
            UnknownFields: There are new fields, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
        """


@runtime_checkable
class FileReader(Protocol):
    """Reads files."""

    arrow_schema: pa.Schema
    counts: ReadCounts
    bad_records: list[BadRecord]
    first_error: RecordError | None
    """The first of what is rescued or not valid since this was set to `None`."""

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the part of it that belongs to a range of bytes.

        Reading the ranges of a file, in whatever tasks, gives each of its rows once.

        Raises:
            UnknownFields: There are new fields, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
            FileUnreadableError: The file is not of this format, or damaged.
        """


class Inference(Protocol):
    """Learns the schema of files."""

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from one file, part by part; whoever iterates may stop after any.

        Yields:
            About how many bytes the part had; 0 for a header or a footer that tells all.

        Raises:
            FileUnreadableError: The file is not of this format, or damaged.
        """

    def result(self) -> StructType:
        """Return the columns in order of appearance, `NullType` where no value has shown a type."""


def quote(text: str) -> str:
    """Format a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def member(name: str, text: str) -> str:
    """Format a member of an object, whose value is a string."""
    return f"{quote(name)}:{quote(text)}"


def path_end(file_uri: str) -> str:
    """Format the end of the object: the path of the file, and the brace."""
    return f',"_file_path":{quote(file_uri)}}}'


def printable(record: bytes) -> str:
    """Decode a record to a string, in which bytes that are not UTF-8 are escaped."""
    return record.decode("utf-8", "backslashreplace")


def line_blocks(
    file: OpenedFile,
    own: CsvOptions | JsonOptions | TextOptions,
    start: int = 0,
    end: int | None = None,
) -> Iterator[bytes]:
    """Blocks of lines, cut as the options of their format say."""
    separator = None if own.line_sep is None else own.line_sep.encode()
    most = own.max_record_bytes
    return file.blocks(start, end, encoding=own.encoding, separator=separator, most=most)


def with_line_breaks(data: bytes) -> bytes:
    r"""End each line with `\n` (Spark's default `lineSep` is `\n`, `\r\n` or `\r`)."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if not data or data.endswith(b"\n") else data + b"\n"


_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def count_lines(data: bytes, separator: bytes | None = None) -> int:
    """Count how many lines end in a text.

    Args:
        data: The text.
        separator: What ends a line; `None` for any line break.
    """
    if separator is not None:
        return data.count(separator)
    lone = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0
    # Five times as fast as `bytes.count`.
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n"))) + lone


def line_begin(data: bytes, line: int, separator: bytes | None = None) -> int:
    """Find where a line of a text begins, the first of which is 1; see `count_lines`."""
    pattern = _LINE_END if separator is None else re.compile(re.escape(separator))
    found = next(islice(pattern.finditer(data), line - 2, None), None) if line > 1 else None
    return 0 if found is None else found.end()


Bools = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Indices into another array, or into the bytes of a buffer."""


def is_utf8(text: bytes, begin: int = 0, end: int | None = None) -> bool:
    """Tell whether bytes are UTF-8. Arrow checks that in a fraction of the time of decoding."""
    offsets = pa.py_buffer(np.array([begin, len(text) if end is None else end], np.int64))
    buffers = [None, offsets, pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def validity(valid: Bools) -> pa.Buffer | None:
    """Build an Arrow validity bitmap; `None` where all is valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
