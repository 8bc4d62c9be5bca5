"""Track the schemas that a stream has met, and choose the one it goes on with.

The schema tracking log, in Delta's own form: `<location>/_schema_log_<table id>/<n>`, a line `v1`
and one of JSON. Entry `n` is the schema that the stream reads with from a version of the table on.
An entry is created with put-if-absent and never changed.

A change that follows another before any data does is merged with it: the new entry then names, in
`previousMetadataSeqNum`, the entry that it goes back to, and the one between counts no more.

With which schema is a stream defined, and where does a new one start?

Without tracking, with the newest schema of the table. With it, with the newest entry of the log; a
new stream begins with the schema of the version it starts at.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    OptionError,
    StateConflictError,
)
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.uri import local_path
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.tables.delta.read.snapshot import CommitTimes, TableLog, milliseconds
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.stream.commits import TableCommits

_VERSION: Final = "v1"


class _PersistedEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The JSON of an entry (`PersistedMetadata`), its fields in Delta's order."""

    table_id: str
    delta_commit_version: int
    data_schema_json: str
    partition_schema_json: str
    source_metadata_path: str
    table_configurations: dict[str, str | None] | None = None
    protocol_json: str | None = None
    previous_metadata_seq_num: int | None = None


class _Protocol(msgspec.Struct, frozen=True, omit_defaults=True):
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class TrackedSchema:
    """An entry of the log.

    Attributes:
        number: Its number.
        state: What the stream reads with.
        source_path: The stream that reads: its place in Spark's checkpoint.
        previous: The entry that it goes back to, if that is not the one before.
    """

    number: int
    state: TableState
    source_path: str
    previous: int | None = None

    @property
    def previous_number(self) -> int:
        """The entry that it goes back to; -1 for none."""
        return self.number - 1 if self.previous is None else self.previous

    def encoded(self) -> bytes:
        """Encode the entry."""
        metadata = self.state.metadata
        key = CASE_INSENSITIVE.key
        fields = {key(each["name"]): each for each in json.loads(metadata.schema_json)["fields"]}
        partitions = {
            "type": "struct",
            "fields": [fields[key(name)] for name in metadata.partition_columns],
        }
        persisted = _PersistedEntry(
            table_id=metadata.id,
            delta_commit_version=self.state.version,
            data_schema_json=metadata.schema_json,
            partition_schema_json=json.dumps(partitions, separators=(",", ":"), ensure_ascii=False),
            source_metadata_path=self.source_path,
            table_configurations=dict(metadata.configuration),
            protocol_json=msgspec.json.encode(_Protocol(self.state.protocol)).decode(),
            previous_metadata_seq_num=self.previous,
        )
        return f"{_VERSION}\n".encode() + msgspec.json.encode(persisted)


class TrackingLog:
    """The schema tracking log of one stream from one table.

    Args:
        location: `schemaTrackingLocation`.
        head: The newest state of the table: it gives the id, and what old entries do not say.
        tracking_id: `streamingSourceTrackingId`.
    """

    def __init__(self, location: str, head: TableState, tracking_id: str | None = None) -> None:
        self._store = open_store(normalize_uri(location))
        self._head = head
        suffix = f"_{tracking_id}" if tracking_id else ""
        self._folder = f"_schema_log_{head.metadata.id}{suffix}"

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        return self._store.child_uri(self._folder)

    def current(self) -> TrackedSchema | None:
        """Read the newest entry; `None` where there is none.

        Raises:
            CorruptedStateError: It cannot be read.
            StateConflictError: It is of another table.
        """
        prefix = f"{self._folder}/"
        with reaching_state(self._store):
            names = [each.path.removeprefix(prefix) for each in self._store.list(prefix)]
        numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
        return self.read(max(numbers)) if numbers else None

    def read(self, number: int) -> TrackedSchema:
        """Read an entry.

        Raises:
            CorruptedStateError: It is gone, or cannot be read.
            IncompatibleStateError: A newer version of Delta wrote it.
            StateConflictError: It is of another table.
        """
        try:
            with reaching_state(self._store):
                content = self._store.get(self._key(number))
        except ObjectNotFoundError as error:
            raise self._torn(number, "it is gone") from error
        first, _, rest = content.decode("utf-8", "replace").partition("\n")
        if first != _VERSION:
            if first.startswith("v") and first[1:].isdigit():
                raise IncompatibleStateError(
                    f"{self._name(number)} has the version {first}, and this version of the "
                    f"package understands {_VERSION}. Update the package."
                )
            raise self._torn(number, f"it does not begin with {_VERSION}")
        try:
            persisted = msgspec.json.decode(rest, type=_PersistedEntry)
        except msgspec.MsgspecError as error:
            raise self._torn(number, str(error)) from error
        return self._entry(number, persisted)

    def append(self, entry: TrackedSchema) -> TrackedSchema:
        """Write an entry; writing the same again changes nothing.

        Raises:
            StateConflictError: Another stream has written one with this number.
        """
        crash_point("before-tracking-append")
        content, key = entry.encoded(), self._key(entry.number)
        with reaching_state(self._store):
            # The answer to a put may be lost, so what is there is read back after a no.
            created = self._store.put_if_absent(key, content)
            found = content if created else self._store.get(key)
        if found != content:
            raise StateConflictError(
                "[DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT] Another stream has written "
                f"{self._name(entry.number)} meanwhile. Stop it, or give each stream from this "
                "table a schemaTrackingLocation or a streamingSourceTrackingId of its own."
            )
        crash_point("after-tracking-append")
        return entry

    def _entry(self, number: int, found: _PersistedEntry) -> TrackedSchema:
        head = self._head
        if found.table_id != head.metadata.id:
            raise StateConflictError(
                "[DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID] Detected incompatible "
                "Delta table id when trying to read Delta stream. Persisted table id: "
                f"{found.table_id}, table id: {head.metadata.id}. The schema log "
                f"{self._name(number)} might have been reused: choose a new schemaTrackingLocation."
            )
        try:
            StructType.fromJson(json.loads(found.data_schema_json))
            partitions = StructType.fromJson(json.loads(found.partition_schema_json)).names
            protocol = head.protocol
            if found.protocol_json is not None:
                protocol = msgspec.json.decode(found.protocol_json, type=_Protocol).protocol
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptedStateError(
                "[DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED] Failed to parse the schema from "
                f"the Delta streaming source schema log: {self._name(number)}: {error}. Restore "
                "the checkpoint location from a backup, or start with a new one."
            ) from error
        settings = found.table_configurations
        metadata = Metadata(
            id=found.table_id,
            schema_string=found.data_schema_json,
            partition_columns=partitions,
            configuration=head.metadata.configuration if settings is None else settings,
        )
        state = TableState(head.target, found.delta_commit_version, metadata, protocol)
        return TrackedSchema(
            number, state, found.source_metadata_path, found.previous_metadata_seq_num
        )

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number}"

    def _name(self, number: int) -> str:
        return self._store.child_uri(self._key(number))

    def _torn(self, number: int, why: str) -> CorruptedStateError:
        return CorruptedStateError(
            "[DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED] Incomplete log file in the Delta "
            f"streaming source schema log: {self._name(number)}: {why}. Restore the checkpoint "
            "location from a backup, or start with a new one."
        )


