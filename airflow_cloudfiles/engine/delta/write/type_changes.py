"""How does a table remember that a type has become wider?

In the metadata of the column, or of the field of a struct, nearest to it: Delta's feature
`typeWidening`. Readers then cast what older files have.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#type-widening
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.delta.merge_schema import TypeChange

TYPE_CHANGES: Final = "delta.typeChanges"
"""Key in the metadata of a column: which types it has had."""


def with_type_changes(columns: StructType, changes: Iterable[TypeChange]) -> StructType:
    """Columns that have the new types already, with a note of each change."""
    for change in changes:
        columns, _ = _noted_struct(columns, change.path, change)
    return columns


def _noted_struct(
    kind: StructType, path: tuple[str, ...], change: TypeChange
) -> tuple[StructType, bool]:
    fields = [
        _noted_field(each, path[1:], change) if each.name == path[0] else each
        for each in kind.fields
    ]
    return StructType(fields), True


def _noted_field(field: StructField, path: tuple[str, ...], change: TypeChange) -> StructField:
    """The field with the note, unless a field inside of it has taken it."""
    kind, is_taken = _noted(field.dataType, path, change)
    metadata = dict(field.metadata or {})
    if not is_taken:
        note = {"fromType": change.have.jsonValue(), "toType": change.want.jsonValue()}
        if path:
            note["fieldPath"] = ".".join(path)
        metadata[TYPE_CHANGES] = [*metadata.get(TYPE_CHANGES, []), note]
    return StructField(field.name, kind, field.nullable, metadata)


def _noted(kind: DataType, path: tuple[str, ...], change: TypeChange) -> tuple[DataType, bool]:
    """The type, and whether a field of a struct in it has the note."""
    if path and isinstance(kind, StructType):
        return _noted_struct(kind, path, change)
    if path and isinstance(kind, ArrayType):
        inner, is_taken = _noted(kind.elementType, path[1:], change)
        return ArrayType(inner, kind.containsNull), is_taken
    if path and isinstance(kind, MapType):
        key, value = kind.keyType, kind.valueType
        if path[0] == "key":
            key, is_taken = _noted(key, path[1:], change)
        else:
            value, is_taken = _noted(value, path[1:], change)
        return MapType(key, value, kind.valueContainsNull), is_taken
    return kind, False
