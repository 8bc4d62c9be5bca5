"""Ingest one file again, leave it out, put it aside, or forget it.

Under the locks of a run, so that none is at work:

1. Look: which record of the file log each file has, how far that is, and what was done to it.
2. Decide for each file: what its operation excludes and adds, that nothing is left to do, or that
   it cannot be done. Then nothing is done to any.
3. Append: one entry of the file log (`state.operations`). If a discovery was faster: look again.

Killed at any point, the entry is there or not; repeating an operation that was done does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.errors import FileMissingError, OptionError, StateError
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.intake.changes import HELD_AS, FileNames, FileStanding, Standings
from airflow_cloudfiles.engine.intake.file_states import FileQuery, FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.ledger.base import Ledger, catch_up
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole, mark_head, open_ledger
from airflow_cloudfiles.engine.intake.opening import root_of
from airflow_cloudfiles.engine.intake.recorder import Contents
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import (
    allow_operations,
    existing_metadata,
    read_metadata,
)
from airflow_cloudfiles.engine.state.operations import ACTIONS, Action, Operation, announce
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, position
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import key_bytes

MOST: Final = 1000
"""Files of one entry, and positions that its header names: it is read with one small request."""
LOCK_PATIENCE_SECONDS = 20.0
"""How long to wait for the planning process of a query that has ended to go away."""
_REASON_CHARACTERS: Final = 1000
_MATCHED: Final[dict[Action, tuple[str, ...]]] = {
    "replay": ("committed", "lost"),
    "skip": ("discovered", "planned"),
    "quarantine": ("discovered", "planned"),
    "release": ("skipped", "quarantined"),
    "forget": ("existing", "discovered", "committed", "lost", "skipped", "quarantined"),
}
"""Of which files a pattern means those whose names match."""
_log = logging.getLogger(__name__)


class OperationTable(Protocol):
    """What an operation asks of the table that the stream writes."""

    def has_batch(self, batch: int) -> bool | None:
        """Tell whether the table has a micro-batch that is not recorded; `None` if unknown."""

    def path_column(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Give the column by which the rows of files are found, as a path of names.

        Args:
            paths: The files, relative to the source.

        Raises:
            CloudFilesError: Their former rows cannot be replaced; says what to do.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    """What is asked for.

    Attributes:
        action: What is to be done.
        paths: Of the files: relative to the source, or URIs.
        reason: Why, for people.
        pattern: Whether the paths are patterns (`FileQuery.path`); they mean the files to which
            the action applies.
        append: Of a replay: whether former rows stay.
        key: What the asker calls it: to a file to which it was done under this name, it is not done
            again. Empty for no name.
        dry_run: Only look, and say what would be done.
    """

    action: Action
    paths: tuple[str, ...]
    reason: str = ""
    pattern: bool = False
    append: bool = False
    key: str = ""
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            OptionError: It cannot.
        """
        if self.action not in ACTIONS:
            raise OptionError(f"action must be one of {', '.join(ACTIONS)}, got {self.action!r}.")
        if not self.paths or not all(self.paths):
            raise OptionError("paths must name files: give at least one path or URI.")
        if self.append and self.action != "replay":
            raise OptionError(f"append is for a replay only, not to {self.action} a file.")
        if len(self.reason) > _REASON_CHARACTERS:
            raise OptionError(
                f"reason must have at most {_REASON_CHARACTERS} characters, got {len(self.reason)}."
            )


@dataclass(slots=True)
class OperationResult:
    """What an operation on files has done, or would do.

    Attributes:
        action: What was asked for.
        files: URIs of the files to which it was done.
        unchanged: Of the others, why nothing was left to do.
        entries: The entries of the file log that hold it; none for a dry run.
        is_dry_run: Whether nothing was done.
        warnings: For people.
    """

    action: str
    files: list[str] = field(default_factory=list)
    unchanged: dict[str, str] = field(default_factory=dict)
    entries: list[int] = field(default_factory=list)
    is_dry_run: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Change:
    """What an operation does to one file: a part of an entry."""

    path: str
    file: FileEntry | None = None
    excluded: tuple[Offset, ...] = ()
    former: tuple[Offset, ...] = ()

    @property
    def positions(self) -> int:
        return len(self.excluded) + len(self.former)


