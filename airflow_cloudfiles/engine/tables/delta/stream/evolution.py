"""Follow the changes of the table that a stream reads.

Without tracking: a new column fails the stream, and the next start reads with it; a renamed,
dropped or retyped column is refused. Changes before the version that the stream was defined with
count as well: what lies before them would be read with columns that it does not have.

With tracking, in these steps:

1. The micro-batch ends before the change: what comes before it is served with the old schema.
2. Spark asks where the next one ends only when that one is committed. Then the log gets the new
   schema, and the stream fails.
3. The next start reads with the new schema, once what is not additive has been allowed.

Killed between 1 and 3, the stream is at 2 again.

Columns are the same when they have the same physical name, which column mapping keeps for ever;
without it, when they have the same name. A new column is an additive change: whoever reads on with
the new schema misses nothing. A renamed, dropped or retyped column is not: what is downstream has
to know. A stream goes on over such a column only when somebody has said so: for this series of
changes (the version up to which they were looked at), for this stream (`always`, under the key of
its checkpoint), or for all streams. The settings are Delta's: SQL configurations, and options of
the reader.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.errors import (
    BlockedSchemaChangeError,
    StaleSchemaError,
    StateConflictError,
    TableEvolvedError,
)
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.tables.delta.read.columns import PHYSICAL_NAME
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.stream.commits import Commit, TableCommits
from airflow_cloudfiles.engine.tables.delta.stream.tracking import (
    StreamDefinition,
    TrackedSchema,
    TrackingLog,
    folded,
    require_below_checkpoint,
    source_path,
    tracking_log,
)
from airflow_cloudfiles.engine.types import inside_of, short_type


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """Where a query keeps its state, and what its session says.

    Attributes:
        checkpoint: The checkpoint location.
        ordinal: The number of the source in the query, from 0.
        settings: SQL configurations that allow changes of columns.
    """

    checkpoint: str
    ordinal: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


StateAt = Callable[[int], "TableState | None"]


class UntrackedEvolution:
    """A stream without `schemaTrackingLocation`.

    Args:
        definition: Of the stream.
        state_at: Gives the state at a version; `None` where it is not known any more.
    """

    def __init__(self, definition: StreamDefinition, state_at: StateAt) -> None:
        self._definition = definition
        self._state_at = state_at

    @property
    def state(self) -> TableState:
        """What the stream reads with."""
        return self._definition.state

    def open(self) -> None:
        """Do nothing: there is nothing to open."""

    def begin(self, version: int) -> None:
        """Check the version that a process begins with against what the stream reads with.

        Args:
            version: The version.

        Raises:
            BlockedSchemaChangeError: A column was renamed, dropped or retyped since.
        """
        if version != self._definition.head:
            then = self._state_at(version)
            if then is not None:
                self._check(then)

    def begin_batch(self, commits: TableCommits, first: int, last: int) -> None:
        """Check as `begin` does; that of a micro-batch that was planned before."""
        del commits, last
        self.begin(first)

    def is_barrier(self, commit: Commit) -> bool:
        """Check a commit; without tracking, none ends a micro-batch.

        Raises:
            TableEvolvedError: It adds a column.
            BlockedSchemaChangeError: It renames, drops or retypes a column.
        """
        if commit.metadata is not None:
            self._check(self.state.after(commit.version, commit.metadata, commit.protocol))
        return False

    def pass_change(self, commits: TableCommits, version: int, newest: int) -> None:
        """Continue behind a change at which a stream with tracking has stopped."""

    def _check(self, then: TableState) -> None:
        is_past = then.version <= self._definition.head
        old, new = (then, self.state) if is_past else (self.state, then)
        changes = changes_between(old.columns, new.columns)
        if (
            any(not each.is_additive for each in changes)
            or old.metadata.partition_columns != new.metadata.partition_columns
        ):
            raise _refused(self.state, then, changes)
        if changes and not is_past:
            raise TableEvolvedError(
                "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version "
                f"{then.version} of the Delta table {then.target}: {describe(changes)}.\n"
                f"Streaming source schema: {self.state.public_schema.simpleString()}\n"
                f"Data file schema: {then.public_schema.simpleString()}\n"
                "Please try restarting the query, with a DataFrame that load() has defined anew. "
                "It goes on with the new schema; no row is lost or repeated."
            )


class TrackedEvolution:
    """A stream with `schemaTrackingLocation`.

    Args:
        definition: Of the stream.
        options: Of the stream.
        locate: Says where the query keeps its state; it is asked once.
        state_at: Gives the state at a version; `None` where it is not known any more.
    """

    def __init__(
        self,
        definition: StreamDefinition,
        options: TableStreamOptions,
        locate: Callable[[], QueryPlace],
        state_at: StateAt,
    ) -> None:
        self._definition = definition
        self._state_at = state_at
        self._options = options
        self._locate = locate
        self._log: TrackingLog = tracking_log(options, definition.state)
        self._entry: TrackedSchema | None = None
        self._source_path = ""

    @property
    def state(self) -> TableState:
        """What the stream reads with."""
        return self._definition.state if self._entry is None else self._entry.state

    def open(self) -> None:
        """Open the log, and refuse what cannot be gone on with.

        Raises:
            OptionError: The log is not below the checkpoint location, or that is not known.
            StateConflictError: The log is another stream's.
            StaleSchemaError: It has a newer schema than the stream was defined with.
            BlockedSchemaChangeError: The last change was not allowed.
        """
        place = self._locate()
        location = str(self._options.schema_tracking_location)
        require_below_checkpoint(location, place.checkpoint)
        self._source_path = source_path(place.checkpoint, place.ordinal)
        current = self._log.current()
        if current is not None and current.source_path != self._source_path:
            raise StateConflictError(
                "[DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT] Detected conflicting schema location "
                f"'{location}' while streaming from the table located at '{self.state.target}': "
                f"the log belongs to {current.source_path}, and this stream is "
                f"{self._source_path}. Give each stream from this table a schemaTrackingLocation "
                "or a streamingSourceTrackingId of its own."
            )
        entry = self._entry = self._matching(current)
        if entry is not None and entry.previous_number >= 0:
            before = self._log.read(entry.previous_number).state
            changes = changes_between(before.columns, entry.state.columns)
            allowed = AllowedChanges(self._options, place.settings, self._source_path)
            allowed.require(changes, before.version, entry.state.version)

    def begin(self, version: int) -> None:
        """Write the first entry of the log, unless it has one: the schema at the start.

        Raises:
            TableEvolvedError: It is not the schema that the stream was defined with.
        """
        if self._entry is None:
            self._initialise(self._state_at(version) or self._definition.state)

    def begin_batch(self, commits: TableCommits, first: int, last: int) -> None:
        """Write the first entry for a micro-batch that was planned before there was a log.

        Raises:
            TableEvolvedError: It is not the schema that the stream was defined with.
            BlockedSchemaChangeError: No one schema can serve the micro-batch.
        """
        if self._entry is not None:
            return
        state = self._state_at(first) or self._definition.state
        for commit in commits.between(first + 1, last):
            then = state.after(commit.version, commit.metadata, commit.protocol)
            changes = changes_between(state.columns, then.columns)
            if any(not each.is_additive for each in changes):
                raise BlockedSchemaChangeError(
                    "[DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA] We could not "
                    "initialize the Delta streaming source schema log because we detected an "
                    "incompatible schema change while serving a streaming batch from table version "
                    f"{first} to {last}: {describe(changes)}. Let this micro-batch end without "
                    "schemaTrackingLocation, or start with a new checkpoint location."
                )
            state = then
        self._initialise(state)

    def is_barrier(self, commit: Commit) -> bool:
        """Tell whether a micro-batch must end before a commit."""
        state = self.state
        if commit.version <= state.version or (commit.metadata is None and commit.protocol is None):
            return False
        return state.differs_from(state.after(commit.version, commit.metadata, commit.protocol))

    def pass_change(self, commits: TableCommits, version: int, newest: int) -> None:
        """Continue behind a change, if the log has it; else write it there and fail.

        Args:
            commits: Of the table.
            version: Of the change. What is before it was committed.
            newest: The newest version of the table.

        Raises:
            TableEvolvedError: The log has the new schema now.
        """
        if self.state.version >= version:
            return
        [commit] = commits.between(version, version)
        state = self.state.after(version, commit.metadata, commit.protocol)
        if not commit.adds:
            state = folded(commits, state, newest)
        number = 0 if self._entry is None else self._entry.number + 1
        self._log.append(TrackedSchema(number, state, self._source_path))
        raise _evolved(state)

    def _matching(self, current: TrackedSchema | None) -> TrackedSchema | None:
        """Return the entry that the stream was defined with, with the changes that followed."""
        tracked, merged = self._definition.tracked, self._definition.merged
        found = -1 if current is None else current.number
        if merged is not None and found == merged.number - 1:
            return self._log.append(merged)
        defined = merged or tracked
        if found != (-1 if defined is None else defined.number):
            raise StaleSchemaError(
                f"The schema log {self._log.uri} has the entry {found} by now, and the DataFrame "
                f"was defined with {-1 if defined is None else defined.number}. Define it again "
                "with load(), and start that."
            )
        return current

    def _initialise(self, state: TableState) -> None:
        self._entry = self._log.append(TrackedSchema(0, state, self._source_path))
        if state.differs_from(self._definition.state):
            raise _evolved(state)


def _evolved(state: TableState) -> TableEvolvedError:
    return TableEvolvedError(
        "[DELTA_STREAMING_METADATA_EVOLUTION] The schema, table configuration or protocol of your "
        "Delta table has changed during streaming.\n"
        "The schema or metadata tracking log has been updated.\n"
        "Please restart the stream to continue processing using the updated metadata.\n"
        f"{state.shown()}"
    )


def _refused(
    stream: TableState, then: TableState, changes: list[ColumnChange]
) -> BlockedSchemaChangeError:
    what = describe([each for each in changes if not each.is_additive])
    return BlockedSchemaChangeError(
        "[DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG] Streaming read is not "
        "supported on tables with read-incompatible schema changes (e.g. rename or drop or "
        f"datatype changes): {what or 'other partition columns'}, version {then.version} of the "
        f"Delta table {then.target}.\n"
        "Please provide a 'schemaTrackingLocation' to enable non-additive schema evolution for "
        "Delta stream processing.\n"
        f"Read schema: {stream.public_schema.simpleString()}. "
        f"Incompatible data schema: {then.public_schema.simpleString()}."
    )


class ChangeKind(enum.Enum):
    """The kinds of changes of a column; the value is what Delta calls it."""

    ADD = "ADD COLUMN"
    RENAME = "RENAME COLUMN"
    DROP = "DROP COLUMN"
    TYPE = "TYPE CHANGE"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of one column.

    Attributes:
        kind: What has happened to it.
        column: Its name, with those that it is inside of; the name before, if there is one.
        detail: What it is now: its name or type, for errors.
    """

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def is_additive(self) -> bool:
        """Whether reading on with the new schema misses nothing."""
        return self.kind is ChangeKind.ADD

    def __str__(self) -> str:
        """Describe the change, for a list of changes."""
        return f"{self.kind.value} {self.column}{self.detail}"


