"""How do the columns of rows become those of a Delta table, and which tables are not rewritten?

Arrow's schema of rows becomes Spark's, in which Delta keeps it and in which schemas are merged
(`merge_schema`). What no Delta table can have, and tables whose files cannot be replaced here, are
refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.casing import CASE_INSENSITIVE
from airflow_cloudfiles.engine.delta.variant import delta_columns
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant

_COMPUTED = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
    "CURRENT_DEFAULT",
)
_UNSUPPORTED = (
    "typeWidening",
    "typeWidening-preview",
    "rowTracking",
    "variantShredding",
    "variantShredding-preview",
)
"""Table features with which `deltalake` (1.6) neither reads nor writes rows, or loses what they
promise."""


def schema_of(table: DeltaTable) -> StructType:
    """The columns of a table; Delta stores them as Spark's schema JSON."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def delta_fields(fields: list[StructField]) -> list[Field]:
    """Columns, as `deltalake` takes them."""
    return [Field.from_json(json.dumps(each.jsonValue())) for each in fields]


def delta_schema(columns: StructType) -> Schema:
    """The columns of a table, as `deltalake` takes them."""
    return Schema.from_json(json.dumps(columns.jsonValue()))


def new_table(schema: pa.Schema) -> Schema:
    """The columns of a table that is created for a stream."""
    return delta_schema(delta_columns(nullable(schema)))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, which may all be null: a later file may lack one."""
    return pa.schema([each.with_nullable(True).remove_metadata() for each in schema])


def rows_columns(schema: pa.Schema) -> StructType:
    """The columns of rows as a Delta table has them."""
    return delta_columns(nullable(schema))


def refuse_features(
    table: DeltaTable, target: str, *, takes_partitions: bool = False, takes_mapping: bool = False
) -> None:
    """Refuse tables whose files are not replaced here, or whose rules are not checked then.

    Args:
        table: The table.
        target: Its path or URI, for the error.
        takes_partitions: Whether it may be partitioned.
        takes_mapping: Whether it may have column mapping.

    Raises:
        SinkError: The table has such rules.
    """
    metadata = table.metadata()
    partitions = () if takes_partitions else metadata.partition_columns
    rules = [f"it is partitioned by {name}" for name in partitions]
    rules += [
        f"it has {key}={value}"
        for key, value in metadata.configuration.items()
        if key.startswith("delta.constraints.")
        or (key == "delta.columnMapping.mode" and value != "none" and not takes_mapping)
    ]
    features = table.protocol().writer_features or []
    rules += [f"it has the table feature {name}" for name in _UNSUPPORTED if name in features]
    for each in table.schema().fields:
        if not each.nullable:
            rules.append(f"column {each.name} is NOT NULL")
        rules += [f"column {each.name} has {key}" for key in each.metadata if key in _COMPUTED]
    if rules:
        raise _refused(target, rules)


def _refused(target: str, rules: list[str]) -> SinkError:
    return SinkError(
        f"{target} cannot be written in this version, because {'; '.join(rules)}. Choose a table "
        "without them, or write to it with Delta's own jars (writeStream.format('delta'))."
    )


def check_columns(columns: Iterable[pa.Field], target: str, within: str = "") -> None:
    """Refuse columns that no Delta table can have.

    Args:
        columns: Of the stream.
        target: The table, for errors.
        within: The column they are inside of, with a dot behind it.

    Raises:
        SchemaMismatchError: One never had a value, so that it has no type (B129), or two differ
            only in case (B127), or a map has VARIANTs as keys.
    """
    # Whether or not the session is case-sensitive: to Delta, two spellings are always one column.
    seen: dict[str, str] = {}
    for column in columns:
        twin = seen.setdefault(CASE_INSENSITIVE.key(column.name), column.name)
        if twin != column.name:
            raise SchemaMismatchError(
                f"Columns {within}{twin} and {within}{column.name} differ only in case, so "
                f"{target} cannot have both. Rename one of them."
            )
        if pa.types.is_null(column.type):
            raise SchemaMismatchError(
                f"Column {within}{column.name} has no type (void), so {target} cannot take it. "
                "Give it one with a schema hint (cloudFiles.schemaHints) or a cast."
            )
        if pa.types.is_map(column.type) and holds_variant(column.type.key_type):
            raise SchemaMismatchError(
                f"Column {within}{column.name} is a map whose keys are VARIANTs, so {target} "
                "cannot take it: Spark has no such map. Leave the column out."
            )
        if pa.types.is_nested(column.type):
            inner = [column.type.field(index) for index in range(column.type.num_fields)]
            check_columns(inner, target, f"{within}{column.name}.")
