"""Refuse tables with rules that are not kept here, and give a protocol more features.

A table with a writer feature that is not supported, or with rules for its rows that only SQL can
check, is refused by name: its rules would be broken silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pyspark.sql.types import DataType, StructType, TimestampNTZType

from airflow_cloudfiles.engine.delta.read.actions import Protocol
from airflow_cloudfiles.engine.delta.read.features import (
    APPEND_FEATURES,
    FEATURES_SINCE,
    READER_FEATURES,
    SHREDDED,
)
from airflow_cloudfiles.engine.delta.read.table_state import MODE, TableState
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.spark_types import VariantType
from airflow_cloudfiles.engine.types import inside_of

_NOT_REWRITTEN: Final = ("typeWidening", "typeWidening-preview", "rowTracking", *sorted(SHREDDED))
"""Those with which `deltalake` (1.6) neither reads nor writes rows, or loses what they promise."""
_BEYOND_DELTALAKE: Final = frozenset(
    ("allowColumnDefaults", "domainMetadata", "identityColumns", "vacuumProtocolCheck")
).union(("typeWidening", "typeWidening-preview"))
"""Those that `deltalake` (1.6) does not append to, though an append asks nothing of it."""
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
        SinkError: The table is one.
    """
    rules = []
    if not takes_all:
        rules = [f"it is partitioned by {name}" for name in state.partition_columns]
    rules += _constraints(state)
    if not takes_all and (mode := state.configuration.get(MODE, "none")) != "none":
        rules.append(f"it has {MODE}={mode}")
    rules += [
        f"it has the table feature {name}" for name in _NOT_REWRITTEN if name in state.features
    ]
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
    """Whether `deltalake` (1.6) refuses to append to the table."""
    legacy = state.protocol.writer_features is None and state.protocol.min_writer_version
    return bool(state.features & _BEYOND_DELTALAKE) or legacy == _IDENTITY_VERSION


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
    """The table with a protocol that names features; what its version implied, by name.

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
    """The table features that columns of a type need."""
    if isinstance(kind, TimestampNTZType | VariantType):
        return frozenset({"variantType" if isinstance(kind, VariantType) else "timestampNtz"})
    return frozenset().union(*(features_of_types(each) for _, each in inside_of(kind)))


def _computed(kind: DataType, at: tuple[str, ...]) -> Iterator[str]:
    """Columns whose values the table prescribes, at any depth."""
    for each in kind.fields if isinstance(kind, StructType) else ():
        for key in each.metadata or {}:
            if key in _COMPUTED:
                yield f"column {dotted((*at, each.name))} has {key}"
    for name, inner in inside_of(kind):
        yield from _computed(inner, (*at, name))
