"""With which columns, configuration and protocol does a stream read a table?

Those of one version. Which differences between two of them are a change is Delta's rule: any of the
schema but the high-water marks of identity columns, of the partition columns, of the protocol, and
of configuration under Delta's own names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.delta.read.files import TableColumns
from airflow_cloudfiles.engine.delta.read.protocol import mapping_mode
from airflow_cloudfiles.engine.delta.read.snapshot import Snapshot
from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.types import as_nullable

_OWN: Final = "delta."
_HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
_TOO_MANY: Final = 2000


@dataclass(frozen=True, slots=True)
class ReadState:
    """What a version of a table says of how it is read.

    Attributes:
        target: The table, for errors.
        version: The version.
        metadata: Its columns and configuration.
        protocol: Its protocol.
    """

    target: str
    version: int
    metadata: Metadata
    protocol: Protocol

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReadState:
        """That of a version."""
        return cls(snapshot.target, snapshot.version, snapshot.metadata, snapshot.protocol)

    def after(
        self, version: int, metadata: Metadata | None, protocol: Protocol | None
    ) -> ReadState:
        """The state that a later version leads to, with what it says."""
        return replace(
            self,
            version=version,
            metadata=metadata or self.metadata,
            protocol=protocol or self.protocol,
        )

    @property
    def schema(self) -> StructType:
        """The columns, with Delta's notes.

        Raises:
            TargetCorruptedError: They cannot be read.
        """
        return self.columns.schema

    @property
    def columns(self) -> TableColumns:
        """How data files are read.

        Raises:
            TargetCorruptedError: The columns cannot be read.
        """
        try:
            schema = StructType.fromJson(json.loads(self.metadata.schema_string))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TargetCorruptedError(
                f"The schema of the Delta table {self.target} cannot be read in version "
                f"{self.version}: {error}. Restore the log from a backup."
            ) from error
        return TableColumns(
            self.target,
            schema,
            frozenset(self.metadata.partition_columns),
            mapping_mode(self.metadata, self.protocol, self.target),
        )

    @property
    def public_schema(self) -> StructType:
        """The columns as the stream has them; none is `NOT NULL`, which may be relaxed any time."""
        found = as_nullable(self.columns.public_schema)
        assert isinstance(found, StructType)  # noqa: S101 - a struct stays one
        return found

    def differs_from(self, other: ReadState) -> bool:
        """Whether a reader has to know of the difference."""
        return self._compared() != other._compared()

    def _compared(self) -> tuple[Any, ...]:
        metadata, protocol = self.metadata, self.protocol
        return (
            _without_marks(_loaded(metadata.schema_string)),
            metadata.partition_columns,
            {key: each for key, each in metadata.configuration.items() if key.startswith(_OWN)},
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    def shown(self) -> str:
        """The state in three lines of an error, as Delta has them."""
        schema = self.columns.public_schema.simpleString()
        if len(schema) > _TOO_MANY:
            schema = f"{schema[:_TOO_MANY]}..."
        settings = self.metadata.configuration.items()
        configuration = ", ".join(f"{key}:{value}" for key, value in settings)
        versions = f"{self.protocol.min_reader_version},{self.protocol.min_writer_version}"
        features = sorted(
            {*(self.protocol.reader_features or ()), *(self.protocol.writer_features or ())}
        )
        named = f",[{','.join(features)}]" if features else ""
        return (
            f"Updated schema: {schema}.\nUpdated table configurations: {configuration}.\n"
            f"Updated table protocol: {versions}{named}"
        )


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # whoever reads it says what is wrong


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(each) for key, each in value.items() if key != _HIGH_WATER_MARK}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value
