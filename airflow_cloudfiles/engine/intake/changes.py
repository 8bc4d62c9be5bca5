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
"""

from __future__ import annotations

import logging
import random
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import head_of
from airflow_cloudfiles.engine.files import FileEntry, iso_time, printable_path
from airflow_cloudfiles.engine.intake.file_standing import Standing, Standings
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
from airflow_cloudfiles.engine.storage.base import is_version
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.state.sink_log import Position
    from airflow_cloudfiles.engine.storage import ObjectStore

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


def _is_ingested(found: Standing) -> bool:
    """Tell whether the newest record of a file was ingested: its batch is committed."""
    is_known_only = found.is_existing or found.is_duplicate or found.held is not None
    is_open = bool(found.planned or found.waiting)
    return found.newest is not None and not is_known_only and not is_open
