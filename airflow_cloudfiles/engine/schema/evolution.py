"""What becomes of a schema when records have more than it has?

Only additions: a new field becomes a column at the end of its struct; what is there keeps its
name, its type and its place for ever (B46 to B50). A name that differs only in case is not new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.types import field_positions, fold

if TYPE_CHECKING:
    from collections.abc import Iterator


def evolve(current: StructType, observed: StructType) -> StructType:
    """Add the columns of `observed` that `current` lacks.

    Doing it twice changes nothing more. New fields of a nested struct go to that struct's end
    (B48), also inside arrays and maps.

    Args:
        current: The schema that is evolved.
        observed: A settled schema of newer records.

    Returns:
        A schema of which `current` is a part, field by field and in the same order.
    """
    fields = list(current.fields)
    positions = field_positions(current)
    for field in observed.fields:
        position = positions.get(fold(field.name))
        if position is None:
            positions[fold(field.name)] = len(fields)
            fields.append(StructField(field.name, field.dataType, True, field.metadata))
            continue
        known = fields[position]
        fields[position] = StructField(
            known.name, _evolve_type(known.dataType, field.dataType), known.nullable, known.metadata
        )
    return StructType(fields)


def _evolve_type(current: DataType, observed: DataType) -> DataType:
    """The current type, with new fields in the structs that both have."""
    if isinstance(current, StructType) and isinstance(observed, StructType):
        return evolve(current, observed)
    if isinstance(current, ArrayType) and isinstance(observed, ArrayType):
        element = _evolve_type(current.elementType, observed.elementType)
        return ArrayType(element, current.containsNull)
    if isinstance(current, MapType):
        value = current.valueType
        for each in _values_as_map(observed):
            value = _evolve_type(value, each)
        return MapType(current.keyType, value, current.valueContainsNull)
    return current


def _values_as_map(observed: DataType) -> list[DataType]:
    """The types of the values, seen as a map: inference finds a struct where a hint says map."""
    if isinstance(observed, MapType):
        return [observed.valueType]
    return [field.dataType for field in observed.fields] if isinstance(observed, StructType) else []


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference between two schemas.

    Attributes:
        kind: What happened to the column.
        path: Which column: `a`, `a.b`, `a.element.b`, `a.value.b`.
        before: Its type before, as Spark writes it; `None` when it was added.
        after: Its type after; `None` when it was removed.
    """

    kind: Literal["added", "removed", "retyped", "respelled"]
    path: str
    before: str | None
    after: str | None

    @property
    def is_additive(self) -> bool:
        """Whether readers of the old schema find everything as it was."""
        return self.kind == "added"


def diff(old: StructType, new: StructType) -> list[SchemaChange]:
    """List how two schemas differ, in the order of the old one, additions last in each struct."""
    return list(_diff_struct(old, new, ""))


def _diff_struct(old: StructType, new: StructType, within: str) -> Iterator[SchemaChange]:
    old_positions, new_positions = field_positions(old), field_positions(new)
    for field in old.fields:
        path = within + field.name
        position = new_positions.get(fold(field.name))
        if position is None:
            yield SchemaChange("removed", path, field.dataType.simpleString(), None)
            continue
        other = new.fields[position]
        if other.name != field.name:
            yield SchemaChange("respelled", path, field.name, other.name)
        yield from _diff_type(field.dataType, other.dataType, path)
    for field in new.fields:
        if fold(field.name) not in old_positions:
            yield SchemaChange("added", within + field.name, None, field.dataType.simpleString())


def _diff_type(old: DataType, new: DataType, path: str) -> Iterator[SchemaChange]:
    if isinstance(old, StructType) and isinstance(new, StructType):
        yield from _diff_struct(old, new, f"{path}.")
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        yield from _diff_type(old.elementType, new.elementType, f"{path}.element")
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _diff_type(old.keyType, new.keyType, f"{path}.key")
        yield from _diff_type(old.valueType, new.valueType, f"{path}.value")
    elif old != new:
        yield SchemaChange("retyped", path, old.simpleString(), new.simpleString())
