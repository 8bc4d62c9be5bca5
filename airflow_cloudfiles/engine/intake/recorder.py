"""Record candidates as files of the stream, exactly once.

What discovery finds goes through here into the file log. The ledger is caught up with the log
before each try to append; so if entry `caught_up + 1` can be created, all entries before it were
looked at, and no file of the batch is in any of them. Whoever loses the race for a number looks
again and tries the next one.

With `cloudFiles.includeExistingFiles=false` these are recorded as `existing` and never ingested.
The very first start decides it, for ever: it notes the time by the clock of the source
(`_source/metadata.json`), and begins a listing. What arrived before that time and is found by that
listing was there. A later listing goes on where the first one was interrupted; it may find files
that began to be uploaded before the start and were whole after it, which carry the earlier time. So
it takes the last minutes before the start for new, and the log says how many such files there were:
a file too many can be recognized by its path, a file too few is lost.

Compute the contents of candidates, and leave out those that are known.

With `cloudFiles.fileIdentity=content` a candidate is read before it is recorded: the file log says
which content each file had. A candidate whose content no ingested entry has is new. One whose
content is known is recorded as well, as a `duplicate` that is never ingested: then its path and
version are known, and it is not read again at each listing.

New files are recorded before the duplicates among the same candidates. Killed in between, the
duplicates are candidates once more; the other way round, a content could be known as a duplicate of
a file that nobody had recorded, and that is gone when somebody looks again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import FoundBy, head_of
from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.ledger.base import Ledger, catch_up
from airflow_cloudfiles.engine.intake.ledger.changed import overwritten
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.metadata import allow_operations
from airflow_cloudfiles.engine.state.operations import MirrorAction, Operation, announce
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    key_bytes,
)
from airflow_cloudfiles.engine.storage.content import content_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
    from airflow_cloudfiles.engine.discovery.settling import UnsettledFiles, WaitingReport
    from airflow_cloudfiles.engine.intake.changes import Changes
    from airflow_cloudfiles.engine.storage import ObjectStore


THREADS: Final = 8
"""Files that are read at once; each holds one piece of a file in memory."""
TRIES: Final = 5
"""How often a file is read that is overwritten each time."""


class Contents:
    """Reads candidates to know their content.

    Args:
        source: Where they are.
    """

    def __init__(self, source: ObjectStore) -> None:
        self._source = source

    def of(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Add the content to files that are without.

        A file that was overwritten meanwhile is given in the version that was read. One that is
        gone is left out, with a warning, as if it had gone before it was listed.

        Raises:
            ListingError: A file cannot be read, or is overwritten each time.
        """
        if all(file.content for file in files):
            return list(files)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="cloudfiles-content") as pool:
            found = list(pool.map(self._with_content, files))
        return [file for file in found if file is not None]

    def _with_content(self, file: FileEntry) -> FileEntry | None:
        if file.content:
            return file
        name = printable_path(self._source.child_uri(file.path))
        current: FileEntry | None = file
        try:
            for _ in range(TRIES):
                if current is None:
                    break
                try:
                    return replace(current, content=content_of(self._source, current))
                except ObjectChangedError:
                    current = self._source.head(file.path)
                except ObjectNotFoundError:
                    current = None
        except OSError as failure:
            raise ListingError(
                f"{name} could not be read for its content (cloudFiles.fileIdentity=content): "
                f"{failure}. Nothing of it is recorded. Correct its permissions or remove it, and "
                "run again."
            ) from failure
        if current is None:
            _log.warning("%s was gone before its content was known, and is not recorded", name)
            return None
        raise ListingError(
            f"{name} was overwritten {TRIES} times while it was read for its content "
            "(cloudFiles.fileIdentity=content). Nothing of it is recorded: run again, and write "
            "files under another name that is renamed when they are complete."
        )


