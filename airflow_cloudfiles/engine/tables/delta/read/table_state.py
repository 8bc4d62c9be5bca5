"""Give the columns, properties and protocol of a table's version, and refuse what is not kept here.

Small: tasks get it, which write data files by it, and a commit compares it with the newest version.
A stream reads with that of one version. Which differences between two of them are a change for a
stream is Delta's rule: any of the schema but the high-water marks of identity columns, of the
partition columns, of the protocol, and of configuration under Delta's own names.

A table with a writer feature that is not supported, or with rules for its rows that only SQL can
check, is refused by name: its rules would be broken silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import DataType, StructType, TimestampNTZType

from airflow_cloudfiles.engine.errors import SinkError, TargetCorruptedError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.tables.delta.read.actions import (
    APPEND_FEATURES,
    BEYOND_DELTALAKE,
    FEATURES_SINCE,
    NOT_REWRITTEN,
    READER_FEATURES,
    Metadata,
    Protocol,
    features_of,
)
from airflow_cloudfiles.engine.tables.delta.read.columns import without_internals
from airflow_cloudfiles.engine.tables.delta.read.log import damaged_log
from airflow_cloudfiles.engine.types import VariantType, as_nullable, inside_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.tables.delta.read.snapshot import Snapshot


VECTORS: Final = "deletionVectors"
"""The feature of tables whose rows may be deleted without rewriting their file."""
MODE: Final = "delta.columnMapping.mode"
MAX_ID: Final = "delta.columnMapping.maxColumnId"
WIDENS: Final = "delta.enableTypeWidening"
WIDENING: Final = "typeWidening"
"""The table feature with which types widen in the metadata."""
_OWN: Final = "delta."
_HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
_TOO_MANY: Final = 2000


@dataclass(frozen=True, slots=True)
class TableState:
    """What a version of a table says of itself.

    Attributes:
        target: The table, for messages.
        version: Its number; -1 for a table that is not there yet.
        metadata: Its columns and properties.
        protocol: What writers and readers must support.
    """

    target: str
    version: int
    metadata: Metadata
    protocol: Protocol

    @classmethod
    def of(cls, table: DeltaTable, target: str) -> TableState:
        """Read the state of an open table."""
        metadata, protocol = table.metadata(), table.protocol()
        return cls(
            target,
            table.version(),
            Metadata(
                id=str(metadata.id),
                schema_string=table.schema().to_json(),
                partition_columns=list(metadata.partition_columns),
                configuration=dict(metadata.configuration),
                name=metadata.name,
                description=metadata.description,
                created_time=metadata.created_time,
            ),
            Protocol(
                protocol.min_reader_version,
                protocol.min_writer_version,
                protocol.reader_features,
                protocol.writer_features,
            ),
        )

    @classmethod
    def at(cls, found: Snapshot | TableState) -> TableState:
        """Return the state of a version that this package's own reader has read."""
        return cls(found.target, found.version, found.metadata, found.protocol)

    def after(
        self, version: int, metadata: Metadata | None, protocol: Protocol | None
    ) -> TableState:
        """Return the state after a later version, with what that version changes."""
        metadata, protocol = metadata or self.metadata, protocol or self.protocol
        return replace(self, version=version, metadata=metadata, protocol=protocol)

    def changed(self, **metadata: Any) -> TableState:
        """Return the table's state with other metadata."""
        return replace(self, metadata=msgspec.structs.replace(self.metadata, **metadata))

    def with_columns(self, columns: StructType, **properties: str) -> TableState:
        """Return the table's state with other columns, and more properties."""
        text = json.dumps(columns.jsonValue(), separators=(",", ":"), ensure_ascii=False)
        configuration = {**self.configuration, **properties}
        return self.changed(schema_string=text, configuration=configuration)

    @property
    def configuration(self) -> dict[str, str]:
        """Its properties."""
        return {key: value or "" for key, value in self.metadata.configuration.items()}

    @property
    def partition_columns(self) -> list[str]:
        """Names of the columns that it is partitioned by, in their order."""
        return self.metadata.partition_columns

    @property
    def columns(self) -> StructType:
        """Its columns, with Delta's notes.

        Raises:
            TargetCorruptedError: They cannot be read.
        """
        try:
            return StructType.fromJson(json.loads(self.metadata.schema_json))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TargetCorruptedError(
                f"The schema of the Delta table {self.target} cannot be read in version "
                f"{self.version}: {error}. Restore the log from a backup."
            ) from error

    @property
    def public_schema(self) -> StructType:
        """The columns as a stream has them; none is `NOT NULL`, which may be relaxed any time."""
        found = as_nullable(without_internals(self.columns))
        assert isinstance(found, StructType)  # noqa: S101 - a struct stays one
        return found

    @property
    def mode(self) -> str:
        """How columns find their data in files: `none`, `name` or `id`.

        Raises:
            TargetCorruptedError: The table has another mode.
        """
        if "columnMapping" not in features_of(self.protocol):
            return "none"
        mode = self.metadata.property(MODE, "none").lower()
        if mode not in {"none", "name", "id"}:
            raise damaged_log(self.target, f"{MODE} is {mode!r}, not none, name or id")
        return mode

    @property
    def max_id(self) -> int:
        """The highest id that a column has had; 0 without column mapping."""
        return int(self.configuration.get(MAX_ID, "0"))

    @property
    def features(self) -> frozenset[str]:
        """The writer features that the protocol names; older protocols name none."""
        return frozenset(self.protocol.writer_features or ())

    @property
    def widens_in_metadata(self) -> bool:
        """Whether types may become wider without rewriting a file."""
        return self.configuration.get(WIDENS, "").lower() == "true" and WIDENING in self.features

    @property
    def is_append_only(self) -> bool:
        """Whether its rows must not change."""
        return self.configuration.get("delta.appendOnly", "").lower() == "true"

    def actions_after(self, before: TableState) -> list[dict[str, Any]]:
        """Build the actions of the log that make this state of another one."""
        protocol = [] if self.protocol == before.protocol else [self.protocol_action()]
        return [*protocol, self.metadata_action()]

    def metadata_action(self) -> dict[str, Any]:
        """Build the action of the log that holds the whole state but the protocol."""
        metadata = self.metadata
        named = {"name": metadata.name, "description": metadata.description}
        return {
            "metaData": {
                "id": metadata.id,
                **{key: value for key, value in named.items() if value is not None},
                "format": {"provider": "parquet", "options": {}},
                "schemaString": metadata.schema_json,
                "partitionColumns": metadata.partition_columns,
                "configuration": self.configuration,
                "createdTime": metadata.created_time,
            }
        }

    def protocol_action(self) -> dict[str, Any]:
        """Build the action of the log that holds the protocol."""
        return {"protocol": msgspec.to_builtins(self.protocol)}

    def differs_from(self, other: TableState) -> bool:
        """Tell whether a reader has to know of the difference."""
        return self._compared() != other._compared()

    def _compared(self) -> tuple[Any, ...]:
        metadata, protocol = self.metadata, self.protocol
        return (
            _without_marks(_loaded(metadata.schema_json)),
            metadata.partition_columns,
            {key: each for key, each in metadata.configuration.items() if key.startswith(_OWN)},
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    def shown(self) -> str:
        """Describe the state in three lines of an error, as Delta has them."""
        schema = TableColumns.of(self).public_schema.simpleString()
        if len(schema) > _TOO_MANY:
            schema = f"{schema[:_TOO_MANY]}..."
        settings = self.metadata.configuration.items()
        configuration = ", ".join(f"{key}:{value}" for key, value in settings)
        versions = f"{self.protocol.min_reader_version},{self.protocol.min_writer_version}"
        features = sorted(self.features.union(self.protocol.reader_features or ()))
        named = f",[{','.join(features)}]" if features else ""
        return (
            f"Updated schema: {schema}.\nUpdated table configurations: {configuration}.\n"
            f"Updated table protocol: {versions}{named}"
        )


@dataclass(frozen=True, slots=True)
class TableColumns:
    """How data files of a version are read; small, for tasks.

    Attributes:
        target: The table.
        schema: Its columns, with Delta's notes.
        partition_columns: Names of those whose values are in the log.
        mode: Its column mapping.
    """

    target: str
    schema: StructType
    partition_columns: frozenset[str]
    mode: str

    @classmethod
    def of(cls, version: Snapshot | TableState) -> TableColumns:
        """Read the columns of a version.

        Raises:
            TargetCorruptedError: Its schema cannot be read.
        """
        state = TableState.at(version)
        schema = state.columns
        partitions = CASE_INSENSITIVE.keys(state.partition_columns)
        names = (each.name for each in schema.fields)
        spelled = frozenset(name for name in names if CASE_INSENSITIVE.key(name) in partitions)
        return cls(state.target, schema, spelled, state.mode)

    @property
    def public_schema(self) -> StructType:
        """The columns as users see them."""
        return without_internals(self.schema)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # whoever reads it says what is wrong


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(each) for key, each in value.items() if key != _HIGH_WATER_MARK}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value


