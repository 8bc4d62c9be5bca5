"""With which schema is a stream defined, and where does a new one start?

Without tracking, with the newest schema of the table. With it, with the newest entry of the log; a
new stream begins with the schema of the version it starts at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.read.time_travel import CommitTimes, milliseconds
from airflow_cloudfiles.engine.delta.stream.commits import TableCommits
from airflow_cloudfiles.engine.delta.stream.read_state import ReadState
from airflow_cloudfiles.engine.delta.stream.tracking import TrackedSchema, TrackingLog
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions

LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """How a stream was defined; it goes from the process that defines to the one that plans.

    Attributes:
        state: The columns, configuration and protocol that it reads with.
        head: The newest version at that time.
        tracked: The entry of the log that it reads with; `None` where there is none yet.
        merged: The entry that is to be written in its place, because changes have followed it.
    """

    state: ReadState
    head: int
    tracked: TrackedSchema | None = None
    merged: TrackedSchema | None = None

    @property
    def table_id(self) -> str:
        """Which table is read."""
        return self.state.metadata.id


def define(target: str, options: TableStreamOptions) -> StreamDefinition:
    """Resolve with which schema a stream reads.

    Nothing is written.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It needs a feature that is not supported.
        CorruptedStateError: The schema tracking log cannot be read.
        StateConflictError: The schema tracking log is of another table.
    """
    log = TableLog(DeltaLocation.to_read(target))
    head = ReadState.of(log.snapshot())
    if options.schema_tracking_location is None:
        return StreamDefinition(head, head.version)
    tracked = tracking_log(options, head).current()
    if tracked is None:
        return StreamDefinition(_at_start(log, options, head), head.version)
    merged = _merged(log, tracked, head)
    state = tracked.state if merged is None else merged.state
    return StreamDefinition(state, head.version, tracked, merged)


def tracking_log(options: TableStreamOptions, head: ReadState) -> TrackingLog:
    """The schema tracking log of a stream."""
    location = str(options.schema_tracking_location)
    return TrackingLog(location, head, options.streaming_source_tracking_id)


def folded(commits: TableCommits, state: ReadState, last: int) -> ReadState:
    """A state with the changes that follow it before any data does.

    Args:
        commits: Of the table; they were listed from the version of the state on.
        state: Of the version of a change. That version has no data of its own.
        last: The newest version.
    """
    found = ahead = state
    for commit in commits.between(state.version + 1, last):
        if commit.has_files:
            break
        ahead = ahead.after(commit.version, commit.metadata, commit.protocol)
        if commit.metadata is not None or commit.protocol is not None:
            found = ahead
    return found


def _merged(log: TableLog, tracked: TrackedSchema, head: ReadState) -> TrackedSchema | None:
    """The entry that takes the place of the newest one, if changes have followed that."""
    version = tracked.state.version
    if tracked.previous_number < 0 or version >= head.version:
        return None
    commits = TableCommits(log, head.metadata.id, fail_on_data_loss=True)
    commits.poll(version)
    if not commits.has(version) or commits.read(version).adds:
        return None
    state = folded(commits, tracked.state, head.version)
    if not state.differs_from(tracked.state):
        return None
    return replace(
        tracked, number=tracked.number + 1, state=state, previous=tracked.previous_number
    )


def _at_start(log: TableLog, options: TableStreamOptions, head: ReadState) -> ReadState:
    """The state at the version that a new stream starts at."""
    start = starting_version(log, options)
    if not isinstance(start, int) or start >= head.version:
        return head
    return ReadState.of(log.snapshot(start))


def starting_version(log: TableLog, options: TableStreamOptions) -> int | str | None:
    """The version whose changes a new stream starts with.

    Returns:
        Its number; `latest`; or `None` where it starts with the rows of the table.

    Raises:
        OptionError: There is no such version.
    """
    if options.starting_timestamp is not None:
        return _version_since(log, options.starting_timestamp)
    given = options.starting_version
    if given is None or given == LATEST:
        return given
    version, listing = int(given), log.listing(whole=True)
    oldest = min(listing.commits, default=0)
    if version > listing.latest or (version < oldest and options.fail_on_data_loss):
        raise OptionError(
            f"startingVersion={version}: the log of the Delta table {log.target} has the versions "
            f"{oldest} to {listing.latest}. Choose one of them, or latest."
        )
    return version


def _version_since(log: TableLog, text: str) -> int:
    """The first version that was committed at or after a time."""
    moment, listing = milliseconds("startingTimestamp", text), log.listing(whole=True)
    times = CommitTimes(log, listing)
    versions = sorted(version for version in listing.commits if version >= times.first)
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        if times.of(versions[middle]) >= moment:
            high = middle
        else:
            low = middle + 1
    if low == len(versions):
        raise OptionError(
            f"startingTimestamp={text} is after the last commit of the Delta table {log.target}, "
            f"version {listing.latest}. Set startingVersion to latest to begin with what comes."
        )
    return versions[low]
