"""A run takes what had arrived when it began; what comes meanwhile is for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.landing import drop, stream

pytestmark = pytest.mark.spark


def test_a_file_that_arrives_during_a_run_waits_for_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:  # B113
    source, state = tmp_path / "in", tmp_path / "state"
    source.mkdir()
    for number in range(2):
        drop(source, f"{number}.json", [{"id": number}])
    batches: list[list[str]] = []

    def take(batch: DataFrame, _: int) -> None:
        batches.append(sorted(row["id"] for row in batch.collect()))
        drop(source, f"late-{len(batches)}.json", [{"id": 10 + len(batches)}])

    def run() -> None:
        frame = stream(spark, source, state, **{"cloudFiles.maxFilesPerTrigger": "1"})
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(state))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    assert batches == [["0"], ["1"]]
    run()
    assert batches == [["0"], ["1"], ["11"], ["12"]]
