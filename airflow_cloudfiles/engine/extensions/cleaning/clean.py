"""Clean a source of the committed files that are due.

1. Read how far it is cleaned, and find what has become due since (`due`), a part at a time.
2. Leave out what another stream has not committed (`others`), and what must stay.
3. Remove or move the files, several at once (`one_file`).
4. Write how far the source is cleaned now (`record`), with the files that are to be tried again.

Killed after any step, the next cleaning repeats the part; what is gone is passed over. The caller
holds the lock of jobs and has seen to it that the table has the batches.

Batch by batch, in the order of the file log, from where cleaning has come to. A batch is due when
its commit is as long ago as the retention. The first one that is not ends the search: those behind
it were committed later.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.extensions.cleaning.one_file import (
    MAX_TRIED_AGAIN,
    CleaningProgress,
    DueFile,
    FileCleaner,
    OtherStreams,
    VerifyState,
    read_cleaned,
    write_cleaned,
)
from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.intake.file_states import (
    FileGroup,
    FileQuery,
    FileStates,
    StateSnapshot,
)
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state.batch_states import (
    BatchState,
    CleanedFiles,
    CleaningHistory,
    known_from,
    write_archived,
)
from airflow_cloudfiles.engine.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.opening import SourcePath
    from airflow_cloudfiles.engine.options.discovery import CleaningOptions
    from airflow_cloudfiles.engine.state.sink_log import Position


_COMMITTED: Final = FileQuery(status=("committed",))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


PART_FILES: Final = 1000
"""Files of a batch that are given at once, at most."""


@dataclass(frozen=True, slots=True)
class DueFiles:
    """Files of one micro-batch.

    Attributes:
        files: The files; none where only the position moves on.
        batch: Their micro-batch.
        end: The position behind them.
        has_given_up: Whether rows of one of the batch's files may be missing in the table, because
            the file was damaged; `None` where that was not noted.
    """

    files: tuple[DueFile, ...]
    batch: int
    end: Offset
    has_given_up: bool | None = False


class Clock:
    """Since when must a file be committed to be due?

    The clock of this machine and that of the source's store have to agree that it is: one that runs
    ahead must not remove anything early. The store is asked once, when this machine says so. Where
    it cannot be asked, this machine decides alone.

    Args:
        source: The store of the source.
        retention_seconds: How long a file stays.
    """

    def __init__(self, source: ObjectStore, retention_seconds: float) -> None:
        self._source = source
        self._retention = timedelta(seconds=retention_seconds)
        self._store_time: datetime | None = None
        self._asked = 0.0

    def is_due(self, committed: datetime) -> bool:
        """Tell whether what was committed at a time may be cleaned."""
        if committed + self._retention > datetime.now(UTC):
            return False
        if not getattr(self._source, "tells_time", True):
            return True
        if self._store_time is None:
            self._store_time = _EPOCH + timedelta(microseconds=self._source.clock_us())
            self._asked = time.monotonic()
        since = timedelta(seconds=time.monotonic() - self._asked)
        return committed + self._retention <= self._store_time + since


def due_files(
    location: str, cleaned: CleaningProgress, up_to: Position | None, clock: Clock
) -> Iterator[DueFiles]:
    """Give the files that are due, a batch after the other; lazy.

    Args:
        location: The checkpoint location.
        cleaned: How far it is cleaned.
        up_to: Only batches up to this position; `None` for all that are committed.
        clock: Decides which are due.

    Raises:
        CorruptedStateError: The state is damaged, or its parts do not belong together.
    """
    snapshot = StateSnapshot.take(location, shows_archived=False)
    if up_to is not None and up_to.end < snapshot.committed.end:
        snapshot = replace(snapshot, committed=up_to)
    end = snapshot.committed.end
    states = FileStates(snapshot, _COMMITTED, start=cleaned.position, after_batch=cleaned.batch)
    for number in range(cleaned.position.entry, end.entry + (end.index > 0)):
        for group in states.groups(range(number, number + 1)):
            batch = group.batch
            if group.operation is not None and group.operation.number > number:
                continue  # its file is to be ingested again: the record of that decides
            if batch is None or batch.committed is None or not clock.is_due(batch.committed):
                begin = Offset(group.entry.number, group.indexes[0])
                if cleaned.position < begin:  # what lies before is never cleaned: move on
                    yield DueFiles((), _before(batch), begin)
                return
            yield from _parts(group, batch, batch.committed)


def _before(batch: BatchState | None) -> int:
    """Return the number of the batch before one; -1 where it is not known."""
    return -1 if batch is None else batch.plan.number - 1


def _parts(group: FileGroup, batch: BatchState, committed: datetime) -> Iterator[DueFiles]:
    """Cut a group, all of whose files have the same batch."""
    number = group.entry.number
    corrupt = batch.counts.get("corrupt_files")
    given_up = None if corrupt is None else corrupt > 0
    for start in range(0, len(group.files), PART_FILES):
        files = group.files[start : start + PART_FILES]
        last = group.indexes[start + len(files) - 1] + 1
        end = Offset(number + 1, 0) if last == group.entry.files else Offset(number, last)
        # A batch may end in a later entry: then a search begins at the one before it.
        behind = batch.plan.number if end >= batch.plan.end else batch.plan.number - 1
        yield DueFiles(tuple(DueFile(file, committed) for file in files), behind, end, given_up)


RUN_SECONDS: Final = 60.0
"""How long a run cleans that does not wait for the end of it."""
IN_FLIGHT: Final = 16
"""Files that are cleaned at once."""
_WAVE: Final = 4 * IN_FLIGHT
_NAMED: Final = 3
_TRIED_AGAIN: Final = ("waiting", "failed")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What is to be cleaned.

    Attributes:
        location: The checkpoint location.
        place: Where the files land.
        options: What is to be done, when.
        verify: Whether the table of another stream has its batches.
        up_to: Only files of batches up to this position; `None` for all that are committed.
        is_exact: Whether a file that was written anew with the same content is another version.
        keeps_given_up: Whether files of a batch stay unless it is known that none of them was
            given up as damaged.
        is_dry_run: Whether only to tell what would be done.
    """

    location: str
    place: SourcePath
    options: CleaningOptions
    verify: VerifyState
    up_to: Position | None = None
    is_exact: bool = False
    keeps_given_up: bool = False
    is_dry_run: bool = False


