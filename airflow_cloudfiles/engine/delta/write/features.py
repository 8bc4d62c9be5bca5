"""Which Delta tables can rows be added to, and what does a feature ask of the protocol?

One list of writer features. A table with another one, or with rules for its rows that only SQL can
check, is refused by name: its rules would be broken silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    VariantType,
)

from airflow_cloudfiles.engine.delta.read.actions import Protocol
from airflow_cloudfiles.engine.delta.write.table_state import TableState
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.naming import dotted

APPEND_FEATURES: Final[dict[str, str]] = {
    "allowColumnDefaults": "refused where a column has a default",
    "appendOnly": "no effect on appending",
    "invariants": "refused where a column has an invariant",
    "checkConstraints": "refused where the table has a constraint",
    "changeDataFeed": "files that are added need no change files",
    "columnMapping": "files have physical names and field ids",
    "deletionVectors": "no effect on appending",
    "domainMetadata": "no effect on appending",
    "generatedColumns": "refused where a column is generated",
    "identityColumns": "refused where a column is one",
    "timestampNtz": "timestamps without a time zone",
    "typeWidening": "files have the newest types",
    "typeWidening-preview": "as `typeWidening`",
    "vacuumProtocolCheck": "no effect on appending",
    "v2Checkpoint": "checkpoints with sidecar files",
    "variantType": "columns of the type VARIANT",
    "variantType-preview": "as `variantType`",
}
"""The writer features with which rows can be added, and what each means for that."""
_NEWEST_WRITER: Final = 7
_COMPUTED: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
    "CURRENT_DEFAULT",
)
_CONSTRAINT: Final = "delta.constraints."
_WRITER_SINCE: Final = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""Which features a legacy writer version brings."""
_READER_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
    }
)
"""Features that readers must know, too."""


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
    rules += [
        f"it has {key}={value}"
        for key, value in state.configuration.items()
        if key.startswith(_CONSTRAINT)
    ]
    rules += list(_computed(state.columns, ()))
    if rules:
        raise refusal(state.target, rules)


def refusal(target: str, rules: list[str]) -> SinkError:
    """The error for a table with rules that are not checked here."""
    return SinkError(
        f"{target} cannot be written in this version, because {'; '.join(rules)}. Choose a table "
        "without them, or write to it with Delta's own jars (writeStream.format('delta'))."
    )


def require_library(state: TableState, what: str) -> None:
    """Refuse a table for what only `deltalake` does here, where it would refuse the table.

    Args:
        state: The table.
        what: What is to be done to it, as `merged into`.

    Raises:
        SinkError: It would.
    """
    require_appendable(state)
    if state.is_beyond_deltalake:
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
    reader |= set(names) & _READER_FEATURES
    upgraded = Protocol(
        3 if reader else protocol.min_reader_version, 7, sorted(reader) or None, sorted(writer)
    )
    return replace(state, protocol=upgraded)


def features_of_types(kind: DataType) -> frozenset[str]:
    """The table features that columns of a type need."""
    if isinstance(kind, StructType):
        return frozenset().union(*(features_of_types(each.dataType) for each in kind.fields))
    if isinstance(kind, ArrayType):
        return features_of_types(kind.elementType)
    if isinstance(kind, MapType):
        return features_of_types(kind.keyType) | features_of_types(kind.valueType)
    if isinstance(kind, TimestampNTZType):
        return frozenset({"timestampNtz"})
    return frozenset({"variantType"} if isinstance(kind, VariantType) else ())


def _computed(kind: DataType, at: tuple[str, ...]) -> Iterator[str]:
    """Columns whose values the table prescribes, at any depth."""
    if isinstance(kind, StructType):
        for each in kind.fields:
            path = (*at, each.name)
            for key in each.metadata or {}:
                if key in _COMPUTED:
                    yield f"column {dotted(path)} has {key}"
            yield from _computed(each.dataType, path)
    elif isinstance(kind, ArrayType):
        yield from _computed(kind.elementType, (*at, "element"))
    elif isinstance(kind, MapType):
        yield from _computed(kind.keyType, (*at, "key"))
        yield from _computed(kind.valueType, (*at, "value"))
