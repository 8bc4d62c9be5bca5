"""A micro-batch that is not as expected is not in the table; one that the table has, stays."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ExpectationError,
    OptionError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
from airflow_cloudfiles.engine.job.counts import summary
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions, SinkOptions, TaskSinkOptions
from airflow_cloudfiles.engine.options.table_stream import check_names
from airflow_cloudfiles.engine.spark.tables.sink import refuse_misspelt
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.tables.expectations import check_source, unmet
from airflow_cloudfiles.hooks.arguments import check_at_parse
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ingested import Ingested

RESCUE = {
    "cloudFiles.schemaEvolutionMode": "rescue",
    "cloudFiles.schemaHints": "a STRING, b BIGINT",
    "cloudFiles.maxFilesPerTrigger": "2",
}
_SPAWNED = multiprocessing.get_context("spawn")


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """Two files are a batch; one that was good is committed."""
    found = Ingested(tmp_path, **RESCUE)
    found.add("0", "1", b=1)
    found.run()
    return found


def expecting(stream: Ingested, **options: str) -> Ingested:
    """Give the sink expectations, and a policy as `onViolation`."""
    stream.sink = {f"expect.{name}".lower(): value for name, value in options.items()}
    return stream


def refused(stream: Ingested, match: str) -> ExpectationError:
    """Run, and be refused, with nothing of the batch in the table's folder."""
    files, rows = data_files(stream), stream.rows()
    with pytest.raises(ExpectationError, match=match) as caught:
        stream.run()
    assert not caught.value.is_retryable
    assert (data_files(stream), stream.rows()) == (files, rows)
    return caught.value


def data_files(stream: Ingested) -> set[str]:
    return {path.name for path in stream.target.rglob("*.parquet")}


def test_too_many_rescued_rows_are_refused_with_their_files_until_they_are_right(
    stream: Ingested,
) -> None:
    stream.add("2", b=2)
    stream.add('od"d é', b="nine")
    error = refused(expecting(stream, maxRescuedShare="0.4"), r"Batch 1 is not what was expected")
    odd = f'file://{stream.source}/od"d é.json'
    assert "expect.maxRescuedShare=0.4, but it has rescued data in 1 of 2 rows" in error.message
    assert f", most in {odd} (1). Correct the files" in error.message
    assert "cloudfiles file quarantine" in error.message
    refused(stream, "Batch 1")
    stream.add('od"d é', b=3)
    stream.run()
    assert stream.rows() == ["0", "1", "2", 'od"d é']
    stream.run()
    assert stream.rows() == ["0", "1", "2", 'od"d é']


def test_a_share_that_is_reached_is_met(stream: Ingested) -> None:
    stream.add("2", b=2)
    stream.add("3", b="nine")
    expecting(stream, maxRescuedShare="0.5").run()
    assert len(stream.rows()) == 4
    (stream.source / "4.json").write_text(json.dumps({"a": "4", "b": "x"}) + "\n")
    refused(
        expecting(stream, maxRescuedShare="0"),
        "maxRescuedShare=0, but it has rescued data in 1 of 1 row",
    )


def test_a_file_that_is_quarantined_is_left_out_and_the_batch_goes_on(stream: Ingested) -> None:
    stream.add("2", b=2)
    stream.add("bad", b="nine")
    refused(expecting(stream, maxRescuedShare="0.1", minRows="1"), "bad.json")
    operate_on_files(str(stream.state), "quarantine", "bad.json", target=str(stream.target))
    stream.run()
    assert stream.rows() == ["0", "1", "2"]


def test_a_batch_of_which_all_files_are_put_aside_meets_all(stream: Ingested) -> None:
    stream.add("2")
    refused(expecting(stream, minRows="5", requiredColumns="b"), "it has 1 row")
    operate_on_files(str(stream.state), "skip", "2.json", target=str(stream.target))
    stream.run()
    assert stream.rows() == ["0", "1"]
    assert stream.position().batch == 1


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"mode": "PERMISSIVE"}, "it has 2 corrupt records of 3"),
        ({"mode": "DROPMALFORMED"}, "it has 2 corrupt records of 3"),
        ({"badRecordsPath": "bad"}, "it has 2 corrupt records of 3"),
    ],
    ids=lambda value: next(iter(value.items()))[1] if isinstance(value, dict) else "",
)
def test_too_many_corrupt_records_are_refused_kept_or_not(
    tmp_path: Path, options: dict[str, str], found: str
) -> None:
    if "badRecordsPath" in options:
        options = {"badRecordsPath": str(tmp_path / "bad")}
    stream = Ingested(tmp_path, **RESCUE, **options)
    stream.add("good", b=1)
    stream.run()
    stream.add("2", b=2)
    (stream.source / "cut.json").write_text('{"a": "3"\n{"b"\n')
    error = refused(expecting(stream, maxCorruptShare="0.5"), "expect.maxCorruptShare=0.5")
    assert f"{found}, most in " in error.message
    assert error.message.count(".json") == 1
    assert "cut.json (2)" in error.message
    expecting(stream, maxCorruptShare="0.7").run()
    found_rows = stream.table.to_pyarrow_dataset().to_table()["a"].to_pylist()
    assert sorted(filter(None, found_rows)) == ["2", "good"]


