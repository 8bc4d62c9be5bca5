"""Keep which files a micro-batch has.

The plan log answers for ever. The range of a batch is written here, with put-if-absent, before
Spark writes it into its own checkpoint; so a batch that is planned again (after a crash, with an
older checkpoint or with none, by whoever) has the same files, and a sink that has seen its
number may skip it.

Plans form a chain: each begins where the one before it ends. An entry has a header and no body.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.files import START, Offset, ReadLimit
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.versions import as_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.state.file_log import EntrySummary, FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX = "_source/plans"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The range of one micro-batch.

    Attributes:
        number: Place in the chain, from 0.
        start: Position of its first file.
        end: Position behind its last file.
        files: How many files it takes.
        bytes: Their size.
    """

    number: int
    start: Offset
    end: Offset
    files: int
    bytes: int


class PlanLog:
    """The ranges of the micro-batches of one stream.

    Args:
        store: The checkpoint location.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._log = NumberedLog(
            store, PREFIX, format_version=FORMAT_VERSION, has_all=True, is_packed=True
        )
        self._read: dict[int, Plan] = {}

    def plan(self, files: FileLog, start: Offset, limit: ReadLimit, up_to: Offset) -> Offset:
        """Decide where the micro-batch that begins at a position ends, once and for all.

        1. If a plan begins at `start`, its end is the answer, also beyond `up_to`.
        2. Otherwise files are taken from `start` until the limit or `up_to`: at least one, at most
           `max_files`; the file that reaches `max_bytes` is the last (B109 to B112). Entries that
           are not ingested are passed over (B88).
        3. The range is appended. If another planner was faster, begin again.

        Args:
            files: The file log.
            start: Where the batch begins: the end of the one before, or `START`.
            limit: How much it may take.
            up_to: Where the files end that it may take, usually the head of the file log.

        Returns:
            Where the batch ends; `start` when there is nothing to take.

        Raises:
            CorruptedStateError: No planned batch begins or ends at `start`.
        """
        while True:
            # A number that others took meanwhile is refused, and then known.
            latest = self.known()
            known = self._find(start, latest)
            if known is None and start != (START if latest is None else latest.end):
                latest = self.latest()
                known = self._find(start, latest)
            if known is not None:
                return known.end
            self._check_chain(start, latest)
            taken = _take(files, start, limit, up_to)
            if taken.files == 0:
                self._check_head(start, files)
                return start
            crash_point("before-plan-append")
            number = 0 if latest is None else latest.number + 1
            if self._log.append(number, _header(start, taken)):
                self._read[number] = Plan(number, start, taken.end, taken.files, taken.bytes)
                crash_point("after-plan-append")
                return taken.end

    @property
    def unpacked(self) -> int:
        """How many plans are objects of their own, as far as the log has been read."""
        return self._log.unpacked

    def check(self, start: Offset, end: Offset) -> None:
        """Refuse to read what is not the whole of a micro-batch, as Spark's checkpoint may ask.

        Raises:
            CorruptedStateError: No batch is planned from one position to the other.
        """
        plan = self._find(start, self.known())
        if start == end or (plan is not None and plan.end == end):
            return
        planned = "none begins there" if plan is None else f"it ends at {plan.end.to_json()}"
        name = self._log.name(0 if plan is None else plan.number)
        raise beyond_repair(
            f"Spark's checkpoint asks for a batch from {start.to_json()} to {end.to_json()}, but "
            f"of the planned batches {planned} (see {name}). Spark's checkpoint is damaged, or "
            "the two do not belong together."
        )

    def find(self, start: Offset) -> Plan | None:
        """Find the plan that begins at a position, by halving the chain."""
        return self._find(start, self.latest())

    def _find(self, start: Offset, latest: Plan | None) -> Plan | None:
        if latest is None or start >= latest.start:
            return latest if latest is not None and start == latest.start else None
        number = bisect_left(range(latest.number), start, key=lambda at: self.at(at).start)
        plan = self.at(number)
        return plan if plan.start == start else None

    def number_at(self, position: Offset) -> int:
        """Give the number of the batch that has a position, which is planned."""
        latest = self.latest()
        numbers = range(0 if latest is None else latest.number + 1)
        return max(0, bisect_right(numbers, position, key=lambda at: self.at(at).start) - 1)

    def get(self, number: int) -> Plan | None:
        """Give the plan of a micro-batch; `None` when there is none."""
        latest = self.latest()
        if latest is None or not 0 <= number <= latest.number:
            return None
        return self.at(number)

    def at(self, number: int) -> Plan:
        """Give the plan of a batch; plans never change, and each is read once.

        Raises:
            CorruptedStateError: There is none, or it is damaged.
        """
        if number not in self._read:
            header = self._log.read(number).header
            self._read[number] = self._plan(number, header)
        return self._read[number]

    def with_time(self, number: int) -> tuple[Plan, str]:
        """Give a plan and when it was written (ISO 8601, UTC).

        Keeps nothing, so several threads may call it.

        Raises:
            CorruptedStateError: There is none, or it is damaged.
        """
        header = self._log.read(number).header
        return self._plan(number, header), str(header.get("created"))

    def id_of(self, number: int) -> str:
        """Give the id of a plan's writing.

        Raises:
            CorruptedStateError: There is none, or it is damaged.
        """
        return self._log.read(number).id

    def meet_packs(self) -> None:
        """Learn which plans are in packs, before many old ones are read."""
        self._log.meet_packs()

    def latest(self) -> Plan | None:
        """Give the newest plan; `None` when nothing was planned yet."""
        number = self._log.latest()
        return None if number < 0 else self.at(number)

    def known(self) -> Plan | None:
        """Give the newest plan that this object has met; it asks only if it has met none."""
        number = self._log.known()
        return None if number < 0 else self.at(number)

    def _plan(self, number: int, header: Mapping[str, Any]) -> Plan:
        try:
            return as_record({**header, "number": number}, Plan)
        except ValueError as failure:
            raise beyond_repair(
                f"{self._log.name(number)} cannot be read: its header does not describe a range."
            ) from failure

    def _check_chain(self, start: Offset, latest: Plan | None) -> None:
        """Refuse to plan from a position that would leave files out or take them twice."""
        end = START if latest is None else latest.end
        if start == end:
            return
        name = self._log.name(0 if latest is None else latest.number)
        raise beyond_repair(
            f"The stream asks for the files from position {start.to_json()}, but the batches "
            f"planned so far end at {end.to_json()} (see {name}). Spark's checkpoint and the plan "
            "log do not belong together."
        )

    def _check_head(self, start: Offset, files: FileLog) -> None:
        """Refuse to wait for files behind a file log that has lost its end."""
        head = files.known_head() if start <= files.known_head() else files.head()
        if start <= head:
            return
        raise beyond_repair(
            f"The stream has ingested the files up to {start.to_json()}, but the file log beside "
            f"{self._log.name(0)} ends at {head.to_json()}. They do not belong together."
        )


@dataclass(slots=True)
class _BatchExtent:
    """How far a batch reaches so far."""

    end: Offset
    files: int = 0
    bytes: int = 0


def _take(files: FileLog, start: Offset, limit: ReadLimit, up_to: Offset) -> _BatchExtent:
    """Take files from a position until the limit or the end is reached."""
    taken = _BatchExtent(start)
    for number in range(start.entry, up_to.entry + (up_to.index > 0)):
        if _is_full(taken, limit):
            break
        first = start.index if number == start.entry else 0
        last = up_to.index if number == up_to.entry else None
        summary = files.summary(number)
        if not summary.is_ingested:
            continue
        if first == 0 and last is None and _fits(summary, taken, limit):
            taken.files += summary.files
            taken.bytes += summary.bytes
            taken.end = Offset(number + 1, 0)
            continue
        for index, file in enumerate(files.read(number).files[first:last], first + 1):
            if _is_full(taken, limit):
                break
            taken.files += 1
            taken.bytes += file.size
            is_last = index == summary.files
            taken.end = Offset(number + 1, 0) if is_last else Offset(number, index)
    return taken


def _fits(summary: EntrySummary, taken: _BatchExtent, limit: ReadLimit) -> bool:
    """Tell whether a whole entry can be taken without reaching the limit in its middle."""
    few = limit.max_files is None or taken.files + summary.files <= limit.max_files
    small = limit.max_bytes is None or taken.bytes + summary.bytes < limit.max_bytes
    return few and small


def _is_full(taken: _BatchExtent, limit: ReadLimit) -> bool:
    """Tell whether the batch has reached a limit; one file is always taken."""
    if taken.files == 0:
        return False
    full = limit.max_files is not None and taken.files >= limit.max_files
    return full or (limit.max_bytes is not None and taken.bytes >= limit.max_bytes)


def _header(start: Offset, taken: _BatchExtent) -> dict[str, Any]:
    return {
        "start": start.to_json(),
        "end": taken.end.to_json(),
        "files": taken.files,
        "bytes": taken.bytes,
    }
