"""The function of the stream whose connection has marked credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stamped(batch: DataFrame, by: str) -> DataFrame:
    """Add a column."""
    from pyspark.sql import functions as fn

    return batch.withColumn("by", fn.lit(by))
