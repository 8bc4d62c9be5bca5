"""What is the header of a CSV file?

The header is what comes first in a file after `skipRows` lines, comments and blank lines; a task
that reads a later part of the file looks there first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.csv.lines import SKIPPED, Records, Splitter
from airflow_cloudfiles.engine.formats.csv.tokens import MalformedRecordError, Tokenizer
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

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
