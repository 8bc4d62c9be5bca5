"""How do the columns of rows become those of a Delta table, and which tables are not rewritten?

Arrow's schema of rows becomes Spark's, in which Delta keeps it and in which schemas are merged
(`merge_schema`). What no Delta table can have, and tables whose files cannot be replaced here, are
refused.

How does a Delta table hold a VARIANT?

As a column of the type `variant` in its schema, with the table feature `variantType`, which
`deltalake` adds in the commit that creates the table or adds the column. Its data files have a
struct of the two parts `value` and `metadata`, neither of which is ever null: a VARIANT that is
null is a struct that is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema
from pyspark.sql.types import DataType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.spark_types import VariantType
from airflow_cloudfiles.engine.types import VARIANT, with_inside, with_type


def schema_of(table: DeltaTable) -> StructType:
    """The columns of a table; Delta stores them as Spark's schema JSON."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def delta_fields(fields: list[StructField]) -> list[Field]:
    """Columns, as `deltalake` takes them."""
    return [Field.from_json(json.dumps(each.jsonValue())) for each in fields]


def delta_schema(columns: StructType) -> Schema:
    """The columns of a table, as `deltalake` takes them."""
    return Schema.from_json(json.dumps(columns.jsonValue()))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, which may all be null: a later file may lack one."""
    return pa.schema([each.with_nullable(True).remove_metadata() for each in schema])


def rows_columns(schema: pa.Schema) -> StructType:
    """The columns of rows as a Delta table has them."""
    return delta_columns(nullable(schema))


def check_columns(
    columns: Iterable[pa.Field], target: str, within: str = "", *, takes_void: bool = False
) -> None:
    """Refuse columns that no Delta table can have.

    Args:
        columns: Of the rows.
        target: The table, for errors.
        within: The column they are inside of, with a dot behind it.
        takes_void: Whether columns and fields of structs may have no type, as in a batch write.

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
        if pa.types.is_null(column.type) and not takes_void:
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
            inner_void = takes_void and pa.types.is_struct(column.type)
            check_columns(inner, target, f"{within}{column.name}.", takes_void=inner_void)


_MARK = {"variant": "true"}
"""Metadata of the second part of a VARIANT in Arrow, as `deltalake` hands it on."""


def delta_columns(schema: pa.Schema) -> StructType:
    """Columns in Arrow as a Delta table has them."""
    found = StructType.fromJson(json.loads(Schema.from_arrow(schema).to_json()))
    return StructType([with_type(each, _marked("", each.dataType)) for each in found.fields])


def _marked(_: str, kind: DataType) -> DataType:
    fields = kind.fields if isinstance(kind, StructType) else []
    if [each.name for each in fields] == [each.name for each in VARIANT] and (
        fields[1].metadata == _MARK
    ):
        return VariantType()
    return with_inside(kind, _marked)


def as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as a data file takes them.

    The library refuses a part that is null, though the VARIANT is null as a whole: such a row comes
    from Spark, and from columns that a file lacks.
    """
    columns = [
        _filled(column, field.type)
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _filled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with empty parts where a VARIANT is null.

    Args:
        array: Values; Spark's own carry no mark of what is a VARIANT.
        kind: Their type, with the marks.
    """
    if not holds_variant(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [array.field(place) for place in range(kind.num_fields)]
        is_null = array.is_null()
        if kind.equals(VARIANT, check_metadata=True):
            parts = [pc.if_else(is_null, pa.scalar(b""), part) for part in parts]
        else:
            parts = [_filled(part, each.type) for part, each in zip(parts, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=is_null)
    if pa.types.is_map(kind):
        pairs = [array.keys, _filled(array.items, kind.item_type)]
        inner = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    else:
        inner = _filled(array.values, kind.value_type)
    own = array.buffers()[:2]  # which are null, and where each begins
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [inner])


def as_read(column: pa.Array, field: pa.Field, target: str) -> pa.Array:
    """A column of a data file, of whatever layout, as the column of the table.

    Args:
        column: Of a VARIANT it has all the parts that the file has.
        field: The column, as `types.to_arrow` makes it.
        target: The table, for errors.

    Raises:
        SinkError: A VARIANT cannot be put together.
    """
    if not holds_variant(field.type):
        return column.cast(field.type)
    parts, whole = pa.schema([pa.field(field.name, column.type)]), pa.schema([field])
    from airflow_cloudfiles.engine.formats.columnar.fit import (  # noqa: PLC0415 - few values
        Matching,
        compile_file,
    )

    matching = Matching(case_sensitive=True, rescues_unknown_fields=False, reserved=frozenset())
    arrays, bads = compile_file(parts, whole, matching).root.fit_fields([column], len(column))
    if any(bad is not None for bad in bads):
        raise SinkError(
            f"Column {field.name} of {target} has a VARIANT that is not valid: its parts "
            "contradict each other. Read the table with Spark's own reader, or restore the data "
            "file from its source."
        )
    return arrays[0]
