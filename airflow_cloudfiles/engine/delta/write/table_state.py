"""What must a writer know of a table's version?

Its columns, its partitioning, its properties and its protocol: small, and sent to the tasks, which
write data files by it (`layout`). A commit compares it with the newest version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.delta.read.protocol import mapping_mode

if TYPE_CHECKING:
    from deltalake import DeltaTable

MODE: Final = "delta.columnMapping.mode"
MAX_ID: Final = "delta.columnMapping.maxColumnId"
WIDENS: Final = "delta.enableTypeWidening"
WIDENING: Final = "typeWidening"
"""The table feature with which types widen in the metadata."""
_BEYOND_DELTALAKE: Final = frozenset(
    {
        "allowColumnDefaults",
        "domainMetadata",
        "identityColumns",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
    }
)
"""Table features that `deltalake` (1.6) does not append to, though an append asks nothing of it."""
_IDENTITY_VERSION: Final = 6
"""The legacy writer version that brings identity columns."""


@dataclass(frozen=True, slots=True)
class TableState:
    """Columns, properties and protocol of a version.

    Attributes:
        target: The table, for messages.
        version: Its number; -1 for a table that is not there yet.
        table_id: The id of the table.
        schema_string: Its columns, in Spark's JSON.
        partition_columns: Names of the columns that it is partitioned by, in their order.
        configuration: Its properties.
        protocol: What writers and readers must support.
        name: Its name, if it has one.
        description: Its description, if it has one.
        created_ms: When it was created.
    """

    target: str
    version: int
    table_id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    protocol: Protocol
    name: str | None = None
    description: str | None = None
    created_ms: int | None = None

    @classmethod
    def of(cls, table: DeltaTable, target: str) -> TableState:
        """The state of a table that is open."""
        metadata, protocol = table.metadata(), table.protocol()
        return cls(
            target=target,
            version=table.version(),
            table_id=str(metadata.id),
            schema_string=table.schema().to_json(),
            partition_columns=tuple(metadata.partition_columns),
            configuration={key: value or "" for key, value in metadata.configuration.items()},
            protocol=Protocol(
                protocol.min_reader_version,
                protocol.min_writer_version,
                protocol.reader_features,
                protocol.writer_features,
            ),
            name=metadata.name,
            description=metadata.description,
            created_ms=metadata.created_time,
        )

    @property
    def columns(self) -> StructType:
        """Its columns, with Delta's notes."""
        return StructType.fromJson(json.loads(self.schema_string))

    @property
    def mode(self) -> str:
        """Its column mapping: `none`, `name` or `id`."""
        metadata = Metadata(self.table_id, self.schema_string, [], dict(self.configuration))
        return mapping_mode(metadata, self.protocol, self.target)

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
    def is_beyond_deltalake(self) -> bool:
        """Whether `deltalake` (1.6) refuses to append to the table."""
        legacy = self.protocol.writer_features is None and self.protocol.min_writer_version
        return bool(self.features & _BEYOND_DELTALAKE) or legacy == _IDENTITY_VERSION

    def with_columns(self, columns: StructType, **properties: str) -> TableState:
        """The same table with other columns, and more properties."""
        return replace(
            self,
            schema_string=json.dumps(columns.jsonValue(), separators=(",", ":")),
            configuration={**self.configuration, **properties},
        )

    def metadata_action(self) -> dict[str, Any]:
        """The action of the log that says all this but the protocol."""
        named = {"name": self.name, "description": self.description}
        return {
            "metaData": {
                "id": self.table_id,
                **{key: value for key, value in named.items() if value is not None},
                "format": {"provider": "parquet", "options": {}},
                "schemaString": self.schema_string,
                "partitionColumns": list(self.partition_columns),
                "configuration": dict(self.configuration),
                "createdTime": self.created_ms,
            }
        }

    def protocol_action(self) -> dict[str, Any]:
        """The action of the log that says the protocol."""
        found: dict[str, Any] = {
            "minReaderVersion": self.protocol.min_reader_version,
            "minWriterVersion": self.protocol.min_writer_version,
        }
        if self.protocol.reader_features is not None:
            found["readerFeatures"] = sorted(self.protocol.reader_features)
        if self.protocol.writer_features is not None:
            found["writerFeatures"] = sorted(self.protocol.writer_features)
        return {"protocol": found}
