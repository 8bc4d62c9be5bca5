"""Tasks of a micro-batch on a Spark of this process: what they give back, and how they fail."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.batches.run import TaskFailure
from airflow_cloudfiles.engine.batches.spark_tasks import SparkTasks
from airflow_cloudfiles.engine.errors import StateUnreachableError, UnknownFieldException
from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def tasks(spark: SparkSession) -> SparkTasks:
    """What carries tasks."""
    return SparkTasks(lambda: spark.sparkContext, "/lake/orders")


def carried(fails: Exception | None, log: str, part: int) -> TaskWritten:
    """Note the try, then write nothing, or fail for the part 3."""
    with Path(log).open("a") as lines:
        lines.write(f"{part}\n")
    if fails is not None and part == 3:
        raise fails
    return TaskWritten(files=[part], schema=pa.schema([("id", pa.int64())]))


def test_each_part_comes_back_once_and_in_its_place(tasks: SparkTasks, tmp_path: Path) -> None:
    found = tasks.carry(partial(carried, None, str(tmp_path / "tries")), list(range(40)), 0)
    assert [each.files for each in found] == [[part] for part in range(40)]


@pytest.mark.parametrize("kind", [UnknownFieldException, StateUnreachableError])
def test_an_error_comes_back_as_itself_with_what_others_have_written(
    spark: SparkSession,
    tasks: SparkTasks,
    tmp_path: Path,
    kind: type[UnknownFieldException | StateUnreachableError],
) -> None:
    """One that no other attempt helps against is given back, an outage is raised."""
    tasks_at_once = spark.sparkContext.defaultParallelism
    assert tasks_at_once < 4
    with pytest.raises(TaskFailure) as failed:
        tasks.carry(partial(carried, kind("what it says"), str(tmp_path / "t")), list(range(6)), 0)
    assert type(failed.value.failure) is kind
    assert failed.value.failure.message == "what it says"
    known = [each.files for each in failed.value.written if each is not None]
    # Part 3 begins when all before it have ended, but for one on each other core.
    assert len([each for each in known if each < [3]]) >= 4 - tasks_at_once
    assert [3] not in known
