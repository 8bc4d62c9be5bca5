"""Describe a file, as discovery finds it and a reader gets it.

The frozen values that every package exchanges. A file is known by its path relative to the source,
and a version of it by size, modification time and etag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

FileIdentity = Literal["path", "pathAndModificationTime", "pathAndVersion", "content"]
"""By what a file is known (`cloudFiles.fileIdentity`)."""
FILE_IDENTITIES: tuple[FileIdentity, ...] = (
    "path",
    "pathAndModificationTime",
    "pathAndVersion",
    "content",
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE: Final = timedelta(days=146_097)
"""How long the calendar takes to begin again: 400 years."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One version of one file below a source.

    Attributes:
        path: Path relative to the source (or store) root, `/` between the parts. Bytes of a
            local name that are not UTF-8 appear as lone surrogates (`os.fsdecode`).
        size: Size in bytes when it was discovered.
        modification_time_us: Microseconds since 1970-01-01 UTC, as the store reports it.
        etag: The store's version tag; empty where the store has none (local disks).
        content: SHA-256 of its bytes, in hexadecimal digits, where files are known by their
            content; empty elsewhere.
        archived_in: The storage class from which it has to be restored before it can be read, as
            far as its store has said so; empty for any other file. Of no meaning for its identity,
            and kept nowhere.
    """

    path: str
    size: int
    modification_time_us: int
    etag: str = ""
    content: str = ""
    archived_in: str = field(default="", compare=False, repr=False)

    @property
    def version(self) -> tuple[int, int | str]:
        """What another version of the file has not, as far as its store tells."""
        return (self.size, self.etag or self.modification_time_us)


def iso_time(moment_us: int) -> str:
    """Write a moment as ISO 8601, in UTC.

    Args:
        moment_us: Microseconds since 1970-01-01 UTC. Disks hold moments that `datetime` does not,
            such as those of the year 10000; their year has a sign.
    """
    try:
        return (_EPOCH + timedelta(microseconds=moment_us)).isoformat()
    except OverflowError:
        cycles, left_us = divmod(moment_us, _CYCLE // timedelta(microseconds=1))
        year, rest = (_EPOCH + timedelta(microseconds=left_us)).isoformat().split("-", 1)
        return f"{int(year) + 400 * cycles:+06}-{rest}"


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A position in the file log: everything before file `index` of entry `entry` is behind it.

    Spark stores it as the stream's offset (`to_json`). Normal form: an offset at the end of entry
    `n` is written `(n + 1, 0)`, so that equal positions are equal values.
    """

    entry: int
    index: int

    def to_json(self) -> dict[str, int]:
        """Encode it as Spark's offset log stores it."""
        return {"entry": self.entry, "index": self.index}

    @classmethod
    def from_json(cls, value: dict[str, int]) -> Offset:
        """Read what `to_json` wrote."""
        return cls(entry=int(value["entry"]), index=int(value["index"]))


START = Offset(0, 0)
"""Before the first file of the first entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimit:
    """How much one micro-batch may take.

    Attributes:
        max_files: Hard limit, in files; at least 1. `None` means no limit.
        max_bytes: Soft limit: the batch ends with the file that reaches it. `None`: no limit.
    """

    max_files: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RecordError:
    """The first thing of a file, or of a part of it, that did not find its place.

    Attributes:
        reason: Why, in words, without any value of the file.
        field: The column or field with the value; empty where it is the whole record.
        line: The line of the file that the record begins with, from 1; of formats without lines,
            the row. `None` where it is not known.
        byte: The first byte of that line, where the file was read in parts and no part knows its
            lines; `None` elsewhere.
    """

    reason: str
    field: str = ""
    line: int | None = None
    byte: int | None = None

    def is_before(self, other: RecordError) -> bool:
        """Tell whether it comes before another error of the same file.

        What is wrong with the path of a file comes first. The part that begins the file knows its
        lines, so a line comes before a byte.
        """
        return self._order() < other._order()

    def _order(self) -> tuple[int, int]:
        if self.line is not None:
            return 1, self.line
        return (0, 0) if self.byte is None else (2, self.byte)


@dataclass(frozen=True, slots=True)
class FileCounts:
    """What was read of one file, in the words of `formats.base.ReadCounts`.

    Attributes:
        rows: Rows given out.
        rescued_rows: Rows among them with rescued data.
        corrupt_records: Records that are not valid, kept or dropped.
        dropped_records: Those of them that have no row.
        skipped: Why the file, or what was left of it, was not read: `missing`, `superseded` or
            `corrupt`; empty where it was read to its end.
        error: The first of what is rescued or corrupt.
    """

    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    dropped_records: int = 0
    skipped: str = ""
    error: RecordError | None = None

    @property
    def is_clean(self) -> bool:
        """Whether all records of the file are rows, and nothing of them is rescued."""
        return not (self.rescued_rows or self.corrupt_records or self.skipped)

    def __add__(self, other: FileCounts) -> FileCounts:
        """Add what was read of two parts; of their errors, the one that comes first stays."""
        error = self.error or other.error
        if self.error and other.error and other.error.is_before(self.error):
            error = other.error
        return FileCounts(
            self.rows + other.rows,
            self.rescued_rows + other.rescued_rows,
            self.corrupt_records + other.corrupt_records,
            self.dropped_records + other.dropped_records,
            self.skipped or other.skipped,
            error,
        )


def printable_path(path: str) -> str:
    r"""Make a path safe for UTF-8: bytes that are not UTF-8 become `\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


MEMBER: Final = "!/"
"""Stands between an archive and its member, as in Spark: `a.zip!/folder/1.json`."""
_ARCHIVE: Final = re.compile(
    r"\.(?:zip|tar|tar\.(?:gz|bz2|xz|zst|lz4|snappy|sz|deflate)|tgz|tbz2?|txz|tzst)\Z",
    re.IGNORECASE,
)
_LONGEST_END: Final = len(".tar.deflate")


def is_archive(path: str) -> bool:
    """Tell whether a file is an archive, by the end of its name."""
    return _ARCHIVE.search(path, max(0, len(path) - _LONGEST_END)) is not None


def archive_of(uri: str) -> str:
    """Find the archive that a file is in, by a URI as it is printed; of another file the same."""
    end = uri.find(MEMBER)
    while end >= 0:
        if is_archive(uri[:end]):
            return uri[:end]
        end = uri.find(MEMBER, end + 1)
    return uri
