"""Files of a table with deletion vectors are written anew: no row that is deleted comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.extensions.upkeep import optimize as upkeep
from airflow_cloudfiles.engine.extensions.upkeep.optimize import auto_compact, optimize
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.commit import commit_batch
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.delta_tables import delete_by_vector, read, read_by_duckdb, take_vectors

SCHEMA = pa.schema([("a", pa.string())])


def _append(target: Path, number: int, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema)
    commit_batch(
        str(target),
        batch=BatchId("app", number),
        files=DataFileWriter(str(target), schema).write([batch]),
        schema=schema,
        rules=WriteRules(merge_schema=True, widened_bytes=10**9),
    )


def _table(target: Path, files: int) -> Path:
    """A table whose files have three rows each, and whose rows may be deleted by vectors."""
    for number in range(files):
        _append(target, number, [{"a": f"{number}.{row}"} for row in range(3)], SCHEMA)
    take_vectors(DeltaTable(target))
    return target


def _vectors(target: Path) -> list[bool]:
    """Whether each data file of the newest version has a vector."""
    snapshot = TableLog(DeltaLocation.to_read(str(target))).snapshot()
    return [file.deletion_vector is not None for file in snapshot.files]


def _rows(target: Path) -> list[str]:
    ours, theirs = read(target), read_by_duckdb(target)
    assert sorted(ours["a"].to_pylist()) == sorted(theirs["a"].to_pylist())
    return sorted(ours["a"].to_pylist())


def test_rows_that_are_deleted_are_not_in_the_new_files(tmp_path: Path) -> None:
    target = _table(tmp_path / "t", 3)
    for value in ("0.1", "2.2"):
        delete_by_vector(target, "a", value)
    done = optimize(str(target))
    assert (done.removed_files, done.added_files, done.skipped_groups) == (3, 1, 0)
    assert _rows(target) == ["0.0", "0.2", "1.0", "1.1", "1.2", "2.0", "2.1"]
    assert _vectors(target) == [False]
    entry = (target / "_delta_log" / f"{done.version:020}.json").read_text().splitlines()
    removes = [each["remove"] for line in entry if "remove" in (each := json.loads(line))]
    assert sum("deletionVector" in each for each in removes) == 2, "as the protocol asks for"
    assert optimize(str(target)).removed_files == 0


def test_a_single_file_is_written_anew_without_its_deleted_rows_once(tmp_path: Path) -> None:
    target = _table(tmp_path / "t", 1)
    assert optimize(str(target)).removed_files == 0
    delete_by_vector(target, "a", "0.1")
    assert optimize(str(target)).removed_files == 1
    assert (_rows(target), _vectors(target)) == (["0.0", "0.2"], [False])
    assert optimize(str(target)).removed_files == 0


def test_large_files_lose_their_vectors_where_all_files_are_asked_for(tmp_path: Path) -> None:
    target = _table(tmp_path / "t", 2)
    delete_by_vector(target, "a", "1.0")
    assert optimize(str(target), target_bytes=1).removed_files == 0
    assert optimize(str(target), target_bytes=1, all_files=True).removed_files == 2
    assert (_rows(target), _vectors(target)) == (["0.0", "0.1", "0.2", "1.1", "1.2"], [False] * 2)


@pytest.mark.parametrize("has_vectors", [False, True])
def test_rows_that_are_deleted_meanwhile_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_vectors: bool
) -> None:
    """A deletion vector leaves the file its name, and says which of its rows are gone."""
    target = _table(tmp_path / "t", 2)
    if has_vectors:
        delete_by_vector(target, "a", "0.0")

    def meanwhile(name: str) -> None:
        if name == "before-optimize-commit":
            delete_by_vector(target, "a", "1.1")

    monkeypatch.setattr(upkeep, "crash_point", meanwhile)
    assert optimize(str(target)).skipped_groups == 1
    left = ["0.1", "0.2", "1.0", "1.2"] if has_vectors else ["0.0", "0.1", "0.2", "1.0", "1.2"]
    assert _rows(target) == left
    monkeypatch.undo()
    assert optimize(str(target)).removed_files == 2
    assert (_rows(target), _vectors(target)) == (left, [False])


def test_a_table_with_vectors_is_compacted_after_a_batch(tmp_path: Path) -> None:
    target = _table(tmp_path / "t", 2)
    delete_by_vector(target, "a", "1.1")
    options = TableOptions.read({"autocompact": "true", "autocompactminfiles": "2"})
    assert auto_compact(str(target), options)["compacted_into_files"] == 1
    assert _rows(target) == ["0.0", "0.1", "0.2", "1.0", "1.2"]


def test_a_wider_type_brings_no_deleted_row_back(tmp_path: Path) -> None:
    narrow, wide = (
        pa.schema([("a", pa.string()), ("n", each)]) for each in (pa.int32(), pa.int64())
    )
    target = tmp_path / "t"
    _append(target, 0, [{"a": "gone", "n": 1}, {"a": "kept", "n": 2}], narrow)
    take_vectors(DeltaTable(target))
    delete_by_vector(target, "a", "gone")
    _append(target, 1, [{"a": "new", "n": 2**40}], wide)
    assert _rows(target) == ["kept", "new"]
    assert sorted(read(target)["n"].to_pylist()) == [2, 2**40]
    assert _vectors(target) == [False, False]
