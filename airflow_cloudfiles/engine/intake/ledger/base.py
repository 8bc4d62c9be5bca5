"""Declare what a ledger answers, and let it forget old files without ingesting any of them again.

A ledger is an index over the file log: path to entry. It is not the truth and can be deleted at any
time; the file log gives it back. One process writes it; other processes have their own, and meet
only in the file log.

With `cloudFiles.maxFileAge` files that were modified too long ago are not input, however they are
found. So nobody asks the index for them, and it forgets them: entry by entry of the file log, the
oldest first. The log itself forgets nothing.

The index notes the time before which files may be missing in it. An index that has forgotten more
than the option leaves out is built anew from the log: when the option was raised or removed, or
when a clock was wrong. A stream without the option, and whoever else must know every file, have an
index of their own (`opening`).
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateError
from airflow_cloudfiles.engine.files import FileEntry, FileIdentity, printable_path
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog

FORMAT_VERSION = 2
WITH_CONTENTS = 4
"""The format in which contents are known."""
_FORMATS: Final[dict[FileIdentity, int]] = {
    "path": FORMAT_VERSION,
    "pathAndModificationTime": FORMAT_VERSION,
    "pathAndVersion": 3,
    "content": WITH_CONTENTS,
}
VERSION_BYTES = 8
"""Length of what distinguishes one version of a file from another."""


def version_hash(file: FileEntry) -> bytes:
    """Distinguish one version of a file from another, in eight bytes."""
    text = f"{file.modification_time_us} {file.size} {file.etag}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=VERSION_BYTES).digest()


def stored_version_hash(file: FileEntry) -> bytes:
    """Distinguish what a store calls one version from another, in eight bytes."""
    version = f"e{file.etag}" if file.etag else f"t{file.modification_time_us}"
    text = f"{file.size} {version}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=VERSION_BYTES).digest()


def format_of(identity: FileIdentity) -> int:
    """Return the format of an index for files that are known by this."""
    return _FORMATS[identity]


def hash_of(index_format: int) -> Callable[[FileEntry], bytes]:
    """Return the function that distinguishes the versions of a file in an index of some format."""
    return version_hash if index_format == FORMAT_VERSION else stored_version_hash


_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 5.0


class Ledger(Protocol):
    """The files of one source that are in its file log.

    Paths are ordered by their bytes. One thread at a time records.
    """

    @property
    def caught_up(self) -> int:
        """Number of the last entry of the file log that is in the index; -1 for none."""

    @property
    def caught_up_id(self) -> str:
        """Id of the writing of that entry; empty for none."""

    @property
    def files(self) -> int:
        """How many files these entries hold."""

    @property
    def expired_entry(self) -> int:
        """Old files of the entries before this one were forgotten (`ledger.base`)."""

    @property
    def expired_us(self) -> int:
        """Files modified before this may be missing; 0: none is."""

    @property
    def index_format(self) -> int:
        """Of its bytes, which says what another version of a file is (`index_format`)."""

    def unseen(
        self,
        entries: Iterable[FileEntry],
        *,
        versions: bool = False,
        changed: Callable[[FileEntry], None] | None = None,
    ) -> Iterator[FileEntry]:
        """Give the files that are in no entry up to `caught_up`.

        Each call has a scan of its own: several threads may each go through one while another
        thread records. What is recorded after the first file was asked for may count as unseen.

        Args:
            entries: In any order. Ascending byte order of the paths, as most stores list, is the
                fast one.
            versions: Whether a file also counts as unseen when it is another version (size,
                modification time or etag) than the one that was recorded last.
            changed: Called for each file that is seen, and another version than that.
        """

    def entry_of_content(self, content: str) -> int | None:
        """Give the entry whose file is ingested for a content (`FileEntry.content`), if any.

        Only an index of the identity `content` can be asked.
        """

    def entry_of(self, path: str) -> int | None:
        """Give the newest entry that has a file; `None` for none."""

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Give the paths of all files with a prefix, in their order; lazy."""

    def last(self, prefix: str = "", *, before: str | None = None) -> str | None:
        """Give the greatest path with a prefix (and less than `before`, when given)."""

    def first_after(self, path: str) -> str | None:
        """Give the least path that is greater than a text."""

    def back(self, path: str, steps: int) -> str | None:
        """Give the path `steps` (at least 1) places before another; `None` for fewer."""

    def record(self, number: int, entry_id: str, batch: FileBatch) -> None:
        """Add an entry of the file log: its files and the new `caught_up`, or neither.

        The files of one that forgets them are taken out.

        Args:
            number: One more than `caught_up`.
            entry_id: The id of its writing.
            batch: Its files.
        """

    def forget(self, number: int, batch: FileBatch, before_us: int) -> int:
        """Remove old files of an entry, and note that; or neither.

        Args:
            number: Of the entry: `expired_entry`.
            batch: Its files. Those that a later entry has again stay.
            before_us: Only files modified before this.

        Returns:
            How many were removed.
        """

    def save(self) -> Path | None:
        """Copy the index into a directory, which the caller deletes.

        Returns:
            The directory; `None` when the index is not on a disk.

        Raises:
            LedgerError: It cannot be copied.
        """

    def clear(self) -> None:
        """Forget everything."""

    def close(self) -> None:
        """Release the index; closing twice does nothing."""


