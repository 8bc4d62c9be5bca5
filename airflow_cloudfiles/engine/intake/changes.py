"""Notice files that have changed since they were ingested, and report them once.

A file that is known by its path is ingested once. If it changes afterwards, because it was seen
while it was still being written, or was overwritten, the table has what it was. Whoever finds that
reports it, once for each time that the file is ingested:

1. The index shows that a file that was listed or announced is another version than its entry's.
2. The entry is read, and the file inspected: was it ingested, in which version, and what is it now?
3. The change is noted in the state.
4. Of all discoveries, one takes on the report (`claim_change`), logs it, and has it in its result.

Killed before step 4, the next one that finds the file reports it. For a notification all steps come
before it is acknowledged.

Tell how far a file is, and which file a text means, for operations on files.

A path relative to the source, or a URI, character by character: in a name, `%20`, `+` and `=` are
themselves. A URI that names no file may also be written as the column `_metadata.file_path` has it,
percent-encoded. What names nothing is an error that names the nearest file that is known.
"""

from __future__ import annotations

import difflib
import logging
import random
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import head_of
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, iso_time, printable_path
from airflow_cloudfiles.engine.intake.ledger.changed import (
    Change,
    Notices,
    claim_change,
    note_change,
    notices,
    path_hash,
    read_change,
    was_read,
)
from airflow_cloudfiles.engine.state.operations import HOLDING, Operation
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri
from airflow_cloudfiles.engine.storage.base import is_version
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.state.sink_log import Position


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NEIGHBOURS: Final = 40
"""Files that are compared with a wrong name, from each of some places in the order of names."""


