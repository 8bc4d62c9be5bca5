"""Tell what became of each file, or of those that are asked for.

The state of a stream as a table with a row for each version of a file that was recorded, in the
order of the file log. Nothing is written and no lock is taken: how far the stream is committed,
planned and recorded is read once, in this order, so that each is at most the next, and what lies
before these positions never changes. A stream that goes on meanwhile is shown as it was.

Files are read entry by entry, and what is known of a micro-batch once for all its files; so the
memory it takes is that of one entry, however many files there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final, Literal, get_args

from airflow_cloudfiles.engine.discovery.globs import SourcePattern, compile_name
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.files import (
    START,
    FileCounts,
    FileEntry,
    Offset,
    printable_path,
)
from airflow_cloudfiles.engine.intake.ledger.changed import changed_times
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole
from airflow_cloudfiles.engine.intake.opening import root_of
from airflow_cloudfiles.engine.state.batch_states import (
    NOTHING,
    BatchState,
    BatchStates,
    CleaningHistory,
    parsed_time,
    read_archived,
    spark_commits,
)
from airflow_cloudfiles.engine.state.file_log import EntrySummary, FileBatch, FileLog
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.operations import Operation, excluded_by, latest_of
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, SinkLog, position
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.access import Access
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once, is_near

FileStatus = Literal[
    "existing",
    "duplicate",
    "discovered",
    "planned",
    "committed",
    "deleted",
    "lost",
    "skipped",
    "quarantined",
    "released",
    "forgotten",
]
"""How far a file has come. `existing`: there before the first start, and never ingested.
`duplicate`: its content is that of another file, and it is never ingested.
`discovered`: recorded. `planned`: part of a micro-batch that is not committed. `committed`: its
micro-batch is committed. `deleted`: that is, and its rows were removed, since the file was gone
(`cloudFiles.onDelete=delete`); where it was ingested is another record. `lost`: it was committed,
the table lost it, and the loss was accepted. `skipped`, `quarantined`: by an operation, before it
was ingested. `released`: that was, and another record of the file came in its place. `forgotten`:
before it was ingested; it is another record, if any."""

OUTSTANDING: Final = "outstanding"
"""In a query: `discovered` or `planned`."""
STATUSES: Final[tuple[str, ...]] = (*get_args(FileStatus), OUTSTANDING)
"""What a query can ask for."""
_PATTERN: Final = frozenset("*?[{\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    """Which files of a state are wanted: those for which all that is given holds.

    Attributes:
        path: A file, a folder, or a pattern as in a source path (`*`, `?`, `[a-c]`, `{a,b}`);
            relative to the source, or with all of its URI. A pattern without a slash is one for
            names of files.
        status: One of these (`STATUSES`); none for any.
        batch_id: Of this micro-batch.
        run_id: Committed by this run of a job.
        discovered_since: Discovered at this time or later.
        discovered_until: Discovered before this time.
        committed_since: Committed at this time or later.
        committed_until: Committed before this time.
    """

    path: str | None = None
    status: tuple[str, ...] = ()
    batch_id: int | None = None
    run_id: str | None = None
    discovered_since: datetime | None = None
    discovered_until: datetime | None = None
    committed_since: datetime | None = None
    committed_until: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            OptionError: A status is none, or a time has no zone.
        """
        unknown = [each for each in self.status if each not in STATUSES]
        if unknown:
            raise OptionError(f"status must be one of {', '.join(STATUSES)}, got {unknown[0]!r}.")
        for name in ("discovered_since", "discovered_until", "committed_since", "committed_until"):
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise OptionError(
                    f"{name} needs a time zone, got {time.isoformat()}. Write {time.isoformat()}Z "
                    "or use datetime(..., tzinfo=UTC)."
                )

    @property
    def needs_batch(self) -> bool:
        """Whether only files of a committed micro-batch can be meant."""
        return any((self.run_id, self.committed_since, self.committed_until))

    def was_discovered(self, time: datetime) -> bool:
        """Tell whether files that were discovered at a time are wanted."""
        return _is_between(time, self.discovered_since, self.discovered_until)

    def has_batch(self, batch: BatchState | None) -> bool:
        """Tell whether files of a micro-batch, or of none, are wanted."""
        if not self.needs_batch:
            return True
        if batch is None or (self.run_id is not None and batch.run_id != self.run_id):
            return False
        if self.committed_since is None and self.committed_until is None:
            return True
        return batch.committed is not None and _is_between(
            batch.committed, self.committed_since, self.committed_until
        )

    def matcher(self, source: str) -> Callable[[str], bool] | None:
        """Give what decides for the path of a file, relative to the source, whether it is wanted.

        Args:
            source: URI of the folder that paths are relative to.

        Returns:
            `None` when all paths are.

        Raises:
            OptionError: The path is not below the source, or is a pattern that cannot be read.
        """
        if self.path is None:
            return None
        asked = _below(self.path, source)
        if not asked:
            return None
        if not _PATTERN & set(asked):
            return lambda path: path == asked or path.startswith(asked.rstrip("/") + "/")
        pattern = SourcePattern(asked, strict=True)
        if "/" in asked:
            return lambda path: path == asked or pattern.matches(path)
        name = compile_name(asked)
        return lambda path: path == asked or name.matches(path.rpartition("/")[2])