def source_path(checkpoint: str, ordinal: int) -> str:
    """Build Spark's path of a source in a checkpoint, as Delta writes it down.

    Args:
        checkpoint: The checkpoint location.
        ordinal: The number of the source in its query, from 0.
    """
    uri = normalize_uri(checkpoint)
    hadoop = f"file:{local_path(uri)}" if uri.startswith("file:") else uri
    return f"{hadoop}/sources/{ordinal}"


def require_below_checkpoint(location: str, checkpoint: str) -> None:
    """Refuse a log that is not kept and lost together with its checkpoint.

    Raises:
        OptionError: It is somewhere else.
    """
    below, root = normalize_uri(location), normalize_uri(checkpoint)
    if below != root and not below.startswith(f"{root}/"):
        raise OptionError(
            "[DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT] Schema location "
            f"'{location}' must be placed under checkpoint location '{checkpoint}'."
        )


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

    state: TableState
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
    head = TableState.at(log.snapshot())
    if options.schema_tracking_location is None:
        return StreamDefinition(head, head.version)
    tracked = tracking_log(options, head).current()
    if tracked is None:
        return StreamDefinition(_at_start(log, options, head), head.version)
    merged = _merged(log, tracked, head)
    state = tracked.state if merged is None else merged.state
    return StreamDefinition(state, head.version, tracked, merged)


def tracking_log(options: TableStreamOptions, head: TableState) -> TrackingLog:
    """Open the schema tracking log of a stream."""
    location = str(options.schema_tracking_location)
    return TrackingLog(location, head, options.streaming_source_tracking_id)


def folded(commits: TableCommits, state: TableState, last: int) -> TableState:
    """Apply to a state the changes that follow it before any data does.

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


def _merged(log: TableLog, tracked: TrackedSchema, head: TableState) -> TrackedSchema | None:
    """Build the entry that replaces the newest one, if changes have followed that one."""
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


def _at_start(log: TableLog, options: TableStreamOptions, head: TableState) -> TableState:
    """Read the state at the version that a new stream starts at."""
    start = starting_version(log, options)
    if not isinstance(start, int) or start >= head.version:
        return head
    return TableState.at(log.snapshot(start))


def starting_version(log: TableLog, options: TableStreamOptions) -> int | str | None:
    """Find the version whose changes a new stream starts with.

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
    """Find the first version that was committed at or after a time."""
    moment, listing = milliseconds("startingTimestamp", text), log.listing(whole=True)
    times = CommitTimes(log, listing)
    first, last = times.searched(moment)
    versions = sorted(version for version in listing.commits if first <= version)
    place = bisect_left(versions, moment, hi=bisect_right(versions, last), key=times.of)
    if place == len(versions):
        raise OptionError(
            f"startingTimestamp={text} is after the last commit of the Delta table {log.target}, "
            f"version {listing.latest}. Set startingVersion to latest to begin with what comes."
        )
    return versions[place]
