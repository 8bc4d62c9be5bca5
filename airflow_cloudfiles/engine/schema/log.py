"""Keep the schemas that a stream has had.

Version `n` is the entry `_schemas/<n>` of a numbered log below the schema location: the highest
is the one to read with (B67). Nothing is ever rewritten, so a version says for ever what the
micro-batches planned under it were read with. The entry's body is JSON for people to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import StateConflictError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.schema.log_entry import (
    NewFields,
    SchemaEntry,
    append_entry,
    names_of,
    not_a_version,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.schema.source_columns import beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_cloudfiles.engine.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a stream's schema.

    Attributes:
        version: Its number, from 0.
        data_schema: Columns found in the records.
        partition_schema: Columns found in the paths, none of which is also in the records.
        reason: Why it was written: JSON values, for people.
        pin: What a new field does while the stream is to stay at this version; `None` when the
            schema may evolve.
        options: The options that the columns were inferred with; `None` when it does not say.
        stay_rescued: Paths of fields that stay in the rescued data.
    """

    version: int
    data_schema: StructType
    partition_schema: StructType
    reason: Mapping[str, Any]
    pin: NewFields | None = None
    options: Mapping[str, Any] | None = None
    stay_rescued: tuple[str, ...] = ()


class SchemaLog:
    """The schema versions of one source.

    Args:
        store: The schema location.
        source_uri: Canonical URI of the source; a log holds the versions of one source only.
        matcher: How names of columns are compared.
    """

    def __init__(
        self, store: ObjectStore, source_uri: str, matcher: NameMatcher = CASE_INSENSITIVE
    ) -> None:
        self._log = open_log(store)
        self._store = store
        self._uri = store.uri
        self._source = source_uri
        self._matcher = matcher

    def latest(self) -> SchemaVersion | None:
        """Read the newest version; `None` when there is none yet.

        Raises:
            StateConflictError: The log belongs to another source (B22).
            IncompatibleStateError: A newer version of this package wrote it.
            CorruptedStateError: It is not a schema log, or damaged.
        """
        number = self._log.latest()
        return None if number < 0 else self.read(number)

    @property
    def next_version(self) -> int:
        """One more than the newest version that `latest` has met, whoever's that is."""
        return self._log.known_latest + 1

    def versions(self) -> list[int]:
        """List the numbers of all versions, in order."""
        return self._log.numbers()

    def read(self, version: int) -> SchemaVersion:
        """Read one version.

        Raises:
            StateConflictError: The log belongs to another source (B22).
            IncompatibleStateError: A newer version of this package wrote it.
            CorruptedStateError: There is no such version, or it is damaged.
        """
        entry = read_entry(self._log, version)
        try:
            data_schema = StructType.fromJson(dict(entry.data_schema))
            partition_schema = StructType.fromJson(dict(entry.partition_schema))
        except (ValueError, LookupError, TypeError, AssertionError) as failure:
            raise not_a_version(self._log.name(version), failure) from failure
        if entry.source != self._source and not {entry.source, self._source} <= names_of(
            self._store
        ):
            msg = (
                f"The schema location {self._uri} belongs to the source {entry.source}, not to "
                f"{self._source}. Give each source a cloudFiles.schemaLocation of its own."
            )
            raise StateConflictError(msg)
        return SchemaVersion(
            version,
            data_schema,
            partition_schema,
            entry.reason,
            entry.pin,
            entry.options,
            entry.stay_rescued or (),
        )

    def append(
        self,
        version: int,
        *,
        data_schema: StructType,
        partition_schema: StructType,
        reason: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> SchemaVersion:
        """Write a version, unless another writer has its number.

        A partition column that the records have as well by now is left out: the record's field
        holds it from this version on.

        Args:
            version: One more than the newest; 0 in an empty log.
            data_schema: Columns found in the records.
            partition_schema: Columns found in the paths.
            reason: Why: JSON values, for people.
            options: The options that the columns were inferred with; `None` for those of the
                version before.

        Returns:
            The version that has the number now: this one, or the winner's.

        Raises:
            StateConflictError: The winner writes for another source (B22), or the schema is
                pinned.
        """
        entry = SchemaEntry(
            version,
            "",
            self._source,
            reason,
            None,
            data_schema.jsonValue(),
            beside(data_schema, partition_schema, self._matcher).jsonValue(),
            options,
        )
        append_entry(self._log, entry)
        return self.read(version)


def full_schema(
    data_schema: StructType, partition_schema: StructType, rescued_data_column: str | None
) -> StructType:
    """Put a stream's columns together: records, paths, and the rescued data column last (B17).

    Args:
        data_schema: Columns found in the records.
        partition_schema: Columns found in the paths.
        rescued_data_column: Its name; `None` for none (B18).
    """
    fields = [*data_schema.fields, *partition_schema.fields]
    if rescued_data_column is not None:
        fields.append(StructField(rescued_data_column, StringType(), nullable=True))
    return StructType(fields)


def in_order(schema: StructType, names: Sequence[str]) -> StructType:
    """Put the columns in the order that the user gave them, if any.

    Args:
        schema: The columns of a stream.
        names: All of their names; empty for the order they are in.
    """
    if not names:
        return schema
    return StructType([schema[name] for name in names])
