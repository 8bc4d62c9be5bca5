"""Learn what the files of a sample hold, and show how far that is.

Files are read from the newest on. A large sample is not read to its end: after `QUIET_BYTES` that
showed nothing new, each further file is read as far as its first block. So every file is looked at,
and what a first run samples from gigabytes is not read twice. What only the rest of a file has is
found when its rows are read, as any later change is: a field makes the next schema version, and a
value that does not fit its column is rescued.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.base import OpenedFile
from airflow_cloudfiles.engine.formats.registry import open_inference
from airflow_cloudfiles.engine.messages import Progress, size_text
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch, fetched_ahead, first_range
from airflow_cloudfiles.engine.reading.opened import TEXT_BYTES
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.schema.log_entry import Provenance
from airflow_cloudfiles.engine.storage import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


QUIET_BYTES = 128 * 2**20
"""So many bytes of records (half a million of 250 bytes) tell nothing new before the rest of a
sample is skipped. A field in one of 100,000 records is missed in them once in a hundred samples."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a schema is inferred from.

    Attributes:
        store: The source.
        files: The files, newest first.
        options: The options of the source.
        known: The schema there is already.
        provenance: Notes which file had which column first.
        is_read_whole: Whether every file is read to its end, however little it tells.
    """

    store: ObjectStore
    files: Sequence[FileEntry]
    options: CloudFilesOptions
    known: StructType | None = None
    provenance: Provenance = field(default_factory=Provenance)
    is_read_whole: bool = False


class _Learner:
    """Learns from files in order, until enough of them has shown nothing new."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._range = first_range(sample.options, schema_only=True)
        self._quiet = 0
        self.inference = open_inference(sample.options, sample.known)

    @property
    def has_enough(self) -> bool:
        """Whether only the first block of each further file is read."""
        return self._quiet >= QUIET_BYTES and not self._sample.is_read_whole

    def first_range(self, size: int) -> tuple[int, int]:
        """Return the range of a file of some size that is read first (`FirstRange`)."""
        start, length = self._range(size)
        return start, min(length, TEXT_BYTES) if self.has_enough else length

    def learn(self, file: OpenedFile) -> Iterator[None]:
        """Learn from a file; yields nothing."""
        with closing(self.inference.add_file(file)) as parts:
            for size in parts:
                is_new = self._sample.provenance.note(self.inference.result, file.uri)
                self._quiet = 0 if is_new else self._quiet + size
                if self.has_enough:
                    break
        yield from ()


def learn_sample(sample: Sample, counts: FetchCounts) -> StructType:
    """Learn what the files of a sample hold.

    Args:
        sample: The files, and how they are read.
        counts: Added to; a file that is read in part counts as a whole.

    Returns:
        What the format observed.

    Raises:
        ReadError: A file cannot be read. One that is gone is passed over, and a damaged one with
            `ignoreCorruptFiles`.
    """
    learner = _Learner(sample)
    parts = [FileRange(file) for file in sample.files]
    size = sum(file.size for file in sample.files)
    with (
        Progress("Inferring the schema", len(sample.files), size) as progress,
        closing(fetched_ahead(sample.store, parts, learner.first_range)) as coming,
    ):
        for part, first in coming:
            for _ in fetch(
                sample.store,
                part,
                counts,
                learner.learn,
                ignore_missing=True,
                ignore_corrupt=sample.options.ignore_corrupt_files,
                first=first,
                range_of=learner.first_range,
                keep_parts=True,
            ):
                pass
            progress.add(1, part.size)
    if learner.has_enough:
        _log.info(
            "%s in a row showed nothing new: not all of the sample was read", size_text(QUIET_BYTES)
        )
    return learner.inference.result()