_NEWEST_WRITER: Final = 7
_IDENTITY_VERSION: Final = 6
"""The legacy writer version that brings identity columns."""
_COMPUTED: Final = frozenset(
    ("delta.generationExpression", "delta.identity.start", "delta.invariants", "CURRENT_DEFAULT")
)
_WRITER_SINCE: Final = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""Which features a legacy writer version brings."""


def require_appendable(state: TableState) -> None:
    """Refuse tables whose rules for rows are not checked here.

    Raises:
        SinkError: The table has such rules, or a writer feature that is not supported.
    """
    rules = []
    version = state.protocol.min_writer_version
    if version > _NEWEST_WRITER:
        rules.append(f"it has the writer version {version}")
    unknown = sorted(state.features - APPEND_FEATURES.keys())
    rules += [f"it has the table feature {name}" for name in unknown]
    _refuse(state, [*rules, *_constraints(state), *_computed(state.columns, ())])


def require_rewritable(state: TableState, *, takes_all: bool) -> None:
    """Refuse tables whose files are not replaced here.

    Args:
        state: The table.
        takes_all: Whether neither partitions nor column mapping are a reason.

    Raises:
        SinkError: The table is one, or must keep its rows.
    """
    if state.is_append_only:
        raise SinkError(
            f"{state.target} has delta.appendOnly=true: its rows must not change. Set it to false, "
            "or choose another target."
        )
    rules = []
    if not takes_all:
        rules = [f"it is partitioned by {name}" for name in state.partition_columns]
    rules += _constraints(state)
    if not takes_all and (mode := state.configuration.get(MODE, "none")) != "none":
        rules.append(f"it has {MODE}={mode}")
    beyond = state.features & NOT_REWRITTEN
    rules += [f"it has the table feature {name}" for name in sorted(beyond)]
    columns = state.columns
    rules += [f"column {each.name} is NOT NULL" for each in columns.fields if not each.nullable]
    _refuse(state, [*rules, *_computed(columns, ())])


def _constraints(state: TableState) -> list[str]:
    found = state.configuration.items()
    return [f"it has {key}={each}" for key, each in found if key.startswith("delta.constraints.")]


def _refuse(state: TableState, rules: list[str]) -> None:
    if rules:
        raise SinkError(
            f"{state.target} cannot be written in this version, because {'; '.join(rules)}. "
            "Choose a table without them, or write to it with Delta's own jars "
            "(writeStream.format('delta'))."
        )


def is_beyond_deltalake(state: TableState) -> bool:
    """Tell whether `deltalake` (1.6) refuses to append to the table."""
    legacy = state.protocol.writer_features is None and state.protocol.min_writer_version
    return bool(state.features & BEYOND_DELTALAKE) or legacy == _IDENTITY_VERSION


def require_library(state: TableState, what: str) -> None:
    """Refuse a table for what only `deltalake` does here, where it would refuse the table.

    Args:
        state: The table.
        what: What is to be done to it, as `merged into`.

    Raises:
        SinkError: It would.
    """
    require_appendable(state)
    if is_beyond_deltalake(state):
        raise SinkError(
            f"{state.target} cannot be {what} in this version, because of its table features: "
            f"{', '.join(sorted(state.features)) or 'identity columns'}. Rows can be appended to "
            "it. For the rest use Delta's own jars, or a table without these features."
        )


def with_features(state: TableState, *names: str) -> TableState:
    """Give the table's protocol named features; what its version implied is named as well.

    Named one by one even where an older version would do: `deltalake` (1.6) reads tables of the
    legacy versions with column mapping as NULL.
    """
    protocol = state.protocol
    writer = set(protocol.writer_features or ())
    if protocol.writer_features is None:
        for version, implied in _WRITER_SINCE.items():
            writer |= set(implied if version <= protocol.min_writer_version else ())
    reader = set(protocol.reader_features or ())
    if protocol.reader_features is None and protocol.min_reader_version > 1:
        reader.add("columnMapping")
    if set(names) <= writer and (protocol.writer_features is not None or not names):
        return state
    writer |= set(names)
    reader |= set(names) & READER_FEATURES.keys()
    least = FEATURES_SINCE if reader else protocol.min_reader_version
    upgraded = Protocol(least, _NEWEST_WRITER, sorted(reader) or None, sorted(writer))
    return replace(state, protocol=upgraded)


def features_of_types(kind: DataType) -> frozenset[str]:
    """Return the table features that columns of a type need."""
    if isinstance(kind, TimestampNTZType | VariantType):
        return frozenset({"variantType" if isinstance(kind, VariantType) else "timestampNtz"})
    return frozenset().union(*(features_of_types(each) for _, each in inside_of(kind)))


def _computed(kind: DataType, at: tuple[str, ...]) -> Iterator[str]:
    """Yield the columns whose values the table prescribes, at any depth."""
    for each in kind.fields if isinstance(kind, StructType) else ():
        for key in each.metadata or {}:
            if key in _COMPUTED:
                yield f"column {dotted((*at, each.name))} has {key}"
    for name, inner in inside_of(kind):
        yield from _computed(inner, (*at, name))
