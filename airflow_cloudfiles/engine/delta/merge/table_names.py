"""Which tables does the library change rows of, and how do they call the columns of the rows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.delta.merge_schema import partners
from airflow_cloudfiles.engine.delta.schema import rows_columns
from airflow_cloudfiles.engine.delta.write.features import require_appendable, require_library
from airflow_cloudfiles.engine.delta.write.table_state import TableState
from airflow_cloudfiles.engine.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa


def refuse_change(state: TableState, what: str) -> None:
    """Refuse tables of which `deltalake` (1.6) changes no rows, or whose rows it misreads.

    Args:
        state: The table.
        what: What is to be done to it, as `merged into`.

    Raises:
        SinkError: The table is such a one.
    """
    require_appendable(state)
    require_library(state, what)
    rules = []
    if state.mode != "none" and state.protocol.reader_features is None:
        rules.append("deltalake misreads column mapping of the legacy protocol")
    if state.configuration.get("delta.appendOnly", "").lower() == "true":
        rules.append("it has delta.appendOnly=true")
    if rules:
        raise SinkError(
            f"{state.target} cannot be {what} in this version, because {'; '.join(rules)}. Append "
            "to it, choose another target, or use Delta's own jars."
        )


def names_in(state: TableState, rows: pa.Schema) -> dict[str, str]:
    """The name in the table of each column of rows: without case, and through renames.

    A column that the table lacks has its own.
    """
    columns = state.columns
    found = partners(columns, rows_columns(rows))
    return {
        name: name if place is None else columns.fields[place].name
        for name, place in zip(rows.names, found, strict=True)
    }
