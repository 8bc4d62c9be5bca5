"""What becomes of a schema when records have more than it has?

Only additions: a new field becomes a column at the end of its struct; what is there keeps its
name, its type and its place for ever (B46 to B50). A name that differs only in case is not new.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.schema.diff import SchemaChange, diff_json

__all__ = ["SchemaChange", "diff", "evolve"]


def evolve(
    current: StructType, observed: StructType, matcher: NameMatcher = CASE_INSENSITIVE
) -> StructType:
    """Add the columns of `observed` that `current` lacks.

    Doing it twice changes nothing more. New fields of a nested struct go to that struct's end
    (B48), also inside arrays and maps.

    Args:
        current: The schema that is evolved.
        observed: A resolved schema of newer records.
        matcher: How names are compared.

    Returns:
        A schema of which `current` is a part, field by field and in the same order.
    """
    fields = list(current.fields)
    key = matcher.key
    positions = matcher.positions(current)
    for field in observed.fields:
        position = positions.get(key(field.name))
        if position is None:
            positions[key(field.name)] = len(fields)
            fields.append(StructField(field.name, field.dataType, True, field.metadata))
            continue
        known = fields[position]
        fields[position] = StructField(
            known.name,
            _evolve_type(known.dataType, field.dataType, matcher),
            known.nullable,
            known.metadata,
        )
    return StructType(fields)


def _evolve_type(current: DataType, observed: DataType, matcher: NameMatcher) -> DataType:
    """The current type, with new fields in the structs that both have."""
    if isinstance(current, StructType) and isinstance(observed, StructType):
        return evolve(current, observed, matcher)
    if isinstance(current, ArrayType) and isinstance(observed, ArrayType):
        element = _evolve_type(current.elementType, observed.elementType, matcher)
        return ArrayType(element, current.containsNull)
    if isinstance(current, MapType):
        value = current.valueType
        for each in _values_as_map(observed):
            value = _evolve_type(value, each, matcher)
        return MapType(current.keyType, value, current.valueContainsNull)
    return current


def _values_as_map(observed: DataType) -> list[DataType]:
    """The types of the values, seen as a map: inference finds a struct where a hint says map."""
    if isinstance(observed, MapType):
        return [observed.valueType]
    return [field.dataType for field in observed.fields] if isinstance(observed, StructType) else []


def diff(old: StructType, new: StructType) -> list[SchemaChange]:
    """List how two schemas differ, in the order of the old one, additions last in each struct."""
    return diff_json(old.jsonValue(), new.jsonValue())
