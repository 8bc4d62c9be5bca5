"""How do arrays of rows become those of a data file, and is a null where none may be?

The layout has the shape of the rows, so the two are walked side by side; nothing is looked up by
name. What has the type already is handed on as it is.
"""

from __future__ import annotations

import pyarrow as pa

from airflow_cloudfiles.engine.counted import counted, plural
from airflow_cloudfiles.engine.delta.write.layout import ColumnLayout, FileLayout
from airflow_cloudfiles.engine.errors import SchemaMismatchError


def conformed(batch: pa.RecordBatch, layout: FileLayout, target: str) -> list[pa.Array]:
    """The columns of rows in the types of the table, in the order of the rows.

    Args:
        batch: Rows.
        layout: Of the table's files.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: A value is null in a column that is NOT NULL.
    """
    require_values(batch, layout, target)
    return [_conformed(*each) for each in zip(batch.columns, layout.columns, strict=True)]


def _conformed(array: pa.Array, column: ColumnLayout) -> pa.Array:
    wanted = column.field.type
    if array.type == wanted:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if not column.inside:
        return array.cast(wanted)
    if pa.types.is_struct(wanted):
        parts = [
            _conformed(array.field(place), inside) for place, inside in enumerate(column.inside)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        key, value = column.inside
        fields = [wanted.key_field, wanted.item_field]
        pairs = [_conformed(array.keys, key), _conformed(array.items, value)]
        inner = pa.StructArray.from_arrays(pairs, fields=fields)
    else:
        [element] = column.inside
        inner = _conformed(array.values, element)
    return with_inner(array, wanted, inner)


def with_inner(array: pa.Array, wanted: pa.DataType, inner: pa.Array) -> pa.Array:
    """A list or map with other values inside; which are null, and where each begins, stays."""
    own = array.buffers()[:2]
    return pa.Array.from_buffers(wanted, len(array), own, array.null_count, array.offset, [inner])


def require_values(batch: pa.RecordBatch, layout: FileLayout, target: str) -> None:
    """Refuse nulls where a table has NOT NULL.

    Args:
        batch: Rows.
        layout: Of the table's files.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: There are some.
    """
    for array, column in zip(batch.columns, layout.columns, strict=True):
        if column.checks_nulls:
            _require_values(array, column, target)


def _require_values(array: pa.Array, column: ColumnLayout, target: str) -> None:
    """The same of one column; inside of what is null there is nothing."""
    if column.required and array.null_count:
        raise SchemaMismatchError(
            f"NOT NULL constraint violated for column: {column.path} of {target}: "
            f"{array.null_count} of {counted(len(array), 'row')} "
            f"{plural(array.null_count, 'has', 'have')} no value there. Nothing of the batch is "
            "visible. Correct the files, or drop the constraint where the table is maintained "
            "(ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL)."
        )
    if not any(each.checks_nulls for each in column.inside) or pa.types.is_null(array.type):
        return
    for inside, part in zip(column.inside, _parts(array), strict=True):
        if inside.checks_nulls:
            _require_values(part, inside, target)


def _parts(array: pa.Array) -> list[pa.Array]:
    """What is inside of the values that are not null."""
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        pairs = pa.ListArray.from_arrays(
            array.offsets, pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        ).flatten()
        return [pairs.field(0), pairs.field(1)]
    return [array.flatten()]
