"""Bring rows that were put aside to the columns that their target has now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.extensions.row_rules.table import FILE, OWN
from airflow_cloudfiles.engine.formats.base import path_end
from airflow_cloudfiles.engine.formats.columnar.strings import json_of, object_text
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.tables.delta.read.columns import rows_columns
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules, layout_for
from airflow_cloudfiles.engine.types import simple_ddl

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState

APPENDED: Final = WriteRules()
"""A release appends, and changes no column."""


class PresentSchema:
    """Brings rows that were put aside to the columns that a target has now.

    Args:
        state: The target.
        schema: Of the rows, with what is known of each.
        rescued_column: Which takes what has no column.
    """

    def __init__(self, state: TableState, schema: pa.Schema, rescued_column: str) -> None:
        self._state = state
        self._asked = rescued_column
        is_there = rescued_column in state.columns.names
        self._rescued_column = rescued_column if is_there else None
        fields = [each for each in schema if each.name not in OWN.names]
        self._fitting = [each for each in fields if self._fits(each)]
        self._others = [each for each in fields if each not in self._fitting]

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the rows that are written."""
        found = pa.schema(self._fitting)
        if self._rescued_column is not None and self._rescued_column not in found.names:
            found = found.append(pa.field(self._rescued_column, pa.string()))
        return found

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Give the rows as they are written.

        Raises:
            SchemaMismatchError: A value has no column, and there is no rescued data column.
        """
        count = len(batch)
        arrays = {each.name: batch.column(each.name) for each in self._fitting}
        lost = [each for each in self._others if batch.column(each.name).null_count < count]
        if self._rescued_column is None:
            if lost:
                kinds = ", ".join(simple_ddl(rows_columns(pa.schema([each]))) for each in lost)
                raise SchemaMismatchError(
                    f"{self._state.target} has no column that takes {few([e.name for e in lost])} "
                    f"({kinds}) of quarantined rows, and no rescued data column "
                    f"{self._asked}. Add the column (cloudfiles table add-column), or name the "
                    "rescued data column. The rows stay in the quarantine table."
                )
        else:
            rescued = arrays.get(self._rescued_column)
            rescued = pa.nulls(count, pa.string()) if rescued is None else rescued
            arrays[self._rescued_column] = _with_lost(rescued, batch, lost)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema
        )

    def _fits(self, field: pa.Field) -> bool:
        try:
            layout_for(self._state, pa.schema([field, *self._besides(field)]), APPENDED)
        except SchemaMismatchError:
            return False
        return True

    def _besides(self, field: pa.Field) -> list[pa.Field]:
        """Give a column that fits for certain: a layout needs one that is in files."""
        name = self._rescued_column
        is_own = name is None or field.name == name
        return [] if is_own else [pa.field(name, pa.string())]


def _with_lost(rescued: pa.Array, batch: pa.RecordBatch, lost: Sequence[pa.Field]) -> pa.Array:
    """Add values that have no column to the rescued data of their rows."""
    if not lost:
        return rescued
    names = [each.name for each in lost]
    values = zip(*(json_of(batch.column(name)) for name in names), strict=True)
    files = batch.column(FILE).to_pylist()
    found = []
    for text, file, row in zip(rescued.to_pylist(), files, values, strict=True):
        own = object_text(list(zip(names, row, strict=True)))
        if own is None:
            found.append(text)
        else:
            end = path_end(file) if text is None else f",{text.removeprefix('{')}"
            found.append(own.removesuffix("}") + end)
    return pa.array(found, rescued.type)