def test_a_required_column_has_a_value_in_some_row_of_each_batch(stream: Ingested) -> None:
    stream.add("2", b=2)
    stream.add("3")
    expecting(stream, requiredColumns="A, B").run()
    assert len(stream.rows()) == 4
    stream.add("4", "5")
    error = refused(stream, "expect.requiredColumns=A, B, but no row has a value in B[.]")
    assert ".json" not in error.message
    refused(expecting(stream, requiredColumns="nowhere"), "no row has a value in nowhere")
    expecting(stream).run()
    assert len(stream.rows()) == 6


@pytest.mark.parametrize("bound", [{"minRows": "3"}, {"maxRows": "1"}], ids=str)
def test_a_batch_has_neither_fewer_nor_more_rows(stream: Ingested, bound: dict[str, str]) -> None:
    stream.add("2", "3", b=2)
    [(name, value)] = bound.items()
    refused(expecting(stream, **bound), f"expect.{name}={value}, but it has 2 rows")
    expecting(stream, minRows="2", maxRows="2").run()
    assert len(stream.rows()) == 4


def test_all_that_is_not_as_expected_is_named(stream: Ingested) -> None:
    stream.add("2", b="x")
    error = refused(expecting(stream, maxRescuedShare="0", minRows="2"), "maxRescuedShare")
    assert "(1); expect.minRows=2, but it has 1 row. Correct" in error.message


def report(stream: Ingested, batches: range, **sink: str) -> dict[str, Any]:
    given = {f"expect.{name}": value for name, value in sink.items()}
    stream.given = {**stream.given, **given}
    return summary(stream.spec(), run_history.notes(str(stream.state), batches))


def test_what_is_committed_all_the_same_is_in_the_report(
    stream: Ingested, caplog: pytest.LogCaptureFixture
) -> None:
    stream.add("2", "3")
    stream.add("4", "5", b="x")
    options = {"maxRescuedShare": "0.5", "requiredColumns": "a,b", "onViolation": "warn"}
    expecting(stream, **options).run()
    assert len(stream.rows()) == 6
    [warning] = report(stream, range(3), **options)["warnings"]
    assert warning == (
        "Committed, although not as expected: batch 1: expect.requiredColumns=a, b, but no row has "
        "a value in b, batch 2: expect.maxRescuedShare=0.5, but it has rescued data in 2 of 2 "
        "rows; expect.requiredColumns=a, b, but no row has a value in b."
    )
    assert "Batch 2 is committed, although expected: expect.maxRescuedShare" in caplog.text
    assert report(stream, range(1), **options)["warnings"] == []


@pytest.mark.parametrize("is_first", [True, False])
def test_a_batch_for_an_iceberg_table_is_checked_too(tmp_path: Path, is_first: bool) -> None:
    lake = LocalCatalog(tmp_path)
    stream = Ingested(tmp_path, **RESCUE)
    stream.iceberg = lake.uri("t")
    if not is_first:
        stream.add("0", "1", b=1)
        stream.run()
    before = sorted(lake.folder.rglob("*.parquet"))
    stream.add("2", b=2)
    stream.add("3", b="x")
    with pytest.raises(
        ExpectationError, match=r"it has rescued data in 1 of 2 rows, most in .*3.json"
    ):
        expecting(stream, maxRescuedShare="0.1", requiredColumns="b").run()
    assert sorted(lake.folder.rglob("*.parquet")) == before
    expecting(stream, maxRescuedShare="0.5", requiredColumns="b").run()
    expecting(stream, maxRescuedShare="0").run()
    assert len(lake.rows("t")) == 2 + 2 * (not is_first)
    stream.forget(0 if is_first else 1)
    expecting(stream, maxRescuedShare="0").run()  # the table has it: it was accepted
    assert len(lake.rows("t")) == 2 + 2 * (not is_first)
    lake.close()


def test_a_batch_that_merges_is_checked_too(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **RESCUE)
    stream.add("0", "1", b=1)
    merging = {"mergekeys": "a"}
    stream.sink = merging
    stream.run()
    stream.add("1 again", b=2)
    (stream.source / "1 again.json").write_text(json.dumps({"a": "1", "b": "x"}) + "\n")
    refused(expecting(stream, maxRescuedShare="0"), "1 of 1 row")
    stream.sink = {**merging, "expect.maxrescuedshare": "0"}
    refused(stream, "1 of 1 row")
    stream.sink = {**merging, "expect.maxrescuedshare": "1"}
    stream.run()
    assert stream.rows() == ["0", "1"]


