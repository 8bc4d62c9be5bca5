"""Spark's tasks look at a sample as one process does; `load()` asks them to."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.inference import tasks
from airflow_cloudfiles.engine.inference import workers as inference_workers
from airflow_cloudfiles.engine.inference.tasks import Sample, learn_sample
from airflow_cloudfiles.engine.inference.workers import SparkWorkers
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.storage import open_store
from tests.unit.inference.test_parts import json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tasks, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr("airflow_cloudfiles.engine.reading.splits.MIN_SPLIT_BYTES", 2000)
    monkeypatch.setattr("airflow_cloudfiles.engine.reading.splits.OPEN_COST_BYTES", 100)
    folder = tmp_path / "in"
    folder.mkdir()
    rng = random.Random(4)
    for number in range(20):
        repeated = 30 if number == 10 else 1  # one is large enough to be cut
        (folder / f"{number:02}.json").write_bytes(b"\n".join(json_lines(rng, 30) * repeated))
    return folder


def _sample(folder: Path, **options: str) -> Sample:
    given = {"cloudFiles.format": "json", "cloudFiles.inferColumnTypes": "true", **options}
    store = open_store(str(folder))
    files = sorted(store.list(), key=lambda file: file.path)
    return Sample(store, files, CloudFilesOptions.parse(given, path=str(folder)))


def _workers(spark: SparkSession) -> SparkWorkers:
    return SparkWorkers(lambda: spark, count=2, start_seconds=-1.0)  # always worth it


def test_tasks_give_the_schema_of_one_process(
    spark: SparkSession, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_workers, "POLL_SECONDS", 0.01)
    alone, shared = FetchCounts(), FetchCounts()
    expected = learn_sample(_sample(source), alone)
    found = learn_sample(_sample(source), shared, _workers(spark))
    assert found.json() == expected.json()
    assert shared == alone
    assert shared.files == 20


def test_a_damaged_file_is_named_by_the_task_that_met_it(spark: SparkSession, source: Path) -> None:
    (source / "15.json.gz").write_bytes(b"\x1f\x8b\x08 no more of it")
    with pytest.raises(FileUnreadableError, match=r"15\.json\.gz"):
        learn_sample(_sample(source), FetchCounts(), _workers(spark))
    counts = FetchCounts()
    learn_sample(_sample(source, ignoreCorruptFiles="true"), counts, _workers(spark))
    assert (counts.files, counts.corrupt_files) == (20, 1)


def test_load_writes_the_schema_that_one_process_infers(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SparkSession] = []

    def eager(session: SparkSession) -> SparkWorkers:
        asked.append(session)
        return _workers(session)

    monkeypatch.setattr(inference_workers, "spark_workers", eager)
    frame = (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .option("cloudFiles.inferColumnTypes", "true")
        .option("cloudFiles.schemaLocation", str(tmp_path / "schemas"))
        .load(str(source))
    )
    from airflow_cloudfiles.engine.stream.definition import resolve_schema

    given = {
        "cloudFiles.format": "json",
        "cloudFiles.inferColumnTypes": "true",
        "cloudFiles.schemaLocation": str(tmp_path / "others"),
    }
    options = CloudFilesOptions.parse(given, path=str(source))
    assert frame.schema == resolve_schema(options).full_schema(options)
    assert asked == [spark]
    assert (tmp_path / "schemas" / "_schemas" / "0").exists()
