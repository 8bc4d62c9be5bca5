"""Tell what became of each micro-batch, and which files of the source were removed or moved.

Put together from what is written about it: its plan, the record of the sink, the note of the job,
Spark's commit log. A kill may come before the note, so the record of a batch has its counts, too,
where they are known. Batches are read in their order, some ahead where the state is far away, and
not kept: a stream may have a million of them.

One small object, `_source/archived`, for `cloud_files_state`; nothing is decided by it, and it may
be deleted. The source is cleaned in the order of the file log, so what was cleaned together is one
*mark*: the position behind it, the time, and how. The files before a mark that were not cleaned are
named one by one, as are those whose copy has a name of its own.

It stays small: of many marks the oldest are joined with their neighbors, which have a little later
time; and where too many files have to be named, nothing is said of the oldest part of the log.

The bytes are those of an entry of a numbered log. The body has a line for each file that is named:
`["path",size,modification time in microseconds,"etag","key of the copy, or empty"]`.
"""

from __future__ import annotations

import json
import logging
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import (
    START,
    FileCounts,
    FileEntry,
    Offset,
    printable_path,
)
from airflow_cloudfiles.engine.state import file_results, run_history, spark_checkpoint
from airflow_cloudfiles.engine.state.file_results import FileResults, read_results
from airflow_cloudfiles.engine.state.packs import Packs, beyond_repair, decode_entry, encode_entry
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once, is_near
from airflow_cloudfiles.engine.storage.outage import reaching_state

KEY: Final = "_source/archived"
FORMAT_VERSION: Final = 1
MAX_MARKS: Final = 1000
MAX_NAMED: Final = 2000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanedFiles:
    """What was cleaned together.

    Attributes:
        end: The position of the file log behind it.
        time: When.
        mode: `DELETE` or `MOVE`.
        destination: URI of the folder that files were moved to; empty where they were removed.
    """

    end: Offset
    time: datetime
    mode: str
    destination: str = ""


Version = tuple[str, int, int, str]
"""A version of a file: path, size, modification time and etag."""


@dataclass(frozen=True, slots=True)
class CleaningHistory:
    """What is known of the files that were cleaned.

    Attributes:
        start: Nothing is known of what lies before this position.
        marks: In the order of the file log.
        named: Files that were not cleaned, with an empty text, and those whose copy has a name of
            its own, with the key of the copy.
    """

    start: Offset = START
    marks: tuple[CleanedFiles, ...] = ()
    named: Mapping[Version, str] = field(default_factory=dict)

    def of(self, file: FileEntry, position: Offset) -> tuple[CleanedFiles, str] | None:
        """Find how a committed file was cleaned, and the key of its copy; `None` if it was not."""
        if position < self.start:
            return None
        at = bisect_right(self.marks, position, key=lambda mark: mark.end)
        if at == len(self.marks):
            return None
        key = self.named.get(version_of(file), file.path)
        return (self.marks[at], key) if key else None

    def after(
        self,
        mark: CleanedFiles,
        cleaned: Mapping[FileEntry, str],
        left: Iterable[FileEntry],
        gone: Iterable[FileEntry] = (),
    ) -> CleaningHistory:
        """Return what is known after a cleaning.

        Args:
            mark: How far it came. One that is not as far as others began anew, and is forgotten.
            cleaned: Files that were cleaned, each with the key of its copy if that is its own.
            left: Files that were looked at and stay, or wait to be tried again.
            gone: Files that were not there any more. In a part of the log that was cleaned before,
                that is what is known already.
        """
        if self.marks and mark.end < self.marks[-1].end:
            return self
        is_further = not self.marks or mark.end > self.marks[-1].end
        stay = {version_of(file): "" for file in (*left, *(gone if is_further else ()))}
        done = {version_of(file) for file in cleaned}
        named = {each: key for each, key in self.named.items() if each not in done}
        named |= {version_of(file): key for file, key in cleaned.items() if key}
        named |= stay
        if len(named) > MAX_NAMED:
            return CleaningHistory(mark.end, (), stay if len(stay) <= MAX_NAMED else {})
        marks = _joined((*self.marks, mark)) if is_further else self.marks
        return CleaningHistory(self.start, marks, named)


NOTHING: Final = CleaningHistory()
"""Nothing was cleaned, or nothing is known of it."""


def version_of(file: FileEntry) -> Version:
    """Return by what a file is named."""
    return file.path, file.size, file.modification_time_us, file.etag


def read_archived(state: ObjectStore) -> CleaningHistory:
    """Read what is known; nothing where there is no object, or it is damaged."""
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return NOTHING
    name = state.child_uri(KEY)
    try:
        header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
        marks = tuple(_mark(each) for each in header["marks"])
        named = dict(_named(json.loads(line)) for line in body.splitlines())
        return CleaningHistory(Offset.from_json(header["start"]), marks, named)
    except (
        CorruptedStateError,
        IncompatibleStateError,
        KeyError,
        TypeError,
        ValueError,
    ) as failure:
        _log.warning("Which files were archived is not shown: %s", failure)
        return NOTHING


