"""How does a Delta table hold a VARIANT?

As a column of the type `variant` in its schema, with the table feature `variantType`, which
`deltalake` adds in the commit that creates the table or adds the column. Its data files have a
struct of the two parts `value` and `metadata`, neither of which is ever null: a VARIANT that is
null is a struct that is null.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.formats.columnar.fit import Matching, compile_file
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.types import VARIANT

_MARK = {"variant": "true"}
"""Metadata of the second part of a VARIANT in Arrow, as `deltalake` hands it on."""


def delta_columns(schema: pa.Schema) -> StructType:
    """Columns in Arrow as a Delta table has them."""
    found = StructType.fromJson(json.loads(Schema.from_arrow(schema).to_json()))
    return StructType([_with_variants(each) for each in found.fields])


def _with_variants(field: StructField) -> StructField:
    return StructField(field.name, _marked(field.dataType), field.nullable, field.metadata)


def _marked(kind: DataType) -> DataType:
    """The type, with a VARIANT for each struct that is marked as one."""
    if isinstance(kind, StructType):
        if kind.names == [each.name for each in VARIANT] and kind.fields[1].metadata == _MARK:
            return VariantType()
        return StructType([_with_variants(each) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_marked(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_marked(kind.keyType), _marked(kind.valueType), kind.valueContainsNull)
    return kind


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
    matching = Matching(case_sensitive=True, rescues_unknown_fields=False, reserved=frozenset())
    arrays, bads = compile_file(parts, whole, matching).root.fit_fields([column], len(column))
    if any(bad is not None for bad in bads):
        raise SinkError(
            f"Column {field.name} of {target} has a VARIANT that is not valid: its parts "
            "contradict each other. Read the table with Spark's own reader, or restore the data "
            "file from its source."
        )
    return arrays[0]
