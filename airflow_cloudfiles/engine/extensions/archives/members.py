"""Read the members of an archive as files, each when its turn comes.

A tar is read from its beginning to its end, a zip archive by its directory. A member is read as it
is unpacked: a small one from memory, a larger one as a stream; for a format that goes from place to
place in a file, it is put into a temporary file without a name, which goes with the process.

A member is left out by its name as a file in a folder would be (`_SUCCESS`, `.DS_Store`), and by
`archivePathFilter`. Links and devices have no content of their own, and are passed over. An archive
in an archive is refused: nobody knows how deep that goes.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.filters import is_member_input
from airflow_cloudfiles.engine.discovery.globs import compile_path
from airflow_cloudfiles.engine.errors import FileUnreachableError
from airflow_cloudfiles.engine.extensions.archives.base import (
    ArchiveMember,
    Budget,
    member_uri,
    unsupported,
)
from airflow_cloudfiles.engine.extensions.archives.tar_files import tar_members
from airflow_cloudfiles.engine.extensions.archives.zip_files import zip_members
from airflow_cloudfiles.engine.files import MEMBER, FileEntry, is_archive
from airflow_cloudfiles.engine.messages import sentence
from airflow_cloudfiles.engine.reading.decoding import decompressed, in_utf8, stream_of
from airflow_cloudfiles.engine.reading.opened import TEXT_BYTES, line_ends
from airflow_cloudfiles.engine.storage.outage import is_full

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_log = logging.getLogger(__name__)
HELD_BYTES: Final = 4 * 2**20
"""A member of so many bytes, or fewer, is held in memory."""
_COPY_BYTES: Final = 2**20
_ZIP: Final = ".zip"


def members(archive: OpenedFile, options: CloudFilesOptions) -> Iterator[OpenedFile]:
    """Yield the members of an archive that are input; each can be read until the next one.

    An empty file has none.

    Args:
        archive: The archive.
        options: Of the source.

    Raises:
        FileUnreadableError: It is damaged, encrypted, or comes to far more than its size; or a
            member is an archive.
    """
    if not archive.entry.size:
        return
    text = options.discovery.archive_path_filter
    pattern = None if text is None else compile_path(text)
    walk = zip_members if archive.entry.path.lower().endswith(_ZIP) else tar_members
    read = left_out = passed = 0
    for member in walk(archive, Budget(archive)):
        if not is_member_input(member.name, pattern):
            left_out += 1
        elif not member.is_file:
            passed += 1
        else:
            _refuse_nested(archive, member, options)
            read += 1
            file = MemberFile(archive, member)
            try:
                yield file
            finally:
                file.close()
    if passed:
        text = sentence(passed, "{member} without content (a link, a device) {is} passed over")
        _log.warning("%s: %s", archive.uri, text)
    if left_out and not read:
        text = sentence(left_out, "{member} {is} left out by name or archivePathFilter")
        _log.warning("%s: nothing is read of it, %s", archive.uri, text)


def _refuse_nested(archive: OpenedFile, member: ArchiveMember, options: CloudFilesOptions) -> None:
    if is_archive(member.name) and options.format != "binaryFile":
        raise unsupported(archive, member.name, "it is an archive in an archive", "Unpack it")


class MemberFile:
    """A member of an archive, as an `OpenedFile`.

    Args:
        archive: The archive.
        member: What it has of it.
    """

    def __init__(self, archive: OpenedFile, member: ArchiveMember) -> None:
        whole = archive.entry
        path = f"{whole.path}{MEMBER}{member.name}"
        self.entry = FileEntry(path, member.size, whole.modification_time_us)
        self.container = archive.container
        self.block_begin = 0  # a member is read whole
        self.uri = member_uri(archive, member.name)
        self._open = member.open
        self._head: bytes | None = None
        self._rest: IO[bytes] = io.BytesIO()
        self._copy: IO[bytes] | None = None

    def stream(self) -> IO[bytes]:
        """Open the whole member from its beginning, decompressed, to be read once."""
        head = self._beginning()
        stream = io.BytesIO(head) if self._is_held else stream_of(self._chunks())
        return decompressed(stream, head, self.uri)

    def text_stream(self, encoding: str = "utf-8") -> IO[bytes]:
        """`stream()` in UTF-8 without a byte order mark."""
        return in_utf8(self.stream(), encoding, self.uri)

    def random_access(self) -> IO[bytes]:
        """Open the member's own bytes, seekable.

        Raises:
            FileUnreachableError: The temporary folder has no room for it.
        """
        head = self._beginning()
        if self._is_held:
            return io.BytesIO(head)
        if self._copy is None:
            self._copy = self._copied()
        again = os.fdopen(os.dup(self._copy.fileno()), "rb")
        again.seek(0)
        return again

    def blocks(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        encoding: str = "utf-8",
        separator: bytes | None = None,
        most: int | None = None,
    ) -> Iterator[bytes]:
        """Blocks of complete lines, from its beginning to its end: it is not read in parts."""
        del start, end
        stream = self.text_stream(encoding)
        chunks = iter(partial(stream.read, TEXT_BYTES), b"")
        return line_ends(chunks, self.uri, separator, most)

    def close(self) -> None:
        """Remove its temporary file, if it has one."""
        if self._copy is not None:
            self._copy.close()

    @property
    def _is_held(self) -> bool:
        """Whether all of it is in memory."""
        return len(self._beginning()) <= HELD_BYTES

    def _beginning(self) -> bytes:
        """Read the member, or a little more than is held."""
        if self._head is None:
            self._rest = self._open()
            self._head = self._rest.read(HELD_BYTES + 1)
        return self._head

    def _chunks(self) -> Iterator[bytes]:
        """Yield its bytes, once."""
        return chain((self._beginning(),), iter(partial(self._rest.read, _COPY_BYTES), b""))

    def _copied(self) -> IO[bytes]:
        """Put it into a temporary file."""
        copy: IO[bytes] = tempfile.TemporaryFile(prefix="cloudfiles-member-")  # noqa: SIM115 - kept
        for chunk in self._chunks():
            try:
                copy.write(chunk)
                copy.flush()
            except OSError as error:
                with suppress(OSError):  # it cannot write what it holds, either
                    copy.close()
                if is_full(error):
                    raise self._no_room() from error
                raise
        return copy

    def _no_room(self) -> FileUnreachableError:
        return FileUnreachableError(
            f"{self.uri} ({self.entry.size} bytes) does not fit into the temporary folder "
            f"{tempfile.gettempdir()}, where it is unpacked for its format. Make room there, or "
            "set TMPDIR to a larger one, and run again."
        )
