"""Can a promotion be carried out, and what would it fill?

Before a table or a schema log is changed, every rescued value of the fields is converted as the
promotion will convert it. What fails then, for instance a file that cannot be read or a type that
no reader makes, fails while nothing has changed; and a column that no value fits is known in time
to be reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.delta.rewrite import TableSnapshot
from airflow_cloudfiles.engine.promotion.batches import PromotedField, Promoter, PromotionCounts
from airflow_cloudfiles.engine.promotion.columns import path_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def tried(snapshot: TableSnapshot, promoter: Promoter, schema: StructType) -> PromotionCounts:
    """Convert all rescued values of a table, and write nothing.

    Args:
        snapshot: The table as it is.
        promoter: What will be promoted.
        schema: The table's columns as they will be.

    Returns:
        What a promotion would find now.

    Raises:
        SinkError: A file is damaged, or gone.
        TargetUnreachableError: The storage failed.
    """
    found = PromotionCounts()
    for file in snapshot.files.values():
        if not file.has_only_nulls(promoter.rescued_column):
            for batch in snapshot.batches(file, promoter.columns, schema):
                found.add(promoter.apply(batch)[1])
    return found


def unfilled(fields: Sequence[PromotedField], found: PromotionCounts) -> list[str]:
    """Warnings of fields whose rescued values fit their columns in no row."""
    return [
        f"None of the {found.unfit[each.name]:,} rescued values of {each.name} fits the column "
        f"{path_text(each.column)}, a {each.kind.simpleString()}: they stay rescued. Check the "
        "type, and that options are those of the stream; or leave the type out."
        for each in fields
        if found.unfit[each.name] and not found.promoted[each.name]
    ]
