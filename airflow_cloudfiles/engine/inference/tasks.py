"""Read the files of a sample in several processes, and show how far they are.

1. The process that infers begins with the newest file and goes on in order: most samples are done
   before a worker would have started.
2. When what is left takes longer than it takes helpers to start and to share it, it is cut into
   tasks: small files together, large files of lines in parts.
3. Each task gives back its evidence, which is absorbed in the order of the sample. So the schema,
   the order of its columns too, is the one that a single process infers.

Formats whose inference gives no evidence are read by one process.

A line in the log every few seconds, for a log that is read later; on a terminal one line
that is rewritten. What takes no time is not reported.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, cast, runtime_checkable

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.base import Inference, OpenedFile
from airflow_cloudfiles.engine.formats.registry import RANDOM_ACCESS, kind_of, open_inference
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch, fetched_ahead, first_range
from airflow_cloudfiles.engine.reading.splits import OPEN_COST_BYTES, FileRange, pack
from airflow_cloudfiles.engine.schema.log_entry import Provenance
from airflow_cloudfiles.engine.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.json.infer import JsonInference


LOG_SECONDS = 5.0
TERMINAL_SECONDS = 0.5


class SampleProgress:
    """The progress of reading a sample; a context in which it is reported.

    Args:
        sample: The files.
    """

    def __init__(self, sample: Sequence[FileEntry]) -> None:
        self._all_files = len(sample)
        self._all_bytes = sum(file.size for file in sample)
        self._files = self._bytes = 0
        self._lock = threading.Lock()
        self._began = self._logged = self._shown = time.monotonic()
        self._terminal = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._terminal is not None and self._width:
            self._terminal.write("\r" + " " * self._width + "\r")
            self._terminal.flush()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def add(self, files: int, size: int) -> None:
        """Count what was read, and report it when it is time to; from any thread."""
        with self._lock:
            self._files += files
            self._bytes += size
            now = time.monotonic()
            if now - self._logged >= LOG_SECONDS:
                self._logged = now
                _log.info("%s", str(self))  # as it is now, whenever it is written
            if self._terminal is not None and now - self._shown >= TERMINAL_SECONDS:
                self._shown = now
                line = str(self)
                self._terminal.write("\r" + line.ljust(self._width))
                self._terminal.flush()
                self._width = len(line)

    def __str__(self) -> str:
        """How far it is, for people."""
        speed = self._bytes / max(self.seconds, 1e-9)
        left = f", about {_duration((self._all_bytes - self._bytes) / speed)} left" if speed else ""
        return (
            f"Inferring the schema: {self._files:,} of {counted(self._all_files, 'file')}, "
            f"{_size(self._bytes)} of {_size(self._all_bytes)}, {_size(speed)}/s{left}"
        )


def _size(size: float) -> str:
    if size < 10**6:
        return f"{size / 10**3:.0f} kB"
    return f"{size / 10**6:.0f} MB" if size < 10**9 else f"{size / 10**9:.1f} GB"


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"  # noqa: PLR2004


TASKS_A_WORKER = 4
"""Tasks are this many times the workers, so that none waits long for the slowest at the end."""
TRIAL_SECONDS = 1.0
"""How long one process reads alone before the speed is known well enough to decide."""
_log = logging.getLogger(__name__)


@runtime_checkable
class TravellingInference(Inference, Protocol):
    """An inference that can learn what another process has learned."""

    def evidence(self) -> bytes:
        """All that it knows, for `absorb`."""

    def absorb(self, evidence: bytes) -> None:
        """Learn what another process learned from the files after those of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTask:
    """A part of a sample, for a worker with the same version of this package.

    Attributes:
        source_uri: Root that the paths are relative to.
        options: The options of the source.
        known: The schema there is already.
        ranges: What to read, in the order of the sample.
    """

    source_uri: str
    options: CloudFilesOptions
    known: StructType | None
    ranges: tuple[FileRange, ...]


@dataclass(frozen=True, slots=True)
class Learned:
    """What a worker gives back for a task: evidence, or the error that ends the inference."""

    evidence: bytes
    counts: FetchCounts
    error: CloudFilesError | None = None


class Workers(Protocol):
    """Workers that can be asked to help."""

    @property
    def count(self) -> int:
        """How many tasks they work on at once."""

    @property
    def start_seconds(self) -> float:
        """How long it takes until they work."""

    def learn(
        self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
    ) -> Iterator[Learned]:
        """Carry out tasks; gives results in the order of the tasks.

        Args:
            tasks: What to do.
            on_done: Called with the files and bytes that were read, in any order and thread.

        Raises:
            RunFailedError: A worker has died.
        """


@dataclass(frozen=True, slots=True)
class Sample:
    """What a schema is inferred from.

    Attributes:
        store: The source.
        files: The files, newest first.
        options: The options of the source.
        known: The schema there is already.
        provenance: Notes which file had which column first, of those that are read without
            workers.
    """

    store: ObjectStore
    files: Sequence[FileEntry]
    options: CloudFilesOptions
    known: StructType | None = None
    provenance: Provenance | None = None