# ── killed ───────────────────────────────────────────────────────────────────────────────────────


def _run(folder: str, cache: str, point: str, sink: Mapping[str, str]) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    expecting(Ingested(Path(folder), **RESCUE), **sink).run()


@pytest.mark.parametrize(
    ("point", "is_there"), [("before-sink-commit", False), ("after-sink-commit", True)]
)
def test_killed_after_the_check_a_batch_is_checked_again_unless_the_table_has_it(
    tmp_path: Path, point: str, is_there: bool
) -> None:
    stream, cache = Ingested(tmp_path, **RESCUE), str(tmp_path / "cache")
    stream.add("0", b=0)
    stream.run()
    stream.add("1", "2", b="x")
    warn = {"maxRescuedShare": "0.1", "onViolation": "warn"}
    process = _SPAWNED.Process(target=_run, args=(str(tmp_path), cache, point, warn))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (len(stream.rows()) == 3) == is_there
    expecting(stream, maxRescuedShare="0.1")
    if is_there:
        stream.run()  # the table has it: it was accepted
    else:
        with pytest.raises(ExpectationError, match="2 of 2 rows"):
            stream.run()
        assert stream.rows() == ["0"]
        expecting(stream, **warn).run()
    assert stream.rows() == ["0", "1", "2"]
    stream.run()
    assert stream.rows() == ["0", "1", "2"]


# ── options ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxRescuedShare": "10%"}, "expect.maxRescuedShare must be a number from 0 to 1"),
        ({"maxCorruptShare": "1.01"}, "expect.maxCorruptShare must be a number from 0 to 1"),
        ({"minRows": "0"}, "expect.minRows must be a whole number of at least 1"),
        ({"minRows": "3", "maxRows": "2"}, "minRows=3 is more than expect.maxRows=2"),
        ({"onViolation": "warn"}, "expect.onViolation=warn needs an expectation"),
        ({"minRows": "3", "onViolation": "wan"}, "fail, quarantine, warn; got 'wan'. Did you mean"),
        ({"onViolation": "quarantine"}, "expect.onViolation=quarantine needs an expectation"),
        ({"minRows": "3", "onViolation": "quarantine"}, "quarantine needs expect.maxRescuedShare"),
        (
            {"requiredColumns": "a", "onViolation": "quarantine"},
            "for other expectations no file is to blame",
        ),
    ],
)
def test_an_expectation_that_cannot_be_meant_is_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        TaskSinkOptions.read({f"expect.{name}".lower(): value for name, value in options.items()})


def test_expectations_are_for_runs_that_ingest_files(tmp_path: Path) -> None:
    schema = StructType().add("a", "string")
    options = SinkOptions.read({"expect.minrows": "1"})
    with pytest.raises(UnsupportedOptionError, match=r"expect\.\* is for runs that ingest files"):
        DeltaTargetTable(str(tmp_path / "t")).writer(options, state=None, schema=schema)
    with pytest.raises(UnsupportedOptionError, match=r"expect.minRows: expectations are for str"):
        check_names({"expect.minRows": "1"})
    with pytest.raises(UnknownOptionError, match=r"expect.minrows is not one of the expectations"):
        refuse_misspelt({"expect.minrows": "1"}, BatchWriteOptions, "deltalake")


def test_rescued_rows_that_nobody_counts_are_not_expected(tmp_path: Path) -> None:
    expected = TaskSinkOptions.read({"expect.maxrescuedshare": "0.1"})
    source = CloudFilesOptions.parse({"cloudFiles.format": "text"}, path=str(tmp_path))
    with pytest.raises(OptionError, match="needs a rescued data column"):
        check_source(expected, source)
    check_source(TaskSinkOptions(), source)


def test_a_bad_expectation_is_found_when_the_dag_is_parsed() -> None:
    for options, kind in (
        ({"expect.maxRescuedShare": 7}, OptionError),
        ({"expect.maxRescudShare": 0.1}, UnknownOptionError),
        ({"expect.onViolation": "quarantined"}, OptionError),
    ):
        with pytest.raises(kind):
            check_at_parse(source="/in", format="json", options=options)
    plain = {"expect.maxRescuedShare": 0.1, "expect.onViolation": "{{ params.policy }}"}
    check_at_parse(source="/in", format="json", options=plain)


def test_shares_are_compared_as_the_decimals_that_were_written() -> None:
    for percent in range(101):
        options = TaskSinkOptions.read({"expect.maxrescuedshare": f"{percent / 100:.2f}"})
        assert unmet(options, {"files": 1, "rows": 100, "rescued_rows": percent}) == []
        assert unmet(options, {"files": 1, "rows": 100, "rescued_rows": percent + 1})


def test_the_error_is_one_of_ours_for_a_caller() -> None:
    assert issubclass(ExpectationError, CloudFilesError)