def changes_between(before: StructType, after: StructType) -> list[ColumnChange]:
    """List the changes from one schema to another; neither order nor nullability is a change.

    Args:
        before: With Delta's notes on columns.
        after: The same table, later.
    """
    return list(_of_struct(before, after, ""))


def describe(changes: Sequence[ColumnChange]) -> str:
    """Describe the changes in one line."""
    return "; ".join(map(str, changes))


def _of_struct(before: StructType, after: StructType, within: str) -> Iterator[ColumnChange]:
    left = list(after.fields)
    for column in before.fields:
        path = f"{within}{column.name}"
        wanted = _identity(column)
        found = next((each for each in left if _identity(each) == wanted), None)
        if found is None:
            yield ColumnChange(ChangeKind.DROP, path)
            continue
        left.remove(found)
        if found.name != column.name:
            yield ColumnChange(ChangeKind.RENAME, path, f" to {within}{found.name}")
        yield from _of_type(column.dataType, found.dataType, path)
    for column in left:
        yield ColumnChange(ChangeKind.ADD, f"{within}{column.name}")


def _of_type(before: DataType, after: DataType, path: str) -> Iterator[ColumnChange]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        yield from _of_struct(before, after, f"{path}.")
    elif isinstance(before, ArrayType | MapType) and type(before) is type(after):
        for (name, old), (_, new) in zip(inside_of(before), inside_of(after), strict=True):
            yield from _of_type(old, new, f"{path}.{name}")
    elif before != after:
        was, now = short_type(before), short_type(after)
        yield ColumnChange(ChangeKind.TYPE, path, f" from {was} to {now}")


