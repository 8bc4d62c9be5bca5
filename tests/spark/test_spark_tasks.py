"""Tasks of micro-batches on a Spark of this process: results, failures, and what Spark shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.batches.run import TaskFailure
from airflow_cloudfiles.engine.batches.spark_tasks import SparkTasks
from airflow_cloudfiles.engine.errors import FileMissingError, RunFailedError
from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

pytestmark = pytest.mark.spark

LOST = """
import pyarrow as pa
from pyspark.sql import SparkSession
from airflow_cloudfiles.engine.batches.run import TaskFailure
from airflow_cloudfiles.engine.batches.spark_tasks import SparkTasks
from airflow_cloudfiles.engine.tables.table_writer import TaskWritten
from airflow_cloudfiles.engine.errors import to_record

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
context = spark.sparkContext
tasks = SparkTasks(lambda: context, "/tables/t")
written = lambda split: TaskWritten([split], pa.schema([]), {})
print("WHOLE", [each.files for each in tasks.carry(written, range(3), 0)])
# Where the driver is told what tasks have added to an accumulator.
context._accumulatorServer.shutdown()
context._accumulatorServer.server_close()
context._jsc.sc().listenerBus().waitUntilEmpty()
try:
    print("NOT TOLD", tasks.carry(written, range(3), 1))
except TaskFailure as failed:
    print("TOLD", to_record(failed.failure), failed.written)
"""


@pytest.fixture
def tasks(spark: SparkSession) -> SparkTasks:
    return SparkTasks(lambda: spark.sparkContext, "/tables/t")


def _written(split: object) -> TaskWritten:
    import pyarrow as pa

    return TaskWritten([split], pa.schema([]), {"pid": os.getpid()})


def _fails_at(bad: int, folder: Path, split: int) -> TaskWritten:
    """Fail for one split, once the one before has ended."""
    if split == bad:
        while not (folder / str(bad - 1)).exists():
            time.sleep(0.05)
        time.sleep(1)  # its end reaches the driver
        raise FileMissingError(f"The file of split {split} is gone.")
    (folder / str(split)).touch()
    return _written(split)


def _sleeps(folder: Path, split: int) -> TaskWritten:
    (folder / f"begun-{split}").touch()
    time.sleep(2)
    (folder / f"ended-{split}").touch()
    return _written(split)


def test_results_come_in_the_order_of_the_splits_from_other_processes(tasks: SparkTasks) -> None:
    written = tasks.carry(_written, range(50), 3)
    assert [each.files for each in written] == [[split] for split in range(50)]
    assert os.getpid() not in {each.counts["pid"] for each in written}


def test_sparks_ui_names_stream_and_micro_batch(spark: SparkSession, tasks: SparkTasks) -> None:
    tasks.carry(_written, range(2), 7)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[union-attr]
    newest = max((jobs.apply(place) for place in range(jobs.size())), key=lambda job: job.jobId())
    assert newest.description().get() == "/tables/t: micro-batch 7"
    assert newest.numTasks() == 2


def test_a_failing_task_keeps_its_error_and_tells_what_others_have_written(
    tasks: SparkTasks, tmp_path: Path
) -> None:
    with pytest.raises(TaskFailure) as failed:
        tasks.carry(partial(_fails_at, 1, tmp_path), range(2), 0)
    failure = failed.value.failure
    assert isinstance(failure, FileMissingError)
    assert failure.message == "The file of split 1 is gone."
    known = [each.files for each in failed.value.written if each is not None]
    assert known == [[0]]
    assert None in failed.value.written, "one has not ended"


def test_a_signal_ends_the_spark_job(
    spark: SparkSession, tasks: SparkTasks, tmp_path: Path
) -> None:
    def stop(number: int, _frame: object) -> None:
        raise RunFailedError(f"signal {number}")

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        threading.Timer(3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(TaskFailure) as failed:
            tasks.carry(partial(_sleeps, tmp_path), range(200), 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(failed.value.failure, RunFailedError)
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 30
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not tracker.getActiveJobsIds()
    begun = len([*tmp_path.glob("begun-*")])
    time.sleep(3)
    assert len([*tmp_path.glob("begun-*")]) == begun < 200


def test_results_that_spark_could_not_pass_on_are_no_success(tmp_path: Path) -> None:
    """Spark ends the job as a success, and only logs that an accumulator was not updated."""
    done = subprocess.run(
        [sys.executable, "-c", LOST], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "WHOLE [[0], [1], [2]]" in done.stdout
    assert "NOT TOLD" not in done.stdout
    told = next(line for line in done.stdout.splitlines() if line.startswith("TOLD"))
    assert "Spark has lost what 3 tasks of micro-batch 1 wrote" in told
    assert "RunFailedError" in told
    assert told.endswith("[None]"), "files may have been written that nobody knows"
