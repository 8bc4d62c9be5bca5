"""Find the kind of table that a stream writes to.

A Delta table at a path or URI, or a table of an Iceberg catalog (`iceberg://...`), whose code is
imported only then: it is an extra of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.storage.uri import is_iceberg
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.target_table import TargetTable


def target_table(target: str) -> TargetTable:
    """Give the table of a target; nothing is opened yet.

    Args:
        target: Path or URI of a Delta table, or `iceberg://catalog/namespace/table`.
    """
    kind: type[TargetTable] = extension("iceberg table") if is_iceberg(target) else DeltaTargetTable
    return kind(target)
