"""Predicates of rules hold where Spark says so, and rules work in Spark's tasks."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from airflow_cloudfiles.engine.errors import ExpectationError
from airflow_cloudfiles.engine.extensions.row_rules.quarantine import Quarantine, RowSelection
from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.landing import drop, rows
from tests.support.row_predicates import PREDICATES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_spark_says_the_same_of_each_predicate(spark: SparkSession) -> None:
    names = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
    before = {name: spark.conf.get(name) for name in names}
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        frame = spark.createDataFrame(pa.Table.from_batches([ROWS])).cache()
        said = frame.select("id", *[expr(text) for text, _ in PREDICATES]).collect()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    for place, (text, ids) in enumerate(PREDICATES, 1):
        assert sorted(row[0] for row in said if row[place] is True) == ids, text


def test_a_run_on_spark_puts_rows_aside_and_refuses_what_a_rule_does_not_allow(
    tmp_path: Path,
) -> None:
    def run(**rules: str) -> dict[str, object]:
        spec = JobSpec(
            kind="ingest",
            source=str(tmp_path / "in"),
            format="json",
            checkpoint_location=str(tmp_path / "state"),
            target=str(tmp_path / "table"),
            options={
                "cloudFiles.schemaHints": "id BIGINT",
                **{f"expect.row.{name}": text for name, text in rules.items()},
            },
            run_id=uuid.uuid4().hex,
        )
        found: dict[str, object] = launch(spec, LocalSpark(master="local[2]"), on_log=print).wait()
        return found

    for number in range(4):
        drop(tmp_path / "in", f"{number}.json", [{"id": number}, {"id": -number - 1}])
    aside = {"positive": "id >= 0", "positive.onViolation": "quarantine"}
    report = run(**aside)
    assert (report["rows"], report["quarantined_rows"]) == (4, 4)
    assert sorted(row["id"] for row in rows(tmp_path / "table_quarantine")) == [-4, -3, -2, -1]
    drop(tmp_path / "in", "5.json", [{"id": 5}, {"id": -9}])
    with pytest.raises(ExpectationError, match=r"5\.json \(1, the first is row 2\)"):
        run(**{**aside, "positive.onViolation": "fail"})
    assert run(**aside)["quarantined_rows"] == 1
    Quarantine(str(tmp_path / "table")).release(RowSelection(where="id > -3"))
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == [-2, -1, 0, 1, 2, 3, 5]