def operate(
    checkpoint_location: str, asked: OperationRequest, target: OperationTable
) -> OperationResult:
    """Do something to files of a stream, once however often it is repeated.

    Args:
        checkpoint_location: The state.
        asked: What.
        target: The table of the stream.

    Raises:
        OptionError: A path names no file; the message has the nearest one.
        StateError: It cannot be done to one of the files; nothing was done to any.
        StateLockedError: A run is working on the state.
        FileMissingError: A file that is to be ingested is gone from the source.
        ListingError: The source does not answer.
    """
    state = open_store(checkpoint_location)
    with ExitStack() as stack:
        if read_metadata(state) is not None:
            stack.enter_context(RunLock(state, JOB_KEY))
            lock = RunLock(state)
            lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
            stack.enter_context(lock)
        metadata = existing_metadata(state)
        files, plans = FileLog(state), PlanLog(state)
        committed = position(state, plans)
        check_whole(state, files, plans, committed)
        source = open_store(root_of(metadata.source))
        identity = metadata.file_identity
        ledger = stack.enter_context(closing(open_ledger(metadata.stream_id, files, identity)))
        return _Operation(
            asked,
            target,
            files,
            plans,
            ledger,
            committed,
            FileNames(ledger, source),
            Contents(source) if identity == "content" else None,
            OperationResult(asked.action, is_dry_run=asked.dry_run),
        ).run()