def known_from(state: ObjectStore, position: Offset) -> CleaningHistory:
    """Read what is known, by a cleaning that begins at a position.

    Where nothing is, of what lies before it nothing is known.
    """
    found = read_archived(state)
    return found if found.marks else replace(found, start=max(found.start, position))


def write_archived(state: ObjectStore, archived: CleaningHistory) -> None:
    """Write what is known."""
    header: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "start": archived.start.to_json(),
        "marks": [
            [mark.end.entry, mark.end.index, _us(mark.time), mark.mode, mark.destination]
            for mark in archived.marks
        ],
    }
    lines = (json.dumps([*version, key]) + "\n" for version, key in archived.named.items())
    content = encode_entry(header, "".join(lines).encode("ascii"), format_version=FORMAT_VERSION)
    with reaching_state(state):
        state.put(KEY, content)


def _joined(marks: tuple[CleanedFiles, ...]) -> tuple[CleanedFiles, ...]:
    """Join neighbors of the older half that were cleaned alike, when there are many."""
    if len(marks) <= MAX_MARKS:
        return marks
    half = len(marks) // 2
    older: list[CleanedFiles] = []
    for at, mark in enumerate(marks[:half]):
        before = marks[at - 1] if at % 2 else None
        if before and (before.mode, before.destination) == (mark.mode, mark.destination):
            older.pop()
        older.append(mark)
    return (*older, *marks[half:])