def learn_sample(sample: Sample, counts: FetchCounts, workers: Workers | None = None) -> StructType:
    """Learn what the files of a sample hold.

    Args:
        sample: The files, and how they are read.
        counts: Added to.
        workers: Workers that may share a large sample; `None` for none.

    Returns:
        What the format observed: the same with and without help.

    Raises:
        ReadError: A file cannot be read. One that is gone is passed over, and a damaged one with
            `ignoreCorruptFiles`.
        RunFailedError: A worker has died.
    """
    inference = open_inference(sample.options, sample.known)
    # `samplingRatio` counts the records of all files.
    ratio = getattr(sample.options.format_options, "sampling_ratio", 1.0)
    if not isinstance(inference, TravellingInference) or ratio != 1.0:
        workers = None
    groups = _cut(sample, workers)
    with SampleProgress(sample.files) as progress:
        done = _begin(sample, inference, groups, counts=counts, progress=progress, workers=workers)
        rest = _groups_after(groups, done)
        if rest and workers is not None:
            uri, options, known = sample.store.uri, sample.options, sample.known
            tasks = [
                SampleTask(source_uri=uri, options=options, known=known, ranges=group)
                for group in rest
            ]
            for learned in workers.learn(tasks, progress.add):
                if learned.error is not None:
                    raise learned.error
                cast("TravellingInference", inference).absorb(learned.evidence)
                counts.add(learned.counts)
    return inference.result()


def _begin(  # noqa: PLR0913 - private
    sample: Sample,
    inference: Inference,
    groups: Sequence[tuple[FileRange, ...]],
    *,
    counts: FetchCounts,
    progress: SampleProgress,
    workers: Workers | None,
) -> int:
    """Read parts in order until workers are worth it; returns how many were read."""
    parts = [part for group in groups for part in group]
    costs = [_cost(part, sample.options) for part in parts]
    spent, left = 0, sum(costs)
    with closing(_read_in_order(sample.store, inference, parts, sample.options, counts)) as read:
        for done, part in enumerate(read, start=1):
            progress.add(int(part.start == 0), part.size)
            if sample.provenance is not None:
                sample.provenance.note(inference.result, sample.store.child_uri(part.file.path))
            spent, left = spent + costs[done - 1], left - costs[done - 1]
            alone = progress.seconds * left / spent
            if workers is not None and progress.seconds >= TRIAL_SECONDS and _pays(workers, alone):
                _log.info("One process would take %.0f s more: distributing the sample", alone)
                return done
    return len(parts)


def _pays(workers: Workers, alone_seconds: float) -> bool:
    """Whether helpers are done in less than half of the time that it takes one alone.

    Their start is counted twice: what they cost others on the machine is not measured here.
    """
    return alone_seconds * (1 - 1 / workers.count) > 2 * workers.start_seconds


def _cut(sample: Sample, workers: Workers | None) -> Sequence[tuple[FileRange, ...]]:
    """Cut a sample into groups of about equal cost; one group without workers."""
    if workers is None:
        return [tuple(FileRange(file) for file in sample.files)]
    can_cut = kind_of(sample.options) == "json" and sample.options.format_options.can_split()
    return pack(sample.files, parallelism=workers.count * TASKS_A_WORKER, can_cut=can_cut)


def _groups_after(
    groups: Sequence[tuple[FileRange, ...]], done: int
) -> list[tuple[FileRange, ...]]:
    """The groups without the first `done` parts."""
    left = []
    for group in groups:
        rest = group[done:]
        done = max(0, done - len(group))
        if rest:
            left.append(rest)
    return left


def _cost(part: FileRange, options: CloudFilesOptions) -> int:
    """What reading a part costs, in bytes; of some formats only the last bytes are read."""
    return OPEN_COST_BYTES + (0 if options.format in RANDOM_ACCESS else part.size)


def learn_task(task: SampleTask) -> Learned:
    """Carry out a task in a worker; an error of ours is a result, for the driver to raise."""
    counts = FetchCounts()
    inference = cast("TravellingInference", open_inference(task.options, task.known))
    store = open_store(task.source_uri)
    try:
        for _ in _read_in_order(store, inference, task.ranges, task.options, counts):
            pass
    except CloudFilesError as error:
        return Learned(b"", counts, error)
    return Learned(inference.evidence(), counts)


def _read_in_order(
    store: ObjectStore,
    inference: Inference,
    parts: Sequence[FileRange],
    options: CloudFilesOptions,
    counts: FetchCounts,
) -> Generator[FileRange]:
    """Read files or parts of files in order; gives each when it was read."""

    def learn(part: FileRange, file: OpenedFile) -> Iterator[None]:
        if part.is_whole:
            inference.add_file(file)
        else:
            cast("JsonInference", inference).add_part(file, part.start, part.end)
        yield from ()

    range_of = first_range(options, schema_only=True)
    with closing(fetched_ahead(store, parts, range_of)) as coming:
        for part, first in coming:
            for _ in fetch(
                store,
                part,
                counts,
                partial(learn, part),
                ignore_missing=True,
                ignore_corrupt=options.ignore_corrupt_files,
                first=first,
                range_of=range_of,
                keep_parts=True,
            ):
                pass
            yield part
