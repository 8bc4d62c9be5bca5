"""Describe a file, as discovery finds it and a reader gets it.

The frozen values that every package exchanges. A file is known by its path relative to the source,
and a version of it by size, modification time and etag.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    path: str
    size: int
    modification_time_us: int
    etag: str = ""
    content: str = ""

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


def printable_path(path: str) -> str:
    r"""Make a path safe for UTF-8: bytes that are not UTF-8 become `\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
