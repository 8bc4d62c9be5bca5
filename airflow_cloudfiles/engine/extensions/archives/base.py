"""Describe a member of an archive, and bound what an archive may come to.

A name in an archive is text: nothing is ever written under it, so one that points elsewhere
(`../x`, `/etc/x`) does no harm. What an archive holds is read as it is asked for, in memory that
does not depend on it; and no archive comes to more than a thousand times its own size.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.files import MEMBER, printable_path
from airflow_cloudfiles.engine.messages import size_text

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile

MOST_TIMES: Final = 1000
"""An archive comes to no more than so many times its size; deflate reaches 1,032 with zeros."""
LEAST_BYTES: Final = 2**30
"""Up to here an archive of any size may come."""
PIECE_BYTES: Final = 2**16
"""What is read of a member at a time."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an archive, of which nothing was read yet.

    Attributes:
        name: Its path in the archive, without `.` and empty parts.
        size: Its bytes, as the archive says.
        open: Opens its content, to be read once, before the next member is asked for; reading it
            raises `FileUnreadableError` where it is damaged.
        is_file: Whether it has content, rather than being a link or a device.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    is_file: bool = True


def plain_name(name: str) -> str:
    """Take parts away that say nothing, so that `./a//b` is `a/b`."""
    return "/".join(each for each in name.split("/") if each not in {"", "."})


def member_uri(archive: OpenedFile, name: str) -> str:
    """Write where a member is, for people to read."""
    return f"{archive.uri}{MEMBER}{printable_path(name)}"


def damaged(archive: OpenedFile, reason: object) -> FileUnreadableError:
    """Build the error of an archive that cannot be read."""
    return FileUnreadableError(
        f"{archive.uri} is damaged, or no archive of the kind that its name says: {reason}. "
        "Nothing of it was ingested. Replace it and run again, or set ignoreCorruptFiles=true to "
        "go on without it."
    )


def unsupported(archive: OpenedFile, name: str, reason: str, remedy: str) -> FileUnreadableError:
    """Build the error of a member that is not read."""
    return FileUnreadableError(
        f"{member_uri(archive, name)} cannot be read: {reason}. Nothing of the archive was "
        f"ingested. {remedy}, leave it out with archivePathFilter, or set ignoreCorruptFiles=true "
        "to go on without the archive."
    )


class Budget:
    """Counts what an archive comes to.

    Args:
        archive: The archive.
    """

    def __init__(self, archive: OpenedFile) -> None:
        self._archive = archive
        self._most = max(LEAST_BYTES, MOST_TIMES * archive.entry.size)
        self._spent = 0

    def spend(self, count: int) -> None:
        """Count some more bytes.

        Raises:
            FileUnreadableError: There are too many.
        """
        self._spent += count
        if self._spent > self._most:
            raise FileUnreadableError(
                f"{self._archive.uri} has {self._archive.entry.size} bytes and comes to more than "
                f"{size_text(self._most)}, as an archive does that is made to fill disks. Nothing "
                "of it was ingested. If it is good, unpack it, or pack it in several archives."
            )


class Content(io.RawIOBase):
    """The content of a member.

    Args:
        read: Reads some bytes, at most so many as it is given, and none at the end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._read = read

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read on into a buffer."""
        found = self._read(min(len(buffer), PIECE_BYTES))
        buffer[: len(found)] = found
        return len(found)