class FileNames:
    """The names of the files of a stream.

    Args:
        ledger: The index of its file log.
        source: The folder that paths are relative to.
    """

    def __init__(self, ledger: Ledger, source: ObjectStore) -> None:
        self._ledger = ledger
        self._source = source

    def find(self, text: str) -> str:
        """Give the path of the file that a text means, which is recorded or in the source.

        Raises:
            OptionError: It means none; names the nearest one that is recorded.
            ListingError: The source does not answer.
        """
        candidates = list(dict.fromkeys(self._candidates(text)))
        for path in candidates:
            if self._ledger.entry_of(path) is not None:
                return path
        for path in candidates:
            if self.look(path) is not None:
                return path
        raise self._unknown(text, candidates)

    def look(self, path: str) -> FileEntry | None:
        """Look at a file in the source; `None` where it is gone.

        Raises:
            ListingError: The source does not answer.
        """
        return head_of(self._source, path) if self._may_be_key(path) else None

    def uri(self, path: str) -> str:
        """Build the URI of a file, for people."""
        return printable_path(self._source.child_uri(path))

    def _candidates(self, text: str) -> Iterator[str]:
        """Yield what a text may mean, the most literal reading first."""
        if not text:
            return
        root = self._source.uri.rstrip("/") + "/"
        is_local = root.startswith("file:")
        if not _URI.match(text) and not (is_local and text.startswith("/")):
            yield text
            return
        for each in (text, unquote(text, errors="surrogateescape")):
            if each.startswith(root):
                yield each[len(root) :]
            try:
                whole = normalize_uri(each)
            except OptionError:
                continue
            if whole.startswith(root):
                yield whole[len(root) :]

    def _may_be_key(self, path: str) -> bool:
        """Tell whether a path cannot lead out of a folder on a disk."""
        is_local = self._source.uri.startswith("file:")
        parts = path.split("/")
        return "\0" not in path and not (is_local and {"", ".", ".."} & set(parts))

    def _unknown(self, text: str, candidates: list[str]) -> OptionError:
        source = printable_path(self._source.uri)
        shown = printable_path(text)
        if not candidates:
            return OptionError(
                f"{shown!r} is not below the source {source}. Give a path below it, or one "
                "relative to it."
            )
        near = difflib.get_close_matches(candidates[0], self._around(candidates[0]), n=1, cutoff=0)
        hint = f" The nearest file that is recorded is {printable_path(near[0])!r}." if near else ""
        return OptionError(
            f"{shown!r} is no file of this stream: it is neither recorded nor in the source "
            f"{source}.{hint} Paths are relative to the source, or whole URIs, and written exactly "
            "as the file is named."
        )

    def _around(self, path: str) -> list[str]:
        """Files whose names begin as a path does, or as parts of it."""
        length, found = len(path), dict[str, None]()
        for begin in dict.fromkeys((length, length * 2 // 3, length // 3, 0)):
            at: str | None = path[:begin]
            before = self._ledger.last(before=at) if at else None
            if before is not None:
                found[before] = None
            for _ in range(_NEIGHBOURS):
                at = None if at is None else self._ledger.first_after(at)
                if at is not None:
                    found[at] = None
        return list(found)


HELD_AS: Final = {"skip": "skipped", "quarantine": "quarantined"}


@dataclass(frozen=True, slots=True)
class FileStanding:
    """How far a file is.

    Attributes:
        path: Its path.
        newest: Where its newest record is; `None` where it has none.
        file: The version of that record.
        found_by: How that record came into the file log.
        planned: Records that a micro-batch has which is not committed.
        waiting: Records that are in no micro-batch yet.
        held: The operation that keeps its newest record from being ingested.
        kept_out: All records that this operation keeps from being ingested.
    """

    path: str
    newest: Offset | None = None
    file: FileEntry | None = None
    found_by: str = ""
    planned: tuple[Offset, ...] = ()
    waiting: tuple[Offset, ...] = ()
    held: Operation | None = None
    kept_out: tuple[Offset, ...] = ()

    @property
    def is_existing(self) -> bool:
        """Whether it was there before the first start."""
        return self.found_by == "existing"

    @property
    def is_duplicate(self) -> bool:
        """Whether its content is that of another file, which stands for both."""
        return self.found_by == "duplicate"


class Standings:
    """How far files are.

    Args:
        files: The file log.
        plans: The plan log.
        ledger: The index, caught up.
        committed: How far the stream is committed.
    """

    def __init__(self, files: FileLog, plans: PlanLog, ledger: Ledger, committed: Position) -> None:
        latest = plans.latest()
        self._files = files
        self._ledger = ledger
        self._committed = committed.end
        self._planned = START if latest is None else latest.end
        self._excluded = files.operations.excluded()
        self._paths: dict[int, dict[str, list[Offset]]] = {}

    def of(self, paths: Sequence[str]) -> Iterator[FileStanding]:
        """Give them in the order of the paths."""
        entries = {path: self._ledger.entry_of(path) for path in paths}
        newest = self._newest(entries)
        open_paths = {
            path
            for path, number in entries.items()
            if number is not None and number >= self._committed.entry
        }
        outstanding = self._outstanding(open_paths)
        for path in paths:
            if path not in newest:
                yield FileStanding(path)
                continue
            at, file = newest[path]
            summary = self._files.summary(at.entry)
            held = self._excluded.get(at.entry, {}).get(at.index)
            if held is None and summary.found_by in HOLDING:
                held = summary.operation
            left = outstanding.get(path, ())
            yield FileStanding(
                path,
                at,
                file,
                summary.found_by,
                planned=tuple(each for each in left if each < self._planned),
                waiting=tuple(each for each in left if each >= self._planned),
                held=held,
                kept_out=() if held is None else self._kept_out(path, at, held),
            )

    def _newest(self, entries: dict[str, int | None]) -> dict[str, tuple[Offset, FileEntry]]:
        """Find where the newest record of each file is."""
        by_entry: dict[int, set[str]] = {}
        for path, number in entries.items():
            if number is not None:
                by_entry.setdefault(number, set()).add(path)
        return {
            file.path: (Offset(number, index), file)
            for number, paths in by_entry.items()
            for index, file in enumerate(self._files.read(number).files)
            if file.path in paths
        }

    def _outstanding(self, paths: set[str]) -> dict[str, list[Offset]]:
        """Find which records of files are to be ingested, and not committed."""
        found: dict[str, list[Offset]] = {}
        for number in range(self._committed.entry, self._files.head().entry if paths else 0):
            if not self._files.summary(number).is_ingested:
                continue
            out = self._excluded.get(number, ())
            for index, file in enumerate(self._files.read(number).files):
                at = Offset(number, index)
                if file.path in paths and index not in out and at >= self._committed:
                    found.setdefault(file.path, []).append(at)
        return found

    def _kept_out(self, path: str, newest: Offset, held: Operation) -> tuple[Offset, ...]:
        """Find which records of a file an operation keeps from being ingested."""
        if held.number not in self._paths:
            by_entry: dict[int, list[int]] = {}
            for at in held.excluded:
                by_entry.setdefault(at.entry, []).append(at.index)
            found: dict[str, list[Offset]] = {}
            for number, indexes in by_entry.items():
                files = self._files.read(number).files
                for index in indexes:
                    found.setdefault(files[index].path, []).append(Offset(number, index))
            self._paths[held.number] = found
        return tuple(self._paths[held.number].get(path, [newest]))


MOST_FILES = 10_000
"""Most files that one discovery looks into. Which ones is left to chance, so that all have their
turn: some stores change times without changing files."""
MOST_ENTRIES = 200
"""Most entries of the file log that a listing reads for them, unless all are wanted; left to chance
as well."""
_LOGGED_FILES = 5
_REPORTED_FILES = 100
_INSPECTORS = 16
_chance = random.Random()  # noqa: S311 - it decides what is looked at first, no more
_log = logging.getLogger(__name__)


class Changes:
    """The changed files that one discovery finds.

    Args:
        source: The source.
        files: The file log.
        plans: The plan log.
        ledger: The index.
        options: `noticeChanges`.
        committed: Gives how far the stream is committed.
    """

    def __init__(  # noqa: PLR0913 - it connects the packages
        self,
        source: ObjectStore,
        files: FileLog,
        plans: PlanLog,
        ledger: Ledger,
        *,
        options: DiscoveryOptions,
        committed: Callable[[], Position],
    ) -> None:
        self._source = source
        self._files = files
        self._plans = plans
        self._ledger = ledger
        self._committed = committed
        self._is_all = options.notice_changes == "true"
        self._sees_listed = self._is_all or not options.use_notifications
        self._listed: list[str] = []
        self._seen = 0
        self._known: Notices | None = None
        self._announced: dict[str, FileEntry] = {}
        self.reported: list[Change] = []

    def see_listed(self, file: FileEntry) -> None:
        """Remember a file that was listed in another version than the index has."""
        if not self._sees_listed or self._key(file.path) in self._notices().reported:
            return
        self._seen += 1
        if len(self._listed) < MOST_FILES:
            self._listed.append(file.path)
        elif (place := _chance.randrange(self._seen)) < MOST_FILES:
            self._listed[place] = file.path

    def see_announced(self, file: FileEntry) -> None:
        """Remember a file that is to be recorded, and is so in another version."""
        if len(self._announced) < MOST_FILES:
            self._announced[file.path] = file

    def report_announced(self) -> None:
        """Report those of the announced files that have changed since they were ingested.

        Raises:
            ListingError: The source does not answer.
            StateError: The state cannot be read or written.
        """
        found, self._announced = self._announced, {}
        self._report(list(found))

    def report_listed(self) -> None:
        """Report those of the listed files that have changed since they were ingested.

        Raises:
            ListingError: The source does not answer.
            StateError: The state cannot be read or written.
        """
        found, self._listed = dict.fromkeys(self._listed), []
        by_entry: dict[int | None, list[str]] = {}
        for path in found:
            by_entry.setdefault(self._ledger.entry_of(path), []).append(path)
        entries = list(by_entry)
        if not self._is_all and len(entries) > MOST_ENTRIES:
            entries = _chance.sample(entries, MOST_ENTRIES)
        self._report([path for entry in entries for path in by_entry[entry]])

    def _report(self, paths: Sequence[str]) -> None:
        """Look, note, and report what nobody else does."""
        if not paths:
            return
        state = self._files.store
        with reaching_state(state):
            known = self._notices()
            left = [path for path in paths if self._key(path) not in known.reported]
            changes = self._changes(left) if left else []
            noted = [self._noted(change, known) for change in changes]
            mine = [change for change in noted if claim_change(state, change)]
        self.reported += mine
        self._log_changes(mine)

    def _noted(self, change: Change, known: Notices) -> Change:
        """Note a change; what was noted before, by a discovery that was killed, stays."""
        state, path = self._files.store, change.before.path
        if (path_hash(path), change.entry) in known.times_us:
            return read_change(state, path, change.entry) or change
        crash_point("before-change-notice")
        note_change(state, change)
        crash_point("after-change-notice")
        return change

    def _notices(self) -> Notices:
        """Read what was noted when this discovery first asked."""
        if self._known is None:
            with reaching_state(self._files.store):
                self._known = notices(self._files.store)
        return self._known

    def _key(self, path: str) -> tuple[str, int | None]:
        return path_hash(path), self._ledger.entry_of(path)

    def _changes(self, paths: Sequence[str]) -> list[Change]:
        """List the changes of files that were ingested in another version than the present one.

        A file of an entry of which something is still to be ingested has its turn after that.
        """
        committed = self._committed()
        entries = {path: self._ledger.entry_of(path) for path in paths}
        done = [path for path, at in entries.items() if at is not None and at < committed.end.entry]
        standings = Standings(self._files, self._plans, self._ledger, committed)
        ingested = [each for each in standings.of(done) if _is_ingested(each)] if done else []
        found = []
        with ThreadPoolExecutor(_INSPECTORS, thread_name_prefix="cloudfiles-changes") as pool:
            present = pool.map(partial(head_of, self._source), [each.path for each in ingested])
            for standing, now in zip(ingested, present, strict=True):
                if now is None or standing.file is None or standing.newest is None:
                    continue  # a file that is gone has not changed
                if not is_version(now, standing.file) and not self._was_read(now):
                    found.append(Change(standing.newest.entry, standing.file, now))
        return found

    def _was_read(self, now: FileEntry) -> bool:
        return was_read(self._files.store, now, self._notices())

    def _log_changes(self, changes: Sequence[Change]) -> None:
        for change in changes[:_LOGGED_FILES]:
            _log.warning(
                "%s has changed since it was ingested: %s. The table has what it was then. To "
                "ingest it again: %s",
                printable_path(self._source.child_uri(change.before.path)),
                difference(change),
                self._command(change),
            )
        if len(changes) > _LOGGED_FILES:
            _log.warning(
                "%d more files have changed since they were ingested; `cloudfiles state files` has "
                "them with the time at which that was noticed (changed_time).",
                len(changes) - _LOGGED_FILES,
            )

    def _command(self, change: Change) -> str:
        """Build the shell command that ingests a file again."""
        state = printable_path(self._files.store.uri)
        path = printable_path(change.before.path)
        return shlex.join(
            ["cloudfiles", "file", "replay", "--checkpoint-location", state, "--", path]
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Encode the first hundred for reports."""
        return [
            {
                "path": printable_path(each.before.path),
                "change": difference(each),
                "replay": self._command(each),
            }
            for each in self.reported[:_REPORTED_FILES]
        ]


def difference(change: Change) -> str:
    """Say in words what differs from before."""
    before, now = change.before, change.now
    found = []
    if before.size != now.size:
        found.append(f"it had {before.size} bytes and has {now.size}")
    if before.etag != now.etag:
        found.append(f"its etag was {before.etag or 'none'} and is {now.etag or 'none'}")
    elif before.modification_time_us != now.modification_time_us:
        then, since = iso_time(before.modification_time_us), iso_time(now.modification_time_us)
        found.append(f"it was modified at {then} and since at {since}")
    return ", ".join(found)


def _is_ingested(found: FileStanding) -> bool:
    """Tell whether the newest record of a file was ingested: its batch is committed."""
    is_known_only = found.is_existing or found.is_duplicate or found.held is not None
    is_open = bool(found.planned or found.waiting)
    return found.newest is not None and not is_known_only and not is_open