def catch_up(ledger: Ledger, files: FileLog, *, latest: int | None = None) -> int:
    """Bring a ledger to the end of the file log.

    Args:
        ledger: The index.
        files: The log.
        latest: The newest entry, if that was just asked for.

    Returns:
        How many entries were added.

    Raises:
        CorruptedStateError: The ledger is ahead of the log, or knows another entry under the same
            number (`require_fit`). It stays as it is.
    """
    latest = files.latest() if latest is None else latest
    require_fit(ledger, files, latest=latest)
    first = ledger.caught_up + 1
    next_word = time.monotonic() + _PROGRESS_SECONDS
    for number in range(first, latest + 1):
        batch = files.read(number)
        ledger.record(number, files.summary(number).id, batch)
        if time.monotonic() >= next_word:
            _log.info("Indexing the file log: entry %d of %d", number, latest)
            next_word = time.monotonic() + _PROGRESS_SECONDS
    return max(0, latest + 1 - first)


def require_fit(ledger: Ledger, files: FileLog, *, latest: int) -> None:
    """Refuse a file log that has lost entries which a ledger has seen.

    What they held would be found again, if at all, under numbers that the stream has passed. Only a
    person knows whether the log was meant to go back, so the ledger is not rebuilt by itself.

    Args:
        ledger: The index.
        files: The log.
        latest: Its newest entry.

    Raises:
        CorruptedStateError: The ledger is not of the beginning of this log.
    """
    known = ledger.caught_up
    if known < 0:
        return
    if known > latest:
        what = f"has _source/files/ up to {known}, but the file log ends at entry {latest}"
    elif files.summary(known).id != ledger.caught_up_id:
        what = f"knows another _source/files/ {known} than the one that is there now"
    else:
        return
    raise CorruptedStateError(
        f"The index of seen files on this machine {what}, in "
        f"{printable_path(files.store.uri)}. The file log has lost entries, whose files would "
        "never be ingested. Put them back, or restore the checkpoint location as a whole from a "
        "backup. If that was done on purpose, delete the index on each machine (the stream's "
        "folder in CLOUDFILES_CACHE_DIR). See docs/how-to/recover.md."
    )


MARGIN_US: Final = 24 * 3600 * 1_000_000
"""So much older than the option says is what the index forgets: clocks of machines differ."""
RUN_SECONDS: Final = 5.0
"""How long a discovery goes on forgetting; the next one continues."""


def suffices(expired_us: int, oldest_us: int | None) -> bool:
    """Tell whether an index has all files that can still be asked for.

    Args:
        expired_us: Files modified before this may be missing in it; 0 if none is.
        oldest_us: Files modified before this are not input; `None` if all are.
    """
    return expired_us == 0 or (oldest_us is not None and expired_us <= oldest_us)


def catch_up_whole(ledger: Ledger, files: FileLog, oldest_us: int | None) -> None:
    """Bring a ledger to the end of the file log; one that has forgotten too much begins anew."""
    if not suffices(ledger.expired_us, oldest_us):
        _log.info("The index of seen files lacks some that maxFileAge allows. Rebuilding it.")
        ledger.clear()
    catch_up(ledger, files)


def forget_old(
    ledger: Ledger, files: FileLog, oldest_us: int | None, *, seconds: float = RUN_SECONDS
) -> int:
    """Let the index forget files that are not input any more for their age.

    Killed at any point, it has forgotten the files of some entries, and knows which.

    Args:
        ledger: Caught up; nobody records meanwhile.
        files: The file log it indexes.
        oldest_us: Files modified before this are not input; `None` if all are.
        seconds: After so long no further entry is begun.

    Returns:
        How many files were forgotten.
    """
    if oldest_us is None:
        return 0
    before_us, until = oldest_us - MARGIN_US, time.monotonic() + seconds
    first, forgotten = ledger.expired_us == 0, 0
    while ledger.expired_entry <= ledger.caught_up:
        number = ledger.expired_entry
        try:
            is_old = _is_older(files.summary(number).created, before_us)
            if not is_old or time.monotonic() >= until:
                break
            batch = files.read(number)
        except (StateError, OSError) as failure:
            _log.warning("The index of seen files forgets no more: %s", failure)
            break
        forgotten += ledger.forget(number, batch, before_us)
    if forgotten and first:
        _log.warning(
            "The index of seen files forgets what was modified before %s (cloudFiles.maxFileAge). "
            "A file that is written again under an old name after that counts as a new file and "
            "is ingested, whatever cloudFiles.allowOverwrites is.",
            datetime.fromtimestamp(before_us / 1_000_000, UTC).isoformat(timespec="seconds"),
        )
    if forgotten:
        _log.info("The index of seen files has forgotten %s", counted(forgotten, "old file"))
    return forgotten


def _is_older(created: str, before_us: int) -> bool:
    """Tell whether an entry was written before a time; one without a time was not."""
    try:
        written = datetime.fromisoformat(created)
    except ValueError:
        return False
    written = written if written.tzinfo else written.replace(tzinfo=UTC)
    return written.timestamp() * 1_000_000 < before_us
