"""What has changed between two schemas of a table?

Columns are the same when they have the same physical name, which column mapping keeps for ever;
without it, when they have the same name. A new column is an additive change: whoever reads on with
the new schema misses nothing. A renamed, dropped or retyped column is not: what is downstream has
to know.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.delta.read.columns import PHYSICAL_NAME
from airflow_cloudfiles.engine.types import short_type


class ChangeKind(enum.Enum):
    """The kinds of changes of a column; the value is what Delta calls it."""

    ADD = "ADD COLUMN"
    RENAME = "RENAME COLUMN"
    DROP = "DROP COLUMN"
    TYPE = "TYPE CHANGE"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of one column.

    Attributes:
        kind: What has happened to it.
        column: Its name, with those that it is inside of; the name before, if there is one.
        detail: What it is now: its name or type, for errors.
    """

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def is_additive(self) -> bool:
        """Whether reading on with the new schema misses nothing."""
        return self.kind is ChangeKind.ADD

    def __str__(self) -> str:
        """The change, for a list of them."""
        return f"{self.kind.value} {self.column}{self.detail}"


def changes_between(before: StructType, after: StructType) -> list[ColumnChange]:
    """The changes that lead from one schema to another; neither order nor nullability is one.

    Args:
        before: With Delta's notes on columns.
        after: The same table, later.
    """
    return list(_of_struct(before, after, ""))


def describe(changes: Sequence[ColumnChange]) -> str:
    """The changes in one line."""
    return "; ".join(map(str, changes))


def _of_struct(before: StructType, after: StructType, within: str) -> Iterator[ColumnChange]:
    left = list(after.fields)
    for field in before.fields:
        path = f"{within}{field.name}"
        found = _same(field, left)
        if found is None:
            yield ColumnChange(ChangeKind.DROP, path)
            continue
        left.remove(found)
        if found.name != field.name:
            yield ColumnChange(ChangeKind.RENAME, path, f" to {within}{found.name}")
        yield from _of_type(field.dataType, found.dataType, path)
    for field in left:
        yield ColumnChange(ChangeKind.ADD, f"{within}{field.name}")


def _of_type(before: DataType, after: DataType, path: str) -> Iterator[ColumnChange]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        yield from _of_struct(before, after, f"{path}.")
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _of_type(before.elementType, after.elementType, f"{path}.element")
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _of_type(before.keyType, after.keyType, f"{path}.key")
        yield from _of_type(before.valueType, after.valueType, f"{path}.value")
    elif before != after:
        was, now = short_type(before), short_type(after)
        yield ColumnChange(ChangeKind.TYPE, path, f" from {was} to {now}")


def _same(field: StructField, among: Sequence[StructField]) -> StructField | None:
    """The column that a column has become."""
    wanted = _identity(field)
    return next((each for each in among if _identity(each) == wanted), None)


def _identity(field: StructField) -> str:
    # A table that is upgraded to column mapping keeps the names of its columns in its files.
    return str((field.metadata or {}).get(PHYSICAL_NAME, field.name))
