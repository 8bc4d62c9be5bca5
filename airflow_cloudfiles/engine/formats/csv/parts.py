"""Cut CSV into records that belong to a part of a file, also where quoted values hold line breaks.

A file whose every line is a record may be read in parts: each part has the lines that begin in it,
and looks at the beginning of the file for the header. A file whose values may hold line breaks is
read from its beginning to its end.

The header of a file is its first record.

The header is what comes first in a file after `skipRows` lines, comments and blank lines; a task
that reads a later part of the file looks there first.

Among plain records, a line break ends a record when the number of quotes before it is even. That
finds whole runs of them at once. Where something else comes, `Tokenizer` reads on from the
beginning of that record; after each record it read in vain, it is given twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

import numpy as np

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.base import (
    OpenedFile,
    count_lines,
    line_begin,
    line_blocks,
)
from airflow_cloudfiles.engine.formats.csv.lines import (
    BLANKS,
    ODD,
    SKIPPED,
    MalformedRecordError,
    PlainRecordFinder,
    Records,
    Splitter,
    Tokenizer,
    skip_comments,
)
from airflow_cloudfiles.engine.formats.recognize import refuse_header
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bytes, Positions


BLOCK_BYTES: Final = 16 * 2**20
"""A longer record is refused: it would not fit the columns it goes to."""

_WINDOW_BYTES: Final = 2**20
_ODD_BYTES: Final = 64 * 1024
_MOST_AT_ONCE: Final = 4096
_BREAK: Final = ord("\n")
_NONE: Final = np.empty(0, np.int64)


class MultiLineSplitter:
    """Cuts a file into records. Use once.

    Args:
        options: How the file is written.
        file_uri: The file, for errors.
    """

    def __init__(self, options: CsvOptions, file_uri: str) -> None:
        self._options, self._file_uri = options, file_uri
        self._shape = PlainRecordFinder(options)
        self._ends = Tokenizer(_in_bytes(options))
        self._line_end: bytes | None = None if options.line_sep is None else b"\n"
        self._to_skip = options.skip_rows
        self._comment = options.comment.encode()
        self._at_once = 1

    def split(self, stream: IO[bytes]) -> Iterator[Records]:
        """Cut a text in UTF-8 without a byte order mark into records, block by block.

        Raises:
            FileUnreadableError: A record is longer than can be read.
        """
        rest, tail = b"", b""
        is_last = False
        while not is_last:
            chunk = stream.read(max(BLOCK_BYTES, len(rest)))
            is_last = not chunk
            chunk, tail = self._normalized(tail + chunk, is_last=is_last)
            text = rest + chunk
            records, used = self._cut(text, is_last=is_last)
            rest = text[used:]
            most = self._options.max_record_bytes
            if len(rest) > most:
                raise FileUnreadableError(
                    f"{self._file_uri} has a record of more than {most} bytes, which is the "
                    "largest that is read (maxRecordBytes). Is a quote missing?"
                )
            if len(records.kinds):
                yield records

    def _normalized(self, chunk: bytes, *, is_last: bool) -> tuple[bytes, bytes]:
        r"""Put `\n` for what ends the first line of the file, and return what must wait."""
        if self._line_end is None:
            place = min((found for each in b"\n\r" if (found := chunk.find(each)) >= 0), default=-1)
            if place < 0:
                return chunk, b""
            line_end = chunk[place : place + 2]
            if line_end == b"\r" and not is_last:
                return chunk[:place], chunk[place:]
            self._line_end = line_end if line_end == b"\r\n" else line_end[:1]
        if self._line_end == b"\n":
            return chunk, b""
        held = b"\r" if self._line_end == b"\r\n" and chunk.endswith(b"\r") and not is_last else b""
        chunk = chunk.removesuffix(held) if held else chunk
        return chunk.replace(self._line_end, b"\n"), held

    def _cut(self, text: bytes, *, is_last: bool) -> tuple[Records, int]:
        """Cut a text into its complete records, and say how much of it they are."""
        closed = text + b"\n" if is_last and text and not text.endswith(b"\n") else text
        array = np.frombuffer(closed, np.uint8)
        starts, ends, odd = [_NONE], [_NONE], [_NONE]
        place = self._skip_rows(text, starts, ends, is_last=is_last)
        while place < len(text):
            run = self._plain_run(closed, array, place)
            if len(run):
                starts += [np.array([place]), run[:-1] + 1]
                ends.append(run)
                place = int(run[-1]) + 1
                self._at_once = 1 if len(run) > self._at_once else self._at_once
                continue
            found = self._odd_run(text, place, is_last=is_last)
            if not found:
                break
            starts.append(np.array([place, *(end + 1 for end in found[:-1])]))
            ends.append(np.array(found))
            odd.append(starts[-1])
            place = found[-1] + 1
        return self._records(closed, array, starts, ends, odd), min(place, len(text))

    def _records(
        self,
        text: bytes,
        array: Bytes,
        starts: list[Positions],
        ends: list[Positions],
        odd: list[Positions],
    ) -> Records:
        begins, stops = np.concatenate(starts), np.concatenate(ends)
        kinds = np.zeros(len(begins), np.uint8)
        size = int(stops[-1]) + 1 if len(stops) else 0
        records = Records(text if size == len(text) else text[:size], begins, stops, kinds)
        self._shape.find_odd(records, array[:size])
        kinds[np.searchsorted(begins, np.concatenate(odd))] = ODD
        if b"\r" in records.text:
            returns = np.flatnonzero(array[:size] == ord("\r"))
            kinds[np.searchsorted(begins, returns, side="right") - 1] = ODD
        self._skip(records, array)
        return records

    def _skip(self, records: Records, array: Bytes) -> None:
        """Skip empty lines and comments."""
        records.kinds[records.ends == records.starts] = SKIPPED
        if self._options.trims_start:
            for index in np.flatnonzero(array[records.starts] <= ord(" ")).tolist():
                if not records.record(index).strip(BLANKS.encode()):
                    records.kinds[index] = SKIPPED
        skip_comments(records, array[records.starts], self._comment)

    def _skip_rows(
        self, text: bytes, starts: list[Positions], ends: list[Positions], *, is_last: bool
    ) -> int:
        """Take the lines that `skipRows` says, whatever quotes they have."""
        place = 0
        while self._to_skip and place < len(text):
            end = text.find(b"\n", place)
            if end < 0 and not is_last:
                break
            end = len(text) if end < 0 else end
            starts.append(np.array([place]))
            ends.append(np.array([end]))
            place = end + 1
            self._to_skip -= 1
        return place

    def _plain_run(self, text: bytes, array: Bytes, place: int) -> Positions:
        """Find where the plain records end that come next; none when the next one is not plain."""
        if not self._shape.is_simple or self._to_skip:
            return np.empty(0, np.int64)
        window = _WINDOW_BYTES
        while True:
            limit = min(place + window, len(text))
            stop = self._first_strange(text, array, place, limit)
            breaks = np.flatnonzero(array[place:stop] == _BREAK) + place
            if self._shape.quote:
                quotes = np.flatnonzero(array[place:stop] == self._shape.quote[0]) + place
                breaks = breaks[(np.searchsorted(quotes, breaks) & 1) == 0]
            if len(breaks) or stop < limit or limit == len(text):
                return breaks
            window *= 4

    def _first_strange(self, text: bytes, array: Bytes, place: int, limit: int) -> int:
        """Find the first thing that plain records do not have."""
        marks = [] if not self._comment else [b"\n" + self._comment]
        if self._comment and text.startswith(self._comment, place):
            return place
        stops = [text.find(mark, place, limit) for mark in (*marks, *self._shape.escapes)]
        stop = min([each + (text[each] == _BREAK) for each in stops if each >= 0], default=limit)
        if not self._shape.quote or text.find(self._shape.quote, place, stop) < 0:
            return stop
        quotes = np.flatnonzero(array[place:stop] == self._shape.quote[0]) + place
        quotes = quotes[quotes + 1 < len(text)]
        closes = (np.arange(len(quotes)) & 1).astype(np.bool_)
        strange = np.flatnonzero(self._shape.are_strange(text, array, quotes, closes))
        return int(quotes[strange[0]]) if len(strange) else stop

    def _odd_run(self, text: bytes, place: int, *, is_last: bool) -> list[int]:
        """Find where the next records end, one by one; none when there is no complete one."""
        if not is_last and text.find(b"\n", place) < 0:
            return []
        size = _ODD_BYTES
        while True:
            # In this encoding a byte is a character, so that places stay what they are.
            piece = text[place : place + size].decode("latin-1")
            found = self._ends_in(piece, is_last=is_last and place + size >= len(text))
            if found or place + size >= len(text):
                self._at_once = min(self._at_once * 2, _MOST_AT_ONCE)
                return [end + place for end in found]
            size *= 8

    def _ends_in(self, text: str, *, is_last: bool) -> list[int]:
        found: list[int] = []
        at = 0
        while at < len(text) and len(found) < self._at_once:
            end = self._end(text, at)
            if end == len(text) and not is_last:
                break
            found.append(end)
            at = end + 1
        return found

    def _end(self, text: str, at: int) -> int:
        comment = self._comment.decode("latin-1")
        if text.startswith("\n", at):
            return at
        if comment and text.startswith(comment, at):
            end = text.find("\n", at)
            return len(text) if end < 0 else end
        return self._ends.record(text, at)[1]


def _in_bytes(options: CsvOptions) -> CsvOptions:
    """Build the same options for a text of which every character is a byte; refuse nothing."""
    handling = options.unescaped_quotes
    return replace(
        options,
        sep=options.sep.encode().decode("latin-1"),
        max_columns=2**62,
        max_chars=None,
        unescaped_quotes="STOP_AT_DELIMITER" if handling == "RAISE_ERROR" else handling,
    )


def _counted(found: Iterator[Records]) -> Iterator[Records]:
    """Give each block the number of lines that come before it."""
    line, before = 0, b""
    for records in found:
        line += count_lines(before) if before else 0
        records.line, before = line, records.text
        yield records


_MARK: Final = "\ufeff"
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
        self._is_checked = False
        self._tokens = Tokenizer(options)
        self._begin()

    def _begin(self) -> None:
        """Expect the beginning of the file: lines that are skipped, and the header."""
        self._to_skip, self._needs_header = self._options.skip_rows, self._has_header
        self.header: list[str | None] | None = None

    @property
    def _is_begun(self) -> bool:
        """Whether everything that follows is records."""
        return not self._to_skip and not self._needs_header

    def records(self, start: int = 0, end: int | None = None) -> Iterator[Records]:
        """Yield the records of a part, block by block; what belongs to the header is skipped.

        Raises:
            FileUnreadableError: The header cannot be read.
        """
        if self._options.multi_line:
            stream = self._file.text_stream(self._options.encoding)
            found = _counted(MultiLineSplitter(self._options, self._file.uri).split(stream))
        else:
            found = self._lines(start, end)
        for records in found:
            self._take_beginning(records)
            if self._is_begun:
                if self.header is not None and not self._is_checked:
                    refuse_header([name or "" for name in self.header], self._file.uri)
                    self._is_checked = True
                yield records

    def _lines(self, start: int, end: int | None) -> Iterator[Records]:
        splitter = Splitter(self._options)
        if start and not self._is_begun:
            self._look_before(start, splitter)
        blocks = line_blocks(self._file, self._options, start, end)
        if not start:
            yield from _counted(map(splitter.split, blocks))
            return
        for block in blocks:
            records = splitter.split(block)
            records.line, records.block = None, block
            records.block_begin = self._file.block_begin
            yield records

    def position(self, records: Records, index: int) -> tuple[int | None, int | None]:
        """Find where in the file a record begins: at which line, or else at which byte."""
        line = count_lines(records.text[: records.starts[index]], b"\n") + 1
        if records.line is not None:
            return records.line + line, None
        separator = None if self._options.line_sep is None else self._options.line_sep.encode()
        return None, records.block_begin + line_begin(records.block, line, separator)

    def _look_before(self, start: int, splitter: Splitter) -> None:
        """Read the header, as far as it is in front of a part."""
        for limit in sorted({min(start, _NEAR), start}):
            self._begin()
            for block in line_blocks(self._file, self._options, 0, limit):
                self._take_beginning(splitter.split(block))
                if self._is_begun:
                    return

    def _take_beginning(self, records: Records) -> None:
        """Take from the records of the next block what belongs to the beginning.

        Raises:
            FileUnreadableError: The header cannot be read.
        """
        for index in range(len(records.kinds)):
            if self._is_begun:
                return
            if self._to_skip:
                self._to_skip -= 1
                records.kinds[index] = SKIPPED
            elif records.kinds[index] != SKIPPED:
                self.header = self._read_header(records.record(index))
                self._needs_header = False
                records.kinds[index] = SKIPPED

    def _read_header(self, line: bytes) -> list[str | None]:
        try:
            return self._tokens.values(line.decode().removeprefix(_MARK))
        except (UnicodeDecodeError, MalformedRecordError) as error:
            raise FileUnreadableError(
                f"{self._file.uri}: the header cannot be read ({error}). Correct the first line, "
                "name the encoding of the file, or set header=false if there is no header."
            ) from error

    def width_of(self, records: Records) -> int:
        """Count the values of the first record; 0 when that is not known."""
        for index in range(len(records.kinds)):
            if records.kinds[index] != SKIPPED:
                try:
                    return len(self._tokens.values(records.record(index).decode()))
                except (UnicodeDecodeError, MalformedRecordError):
                    continue
        return 0
