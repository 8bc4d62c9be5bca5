"""A run whose batch is not as expected fails once, and says what; the next run goes on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import ExpectationError, FilesQuarantinedError
from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.run_history import read_report
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing import drop, rows
from tests.support.shared_runs import run_in

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _spec(folder: Path, **expected: str) -> JobSpec:
    return JobSpec(
        kind="ingest",
        source=str(folder / "in"),
        format="json",
        checkpoint_location=str(folder / "state"),
        target=str(folder / "table"),
        options={
            "cloudFiles.schemaEvolutionMode": "rescue",
            "cloudFiles.schemaHints": "id BIGINT",
            "cloudFiles.maxFilesPerTrigger": "2",
            **{f"expect.{name}": value for name, value in expected.items()},
        },
        run_id=uuid.uuid4().hex,
    )


def _launched(spec: JobSpec) -> dict[str, Any]:
    report: dict[str, Any] = launch(spec, LocalSpark(master="local[2]"), on_log=print).wait()
    return report


def _ids(folder: Path) -> list[Any]:
    return sorted(row["id"] for row in rows(folder / "table"))


def test_a_run_fails_until_its_file_is_right_or_the_bound_is_loosened(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    for number in range(3):
        drop(source, f"{number}.json", [{"id": number}])
    drop(source, "3.json", [{"id": "three"}])
    strict = _spec(tmp_path, maxRescuedShare="0.1")
    with pytest.raises(ExpectationError) as caught:
        _launched(strict)
    assert not caught.value.is_retryable
    assert "Batch 1 is not what was expected" in caught.value.message
    assert (
        "expect.maxRescuedShare=0.1, but it has rescued data in 1 of 2 rows" in caught.value.message
    )
    assert f"most in file://{source}/3.json (1)" in caught.value.message
    report = read_report(open_store(strict.checkpoint_location), strict.run_id)
    assert report is not None
    assert (report["outcome"], report["batches"], report["rows"]) == ("failed", 1, 2)
    assert report["error"]["class"] == "ExpectationError"
    assert _ids(tmp_path) == [0, 1]

    drop(source, "3.json", [{"id": 3}])
    assert run_in(spark, _spec(tmp_path, maxRescuedShare="0.1"))["rows"] == 2
    assert _ids(tmp_path) == [0, 1, 2, 3]

    drop(source, "4.json", [{"id": 4}])
    drop(source, "5.json", [{"id": 5, "more": 1}])
    with pytest.raises(ExpectationError, match=r"Batch 2 .*5\.json \(1\)"):
        run_in(spark, _spec(tmp_path, maxRescuedShare="0.1"))
    accepted = run_in(spark, _spec(tmp_path, maxRescuedShare="0.1", onViolation="warn"))
    [warning] = accepted["warnings"]
    assert warning.startswith("Committed, although not as expected: batch 2: expect.maxRescuedSha")
    assert warning.endswith("=0.1, but it has rescued data in 1 of 2 rows.")
    assert run_in(spark, _spec(tmp_path, maxRescuedShare="0.1"))["batches"] == 0
    assert _ids(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_run_puts_the_files_to_blame_aside_and_the_next_one_commits_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    for number in (0, 1, 2):
        drop(source, f"{number}.json", [{"id": number}])
    drop(source, "3.json", [{"id": "three"}])
    drop(source, "4.json", [{"id": "four"}])
    drop(source, "5.json", [{"id": "five"}])
    strict = {"maxRescuedShare": "0.1", "onViolation": "quarantine"}
    refused = _spec(tmp_path, **strict)
    with pytest.raises(FilesQuarantinedError, match=r"1 file is quarantined for that: .*/3\.json"):
        run_in(spark, refused)
    report = read_report(open_store(refused.checkpoint_location), refused.run_id)
    assert report is not None
    assert (report["outcome"], report["rows"]) == ("failed", 2)
    assert report["error"]["is_retryable"]
    assert _ids(tmp_path) == [0, 1]
    with pytest.raises(FilesQuarantinedError, match=r"2 files are quarantined .* batch 2 without"):
        run_in(spark, _spec(tmp_path, **strict))
    assert _ids(tmp_path) == [0, 1, 2]
    assert run_in(spark, _spec(tmp_path, **strict))["rows"] == 0

    drop(source, "3.json", [{"id": 3}])
    operate_on_files(str(tmp_path / "state"), "release", "3.json")
    assert run_in(spark, _spec(tmp_path, **strict))["rows"] == 1
    assert run_in(spark, _spec(tmp_path, **strict))["batches"] == 0
    assert _ids(tmp_path) == [0, 1, 2, 3]
