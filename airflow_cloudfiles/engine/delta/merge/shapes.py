"""How do nested values of a batch get the type of the table's column, as `deltalake` wants them?

It casts values, but neither adds a field that rows lack to a struct, nor changes the order of its
fields, nor takes a field that may be null for one that is NOT NULL (tried with 1.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from airflow_cloudfiles.engine.delta.merge_schema import partners
from airflow_cloudfiles.engine.delta.schema import delta_schema, rows_columns
from airflow_cloudfiles.engine.delta.write.conform import with_inner


@dataclass(frozen=True, slots=True)
class Shape:
    """What a nested column of a batch becomes.

    Attributes:
        rows: Its type in the rows.
        table: Its type in the table, which has all of its fields.
        wanted: The same in Arrow.
    """

    rows: DataType
    table: DataType
    wanted: pa.DataType

    def of(self, array: pa.Array) -> pa.Array:
        """The values in the type of the table."""
        return _shaped(array, self.rows, self.table, self.wanted)


NO_SHAPES: Final[Mapping[str, Shape]] = {}


def shapes_of(schema: pa.Schema, table: StructType) -> dict[str, Shape]:
    """What becomes of the nested columns of rows whose type is not that of the table.

    Args:
        schema: Of the rows.
        table: The columns of the table, which has all of theirs.
    """
    kinds = rows_columns(schema)
    in_table = pa.schema(delta_schema(table))
    found = {}
    for kind, place in zip(kinds.fields, partners(table, kinds), strict=True):
        if place is None or not isinstance(kind.dataType, StructType | ArrayType | MapType):
            continue
        wanted = in_table.field(place).type
        if schema.field(kind.name).type != wanted:
            found[kind.name] = Shape(kind.dataType, table.fields[place].dataType, wanted)
    return found


def shaped_schema(schema: pa.Schema, shapes: Mapping[str, Shape]) -> pa.Schema:
    """The columns of rows that have been given their shapes."""
    return pa.schema(
        [
            each.with_type(shapes[each.name].wanted) if each.name in shapes else each
            for each in schema
        ]
    )


def _shaped(array: pa.Array, rows: DataType, table: DataType, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if isinstance(rows, StructType) and isinstance(table, StructType):
        parts = [pa.nulls(len(array), each.type) for each in wanted]
        for at, place in enumerate(partners(table, rows)):
            if place is not None:
                kinds = rows.fields[at].dataType, table.fields[place].dataType
                parts[place] = _shaped(array.field(at), *kinds, wanted.field(place).type)
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        kinds = rows.elementType, table.elementType
        inner = _shaped(array.values, *kinds, wanted.value_type)
    elif isinstance(rows, MapType) and isinstance(table, MapType):
        fields = [wanted.key_field, wanted.item_field]
        keys = _shaped(array.keys, rows.keyType, table.keyType, fields[0].type)
        values = _shaped(array.items, rows.valueType, table.valueType, fields[1].type)
        inner = pa.StructArray.from_arrays([keys, values], fields=fields)
    else:
        return array.cast(wanted)
    return with_inner(array, wanted, inner)