def _below(path: str, source: str) -> str:
    """Give a path relative to the source.

    Raises:
        OptionError: It is another location.
    """
    is_uri = "://" in path or path.startswith("file:")
    if not is_uri and not (path.startswith("/") and source.startswith("file:")):
        return path
    given = normalize_uri(path) + ("/" if path.endswith("/") else "")
    root = source.rstrip("/")
    if given.rstrip("/") == root:
        return ""
    if not given.startswith(root + "/"):
        raise OptionError(
            f"{path!r} is not below the source of this state, {source}. Give a path below it, or "
            "one relative to it."
        )
    return given[len(root) + 1 :]


def _is_between(time: datetime, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or time >= since) and (until is None or time < until)


HELD: Final[Mapping[str, FileStatus]] = {
    "skip": "skipped",
    "quarantine": "quarantined",
    "release": "released",
    "forget": "forgotten",
}
"""What a record is behind an operation that has kept it from being ingested, or followed that."""
_KNOWN: Final = frozenset({"existing", "duplicate"})
_NEVER: Final[Mapping[str, FileStatus]] = {**HELD, "duplicate": "duplicate"}
_LOOK_AHEAD: Final = 32


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one entry of the file log and one micro-batch.

    Attributes:
        source: URI of the folder that their paths are relative to.
        entry: What the entry says of itself.
        discovered: When it was written.
        files: The files.
        indexes: Their places in the entry.
        status: How far they have come.
        batch: Their micro-batch; `None` where none is planned.
        archived: Which files were removed or moved, and how.
        operation: The newest operation that is about them.
        changed: When it was noticed that files have changed since they were ingested, by the entry
            and the hash of the path (`ledger.changed`).
    """

    source: str
    entry: EntrySummary
    discovered: datetime
    files: Sequence[FileEntry]
    indexes: Sequence[int]
    status: FileStatus
    batch: BatchState | None = None
    archived: CleaningHistory = NOTHING
    operation: Operation | None = None
    changed: Mapping[int, Mapping[str, datetime]] = field(default_factory=dict)

    @property
    def read(self) -> Iterator[FileCounts | None]:
        """Give what was read of each file; `None` where that is not known."""
        batch, number = self.batch, self.entry.number
        return (None if batch is None else batch.of_file(number, at) for at in self.indexes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """How far a stream was when its state was looked at. It can be sent to other processes.

    Attributes:
        uri: The checkpoint location.
        source: URI of the folder that paths are relative to.
        entries: How many entries the file log had.
        committed: How far the stream was committed.
        batches: How many micro-batches were planned.
        planned: Where the last of them ends.
        given_up: Batches whose loss was accepted.
        spark: When Spark committed its batches (`spark_commits`).
        archived: Which files were removed or moved, and how.
        changed: When it was noticed which files have changed, as in `FileGroup`.
    """

    uri: str
    source: str
    entries: int
    committed: Position
    batches: int
    planned: Offset
    given_up: frozenset[int] = frozenset()
    spark: Mapping[int, int] | None = None
    archived: CleaningHistory = NOTHING
    changed: Mapping[int, Mapping[str, datetime]] = field(default_factory=dict)

    @classmethod
    def take(
        cls,
        checkpoint_location: str,
        access: Access | None = None,
        *,
        shows_archived: bool = True,
    ) -> StateSnapshot:
        """Look at a state.

        Args:
            checkpoint_location: Path or URI of the state; Spark's name for its only source,
                `<state>/sources/0`, means the same.
            access: How its cloud is reached; `None` for the environment's own chain.
            shows_archived: Whether to read what became of files that were cleaned, and which have
                changed.

        Raises:
            StateError: There is no state of files, or it cannot be read.
            CorruptedStateError: It is damaged, or its parts do not belong together.
        """
        state = open_store(checkpoint_location.removesuffix("/sources/0"), access)
        metadata = existing_metadata(state)
        plans, files = PlanLog(state), FileLog(state)
        committed = position(state, plans)
        latest = plans.latest()
        planned = START if latest is None else latest.end
        if committed.end > planned:
            raise beyond_repair(
                f"The stream in {printable_path(state.uri)} has committed up to "
                f"{committed.end.to_json()}, but its plan log ends at {planned.to_json()}. They "
                "do not belong together."
            )
        check_whole(state, files, plans, committed)
        return cls(
            uri=state.uri,
            source=root_of(metadata.source),
            entries=files.head().entry,
            committed=committed,
            batches=0 if latest is None else latest.number + 1,
            planned=planned,
            given_up=SinkLog(state).given_up(),
            spark=spark_commits(state, committed, plans),
            archived=read_archived(state) if shows_archived else NOTHING,
            changed=changed_times(state) if shows_archived else {},
        )


class FileStates:
    """The files of a state, group by group.

    Args:
        snapshot: How far the state was.
        query: Which files are wanted; `None` for all.
        access: How its cloud is reached.
        start: Only files from this position on, which is the end of a micro-batch or of an entry.
        after_batch: The last micro-batch before `start`, if the caller knows it; one that is wrong
            costs a search.

    Raises:
        OptionError: The query names a path that cannot be in the source.
        StateError: It names a batch that was not planned.
    """

    def __init__(
        self,
        snapshot: StateSnapshot,
        query: FileQuery | None = None,
        access: Access | None = None,
        *,
        start: Offset = START,
        after_batch: int = -1,
    ) -> None:
        self._snapshot = snapshot
        self._query = query or FileQuery()
        self._matches = self._query.matcher(snapshot.source)
        self._state = open_store(snapshot.uri, access)
        self._files = FileLog(self._state)
        self._files.meet_packs()
        self._batches = BatchStates(
            self._state,
            committed=snapshot.committed,
            planned=snapshot.batches,
            ahead=self._matches is None and self._query.batch_id is None and start == START,
            spark=snapshot.spark,
        )
        self._batches.begin_behind(after_batch)
        there = self._files.operations.after()
        operations = [each for each in there if each.number < snapshot.entries]
        self._own_entries = [each.number for each in operations]
        self._operations, self._excluded = latest_of(operations), excluded_by(operations)
        self._wanted = _statuses(self._query.status)
        self._has_known = not _KNOWN.isdisjoint(self._wanted)
        self._has_held = not self._wanted.isdisjoint(HELD.values())
        first, self._last = self._bounds()
        self._first = max(first, start)

    def groups(self, entries: range | None = None) -> Iterator[FileGroup]:
        """Give the files that are wanted; lazy.

        Args:
            entries: Only those of these entries of the file log; `None` for all.

        Raises:
            CorruptedStateError: Something of the state is missing or damaged.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        numbers = range(self._snapshot.entries) if entries is None else entries
        behind = self._last.entry + (self._last.index > 0)
        numbers = range(max(numbers.start, self._first.entry), min(numbers.stop, behind))
        step = 1 if is_near(self._state) else _LOOK_AHEAD
        for start in range(numbers.start, numbers.stop, step):
            some = range(start, min(start + step, numbers.stop))
            looked = at_once(self._state, [partial(self._files.look, each) for each in some])
            for summary, batch in looked:
                yield from self._of_entry(summary, batch)

    def files_of(self, entry: int) -> int:
        """Count the files of an entry, wanted or not; of one that `groups` has read, at no cost."""
        return self._files.summary(entry).files

    def operated(self) -> Iterator[FileGroup]:
        """Give the files to which something was done; reads their entries only."""
        for number in sorted({*self._operations, *self._own_entries}):
            for group in self.groups(range(number, number + 1)):
                if group.operation is not None:
                    yield group

    def _of_entry(self, entry: EntrySummary, batch: FileBatch | None) -> Iterator[FileGroup]:
        """Give the files of one entry that are wanted."""
        discovered = parsed_time(
            entry.created, f"entry {entry.number} of the file log", self._state
        )
        if not self._query.was_discovered(discovered):
            return
        if not entry.is_ingested and not self._wants(entry):
            return
        files = (batch or self._files.read(entry.number)).files
        first = self._first.index if entry.number == self._first.entry else 0
        last = self._last.index if entry.number == self._last.entry else len(files)
        indexes: Sequence[int] = range(first, min(last, len(files)))
        matches = self._matches
        if matches is not None:
            indexes = [at for at in indexes if matches(printable_path(files[at].path))]
        for status, operation, plan, part in self._parts(entry, indexes):
            state = None if plan is None else self._batches.of(plan)
            if self._query.has_batch(state):
                group = [files[at] for at in part]
                yield FileGroup(
                    source=self._snapshot.source,
                    entry=entry,
                    discovered=discovered,
                    files=group,
                    indexes=part,
                    status=status,
                    batch=state,
                    archived=self._snapshot.archived,
                    operation=operation,
                    changed=self._snapshot.changed,
                )

    def _wants(self, entry: EntrySummary) -> bool:
        """Tell whether the query can ask for files of an entry that is not ingested."""
        if entry.found_by == "forget" or self._query.batch_id is not None:
            return False
        return entry.found_by in self._wanted if entry.found_by in _KNOWN else self._has_held

    def _parts(
        self, entry: EntrySummary, indexes: Sequence[int]
    ) -> Iterator[tuple[FileStatus, Operation | None, Plan | None, Sequence[int]]]:
        """Cut the wanted files of an entry by their micro-batches and operations."""
        at = 0
        while at < len(indexes):
            found, plan, end = self._standing(entry, Offset(entry.number, indexes[at]))
            is_rest = end.entry > entry.number
            stop = len(indexes) if is_rest else bisect_left(indexes, end.index, at)
            for status, operation, part in self._operated(entry, found, indexes[at:stop]):
                own = None if status in HELD.values() else plan
                is_asked = self._query.batch_id is None or own is not None
                if status in self._wanted and is_asked:
                    yield status, operation, own, part
            at = stop

    def _operated(
        self, entry: EntrySummary, status: FileStatus, indexes: Sequence[int]
    ) -> Iterator[tuple[FileStatus, Operation | None, Sequence[int]]]:
        """Cut files of one status by the operations that are about them."""
        excluded = self._excluded.get(entry.number, {})
        newest = self._operations.get(entry.number, {})
        if not newest:
            yield status, entry.operation, indexes
            return

        def standing(index: int) -> tuple[FileStatus, Operation | None]:
            is_held = index in excluded or status in HELD.values()
            operation = newest.get(index, entry.operation)
            if not is_held or operation is None:
                return status, operation
            return HELD.get(operation.action, status), operation

        for (found, operation), part in groupby(indexes, key=standing):
            yield found, operation, list(part)

    def _standing(
        self, entry: EntrySummary, here: Offset
    ) -> tuple[FileStatus, Plan | None, Offset]:
        """Find how far the file at a position is, its batch, and where the next may begin."""
        behind = Offset(entry.number + 1, 0)
        if not entry.is_ingested:
            return _NEVER.get(entry.found_by, "existing"), None, behind
        if here >= self._snapshot.planned:
            return "discovered", None, behind
        plan = self._batches.plan_at(here)
        if not self._batches.is_committed(plan):
            return "planned", plan, plan.end
        is_lost = plan.number in self._snapshot.given_up
        status: FileStatus = "deleted" if entry.found_by == "delete" else "committed"
        return "lost" if is_lost else status, plan, plan.end

    def _bounds(self) -> tuple[Offset, Offset]:
        """Find between which positions everything that is wanted lies."""
        snapshot, number = self._snapshot, self._query.batch_id
        head = Offset(snapshot.entries, 0)
        if number is not None:
            if not 0 <= number < snapshot.batches:
                there = f"there are 0 to {snapshot.batches - 1}" if snapshot.batches else "none is"
                raise StateError(
                    f"Batch {number} is not planned in {printable_path(snapshot.uri)}: {there}."
                )
            plan = self._batches.plan(number)
            return plan.start, plan.end
        if self._has_known or self._has_held:
            return START, head
        ranges: dict[str, tuple[Offset, Offset]] = {
            "committed": (START, snapshot.committed.end),
            "deleted": (START, snapshot.committed.end),
            "lost": (START, snapshot.committed.end),
            "planned": (snapshot.committed.end, snapshot.planned),
            "discovered": (snapshot.planned, head),
        }
        if self._query.needs_batch:
            ranges.pop("discovered")
        wanted = [ranges[status] for status in self._wanted if status in ranges]
        if not wanted:
            return START, START
        return min(low for low, _ in wanted), max(high for _, high in wanted)


def _statuses(given: Sequence[str]) -> frozenset[str]:
    """List the statuses that a query asks for."""
    if not given:
        return frozenset(get_args(FileStatus))
    return frozenset(
        status
        for each in given
        for status in (("discovered", "planned") if each == OUTSTANDING else (each,))
    )
