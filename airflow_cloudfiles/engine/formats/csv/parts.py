"""Which records belong to which part of a file?

A file whose every line is a record may be read in parts: each part has the lines that begin in it,
and looks at the beginning of the file for the header. A file whose values may hold line breaks is
read from its beginning to its end.

What is the header of a CSV file?

The header is what comes first in a file after `skipRows` lines, comments and blank lines; a task
that reads a later part of the file looks there first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.base import OpenedFile
from airflow_cloudfiles.engine.formats.csv.lines import SKIPPED, Records, Splitter
from airflow_cloudfiles.engine.formats.csv.multiline import MultiLineSplitter
from airflow_cloudfiles.engine.formats.csv.tokens import MalformedRecordError, Tokenizer
from airflow_cloudfiles.engine.formats.recognize import refuse_header
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

_NEAR: Final = 64 * 1024
"""A header is looked for in so many bytes first."""


class FileParts:
    """The records of one file, after its header. Use once.

    Args:
        file: The file.
        options: How it is written.
        has_header: Whether its first line names its columns.

    Attributes:
        header: The values of the header; `None` before `records` gave any, or without header.
    """

    def __init__(self, file: OpenedFile, options: CsvOptions, *, has_header: bool) -> None:
        self._file, self._options, self._has_header = file, options, has_header
        self._preamble = Preamble(options, has_header=has_header)
        self._is_checked = False
        self._tokens = Tokenizer(options)

    @property
    def header(self) -> list[str | None] | None:
        """The values of the header."""
        return self._preamble.header

    def records(self, start: int = 0, end: int | None = None) -> Iterator[Records]:
        """The records of a part, block by block; what belongs to the header is skipped.

        Raises:
            FileUnreadableError: The header cannot be read.
        """
        if self._options.multi_line:
            found = MultiLineSplitter(self._options, self._file.uri).split(
                self._file.text_stream(self._options.encoding)
            )
        else:
            found = self._lines(start, end)
        for records in found:
            self._preamble.take(records, self._file.uri)
            if self._preamble.is_complete:
                self._check_header()
                yield records

    def _check_header(self) -> None:
        if self.header is not None and not self._is_checked:
            refuse_header([name or "" for name in self.header], self._file.uri)
            self._is_checked = True

    def _lines(self, start: int, end: int | None) -> Iterator[Records]:
        splitter = Splitter(self._options)
        if start and not self._preamble.is_complete:
            self._look_before(start, splitter)
        for block in self._blocks(start, end):
            yield splitter.split(block)

    def _look_before(self, start: int, splitter: Splitter) -> None:
        """Read the header, as far as it is in front of a part."""
        for limit in sorted({min(start, _NEAR), start}):
            self._preamble = Preamble(self._options, has_header=self._has_header)
            preamble_of(self._blocks(0, limit), splitter, self._preamble, self._file.uri)
            if self._preamble.is_complete:
                return

    def _blocks(self, start: int, end: int | None) -> Iterator[bytes]:
        line_end = self._options.line_sep
        return self._file.blocks(
            start,
            end,
            encoding=self._options.encoding,
            separator=None if line_end is None else line_end.encode(),
            most=self._options.max_record_bytes,
        )

    def width_of(self, records: Records) -> int:
        """How many values the first record has; 0 when that is not known."""
        for index in range(len(records.kinds)):
            if records.kinds[index] != SKIPPED:
                try:
                    return len(self._tokens.values(records.record(index).decode()))
                except (UnicodeDecodeError, MalformedRecordError):
                    continue
        return 0


_MARK: Final = "\ufeff"


class Preamble:
    """The beginning of a file: lines that are skipped, and the header. Use once a file.

    Attributes:
        header: The values of the header; `None` as long as it was not met.
    """

    def __init__(self, options: CsvOptions, *, has_header: bool) -> None:
        self._to_skip = options.skip_rows
        self._needs_header = has_header
        self._tokens = Tokenizer(options)
        self.header: list[str | None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything that follows is records."""
        return not self._to_skip and not self._needs_header

    def take(self, records: Records, file_uri: str) -> None:
        """Take from the records of the next block what belongs to the beginning.

        Raises:
            FileUnreadableError: The header cannot be read.
        """
        for index in range(len(records.kinds)):
            if self.is_complete:
                return
            if self._to_skip:
                self._to_skip -= 1
                records.kinds[index] = SKIPPED
            elif records.kinds[index] != SKIPPED:
                self.header = self._read(records.record(index), file_uri)
                self._needs_header = False
                records.kinds[index] = SKIPPED

    def _read(self, line: bytes, file_uri: str) -> list[str | None]:
        try:
            return self._tokens.values(line.decode().removeprefix(_MARK))
        except (UnicodeDecodeError, MalformedRecordError) as error:
            raise FileUnreadableError(
                f"{file_uri}: the header cannot be read ({error}). Correct the first line, name "
                "the encoding of the file, or set header=false if there is no header."
            ) from error


def preamble_of(
    blocks: Iterable[bytes], splitter: Splitter, preamble: Preamble, file_uri: str
) -> None:
    """Read the beginning of a file from blocks that are in front of what is wanted."""
    for block in blocks:
        preamble.take(splitter.split(block), file_uri)
        if preamble.is_complete:
            return