def _identity(field: StructField) -> str:
    # A table that is upgraded to column mapping keeps the names of its columns in its files.
    return str((field.metadata or {}).get(PHYSICAL_NAME, field.name))


PREFIX: Final = "spark.databricks.delta.streaming.allowSourceColumn"
"""How the SQL configurations begin that allow changes."""
_ALWAYS: Final = "always"
_BOTH: Final = "RenameAndDrop"
_NAMES: Final = {
    ChangeKind.RENAME: "Rename",
    ChangeKind.DROP: "Drop",
    ChangeKind.TYPE: "TypeChange",
}


@dataclass(frozen=True, slots=True)
class AllowedChanges:
    """What is allowed to one stream.

    Attributes:
        options: Of its reader.
        settings: The SQL configurations that begin with `PREFIX`, by their names.
        source_path: The stream: its place in Spark's checkpoint.
    """

    options: TableStreamOptions
    settings: Mapping[str, str]
    source_path: str

    @property
    def key(self) -> str:
        """What the configurations of this stream end with."""
        return f"ckpt_{_java_hash(self.source_path)}"

    def require(self, changes: Sequence[ColumnChange], before: int, after: int) -> None:
        """Refuse changes that are not additive and not allowed.

        Args:
            changes: Between the two versions.
            before: The version whose schema the stream had.
            after: The version whose schema it is to go on with.

        Raises:
            BlockedSchemaChangeError: It names the changes, and what to set to what.
        """
        wanted = {each.kind for each in changes if not each.is_additive}
        if any(not self._allows(kind, after) for kind in wanted):
            raise BlockedSchemaChangeError(self._message(changes, wanted, before, after))

    def _allows(self, kind: ChangeKind, version: int) -> bool:
        options = {
            ChangeKind.RENAME: self.options.allow_source_column_rename,
            ChangeKind.DROP: self.options.allow_source_column_drop,
            ChangeKind.TYPE: self.options.allow_source_column_type_change,
        }
        names = [_NAMES[kind]] if kind is ChangeKind.TYPE else [_NAMES[kind], _BOTH]
        keys = {f"{PREFIX}{name}{end}".lower() for name in names for end in ("", f".{self.key}")}
        given = [value for key, value in self.settings.items() if key.lower() in keys]
        values = {str(value).strip().lower() for value in (options[kind], *given) if value}
        return _ALWAYS in values or str(version) in values

    def _message(
        self, changes: Sequence[ColumnChange], kinds: set[ChangeKind], before: int, after: int
    ) -> str:
        names = [_BOTH] if kinds - {ChangeKind.TYPE} else []
        names += [_NAMES[ChangeKind.TYPE]] if ChangeKind.TYPE in kinds else []

        def setting(end: str, value: object) -> str:
            return " and ".join(f"`{PREFIX}{name}{end} = {value}`" for name in names)

        own = f".{self.key}"
        narrower = [_NAMES[kind] for kind in ChangeKind if kind in kinds - {ChangeKind.TYPE}]
        instead = " or ".join(f"`allowSourceColumn{name}`" for name in narrower)
        alternative = (
            f"Alternatively if applicable, you may replace the `allowSourceColumn{_BOTH}` with "
            f"{instead} in the SQL conf to unblock stream for just this schema change type.\n"
            if len(narrower) == 1
            else ""
        )
        options = " and ".join(
            f"`allowSourceColumn{_NAMES[kind]}`" for kind in ChangeKind if kind in kinds
        )
        return (
            "[DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION] We've detected one "
            f"or more non-additive schema change(s) ({_operation(kinds)}) between Delta version "
            f"{before} and {after} in the Delta streaming source.\n"
            f"Changes: {describe([each for each in changes if not each.is_additive])}.\n"
            "Please check if you want to manually propagate the schema change(s) to the sink table "
            "before we proceed with stream processing using the finalized schema at "
            f"{after}.\n"
            "Once you have fixed the schema of the sink table or have decided there is no need to "
            "fix, you can set (one of) the following SQL configurations to unblock the "
            "non-additive schema change(s) and continue stream processing.\n"
            "To unblock for this particular stream just for this series of schema change(s): set "
            f"{setting(own, after)}.\n"
            f"To unblock for this particular stream: set {setting(own, _ALWAYS)}\n"
            f"To unblock for all streams: set {setting('', _ALWAYS)}.\n"
            f"{alternative}"
            f"Or set the reader option {options} to {after}, or to {_ALWAYS}."
        )


def _operation(kinds: set[ChangeKind]) -> str:
    """Name the kinds of changes in Delta's words."""
    columns = [kind.value.removesuffix(" COLUMN") for kind in ChangeKind
               if kind in kinds - {ChangeKind.TYPE}]  # fmt: skip
    found = [f"{' AND '.join(columns)} COLUMN"] if columns else []
    return " AND ".join([*found, *([ChangeKind.TYPE.value] if ChangeKind.TYPE in kinds else [])])


def _java_hash(text: str) -> int:
    """Compute Java's hash of a string, from which Delta makes the key of a stream."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for place in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found
