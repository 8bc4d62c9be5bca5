"""Open a state: where the files of its stream land, and what a run reads in how many round trips.

1. While the driver takes its lock: whose state it is, which numbers each log has, and the hints.
2. Under the lock: which batches are committed, and the newest entry of each log. Which entry that
   is, a listing before the lock has shown; of the records of batches it is only a guess, and the
   listing under the lock decides.

The micro-batches of a run are planned with all of that, but for what is committed, which is read
when the run has the run lock.

A state belongs to one source: a folder, or a pattern of folders. A part of that folder may be asked
for on the same state, for instance one day of a backfill; paths stay relative to the whole, so that
a file is the same file whichever part it was asked for in.

Places that files of the source cannot be moved to are refused: where they would be ingested again,
or what is something else. All of it is known before a run begins, but for the sources of other
streams, whose states are read later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.globs import SourcePattern, escape_pattern, split_pattern
from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.ledger.opening import HEAD
from airflow_cloudfiles.engine.intake.ledger.snapshots import PREFIX as SNAPSHOTS
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state import file_log, metadata, plan_log, sink_log
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS
from airflow_cloudfiles.engine.storage import ObjectStore, StoreOpener, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState, PrefetchedStore
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, refuse_source_only
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_cloudfiles.engine.state.locks.run_lock import RunLock


_DECISION: Final = f"{sink_log.DECISIONS}/{0:020}"
_NUMBERED: Final = (f"{plan_log.PREFIX}/", f"{file_log.PREFIX}/", "_schemas/")
_LOGS: Final = (*_NUMBERED, f"{SNAPSHOTS}/")
_RECORDS: Final = f"{sink_log.PREFIX}/"
_COMMITTED: Final = (_RECORDS, f"{COMMITS}/")


@contextlib.contextmanager
def opened_under(
    lock: RunLock, checkpoint_location: str, *, timeout_seconds: float
) -> Iterator[OpenedState]:
    """Take a lock, and fetch what opening a state reads, in two round trips, one with the lock.

    Args:
        lock: Of the state. At the end of the block it is freed (`end_releases` waits for that).
        checkpoint_location: The state.
        timeout_seconds: How long to wait for the lock.

    Raises:
        StateLockedError: Another run has the lock.
        StateUnreachableError: The store cannot be reached.
    """
    opened = OpenedState.at(checkpoint_location)
    ahead = opened.ahead
    if ahead is None:
        lock.acquire(timeout_seconds)
        with lock:
            yield opened
        return
    with ahead.meanwhile(lambda: _before_the_lock(ahead)):
        is_at_once = lock.acquire(timeout_seconds)
    try:
        if not is_at_once:  # whoever had the lock has gone on since
            ahead.forget()
            _before_the_lock(ahead)
        _under_the_lock(ahead)
        with opened.until_written():
            yield opened
    finally:
        lock.release_aside()


@contextlib.contextmanager
def opened_at_once(
    checkpoint_location: str, known: OpenedState | None = None
) -> Iterator[OpenedState]:
    """Fetch what opening a state reads, in two round trips; for a caller that has no lock yet.

    What is committed is not fetched: that is to be read when the lock is held.

    Args:
        checkpoint_location: The state.
        known: What this run has fetched before, under its lock; `None` for nothing.
    """
    opened = OpenedState.at(checkpoint_location)
    if opened.ahead is not None:
        if known is None or known.ahead is None:
            opened.ahead.fetch([metadata.KEY], _LOGS, [HEAD])
            opened.ahead.fetch(opened.ahead.newest(_NUMBERED), once=[LISTING])
        else:
            opened.ahead.seed(known.ahead, _LOGS)
    with opened.until_written():
        yield opened


def _before_the_lock(ahead: PrefetchedStore) -> None:
    ahead.fetch([metadata.KEY], (*_LOGS, _RECORDS), [HEAD], versions=[LISTING])


def _under_the_lock(ahead: PrefetchedStore) -> None:
    record = sink_log.newest_key(ahead.names(_RECORDS))
    newest = [*ahead.newest(_NUMBERED), *([] if record is None else [record])]
    ahead.fetch([_DECISION, *newest], _COMMITTED, [LISTING])
    ahead.cut_out(f"{_RECORDS}0/", _RECORDS)


@dataclass(frozen=True, slots=True)
class SourcePath:
    """Where the files of a stream land.

    Attributes:
        root: URI of the folder that paths are relative to.
        pattern: Which files below it are meant; `None` for all.
        name: What a state knows the source by.
    """

    root: str
    pattern: str | None
    name: str


def locate(source: str, state: ObjectStore | None = None) -> SourcePath:
    """Take a source path apart, as the state it is to be used with sees it.

    Args:
        source: Path or URI, perhaps with a pattern. It may be a folder or a pattern below the
            folder that the state belongs to.
        state: The checkpoint location; `None` when it is not known yet.
    """
    root, pattern = split_pattern(source)
    root = normalize_uri(root)
    metadata = None if state is None else read_metadata(state)
    if metadata is None or split_pattern(metadata.source)[1] is not None:
        return SourcePath(root, pattern, name_of(root, pattern))
    whole = metadata.source
    if root == whole:
        return SourcePath(whole, pattern, whole)
    if root.startswith(whole.rstrip("/") + "/"):
        below = escape_pattern(root[len(whole.rstrip("/")) + 1 :])
        return SourcePath(whole, f"{below}/{pattern or ''}", whole)
    return SourcePath(root, pattern, name_of(root, pattern))


def root_of(name: str) -> str:
    """Give the folder that paths are relative to, of what a state knows its source by."""
    try:
        return split_pattern(name)[0]
    except OptionError:  # the name of a folder, which is no pattern
        return name


def name_of(root: str, pattern: str | None) -> str:
    """Give what a state knows a source by."""
    return root if pattern is None else f"{root.rstrip('/')}/{pattern}"


def own_locations(options: CloudFilesOptions, *others: str | None) -> Sequence[str]:
    """Locations that may lie below the source and are not input: state, schemas, target ...

    Raises:
        UnsupportedOptionError: State, schemas or bad records are where only a source can be.
    """
    for location in named_locations(options):
        refuse_source_only(location or "")
    named = (*named_locations(options), options.cleaning.move_destination)
    own = (*others, *named, *options.exclude)
    return tuple(dict.fromkeys(normalize_uri(location) for location in own if location))


def named_locations(options: CloudFilesOptions) -> tuple[str | None, ...]:
    """Name the places where the options of a stream have it write something besides rows."""
    return options.checkpoint_location, options.schema_location, options.bad_records_path


def place_of(
    options: CloudFilesOptions,
    checkpoint: str | None,
    open_state: StoreOpener = open_store,
) -> SourcePath:
    """Find where the files land, as the state sees it."""
    return locate(options.path, open_state(checkpoint) if checkpoint else None)


_MOVED_TO: Final = "cloudFiles.cleanSource.moveDestination"


def check_cleaning(
    options: CloudFilesOptions, *others: str | None, open_state: StoreOpener = open_store
) -> None:
    """Find out whether files of the source can be moved where they are to be.

    Raises:
        OptionError: They cannot.
    """
    destination = options.cleaning.move_destination
    if destination is not None:
        check_destination(
            destination,
            place_of(options, options.checkpoint_location, open_state),
            [each for each in (*others, *named_locations(options), *options.exclude) if each],
            strict=options.discovery.use_strict_globber,
        )


def check_destination(
    destination: str, place: SourcePath, others: Iterable[str], *, strict: bool = False
) -> None:
    """Refuse a folder that files cannot be moved to.

    Args:
        destination: The folder.
        place: Where the files land.
        others: Locations that are not for files of the source: state, schemas, target, bad records.
        strict: Whether the pattern of the source is read as Spark reads it.

    Raises:
        OptionError: It is in another bucket; in the source, or above it; or in one of the others.
    """
    to = normalize_uri(destination)
    if _bucket(to) != _bucket(place.root):
        raise OptionError(
            f"{_MOVED_TO}={destination} is not where the source {printable_path(place.root)} is. "
            "Files are moved within one bucket, container, disk or server: give a folder there."
        )
    below = open_store(place.root).key_of(to)
    is_above = open_store(to).key_of(place.root) is not None
    if is_above or (below is not None and _may_be_input(below, place.pattern, strict=strict)):
        what = "is or contains the source" if is_above else "is below the source"
        raise OptionError(  # B121
            f"{_MOVED_TO}={destination} {what} {printable_path(place.name)}: files that were moved "
            "would be ingested again. Give a folder outside of it."
        )
    for other in others:
        folder = target_of(other).folder
        if folder is not None and _overlap(to, folder):
            raise OptionError(
                f"{_MOVED_TO}={destination} overlaps {printable_path(other)}, which this stream "
                "uses itself: the state, the schemas, the target or the bad records. Give a folder "
                "of its own."
            )


def _may_be_input(below: str, pattern: str | None, *, strict: bool) -> bool:
    """Tell whether files in a folder below the root of the source may be ingested."""
    if not below or pattern is None:
        return True
    return SourcePattern(pattern, strict=strict).may_hold(below)


def _overlap(one: str, other: str) -> bool:
    return open_store(one).key_of(other) is not None or open_store(other).key_of(one) is not None


def _bucket(uri: str) -> str:
    """Name the place that files can be moved within."""
    scheme = uri.partition("://")[0]
    return scheme if scheme == "file" else f"{scheme}://{bucket_and_path(uri)[0]}"