def _us(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _mark(value: object) -> CleanedFiles:
    match value:
        case [int(entry), int(index), int(time_us), str(mode), str(destination)]:
            time = _EPOCH + timedelta(microseconds=time_us)
            return CleanedFiles(Offset(entry, index), time, mode, destination)
    msg = f"not a mark: {value!r}"
    raise ValueError(msg)


def _named(value: object) -> tuple[Version, str]:
    match value:
        case [str(path), int(size), int(time_us), str(etag), str(key)]:
            return (path, size, time_us, etag), key
    msg = f"not a file: {value!r}"
    raise ValueError(msg)


_AHEAD = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BatchState:
    """What is known of one micro-batch.

    Attributes:
        plan: Which files it has.
        planned: When that was decided.
        committed: When it was committed; `None` when it is not.
        run_id: The run that committed it; `None` where no job did, or an older version.
        table_version: A version of the table that has it; `None` where it is not known.
        schema_version: Version of the schema it was read with; `None` where it is not known.
        counts: What its tasks have counted; empty where those that wrote it did not read files.
        results: What was read of each of its files; `None` where that is not recorded.
    """

    plan: Plan
    planned: datetime
    committed: datetime | None = None
    run_id: str | None = None
    table_version: int | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    results: FileResults | None = None

    def of_file(self, entry: int, index: int) -> FileCounts | None:
        """Give what was read of a file, by the entry that records it and its index there.

        Returns:
            `None` where it is not known.
        """
        return None if self.results is None else self.results.of(entry, index)


class BatchStates:
    """The micro-batches of a state, up to a position of the past.

    Args:
        state: The checkpoint location.
        committed: How far it was committed.
        planned: How many batches were planned.
        ahead: Whether batches will be asked for one after the other, without gaps.
        spark: When Spark committed batches (`spark_commits`).
    """

    def __init__(
        self,
        state: ObjectStore,
        *,
        committed: Position,
        planned: int,
        ahead: bool = False,
        spark: Mapping[int, int] | None,
    ) -> None:
        self._state = state
        self._plans = PlanLog(state)
        with reaching_state(state):
            self._plans.meet_packs()
        self._sink = SinkLog(state)
        self._packs = Packs(state, run_history.PREFIX)
        self._result_packs = Packs(state, file_results.PREFIX)
        self._committed = committed
        self._planned = planned
        self._spark = spark
        self._step = _AHEAD if ahead and not is_near(state) else 1
        self._read: dict[int, tuple[Plan, datetime]] = {}
        self._known: dict[int, BatchState] = {}
        self._current: Plan | None = None

    def begin_behind(self, number: int) -> None:
        """Look for the next position behind a batch first; none below 0."""
        if 0 <= number < self._planned:
            self._current = self.plan(number)

    def plan(self, number: int) -> Plan:
        """Read the plan of a batch."""
        return self._timed(number)[0]

    def plan_at(self, position: Offset) -> Plan:
        """Find the batch that has the file at a position, which is planned."""
        before = self._current
        if before is not None and before.start <= position < before.end:
            return before
        found = None
        if before is not None and position >= before.end and before.number + 1 < self._planned:
            found = self.plan(before.number + 1)
        if found is None or not found.start <= position < found.end:
            numbers = range(self._planned)
            at = bisect_right(numbers, position, key=self._start) - 1
            found = self.plan(max(at, 0))
        if not found.start <= position < found.end:
            raise self._torn(found, position)
        self._current = found
        return found

    def is_committed(self, plan: Plan) -> bool:
        """Tell whether a batch was committed.

        Raises:
            CorruptedStateError: What is committed ends in the middle of it.
        """
        if plan.start < self._committed.end < plan.end:
            raise self._torn(plan, self._committed.end)
        return plan.end <= self._committed.end

    def of(self, plan: Plan) -> BatchState:
        """Read what is known of a batch."""
        if plan.number not in self._known:
            numbers = range(plan.number, min(plan.number + self._step, self._planned))
            found = at_once(self._state, [partial(self._batch, each) for each in numbers])
            self._known = {batch.plan.number: batch for batch in found}
        return self._known[plan.number]

    def _batch(self, number: int) -> BatchState:
        plan, planned = self._read_one(number)
        if not self.is_committed(plan):
            return BatchState(plan, planned)
        with reaching_state(self._state):
            record = self._sink.find_in_any(number)
            done = run_history.note_of(self._state, number, self._packs)
        if record is not None and record.read_by == "query" and self._spark is None:
            record = None  # of another batch
        version = record.version if record is not None and record.version >= 0 else None
        committed = self._commit_time(number, record)
        known = done or record
        if known is None:
            return BatchState(plan, planned, committed)
        return BatchState(
            plan,
            planned,
            committed,
            known.run_id,
            done.table_version if done is not None and version is None else version,
            known.schema_version,
            known.counts,
            self._results(number, record),
        )

    def _results(self, number: int, record: SinkRecord | None) -> FileResults | None:
        """Read what was read of the files of a batch, if it is what the table has."""
        if record is None or (record.read_by == "query" and not record.counts):
            return None  # its rows have passed Spark, or what was read is not known for certain
        with reaching_state(self._state):
            found = read_results(self._state, number, self._result_packs)
        is_its = found is not None and found.belongs_to(record.counts)
        return found if is_its else None

    def _commit_time(self, number: int, record: SinkRecord | None) -> datetime | None:
        """Find when a batch was committed, or else the first time at which it is known to be."""
        if record is not None and record.created:
            return self._time(record.created, f"the record of batch {number}")
        if self._spark is not None and number in self._spark:
            return _EPOCH + timedelta(microseconds=self._spark[number])
        # Spark keeps its newest commits only. It plans a batch when the one before is committed.
        return self._read_one(number + 1)[1] if number + 1 < self._planned else None

    def _start(self, number: int) -> Offset:
        return self._read_one(number)[0].start

    def _read_one(self, number: int) -> tuple[Plan, datetime]:
        return self._read.get(number) or self._with_time(number)

    def _timed(self, number: int) -> tuple[Plan, datetime]:
        """Read a plan, and some behind it."""
        found = self._read.get(number)
        if found is None:
            numbers = range(number, min(number + self._step, self._planned))
            plans = at_once(self._state, [partial(self._with_time, each) for each in numbers])
            self._read = dict(zip(numbers, plans, strict=True))
            found = plans[0]
        return found

    def _with_time(self, number: int) -> tuple[Plan, datetime]:
        plan, written = self._plans.with_time(number)
        return plan, self._time(written, f"the plan of batch {number}")

    def _time(self, text: str, what: str) -> datetime:
        return parsed_time(text, what, self._state)

    def _torn(self, plan: Plan, position: Offset) -> CorruptedStateError:
        return beyond_repair(
            f"The plan log in {printable_path(self._state.uri)} does not fit the rest of the "
            f"state: batch {plan.number} is {plan.start.to_json()} to {plan.end.to_json()}, and "
            f"{position.to_json()} is said to be the end or the start of a batch."
        )


def parsed_time(text: str, what: str, state: ObjectStore) -> datetime:
    """Read the time at which something of a state was written.

    Raises:
        CorruptedStateError: It is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as failure:
        raise beyond_repair(
            f"In {printable_path(state.uri)}, {what} does not say when it was written: {text!r}."
        ) from failure
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def spark_commits(state: ObjectStore, committed: Position, plans: PlanLog) -> dict[int, int] | None:
    """Give when Spark committed its batches, in microseconds since 1970, as far as it kept that.

    Returns:
        Nothing of jobs; `None` where the query numbers its batches otherwise than the plan log,
        because it has several sources or keeps state of its own.
    """
    if committed.is_of_a_job or committed.batch < 0:
        return {}
    plan = plans.get(committed.batch)
    if plan is None or plan.end != committed.end:
        return None
    prefix = f"{spark_checkpoint.COMMITS}/"
    with reaching_state(state):
        found = {
            each.path.removeprefix(prefix): each.modification_time_us for each in state.list(prefix)
        }
    return {int(name): time for name, time in found.items() if name.isascii() and name.isdigit()}