@dataclass(slots=True)
class CleaningReport:
    """What a cleaning did.

    Attributes:
        mode: `DELETE` or `MOVE`.
        is_dry_run: Whether `files` and `bytes` are what would be removed or moved.
        files: How many files were removed or moved.
        bytes: Their size.
        others: How many files were not, by the reason.
        examples: Some of them.
        is_complete: Whether everything that is due was looked at.
        warnings: For people.
    """

    mode: str
    is_dry_run: bool = False
    files: int = 0
    bytes: int = 0
    others: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    is_complete: bool = False
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Encode it for the report of a run."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "others": dict(self.others)}


def clean(task: Cleaning, report: CleaningReport) -> None:
    """Clean a source, as far as files are due and time is left.

    Args:
        task: What is to be cleaned.
        report: Gets what was done, also when this raises.

    Raises:
        CloudFilesError: The state of this stream or of another cannot be read, or must not be
            relied on; nothing is cleaned then.
        OSError: The source does not answer.
    """
    try:
        _Cleaner(task, report).run()
    finally:
        _log.info(
            "Cleaned the source (%s%s): %s, %s; others: %s",
            report.mode,
            ", dry run" if report.is_dry_run else "",
            counted(report.files, "file"),
            counted(report.bytes, "byte"),
            dict(report.others) or "none",
        )


