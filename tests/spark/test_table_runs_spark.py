"""What a run whose source is a Delta table has done is in its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import airflow_cloudfiles
from airflow_cloudfiles.engine.job.session import NoSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.table_ingest import ingest_table
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.storage import open_store
from tests.support.iceberg_tables import LocalCatalog
from tests.support.shared_runs import SharedSpark
from tests.support.table_streams import GrowingTable

pytestmark = pytest.mark.spark


class Runs:
    """Runs from a table into another one, whose tasks are carried by a Spark, or without."""

    def __init__(self, spark: SparkSession | None, source: Path, target: str, state: Path) -> None:
        self.spark, self.source, self.target, self.state = spark, source, target, state

    def run(self, **options: str) -> dict[str, Any]:
        """Ingest what is new; the report."""
        spec = JobSpec(
            kind="ingest",
            source=str(self.source),
            format="delta",
            checkpoint_location=str(self.state),
            target=self.target,
            options=options,
            run_id="r",
        )
        report: dict[str, Any] = {}
        durations: dict[str, float] = {}
        if self.spark is None:
            ingest_table(spec, NoSpark(spec), report, durations)
            return report
        shared = SharedSpark(spec, self.spark)
        ingest_table(spec, shared, report, durations)
        assert bool(durations) == shared.begun
        return report


@pytest.fixture(params=["spark", "local"])
def carries(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    """What carries the tasks; `None` for processes of this machine."""
    return spark if request.param == "spark" else None


def test_a_report_counts_what_was_committed(carries: SparkSession | None, tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "bronze", "id", "value")
    table.append(1)
    table.append(2)
    runs = Runs(carries, table.folder, str(tmp_path / "silver"), tmp_path / "state")
    report = runs.run(maxFilesPerTrigger="1", mergeKeys="id")
    sizes = [path.stat().st_size for path in table.folder.glob("*.parquet")]
    wanted = {
        "files": 2,
        "bytes": sum(sizes),
        "rows": 2,
        "inserted_rows": 2,
        "updated_rows": 0,
        "batches": 2,
        "batches_recovered": 0,
        "first_version": 0,
        "last_version": 2,
        "next_version": 3,
        "source_version": 2,
    }
    assert {name: report[name] for name in wanted} == wanted
    assert report["target_version"] == DeltaTable(tmp_path / "silver").version()
    table.append(2)
    report = runs.run(mergeKeys="id")
    assert (report["files"], report["inserted_rows"], report["updated_rows"]) == (1, 0, 1)
    assert (report["first_version"], report["last_version"]) == (3, 3)
    report = runs.run(mergeKeys="id")
    assert (report["files"], report["rows"], report["batches"]) == (0, 0, 0)
    assert (report["first_version"], report["last_version"]) == (None, None)


def test_runs_and_queries_take_turns_on_one_checkpoint(
    carries: SparkSession | None, spark: SparkSession, tmp_path: Path
) -> None:
    airflow_cloudfiles.register(spark)
    table = GrowingTable(tmp_path / "bronze", "id", "value")
    silver, state = tmp_path / "silver", tmp_path / "state"

    def query() -> None:
        reader = spark.readStream.format("deltalake").option("maxFilesPerTrigger", "1")
        writer = reader.load(str(table.folder)).writeStream.format("deltalake")
        writer = writer.option("checkpointLocation", str(state)).trigger(availableNow=True)
        writer.start(str(silver)).awaitTermination()

    runs = Runs(carries, table.folder, str(silver), state)
    for value, turn in enumerate((query, runs.run, query, runs.run, runs.run, query)):
        table.append(2 * value)
        table.append(2 * value + 1)
        turn()
        rows = DeltaTable(silver).to_pyarrow_table().to_pylist()
        assert sorted(row["id"] for row in rows) == list(range(2 * value + 2))
    numbers = [
        spark_checkpoint.numbers(open_store(str(state)), log) for log in ("offsets", "commits")
    ]
    assert numbers == [list(range(9))] * 2


def test_a_table_goes_into_an_iceberg_table(carries: SparkSession | None, tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "bronze", "id", "value")
    table.append(1)
    catalog = LocalCatalog(tmp_path)
    catalog.for_spark()
    try:
        runs = Runs(carries, table.folder, catalog.uri("silver"), tmp_path / "state")
        report = runs.run()
        assert (report["files"], report["rows"], report["target_version"]) == (1, 1, 1)
        table.append(2)
        assert runs.run()["rows"] == 1
        assert runs.run()["rows"] == 0
        rows = catalog.rows("silver")
        assert sorted((row["id"], row["value"]) for row in rows) == [(1, 1), (2, 2)]
    finally:
        catalog.close()
