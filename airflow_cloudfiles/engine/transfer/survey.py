"""Which files of a stream are at another place, under the same relative paths?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.intake.opening import SourcePath
    from airflow_cloudfiles.engine.ledger.base import Ledger
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore

_EXAMPLES = 5
_BATCH_FILES = 10_000


@dataclass(slots=True)
class Survey:
    """What was found at the new place.

    Attributes:
        present: Recorded files that are there.
        missing: Recorded files that are not.
        new: Files that are there and not recorded; `None` where only a sample was looked at.
        other_versions: Of those present: they have another size, time or etag than was recorded.
        examples: The first of the missing ones.
    """

    present: int = 0
    missing: int = 0
    new: int | None = 0
    other_versions: int = 0
    examples: list[str] = field(default_factory=list)


def survey(ledger: Ledger, store: ObjectStore, place: SourcePath, own: Iterable[str]) -> Survey:
    """Compare all that is recorded with a listing of the new place.

    Args:
        ledger: An index of the file log, caught up.
        store: The new place.
        place: Which of its files are meant.
        own: Locations that are not input.

    Raises:
        SourceNotFoundError: The new place does not exist.
        ListingError: It cannot be listed.
    """
    found = Survey(new=0)
    present: set[str] = set()
    for batch in batches(listed(store, place, own)):
        unknown = {entry.path for entry in ledger.unseen(batch)}
        changed = {entry.path for entry in ledger.unseen(batch, versions=True)}
        found.new = (found.new or 0) + len(unknown)
        found.other_versions += len(changed - unknown)
        present.update(entry.path for entry in batch if entry.path not in unknown)
    found.present = len(present)
    for path in _paths(ledger):
        if path not in present:
            found.missing += 1
            if len(found.examples) < _EXAMPLES:
                found.examples.append(printable_path(path))
    return found


def sample(files: FileLog, store: ObjectStore, count: int) -> Survey:
    """Look for some of the recorded files at the new place, each with one request.

    Args:
        files: The file log.
        store: The new place.
        count: How many.

    Raises:
        ListingError: The new place does not answer.
    """
    found = Survey(new=None)
    for entry in _picked(files, count):
        try:
            there = store.head(entry.path)
        except OSError as failure:
            name = printable_path(store.child_uri(entry.path))
            raise ListingError(f"{name} could not be inspected: {failure} Run again.") from failure
        if there is None:
            found.missing += 1
            found.examples[_EXAMPLES - 1 :] = [printable_path(entry.path)]
            continue
        found.present += 1
        recorded = (entry.size, entry.modification_time_us, entry.etag)
        if (there.size, there.modification_time_us, there.etag) != recorded:
            found.other_versions += 1
    return found


def listed(store: ObjectStore, place: SourcePath, own: Iterable[str]) -> Iterator[FileEntry]:
    """List what is at the new place."""
    keys = [store.key_of(location) for location in own]
    wanted = FileFilter(store.uri, place.pattern, DiscoveryOptions(), keys)
    return DirectoryListing(store, wanted).discover()


def batches(files: Iterator[FileEntry]) -> Iterator[list[FileEntry]]:
    """Cut a listing into parts."""
    while batch := list(islice(files, _BATCH_FILES)):
        yield batch


def _paths(ledger: Ledger) -> Iterator[str]:
    """The recorded paths, each once, in order."""
    path = ledger.first_after("")
    while path is not None:
        yield path
        path = ledger.first_after(path)


def _picked(files: FileLog, count: int) -> Iterator[FileEntry]:
    """Pick files by chance, each as likely as any other, with few entries in memory at once."""
    sizes = [files.summary(number).files for number in range(files.latest() + 1)]
    total = sum(sizes)
    picked = sorted(random.sample(range(total), min(count, total)))
    start = 0
    for number, size in enumerate(sizes):
        here = [index - start for index in picked if start <= index < start + size]
        if here:
            entries = files.read(number).files
            yield from (entries[index] for index in here)
        start += size