class _Cleaner:
    """One cleaning."""

    def __init__(self, task: Cleaning, report: CleaningReport) -> None:
        self._task = task
        self._report = report
        self._state = open_store(task.location)
        self._source = open_store(task.place.root)
        options, to = task.options, None
        if options.mode == "MOVE" and options.move_destination is not None:
            to = open_store(options.move_destination)
        self._destination = "" if to is None else to.uri
        self._files = FileCleaner(self._source, to, is_exact=task.is_exact)
        self._archived: CleaningHistory | None = None
        self._cleaned: dict[FileEntry, str] = {}
        self._left: list[FileEntry] = []
        self._gone: list[FileEntry] = []
        self._began = START
        self._clock = Clock(self._source, options.retention_seconds)
        is_unlimited = options.wait_for_completion or task.is_dry_run
        self._deadline = None if is_unlimited else time.monotonic() + RUN_SECONDS

    def run(self) -> None:
        cleaned = read_cleaned(self._state)
        self._began = cleaned.position
        parts = _joined(due_files(self._task.location, cleaned, self._task.up_to, self._clock))
        is_due = [self._clock.is_due(each.committed) for each in cleaned.again]
        ready = [each for each, due in zip(cleaned.again, is_due, strict=True) if due]
        later = [each for each, due in zip(cleaned.again, is_due, strict=True) if not due]
        part = next(parts, None)
        if not ready and (part is None or not part.files):
            if part is not None:  # what lies before the first file that is not due is never cleaned
                self._write(replace(cleaned, position=part.end, batch=part.batch))
            self._report.is_complete = True
            return
        options, root = self._task.options, self._task.place.root
        with (
            OtherStreams(options.other_checkpoints, root, self._task.verify) as others,
            ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="cloudfiles-clean") as pool,
        ):
            if options.move_destination is not None:
                others.refuse_destination(options.move_destination)
            again = [*later, *self._part(ready, others, pool)]
            if ready:
                cleaned = self._write(replace(cleaned, again=tuple(again)))
            found = parts if part is None else chain([part], parts)
            self._report.is_complete = self._clean_parts(found, cleaned, others, pool)

    def _clean_parts(
        self,
        parts: Iterable[DueFiles],
        cleaned: CleaningProgress,
        others: OtherStreams,
        pool: ThreadPoolExecutor,
    ) -> bool:
        """Clean one part after the other, one at least; false if it ends before the last one."""
        for number, part in enumerate(parts):
            if number and self._deadline is not None and time.monotonic() > self._deadline:
                return False
            again = (*cleaned.again, *self._part(self._to_clean(part), others, pool))
            if len(again) > MAX_TRIED_AGAIN and not self._task.is_dry_run:
                self._too_many()
                return False
            cleaned = self._write(
                replace(cleaned, position=part.end, batch=part.batch, again=again)
            )
        return True

    def _to_clean(self, part: DueFiles) -> Sequence[DueFile]:
        """Give the files of a part, unless they stay because one of them was given up."""
        if not part.has_given_up and not (part.has_given_up is None and self._task.keeps_given_up):
            return part.files
        for each in part.files:
            self._tell("corrupt", each.file)
        return ()

    def _part(
        self, files: Sequence[DueFile], others: OtherStreams, pool: ThreadPoolExecutor
    ) -> list[DueFile]:
        """Clean files; give those that are to be tried again."""
        waits = others.not_done([each.file for each in files]) if files else set()
        ready = [each for each in files if each.file not in waits]
        waiting = [each for each in files if each.file in waits]
        again = self._still_there(waiting, pool)
        for start in range(0, len(ready), _WAVE):
            wave = ready[start : start + _WAVE]
            results = list(pool.map(self._try, [each.file for each in wave]))
            failures = [each for each in results if isinstance(each, OSError)]
            if len(failures) == len(wave) >= IN_FLIGHT:
                raise failures[0]
            for due, result in zip(wave, results, strict=True):
                if isinstance(result, OSError):
                    _log.warning("%s", result)
                    again.append(due)
                self._tell("failed" if isinstance(result, OSError) else result, due.file)
        return again

    def _still_there(self, waiting: Sequence[DueFile], pool: ThreadPoolExecutor) -> list[DueFile]:
        """Give those files that another stream has not committed and somebody could still read."""
        found = list(pool.map(self._look, [each.file for each in waiting]))
        for each, what in zip(waiting, found, strict=True):
            self._tell(what, each.file)
        return [each for each, what in zip(waiting, found, strict=True) if what == "waiting"]

    def _look(self, file: FileEntry) -> str:
        try:
            found = self._files.inspect(file)
        except OSError:
            return "waiting"
        return found if isinstance(found, str) else "waiting"

    def _try(self, file: FileEntry) -> str | OSError:
        """Clean a file, or only look at it; an error is noted and the others go on."""
        try:
            if not self._task.is_dry_run:
                return self._files.clean(file)
            found = self._files.inspect(file)
            return found if isinstance(found, str) else "cleaned"
        except OSError as failure:
            return failure

    def _tell(self, what: str, file: FileEntry) -> None:
        if what == "cleaned":
            self._report.files += 1
            self._report.bytes += file.size
            self._cleaned[file] = self._files.renamed.pop(file.path, "")
            return
        (self._gone if what == "gone" else self._left).append(file)
        self._report.others[what] += 1
        named = self._report.examples.setdefault(what, [])
        if len(named) < _NAMED:
            named.append(self._source.child_uri(file.path))

    def _write(self, cleaned: CleaningProgress) -> CleaningProgress:
        """Write how far the source is cleaned."""
        if not self._task.is_dry_run:
            crash_point("before-clean-record")
            self._archive(cleaned)
            write_cleaned(self._state, cleaned)
            crash_point("after-clean-record")
        return cleaned

    def _archive(self, cleaned: CleaningProgress) -> None:
        """Write what became of the files, for the table of files."""
        if not self._cleaned and not self._left and not self._gone:
            return
        before = self._archived or known_from(self._state, self._began)
        mode = self._task.options.mode
        mark = CleanedFiles(cleaned.position, datetime.now(UTC), mode, self._destination)
        self._archived = before.after(mark, self._cleaned, self._left, self._gone)
        if self._archived != before:
            write_archived(self._state, self._archived)
        self._cleaned, self._left, self._gone = {}, [], []

    def _too_many(self) -> None:
        self._report.warnings.append(
            f"More than {MAX_TRIED_AGAIN} files could not be cleaned, so cleaning has stopped "
            "before newer ones: "
            + ", ".join(
                f"{self._report.others[what]} {what}"
                for what in _TRIED_AGAIN
                if self._report.others[what]
            )
            + ". See docs/how-to/clean-the-source.md."
        )


def _joined(parts: Iterable[DueFiles]) -> Iterator[DueFiles]:
    """Join parts of small batches, as long as what holds for their files is the same."""
    before: DueFiles | None = None
    for part in parts:
        if before is None:
            before = part
        elif (
            part.has_given_up == before.has_given_up
            and len(before.files) + len(part.files) <= PART_FILES
        ):
            before = replace(part, files=before.files + part.files)
        else:
            yield before
            before = part
    if before is not None:
        yield before