def first_of_each(
    files: Sequence[FileEntry], entry_of: Callable[[str], int | None]
) -> list[FileEntry]:
    """Give those of some files whose content is new, the first one of each content.

    Args:
        files: With their contents.
        entry_of: Gives the entry whose file is ingested for a content; `None` for a new one.
    """
    found: dict[str, FileEntry] = {}
    for file in files:
        if file.content not in found and entry_of(file.content) is None:
            found[file.content] = file
    return list(found.values())


MARGIN_SECONDS = 900
"""What arrived so shortly before the first start is ingested when a later listing finds it."""


@dataclass(slots=True)
class Baseline:
    """Distinguishes existing files from new ones until every existing one is known.

    Attributes:
        source: The folder the files land in.
        started_us: When the very first start was, by the clock of the source; `None` when nobody
            noted it: then whatever is found is existing.
        is_first: Whether the listing is the one that the very first start began.
        in_doubt: How many files were taken for new that may have been there.
        sample: The first paths of these, at most five.
    """

    source: ObjectStore
    started_us: int | None
    is_first: bool
    in_doubt: int = 0
    sample: list[str] = field(default_factory=list)

    def existing(self, files: list[FileEntry]) -> list[FileEntry]:
        """Give those of some files that were there before the first start, in their order."""
        if self.started_us is None:
            return files
        margin_us = 0 if self.is_first else MARGIN_SECONDS * 1_000_000
        sure_us = self.started_us - margin_us
        return [file for file in files if self.source.arrived_us(file) < sure_us]

    def note_new(self, files: list[FileEntry]) -> None:
        """Count those of the recorded files that may have been there all the same."""
        if self.started_us is None:
            return
        for file in files:
            # The store's own second, or tick, of the start cannot be distinguished either.
            if self.source.arrived_us(file) <= self.started_us:
                self.in_doubt += 1
                if len(self.sample) < _SAMPLE_FILES:
                    self.sample.append(printable_path(file.path))

    def warn(self) -> None:
        """Log which files are ingested although they may have been there before the first start."""
        if self.in_doubt:
            _log.warning(
                "%s of about the time of the first start %s ingested, although "
                "cloudFiles.includeExistingFiles is false: its time does not show whether a file "
                "was there before it. Such as: %s",
                counted(self.in_doubt, "file"),
                plural(self.in_doubt, "is", "are"),
                ", ".join(self.sample),
            )
            self.in_doubt = 0
            self.sample.clear()


_SAMPLE_FILES = 5
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecordedFiles:
    """What a recorder has appended so far; the files themselves are not kept.

    Attributes:
        files: How many files are to be ingested.
        bytes: Their size.
        existing: How many were there before the first start and are never ingested.
        duplicates: How many have the content of another file and are never ingested.
        replaced: How many of the files replace the rows of a former version.
        deleted: How many files are gone, so that their rows are removed.
        archived: How many are archived and were recorded as skipped.
        by: How many of the files each way of discovering found.
        first_entry: First entry of the file log that holds some of them; `None` for none.
        last_entry: Last of these entries (inclusive).
        sample: The first paths, at most five.
    """

    files: int = 0
    bytes: int = 0
    existing: int = 0
    duplicates: int = 0
    replaced: int = 0
    deleted: int = 0
    archived: int = 0
    by: Counter[str] = field(default_factory=Counter)
    first_entry: int | None = None
    last_entry: int | None = None
    sample: list[str] = field(default_factory=list)

    @property
    def has_any(self) -> bool:
        """Whether an entry was appended that has files."""
        not_ingested = self.existing + self.duplicates + self.archived
        return self.last_entry is not None or not_ingested > 0

    def add(self, number: int, batch: FileBatch) -> None:
        """Count an entry that was appended."""
        others = {"existing": "existing", "duplicate": "duplicates", "skip": "archived"}
        if name := others.get(batch.found_by):
            setattr(self, name, getattr(self, name) + len(batch.files))
            return
        self.first_entry = number if self.first_entry is None else self.first_entry
        self.last_entry = number
        if batch.found_by == "delete":
            self.deleted += len(batch.files)
            return
        self.files += len(batch.files)
        self.bytes += sum(file.size for file in batch.files)
        self.by[batch.found_by] += len(batch.files)
        if batch.found_by == "replace":
            self.replaced += len(batch.files)
        self.sample += [
            printable_path(file.path) for file in batch.files[: _SAMPLE_FILES - len(self.sample)]
        ]


