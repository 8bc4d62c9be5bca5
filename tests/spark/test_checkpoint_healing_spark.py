"""Spark goes on from a checkpoint that was damaged and rebuilt: every row once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import register
from airflow_cloudfiles.engine.errors import CorruptedStateError
from tests.support.landing import drop, forget_index, rows, run, stream
from tests.unit.spark.test_checkpoint_healing import damage

pytestmark = pytest.mark.spark

LIMIT = {"cloudFiles.maxFilesPerTrigger": "1"}
DAMAGES: dict[str, list[tuple[str, str]]] = {
    "the newest offsets are cut off": [("offsets/2", "half")],
    "offsets and their commit are empty": [("offsets/2", "empty"), ("commits/2", "empty")],
    "a commit is cut off, offsets are zeros": [("commits/2", "half"), ("offsets/1", "zeros")],
    "a checksum is another": [("offsets/2", "checksum"), ("metadata", "checksum cut")],
    "metadata is cut off": [("metadata", "half")],
    "all is empty": [
        (name, "empty") for name in ("metadata", "offsets/1", "offsets/2", "commits/1", "commits/2")
    ],
    "offsets are gone": [("offsets", "folder")],
    "commits are gone": [("commits", "folder")],
}


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """A stream of three batches, which copies are made of; nothing in it says where it is."""
    register(spark)
    folder = tmp_path_factory.mktemp("stream")
    ids = []
    for number in range(3):
        ids.append(f"first-{number}")
        drop(folder / "in", f"{number}.json", [{"id": ids[-1]}])
    run(stream(spark, folder / "in", folder / "state", **LIMIT), folder / "state", folder / "table")
    return folder, ids


def _damaged(folder: Path, hits: list[tuple[str, str]]) -> None:
    for name, way in hits:
        if way == "folder":
            shutil.rmtree(folder / name)
        else:
            damage(folder, name, way)


@pytest.mark.parametrize("what", DAMAGES)
def test_a_stream_goes_on_with_every_row_once(
    spark: SparkSession, written: tuple[Path, list[str]], what: str, tmp_path: Path
) -> None:
    folder, ids = written
    saved = tmp_path / "saved"
    for name in ("in", "state", "table"):
        shutil.copytree(folder / name, saved / name)
    try:
        _damaged(folder / "state", DAMAGES[what])
        drop(folder / "in", "new.json", [{"id": "new"}])
        frame = stream(spark, folder / "in", folder / "state", **LIMIT)
        run(frame, folder / "state", folder / "table")
        assert sorted(row["id"] for row in rows(folder / "table")) == sorted([*ids, "new"])
        numbers = {int(p.name) for p in (folder / "state/commits").iterdir() if p.name.isdigit()}
        assert max(numbers) == len(ids)
    finally:
        for name in ("in", "state", "table"):
            shutil.rmtree(folder / name)
            shutil.copytree(saved / name, folder / name)
        forget_index(folder / "state")


def test_a_query_that_keeps_state_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"id": "a"}, {"id": "a"}])

    def once() -> None:
        frame = stream(spark, source, state).dropDuplicates(["id"])
        frame.writeStream.format("parquet").option("checkpointLocation", str(state)).trigger(
            availableNow=True
        ).start(str(target)).awaitTermination()

    spark.conf.set("spark.sql.shuffle.partitions", "1")
    once()
    damage(state, "offsets/0", "half")
    with pytest.raises(CorruptedStateError, match=r"offsets/0 is cut off.*own") as some:
        once()
    assert not some.value.is_retryable