@dataclass(eq=False)
class _Operation:
    """One operation, under the locks of the state."""

    asked: OperationRequest
    target: OperationTable
    files: FileLog
    plans: PlanLog
    ledger: Ledger
    committed: Position
    names: FileNames
    contents: Contents | None
    done: OperationResult

    def run(self) -> OperationResult:
        paths = self._paths()
        while paths:
            changes = self._changes(paths)
            if not changes:
                break
            column = self._column(changes)
            if self.asked.dry_run:
                self.done.files = [self.names.uri(each.path) for each in changes]
                break
            for part in _parts(changes):
                if not self._append(part, column):
                    break  # a discovery was faster: look again
                done = {each.path for each in part}
                paths = [each for each in paths if each not in done]
            else:
                break
        return self.done

    def _paths(self) -> list[str]:
        if not self.asked.pattern:
            forgotten = self._forgotten() if self.asked.action == "forget" else frozenset()
            names = self.asked.paths
            return list(
                dict.fromkeys(
                    each if each in forgotten else self.names.find(each) for each in names
                )
            )
        paths: dict[str, None] = {}
        snapshot = StateSnapshot.take(self.files.store.uri)
        for pattern in self.asked.paths:
            query = FileQuery(path=pattern, status=_MATCHED[self.asked.action])
            groups = FileStates(snapshot, query).groups()
            found = {file.path: None for group in groups for file in group.files}
            if not found:
                raise OptionError(
                    f"{pattern!r} matches no file of this stream to {self.asked.action}. "
                    "`cloudfiles state files --path` shows which files a pattern matches."
                )
            paths |= found
        return list(paths)

    def _done_before(self) -> frozenset[str]:
        """Files to which this operation was done under its name."""
        done: set[str] = set()
        for each in self.files.operations.after():
            if self.asked.key and each.key == self.asked.key:
                done |= {file.path for file in self.files.read(each.number).files}
                positions = (*each.excluded, *each.former)
                done |= {self.files.read(at.entry).files[at.index].path for at in sorted(positions)}
        return frozenset(done)

    def _forgotten(self) -> frozenset[str]:
        """Files that were forgotten, which the index does not know."""
        there = self.files.operations.after()
        numbers = [each.number for each in there if each.action == "forget"]
        return frozenset(
            file.path
            for number in numbers
            for file in self.files.read(number).files
            if self.ledger.entry_of(file.path) is None
        )

    def _changes(self, paths: Sequence[str]) -> list[_Change]:
        """Look, and decide for each file.

        Raises:
            StateError: It cannot be done to one of them.
        """
        catch_up(self.ledger, self.files)
        self.files.operations.meet()
        standings = Standings(self.files, self.plans, self.ledger, self.committed)
        before = self._done_before()
        for path in before.intersection(paths):
            self.done.unchanged[self.names.uri(path)] = "this operation was done to it already"
        changes = []
        decide = {
            "replay": self._replay,
            "skip": self._skip,
            "quarantine": self._skip,
            "release": self._release,
            "forget": self._forget,
        }[self.asked.action]
        for standing in standings.of([path for path in paths if path not in before]):
            change = decide(standing)
            if isinstance(change, str):
                self.done.unchanged[self.names.uri(standing.path)] = change
            else:
                changes.append(change)
        return changes

    def _column(self, changes: Sequence[_Change]) -> tuple[str, ...]:
        """Find the column with the paths of former rows; empty where those rows stay."""
        if self.asked.action != "replay" or self.asked.append:
            return ()
        wanted = [each.path for each in changes if self._was_ingested(each)]
        return self.target.path_column(wanted) if wanted else ()

    def _was_ingested(self, change: _Change) -> bool:
        return any(self.files.summary(each.entry).is_ingested for each in change.former)

    # ── what each action does to a file ──────────────────────────────────────────────────────────

    def _skip(self, found: FileStanding) -> _Change | str:
        if found.held is not None:
            return f"it is {HELD_AS[found.held.action]} already"
        if found.newest is None:
            return _Change(found.path, file=self._present(found))
        if found.is_existing:
            return "it was there before the first start, and is never ingested"
        if found.is_duplicate:
            return "it has the content of another file, and is never ingested itself"
        if not found.waiting and not found.planned:
            raise StateError(
                f"{self.names.uri(found.path)} was ingested in batch "
                f"{self.plans.number_at(found.newest)}, so it is too late to {self.asked.action} "
                "it. Delete its rows from the table if they should not be there."
            )
        self._refuse_written(found)
        return _Change(found.path, excluded=(*found.planned, *found.waiting))

    def _release(self, found: FileStanding) -> _Change | str:
        if found.held is not None:
            return _Change(found.path, file=self._present(found), former=found.kept_out)
        if found.found_by == "release":
            return "it was released already"
        raise StateError(
            f"{self.names.uri(found.path)} is neither skipped nor quarantined, so it cannot be "
            "released. `cloudfiles file list` shows which files are."
        )

    def _replay(self, found: FileStanding) -> _Change | str:
        name = self.names.uri(found.path)
        if found.held is not None:
            raise StateError(
                f"{name} is {HELD_AS[found.held.action]} and was not ingested. To have it "
                "ingested, use release."
            )
        if found.newest is None:
            raise StateError(
                f"{name} was not discovered yet, so it cannot be replayed: the next run ingests it."
            )
        if found.is_duplicate:
            raise StateError(
                f"{name} has the content of {self._original(found)}, which is ingested in its "
                "place (cloudFiles.fileIdentity=content). Replay that file."
            )
        if found.waiting or found.planned:
            return "it is not ingested yet: the next run does it"
        return _Change(found.path, file=self._present(found), former=(found.newest,))

    def _forget(self, found: FileStanding) -> _Change | str:
        name = self.names.uri(found.path)
        if found.newest is None or found.file is None:
            if found.path in self._forgotten():
                self._list_all()  # the process that has forgotten it may have been killed before
                return "it is forgotten already"
            raise StateError(f"{name} is not recorded: there is nothing to forget.")
        if found.planned:
            raise StateError(
                f"{name} is in batch {self.plans.number_at(found.planned[0])}, which is planned "
                "and not committed, so it cannot be forgotten. Let the stream run to its end "
                "first; if it fails because of this file, use quarantine."
            )
        former = found.kept_out or (() if found.newest in found.waiting else (found.newest,))
        return _Change(found.path, file=found.file, excluded=found.waiting, former=former)

    def _present(self, found: FileStanding) -> FileEntry:
        """Describe the file as it is now, with its content where files are known by it.

        Raises:
            FileMissingError: It is gone.
            ListingError: It cannot be read for its content.
        """
        file = self.names.look(found.path)
        if file is not None and self.contents is not None:
            file = next(iter(self.contents.of([file])), None)
        if file is None:
            raise FileMissingError(
                f"{self.names.uri(found.path)} is gone from the source, so it cannot be ingested. "
                "Put it back first."
            )
        return file

    def _original(self, found: FileStanding) -> str:
        """Find the URI of the file that is ingested for the content of a duplicate."""
        content = "" if found.file is None else found.file.content
        entry = self.ledger.entry_of_content(content)
        files = () if entry is None else self.files.read(entry).files
        same = (self.names.uri(file.path) for file in files if file.content == content)
        return next(same, "another file")

    def _refuse_written(self, found: FileStanding) -> None:
        """Refuse to leave a file out of a batch that the table has although it is not recorded."""
        for batch in sorted({self.plans.number_at(each) for each in found.planned}):
            there = self.target.has_batch(batch)
            if there:
                raise StateError(
                    f"{self.names.uri(found.path)} is in batch {batch}, which the table has, "
                    "though that was not recorded yet: its rows are in the table. Run the stream "
                    "once, which records it."
                )
            if there is None:
                warning = (
                    f"Whether the table has batch {batch} was not looked up, because nothing says "
                    "which table it is (target)."
                )
                if warning not in self.done.warnings:
                    self.done.warnings.append(warning)

    # ── the entry ────────────────────────────────────────────────────────────────────────────────

    def _append(self, changes: Sequence[_Change], column: tuple[str, ...]) -> bool:
        """Append one entry; whether that was done, or a discovery was faster."""
        state, asked = self.files.store, self.asked
        operation = Operation(
            action=asked.action,
            reason=asked.reason,
            excluded=tuple(at for each in changes for at in each.excluded),
            former=tuple(at for each in changes for at in each.former),
            path_column=column,
            key=asked.key,
        )
        bodies = {each.path: each.file for each in changes if each.file is not None}
        ordered = tuple(bodies[path] for path in sorted(bodies, key=key_bytes))
        number = self.ledger.caught_up + 1
        allow_operations(state)
        crash_point("before-file-operation")
        announce(state, number)
        crash_point("after-file-operation-note")
        if asked.action == "forget":
            self._list_all()
        if not self.files.append(number, FileBatch(ordered, asked.action, None, operation)):
            return False
        crash_point("after-file-operation")
        if asked.action == "forget":
            self._list_all()  # a discovery that did not know may have made a full listing since
        catch_up(self.ledger, self.files)
        mark_head(state, self.files)
        self.done.entries.append(number)
        self.done.files += dict.fromkeys(self.names.uri(each.path) for each in changes)
        _log.info("Entry %d of the file log: %s, files: %d", number, asked.action, len(changes))
        return True

    def _list_all(self) -> None:
        """Have the next listing be a full one: an incremental one may not come to the file."""
        self.files.store.delete(LISTING)


def _parts(changes: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Cut changes so that each part fits into one entry."""
    part: list[_Change] = []
    for change in (small for each in changes for small in _small(each)):
        positions = sum(each.positions for each in (*part, change))
        if part and (len(part) >= MOST or positions > MOST):
            yield part
            part = []
        part.append(change)
    if part:
        yield part


def _small(change: _Change) -> Iterator[_Change]:
    """Cut a change with very many positions; the last part has the file."""
    while change.positions > MOST:
        yield replace(
            change, file=None, excluded=change.excluded[:MOST], former=change.former[:MOST]
        )
        change = replace(change, excluded=change.excluded[MOST:], former=change.former[MOST:])
    yield change
