"""Spark does not log an error that is logged in one line, and logs all others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import ReadError
from airflow_cloudfiles.engine.spark.query.messages import in_one_line
from tests.support.waiting import until

pytestmark = pytest.mark.spark

LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
ID = "sql.streaming.queryId"


def test_two_queries_that_end_at_once_leave_spark_s_log_as_it_was(spark: SparkSession) -> None:
    manager: Any = spark._jvm.org.apache.logging.log4j.LogManager  # type: ignore[union-attr]

    def level() -> str:
        found = manager.getContext(False).getConfiguration().getLoggerConfig(LOGGER)
        return f"{found.getName()} {found.getLevel()}"

    before = level()
    rows = spark.readStream.format("rate").load()
    queries = [rows.writeStream.format("noop").start() for _ in range(2)]
    try:
        for each in queries:
            spark.sparkContext.setLocalProperty(ID, each.id)
            in_one_line(spark, ReadError("It cannot be read."))
    finally:
        spark.sparkContext.setLocalProperty(ID, None)  # type: ignore[arg-type]
    assert level() == f"{LOGGER} OFF"
    queries[0].stop()
    with pytest.raises(AssertionError):
        until(lambda: level() == before, seconds=1)
    queries[1].stop()
    until(lambda: level() == before)