class Deletions(Protocol):
    """What notices files that are gone from a source."""

    def listed(self, files: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Pass on the files of a listing, and remember that they are there."""

    def record(self, recorder: LedgerRecorder) -> int:
        """Record which known files a full listing has not found, and are gone; how many."""

    def record_announced(self, recorder: LedgerRecorder, paths: Sequence[str]) -> int:
        """Record which of some files are gone, as notifications say; how many."""

    def unlisted(self, ledger: Ledger) -> Iterator[str]:
        """Give the known files that a full listing has not found, and are gone; lazy."""


@dataclass(eq=False)
class LedgerRecorder:
    """A `Recorder` over a ledger and the file log it indexes.

    Attributes:
        known: An index of the file log; this process is its only writer.
        files: The file log.
        versions: Whether another version of a recorded file is a candidate again.
        path_column: Of a stream that follows its files: the column of the table by which their
            former rows are found (`Operation.path_column`).
        replaces: Whether another version of a recorded file replaces the former rows.
        deleted: Learns which files are listed, to find those that are gone; `None`: nobody does.
        contents: Reads candidates where they are known by their content; `None` elsewhere.
        baseline: Which of the files that are found before the baseline is complete are `existing`
            ones (`cloudFiles.includeExistingFiles=false`); `None`: none is.
        check: Called before an entry is appended; raises where the log has lost entries.
        on_recorded: Called after an entry with files that are to be ingested.
        settling: Which candidates wait until they are whole; `None`: none does.
        skips_archived: Whether archived candidates are recorded as skipped.
        changes: Gets the files that are recorded in another version; `None`: nobody does.
        recorded: What it has appended so far.
    """

    known: Ledger
    files: FileLog
    _: KW_ONLY
    versions: bool = False
    path_column: tuple[str, ...] = ()
    replaces: bool = False
    deleted: Deletions | None = None
    contents: Contents | None = None
    baseline: Baseline | None = None
    check: Callable[[], None] = lambda: None
    on_recorded: Callable[[], None] = lambda: None
    settling: UnsettledFiles | None = None
    skips_archived: bool = False
    changes: Changes | None = None
    recorded: RecordedFiles = field(default_factory=RecordedFiles, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def unseen(self, candidates: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Leave out what is recorded, and what is not whole yet; lazy."""
        changed = None if self.changes is None else self.changes.see_listed
        candidates = candidates if self.deleted is None else self.deleted.listed(candidates)
        unseen = self.known.unseen(candidates, versions=self.versions, changed=changed)
        return unseen if self.settling is None else self.settling.of_listing(unseen)

    @property
    def waiting(self) -> WaitingReport | None:
        """What was found and is not whole yet; `None` where nothing has to wait."""
        return None if self.settling is None else self.settling.report()

    def has_settled(self) -> bool:
        """Tell whether a file that was found before and had to wait can be recorded now."""
        return self.settling is not None and self.settling.has_settled(self._is_recorded)

    def end_listing(self, *, is_part: bool) -> None:
        """Record what had to wait and does no longer, and report what was listed and has changed.

        Args:
            is_part: Whether only a part of the source is looked at; then what waits is left.
        """
        if self.settling is not None and not is_part:
            self.settling.look_again(self, self._is_recorded)
        if self.changes is not None:
            self.changes.report_listed()

    def _is_recorded(self, file: FileEntry) -> bool:
        """Tell whether a file is in the file log; where its versions are files, this version."""
        return next(self.known.unseen([file], versions=self.versions), None) is None

    def record(
        self, files: Sequence[FileEntry], found_by: FoundBy, *, position: str | None = None
    ) -> int:
        """Append what no entry of the file log holds, and is whole.

        Args:
            files: Candidates, in any number and order; a path may occur twice.
            found_by: How they were found.
            position: As for `Recorder.record`.

        Returns:
            How many were new. When it returns, all of them are durable, those that wait are noted,
            and those that have changed since they were ingested are reported.
        """
        ordered = _in_order(files)
        if self.settling is not None:
            ordered = self.settling.of_record(self._fresh(ordered), found_by)
        size = file_log.MAX_ENTRY_FILES
        with self._lock:
            new = sum(
                self._append(
                    ordered[start : start + size],
                    found_by,
                    position if start + size >= len(ordered) else None,
                )
                for start in range(0, len(ordered), size)
            )
            if self.changes is not None:
                self.changes.report_announced()
            return new

    def record_gone(self, paths: Sequence[str]) -> int:
        """Append which of some files are gone (`Recorder.record_gone`)."""
        if self.deleted is None or not paths:
            return 0
        return self.deleted.record_announced(self, paths)

    def record_deleted(
        self, paths: Sequence[str], still_gone: Callable[[Sequence[str]], Sequence[str]]
    ) -> int:
        """Append that files are gone, once for each time that they go.

        Args:
            paths: Of files that an entry may hold; what is not recorded is left out.
            still_gone: Gives those of some files that are gone, looking for each of them.

        Returns:
            How many were appended.
        """
        with self._lock:
            while True:
                self._catch_up()
                known = [path for path in paths if self.known.entry_of(path) is not None]
                gone = still_gone(known) if known else ()
                if not gone:
                    return 0
                self.check()
                now_us = time.time_ns() // 1000
                files = [FileEntry(path, 0, now_us, "") for path in sorted(gone, key=key_bytes)]
                entry = FileBatch(tuple(files), "delete", None, self._operation("delete"))
                if self._append_entry(entry):
                    self.on_recorded()
                    return len(gone)

    def _operation(self, action: MirrorAction) -> Operation:
        return Operation(action, path_column=self.path_column)

    def _append_entry(self, entry: FileBatch) -> bool:
        """Append an entry behind what is indexed; false where another discovery was faster."""
        number = self.known.caught_up + 1
        if entry.operation is not None:
            allow_operations(self.files.store)
            announce(self.files.store, number)
            crash_point("after-file-operation-note")
        if not self.files.append(number, entry):
            return False
        if entry.operation is not None:
            self.files.operations.meet()
        self._catch_up()
        crash_point("after-ledger-record")
        self.recorded.add(number, entry)
        return True

    def _fresh(self, files: list[FileEntry]) -> list[FileEntry]:
        """Select the candidates that are not recorded, as far as is known."""
        changed = None if self.changes is None else self.changes.see_announced
        return list(self.known.unseen(files, versions=self.versions, changed=changed))

    def complete_baseline(self) -> None:
        """Note that everything that was there before the first start is recorded."""
        with self._lock:
            while self._is_baseline():
                self.check()
                number = self.known.caught_up + 1
                batch = FileBatch((), "existing", file_log.COMPLETE)
                if self.files.append(number, batch):
                    self._catch_up()

    def _append(self, batch: list[FileEntry], found_by: FoundBy, position: str | None) -> int:
        """Append one entry, or two; while others are faster, read again and try again."""
        appended = 0
        while True:
            # Whether the baseline is complete is decided by the entries before this one.
            baseline = self.baseline if self._is_baseline() else None
            batch = self._fresh(batch)
            crash_point("after-dedupe")
            if not batch:
                return appended
            self.check()
            left_out = self._left_out(batch, baseline)
            if left_out is None and self.contents and not all(file.content for file in batch):
                batch = self.contents.of(batch)  # reading takes time: others may be faster
                continue
            entry = left_out or self._entry(batch, found_by, position)
            if self._append_entry(entry):
                if entry.found_by in {"duplicate", "skip"}:
                    continue
                appended += len(entry.files)
                if entry.found_by != "existing":
                    self._note_new(entry, baseline)

    def _note_new(self, entry: FileBatch, baseline: Baseline | None) -> None:
        """Tell of an entry with files that are to be ingested."""
        self.on_recorded()
        if baseline is not None:
            baseline.note_new(list(entry.files))

    def _left_out(self, batch: list[FileEntry], baseline: Baseline | None) -> FileBatch | None:
        """Build the entry of those new files that are never ingested, by their time or class.

        Archived ones are skipped as if somebody had asked for that, those of one class at a time.
        """
        existing = baseline.existing(batch) if baseline else []
        if existing:
            return FileBatch(tuple(existing), "existing")
        if not self.skips_archived:
            return None
        archived_in = next((file.archived_in for file in batch if file.archived_in), "")
        if not archived_in:
            return None
        reason = f"archived in {archived_in} (cloudFiles.onArchivedFile=skip)"
        archived = tuple(file for file in batch if file.archived_in == archived_in)
        return FileBatch(archived, "skip", operation=Operation("skip", reason))

    def _entry(
        self, batch: Sequence[FileEntry], found_by: FoundBy, position: str | None
    ) -> FileBatch:
        """Take as many new files as one entry may hold; with the position if that is all."""
        if self.replaces:
            new = [file for file in batch if self.known.entry_of(file.path) is None]
            if not new:
                operation = self._operation("replace")
                return FileBatch(tuple(batch), "replace", position, operation)
            return FileBatch(tuple(new), found_by, position if len(new) == len(batch) else None)
        if self.contents is None:
            return FileBatch(tuple(batch), found_by, position)
        new = first_of_each(batch, self.known.entry_of_content)
        return FileBatch(tuple(new), found_by) if new else FileBatch(tuple(batch), "duplicate")

    def _catch_up(self) -> None:
        """Index what is known of the log: the number that others took meanwhile is refused."""
        latest = self.files.known(at_least=self.known.caught_up)
        catch_up(self.known, self.files, latest=latest)

    def _is_baseline(self) -> bool:
        """Catch up; then decide whether files found now were there before the first start."""
        self._catch_up()
        return self.baseline is not None and not self.files.baseline_complete()


def record_overwritten(
    state: ObjectStore,
    source: ObjectStore,
    wanted: FileFilter,
    recorder: LedgerRecorder,
    listing: DirectoryListing,
) -> int:
    """Record the versions of files that tasks have met in the place of older ones.

    Killed anywhere, it leaves a note until its file is recorded.

    Args:
        state: The checkpoint location.
        source: The source.
        wanted: Which of its files are input.
        recorder: Dedupes and records them.
        listing: Lists all of the source where a note is damaged, and nobody knows its file.

    Returns:
        How many of the noted files were new.

    Raises:
        ListingError: The source does not answer.
    """
    notes = list(overwritten(state))
    damaged = [key for key, path in notes if path is None]
    if damaged:
        name = printable_path(state.child_uri(damaged[0]))
        _log.warning("%s does not say which file was overwritten. All files are listed.", name)
        listing.run(recorder, full=True)
    present = []
    for path in (each for _, each in notes if each is not None):
        found = head_of(source, path)
        if found is not None and wanted.accepts(found):
            present.append(found)
    new = recorder.record(present, "listing")
    for key, _ in notes:
        state.delete(key)
    return new


def _in_order(files: Sequence[FileEntry]) -> list[FileEntry]:
    """Order the candidates as the log does, each path once: in its newest version."""
    newest: dict[str, FileEntry] = {}
    for file in files:
        other = newest.get(file.path)
        if other is None or file.modification_time_us >= other.modification_time_us:
            newest[file.path] = file
    return sorted(newest.values(), key=lambda file: key_bytes(file.path))
