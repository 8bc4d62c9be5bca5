"""A table whose log was damaged by a power failure is refused by name, and not appended to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta import opening
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.opening import open_existing
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules

A = pa.schema([("a", pa.int64())])
BATCHES = 7
ENTRIES = [f"{version:020}.json" for version in range(5, BATCHES + 1)]
CHECKPOINT = f"{5:020}.checkpoint.parquet"


def _commit(target: Path, number: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"a": number}], A)
    delta_commit.commit_batch(
        str(target),
        batch=BatchId("stream", number),
        files=DataFileWriter(str(target), A).write([batch]),
        schema=A,
        rules=WriteRules(merge_schema=False),
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a checkpoint of its log, and entries before and behind it."""
    target = tmp_path_factory.mktemp("delta") / "table"
    target.mkdir()
    interval = {"delta.checkpointInterval": "5"}
    DeltaTable.create(str(target), Schema.from_arrow(A), configuration=interval)
    for number in range(BATCHES):
        _commit(target, number)
    assert (target / "_delta_log" / CHECKPOINT).exists()
    return target


def _torn(content: bytes, way: str) -> bytes:
    return {"empty": b"", "half": content[: len(content) // 2], "zeros": bytes(len(content))}[way]


def _values(target: Path) -> list[int]:
    return sorted(DeltaTable(str(target)).to_pyarrow_dataset().to_table()["a"].to_pylist())


@pytest.fixture
def target(written: Path, tmp_path: Path) -> Path:
    """A copy of the table."""
    return Path(shutil.copytree(written, tmp_path / "table"))


@pytest.mark.parametrize("way", ["empty", "half", "zeros"])
def test_the_newest_entry_is_set_aside_and_its_batch_is_run_again(
    target: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = target / "_delta_log" / ENTRIES[-1]
    newest.write_bytes(_torn(newest.read_bytes(), way))
    _commit(target, BATCHES - 1)
    assert _values(target) == list(range(BATCHES))
    assert ENTRIES[-1] in caplog.text
    _commit(target, BATCHES)
    assert _values(target) == list(range(BATCHES + 1))


def test_several_newest_entries_are_set_aside(target: Path) -> None:
    # Two streams that wrote one table when the power failed: neither was told of its commit.
    for name in ENTRIES[-2:]:
        (target / "_delta_log" / name).write_bytes(b"")
    for number in (BATCHES - 2, BATCHES - 1):
        _commit(target, number)
    assert _values(target) == list(range(BATCHES))


@pytest.mark.parametrize("way", ["empty", "half", "zeros"])
@pytest.mark.parametrize("name", ["*.checkpoint.parquet", CHECKPOINT])
def test_a_checkpoint_is_set_aside_where_the_entries_are_there(
    target: Path, name: str, way: str
) -> None:
    for path in (target / "_delta_log").glob(name):
        path.write_bytes(_torn(path.read_bytes(), way))
    _commit(target, BATCHES)
    assert _values(target) == list(range(BATCHES + 1))


@pytest.mark.parametrize("way", ["empty", "half", "zeros"])
@pytest.mark.parametrize("name", [ENTRIES[-2], CHECKPOINT])
def test_what_would_lose_rows_is_refused_by_name_and_left_alone(
    target: Path, name: str, way: str
) -> None:
    log = target / "_delta_log"
    (log / name).write_bytes(_torn((log / name).read_bytes(), way))
    if name == CHECKPOINT:
        (log / f"{4:020}.json").unlink()
    before = {each.name: each.read_bytes() for each in log.iterdir()}
    for use in (lambda: _commit(target, BATCHES), lambda: open_existing(str(target))):
        with pytest.raises(TargetCorruptedError, match=name) as some:
            use()
        assert not some.value.is_retryable
    assert {each.name: each.read_bytes() for each in log.iterdir()} == before


@pytest.mark.parametrize("name", [ENTRIES[-1], CHECKPOINT])
def test_who_only_reads_changes_nothing(target: Path, name: str) -> None:
    log = target / "_delta_log"
    (log / name).write_bytes(b"")
    before = {each.name for each in log.iterdir()}
    with pytest.raises(TargetCorruptedError, match=name):
        open_existing(str(target))
    assert {each.name for each in log.iterdir()} == before


def test_a_table_whose_first_entry_is_torn_is_created_anew(tmp_path: Path) -> None:
    log = tmp_path / "table/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"")
    _commit(tmp_path / "table", 0)
    assert _values(tmp_path / "table") == [0]


def test_entries_that_a_checkpoint_covers_do_no_harm(target: Path) -> None:
    (target / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    _commit(target, BATCHES)


def test_old_entries_are_removed_only_where_a_checkpoint_covers_them(tmp_path: Path) -> None:
    target = tmp_path / "table"
    target.mkdir()
    settings = {
        "delta.checkpointInterval": "3",
        "delta.logRetentionDuration": "interval 0 seconds",
    }
    DeltaTable.create(str(target), Schema.from_arrow(A), configuration=settings)
    for number in range(12):
        opening._synced.clear()
        _commit(target, number)
        assert _values(target) == list(range(number + 1))
    assert len(list((target / "_delta_log").glob("*.json"))) < 12


def test_a_log_without_columns_is_named(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    entry = tmp_path / "_delta_log" / f"{0:020}.json"
    kept = [line for line in entry.read_text().splitlines() if "metaData" not in line]
    entry.write_text("\n".join(kept) + "\n")
    with pytest.raises(TargetCorruptedError, match="version 0 has no columns"):
        open_existing(str(tmp_path))
