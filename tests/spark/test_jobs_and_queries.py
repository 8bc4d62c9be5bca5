"""Jobs and plain queries take turns on one state: each goes on where the other has ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_cloudfiles import register
from airflow_cloudfiles.engine.batches.file_source import FileBatches
from airflow_cloudfiles.engine.errors import StateConflictError
from airflow_cloudfiles.engine.job import ingest
from airflow_cloudfiles.engine.job.counts import files_of
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, position
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing import drop, rows, run, stream
from tests.support.shared_runs import run_in

pytestmark = pytest.mark.spark

LIMIT = {"cloudFiles.maxFilesPerTrigger": "1"}


class Shared:
    """One source, one state, one table; each file is a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        register(spark)
        self.spark = spark
        self.source, self.state, self.target = folder / "in", folder / "state", folder / "table"
        self.dropped: list[str] = []

    def drop(self, *names: str) -> None:
        for name in names:
            drop(self.source, f"{name}.json", [{"id": name}])
            self.dropped.append(name)

    def spec(self) -> JobSpec:
        return JobSpec(
            kind="ingest",
            source=str(self.source),
            format="json",
            checkpoint_location=str(self.state),
            target=str(self.target),
            options=LIMIT,
            run_id="run",
        )

    def job(self) -> None:
        run_in(self.spark, self.spec())

    def frame(self) -> DataFrame:
        return stream(self.spark, self.source, self.state, **LIMIT)

    def query(self) -> None:
        run(self.frame(), self.state, self.target)

    def ids(self) -> list[str]:
        return sorted(row["id"] for row in rows(self.target))

    def position(self) -> Position:
        return position(open_store(str(self.state)))


@pytest.fixture
def shared(spark: SparkSession, tmp_path: Path) -> Shared:
    return Shared(spark, tmp_path)


def test_a_job_leaves_no_checkpoint_of_sparks_behind(shared: Shared) -> None:
    shared.drop("a", "b")
    shared.job()
    assert shared.ids() == ["a", "b"]
    assert {path.name for path in shared.state.iterdir()} == {
        "_reports",
        "_runs",
        "_schemas",
        "_source",
    }
    assert shared.position().batch == 1


def test_they_take_turns_and_ingest_each_row_once(shared: Shared) -> None:
    """The batches of both are those of the plan log, one after the other."""
    for turn in range(3):
        shared.drop(f"job-{turn}-0", f"job-{turn}-1")
        shared.job()
        assert shared.position().batch == 4 * turn + 1
        shared.drop(f"query-{turn}-0", f"query-{turn}-1")
        shared.query()
        assert shared.position().batch == 4 * turn + 3
        assert shared.ids() == sorted(shared.dropped)
    store = open_store(str(shared.state))
    assert PlanLog(store).latest() == PlanLog(store).get(11)
    table = json.loads((shared.target / "_delta_log" / f"{12:020}.json").read_text().split("\n")[0])
    assert table["commitInfo"]["operation"] == "WRITE"


def test_a_query_with_another_sink_goes_on_behind_a_job(shared: Shared) -> None:
    """What jobs have ingested is not given to it again."""
    shared.drop("a", "b")
    shared.job()
    shared.drop("c")
    seen: list[Any] = []
    writer = shared.frame().writeStream.option("checkpointLocation", str(shared.state))
    query = writer.foreachBatch(lambda frame, batch: seen.append((batch, frame.count())))
    query.trigger(availableNow=True).start().awaitTermination()
    assert seen == [(2, 1)]


def test_a_query_that_keeps_state_is_refused_behind_a_job(shared: Shared) -> None:
    shared.spark.conf.set("spark.sql.shuffle.partitions", "1")

    def once() -> None:
        frame = shared.frame().dropDuplicates(["id"])
        run(frame, shared.state, shared.target)

    shared.drop("a")
    once()
    shared.drop("b", "c")
    shared.job()
    with pytest.raises(StateConflictError, match=r"2 batches.*state of its own") as refused:
        once()
    assert not refused.value.is_retryable
    assert shared.ids() == ["a", "b", "c"]


def test_a_job_is_refused_behind_a_query_that_numbers_its_batches_otherwise(
    shared: Shared,
) -> None:
    shared.drop("a", "b")
    shared.query()
    offsets = shared.state / "offsets"
    for name in ("1", ".1.crc"):
        (offsets / name).rename(offsets / name.replace("1", "2"))
    commits = shared.state / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).rename(commits / name.replace("1", "2"))
    with pytest.raises(StateConflictError, match="its batch 2 ends at"):
        shared.job()


def test_a_job_leaves_alone_what_a_query_has_committed_since_it_looked(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.drop("a", "b")

    def after_a_query(*given: Any) -> FileBatches:
        shared.query()
        return files_of(*given)

    monkeypatch.setattr(ingest, "files_of", after_a_query)
    report = run_in(shared.spark, shared.spec())
    assert (report["outcome"], report["rows"], report["batches"]) == ("succeeded", 0, 0)
    assert (shared.ids(), shared.position().batch) == (["a", "b"], 1)
    monkeypatch.undo()
    shared.drop("c")
    shared.job()
    assert shared.ids() == ["a", "b", "c"]
