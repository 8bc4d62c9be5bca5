"""A stream as a page shows it: how it is, its newest runs and files, what was rescued."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_cloudfiles.engine.errors import StateError, TargetNotDeltaError
from airflow_cloudfiles.engine.extensions.overview import runs as newest_files_module
from airflow_cloudfiles.engine.extensions.overview.rescued import (
    MOST_BYTES,
    MOST_ROWS,
    RESCUED_DATA,
    rescued_fields,
)
from airflow_cloudfiles.engine.extensions.overview.runs import (
    MOST_ENTRIES,
    newest_files,
    newest_runs,
    stream_overview,
)
from airflow_cloudfiles.engine.intake.file_states import FileQuery
from airflow_cloudfiles.engine.state.run_history import encode_report
from airflow_cloudfiles.engine.storage import open_store
from tests.support.counted_calls import counted_calls
from tests.support.written_state import WrittenState


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    return WrittenState(f"file://{tmp_path}/state")


def _report(written: WrittenState, number: int, **more: Any) -> None:
    report = {
        "run_id": f"run-{number}",
        "kind": "ingest",
        "started": f"2026-11-23T08:{number:02}:00+00:00",
        "outcome": "succeeded",
        "durations": {"total_seconds": 1.5},
        "warnings": [],
        **more,
    }
    written.state.put(f"_reports/run-{number}.json", encode_report(report))


def test_what_is_outstanding_begins_behind_the_last_commit(written: WrittenState) -> None:
    written.discover("a", "bb")
    written.plan()
    written.commit()
    written.discover("ccc", "dddd", "e")
    written.plan(max_files=1)
    written.commit()
    found = stream_overview(written.state)
    assert (found.outstanding_files, found.outstanding_bytes, found.is_counted) == (2, 5, True)
    assert (found.last_batch, found.entries) == (1, 2)
    assert found.oldest_outstanding == written.files.summary(1).created == found.newest_found


def test_a_stream_that_has_caught_up_has_no_oldest_file(written: WrittenState) -> None:
    assert stream_overview(written.state).newest_found is None
    written.discover("a")
    written.plan()
    written.commit()
    written.discover(found_by="existing")
    found = stream_overview(written.state)
    assert (found.outstanding_files, found.oldest_outstanding) == (0, None)


def test_without_a_state_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"There is no state in .*none: nothing was discovered"):
        stream_overview(open_store(str(tmp_path / "none")))


def test_runs_come_newest_first_with_what_they_did(written: WrittenState) -> None:
    _report(written, 1, files=2, bytes=10, rows=20, rescued_rows=3, schema_version=0)
    error = {"class": "UnknownFieldException", "message": "new fields"}
    _report(written, 2, outcome="failed", error=error, warnings=["look"])
    _report(written, 3, kind="infer")
    runs = newest_runs(written.state, most=2)
    assert [each.run_id for each in runs.newest] == ["run-3", "run-2"]
    assert runs.kept == 3
    failed = runs.newest[1]
    assert (failed.error, failed.message, failed.warnings) == (*error.values(), ("look",))
    assert (failed.code, failed.section) == ("", ""), "a report from before there were codes"
    first = newest_runs(written.state).newest[2]
    assert (first.files, first.rows, first.rescued_rows, first.seconds) == (2, 20, 3, 1.5)
    assert (first.schema_version, first.target_version) == (0, None)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"run_id": ', b'{"files": "many"}'])
def test_a_report_that_cannot_be_read_is_left_out(written: WrittenState, content: bytes) -> None:
    _report(written, 1)
    written.state.put("_reports/torn.json", content)
    assert [each.run_id for each in newest_runs(written.state).newest] == ["run-1"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    return counted_calls(monkeypatch)


def _go_on(written: WrittenState, runs: int) -> None:
    """So many more runs of a file each."""
    for _ in range(runs):
        number = written.discover(f"f{written.files.latest()}")
        written.plan()
        written.commit()
        _report(written, number)


def test_what_a_page_costs_does_not_grow_with_the_stream(
    written: WrittenState, calls: Counter[str]
) -> None:
    def cost() -> Counter[str]:
        calls.clear()
        stream_overview(open_store(written.uri))
        newest_runs(open_store(written.uri), most=3)
        return calls.copy()

    _go_on(written, 5)
    before = cost()
    _go_on(written, 30)
    assert cost() == before


def test_the_newest_files_cost_a_few_requests_more_where_a_stream_doubles(
    written: WrittenState, calls: Counter[str]
) -> None:
    """Their micro-batch is searched for by halves."""

    def cost() -> int:
        calls.clear()
        newest_files(written.uri, FileQuery(status=("committed",)), most=3)
        return calls.total()

    _go_on(written, 8)
    costs = [cost()]
    for runs in (8, 16, 32):
        _go_on(written, runs)
        costs.append(cost())
    assert costs[-1] < 60
    assert all(after - before <= 4 for before, after in pairwise(costs)), costs


def test_the_newest_files_come_first_and_only_so_many(written: WrittenState) -> None:
    written.discover("a", "b")
    written.plan()
    written.commit()
    written.discover("c", "d")
    rows, is_all = newest_files(written.uri, most=3)
    assert [(each["path"][-1], each["status"]) for each in rows] == [
        ("d", "discovered"),
        ("c", "discovered"),
        ("b", "committed"),
    ]
    assert not is_all
    rows, is_all = newest_files(written.uri, FileQuery(status=("committed",)))
    assert ([each["path"][-1] for each in rows], is_all) == (["b", "a"], True)


def test_a_rare_file_is_looked_for_among_the_newest_entries(written: WrittenState) -> None:
    written.discover("rare")
    for number in range(MOST_ENTRIES):
        written.discover(f"f{number}")
    assert newest_files(written.uri, FileQuery(path="rare")) == ([], False)


def test_so_many_files_are_looked_at_for_a_rare_one(
    written: WrittenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_files_module, "MOST_LOOKED_AT", 5)
    written.discover("rare", "a", "b")
    for number in range(2):
        written.discover(*(f"{number}-{each}" for each in range(3)))
    rare = FileQuery(path="rare")
    assert newest_files(written.uri, rare) == ([], False)
    monkeypatch.setattr(newest_files_module, "MOST_LOOKED_AT", 7)
    assert [each["path"][-4:] for each in newest_files(written.uri, rare)[0]] == ["rare"]
    assert newest_files(written.uri, rare)[1]


def _table(folder: Path, *batches: list[str | None]) -> str:
    for rows in batches:
        data = {"id": range(len(rows)), RESCUED_DATA: pa.array(rows, pa.string())}
        write_deltalake(str(folder), pa.table(data), mode="append")
    return str(folder)


def test_rescued_data_is_shown_by_field(tmp_path: Path) -> None:
    newest = [
        '{"price":"cheap","user":{"zip":"8000","`":1},"_file_path":"s3://b/é \\"x\\".json"}',
        None,
        '{"price":"dear","_file_path":"s3://b/2.json"}',
    ]
    target = _table(tmp_path / "table", ['{"price":1,"_file_path":"s3://b/0.json"}'], newest)
    found = rescued_fields(target)
    assert (found.rows, found.has_more) == (3, False)
    price, *others = found.fields
    assert (price.path, price.rows) == ("price", 3)
    assert set(price.values) == {'"cheap"', '"dear"', "1"}
    assert {each.path: each.values for each in others} == {
        "user.zip": ['"8000"'],
        "user.````": ["1"],
    }
    assert others[0].file == 's3://b/é "x".json'


def test_a_rescued_field_says_whether_its_column_takes_the_values(tmp_path: Path) -> None:
    rows = [
        '{"price":"12 EUR","n":"3000000000","late":"1","s":{"x":1},"t":{"x":2},"new":1}',
        '{"price":"free","late":"soon","all":null,"d":"1.555"}',
    ]
    kinds = {"price": pa.float64(), "n": pa.int32(), "late": pa.int64(), "all": pa.int64()}
    kinds |= {"s": pa.struct({"y": pa.string()}), "t": pa.string(), "d": pa.decimal128(5, 2)}
    data = {name: pa.nulls(2, kind) for name, kind in kinds.items()}
    target = str(tmp_path / "table")
    write_deltalake(target, pa.table({**data, RESCUED_DATA: pa.array(rows, pa.string())}))
    found = rescued_fields(target, format_name="csv").fields
    assert {each.path: (each.column, each.fitting, each.wider) for each in found} == {
        "price": ("double", 0, None),
        "d": ("decimal(5,2)", 0, "decimal(6,3)"),
        "n": ("int", 0, "bigint"),
        "late": ("bigint", 1, None),
        "s.x": (None, 0, None),
        "t.x": ("of no fields", 0, None),
        "new": (None, 0, None),
        "all": ("bigint", 1, None),
    }


def test_rescued_data_of_others_is_no_failure(tmp_path: Path) -> None:
    target = _table(tmp_path / "table", ["not json", '["x"]', '{"a":1}'])
    found = rescued_fields(target)
    assert ([each.path for each in found.fields], found.rows) == (["a"], 3)


def test_so_many_rows_of_rescued_data_are_read(tmp_path: Path) -> None:
    found = rescued_fields(_table(tmp_path / "table", ['{"a":1}'] * (MOST_ROWS + 1)))
    assert (found.rows, found.fields[0].rows, found.has_more) == (MOST_ROWS, MOST_ROWS, True)


_MEASURED = """
import resource, sys
from airflow_cloudfiles.engine.extensions.overview.rescued import rescued_fields
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rescued_fields(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_rescued_values_that_compress_well_cost_a_page_little(tmp_path: Path) -> None:
    """A page reads bounded bytes after decompression, and says what it has left out."""
    huge = '{"blob":"' + "x" * (100 << 20) + '"}'
    repeated = ['{"note":"' + "y" * (2 << 20) + '"}'] * 40
    target = _table(tmp_path / "table", ['{"a":1}'], repeated, [huge])
    measured = [sys.executable, "-c", _MEASURED, target]
    kib = int(subprocess.run(measured, check=True, capture_output=True).stdout)
    assert kib < 200 << 10
    found = rescued_fields(target)
    assert found.left_out == 1
    assert found.has_more
    [note] = found.fields
    assert (note.path, note.rows, len(note.values[0])) == ("note", found.rows, 201)
    assert found.rows < len(repeated)
    assert MOST_BYTES <= found.rows * (2 << 20) < 2 * MOST_BYTES


def test_a_table_without_the_column_has_none(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "plain"), pa.table({"a": [1]}))
    assert rescued_fields(str(tmp_path / "plain")).fields == []
    with pytest.raises(TargetNotDeltaError):
        rescued_fields(str(tmp_path / "none"))
