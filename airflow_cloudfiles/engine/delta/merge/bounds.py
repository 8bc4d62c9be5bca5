"""Of which columns does the library write no bounds when it merges?

`deltalake` (1.6) writes bounds that hide rows, or that it cannot read itself: of floats without
regard to NaN, of decimals as doubles, of dates beyond the year 9999. So a file that it writes gets
bounds of such a column only where all rows that may get into it come from files that have bounds of
it: the writer of this package leaves them out exactly where they would be wrong (`statistics`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, WriterProperties

from airflow_cloudfiles.engine.delta.statistics import Leaf, leaves_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.delta.data_files import DataFile

_EXACT_DIGITS: Final = 15
"""Decimal digits that a double has."""


def writer_properties(table: DeltaTable, files: Sequence[DataFile] = ()) -> WriterProperties:
    """How the library writes data files from those of a table and from some rows besides.

    Args:
        table: The table.
        files: The files with the rows.
    """
    leaves = leaves_of(pa.schema(table.schema().to_arrow()))
    there = pa.table(table.get_add_actions(flatten=True))
    statistics = [json.loads(file.statistics) for file in files]
    without = [
        leaf
        for leaf in leaves
        if _is_inexact(leaf)
        or (_may_be_wrong(leaf) and not (_has(there, leaf) and _have(statistics, leaf)))
    ]
    none = ColumnProperties(statistics_enabled="NONE")
    if any(len(leaf.path) > 1 for leaf in without):  # it can name whole columns only
        return WriterProperties(compression="SNAPPY", default_column_properties=none)
    return WriterProperties(
        compression="SNAPPY",
        column_properties={leaf.path[0]: none for leaf in without} or None,
    )


def _is_inexact(leaf: Leaf) -> bool:
    return bool(pa.types.is_decimal(leaf.kind) and leaf.kind.precision > _EXACT_DIGITS)


def _may_be_wrong(leaf: Leaf) -> bool:
    kind = leaf.kind
    return bool(pa.types.is_floating(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _has(actions: pa.Table, leaf: Leaf) -> bool:
    """Whether all files of a table have bounds of a column, or only nulls in it."""
    if not actions.num_rows:
        return True
    path = ".".join(leaf.path)
    least, nulls = f"min.{path}", f"null_count.{path}"
    if not {least, nulls} <= set(actions.column_names):
        return False
    is_empty = pc.fill_null(pc.equal(actions[nulls], actions["num_records"]), False)
    return bool(pc.all(pc.or_(actions[least].is_valid(), is_empty)).as_py())


def _have(statistics: Iterable[dict[str, Any]], leaf: Leaf) -> bool:
    """The same, of files that are in no version."""
    return all(
        _value(each["minValues"], leaf.path) is not None
        or _value(each["nullCount"], leaf.path) == each["numRecords"]
        for each in statistics
    )


def _value(found: Any, path: Sequence[str]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
