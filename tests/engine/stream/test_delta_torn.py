"""A table whose log was damaged by a power failure is refused by name, and not appended to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.stream import delta_table
from airflow_cloudfiles.engine.stream.data_files import DataFileWriter
from airflow_cloudfiles.engine.stream.delta_read import open_existing
from airflow_cloudfiles.engine.stream.delta_table import BatchId

A = pa.schema([("a", pa.int64())])
BATCHES = 7
ENTRIES = [f"{version:020}.json" for version in range(5, BATCHES + 1)]
CHECKPOINT = f"{5:020}.checkpoint.parquet"


def _commit(target: Path, number: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"a": number}], A)
    delta_table.commit(
        str(target),
        batch=BatchId("stream", number),
        files=DataFileWriter(str(target), A).write([batch]),
        schema=A,
        merge_schema=False,
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a checkpoint of its log, and entries before and behind it."""
    target = tmp_path_factory.mktemp("delta") / "table"
    target.mkdir()
    interval = {"delta.checkpointInterval": "3"}
    DeltaTable.create(str(target), Schema.from_arrow(A), configuration=interval)
    for number in range(BATCHES):
        _commit(target, number)
    assert (target / "_delta_log" / CHECKPOINT).exists()
    return target


@pytest.mark.parametrize("way", ["empty", "half", "zeros"])
@pytest.mark.parametrize("name", [ENTRIES[-1], ENTRIES[-2], CHECKPOINT])
def test_a_torn_file_of_the_log_is_named(
    written: Path, tmp_path: Path, name: str, way: str
) -> None:
    target = tmp_path / "table"
    shutil.copytree(written, target)
    path = target / "_delta_log" / name
    content = path.read_bytes()
    new = {"empty": b"", "half": content[: len(content) // 2], "zeros": bytes(len(content))}
    path.write_bytes(new[way])
    before = sorted(each.name for each in (target / "_delta_log").iterdir())
    for use in (lambda: _commit(target, BATCHES), lambda: open_existing(str(target))):
        with pytest.raises(TargetCorruptedError, match=name) as some:
            use()
        assert not some.value.is_retryable
    assert sorted(each.name for each in (target / "_delta_log").iterdir()) == before


def test_the_advice_for_the_newest_entry_loses_nothing(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "table"
    shutil.copytree(written, target)
    newest = target / "_delta_log" / ENTRIES[-1]
    newest.write_bytes(b"")
    with pytest.raises(TargetCorruptedError, match="move the file away and run again"):
        _commit(target, BATCHES - 1)
    newest.unlink()
    _commit(target, BATCHES - 1)
    found = DeltaTable(str(target)).to_pyarrow_dataset().to_table()["a"].to_pylist()
    assert sorted(found) == list(range(BATCHES))


def test_the_advice_for_a_checkpoint_loses_nothing(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "table"
    shutil.copytree(written, target)
    log = target / "_delta_log"
    for path in log.glob("*.checkpoint.parquet"):
        path.write_bytes(b"")
    with pytest.raises(TargetCorruptedError, match="_last_checkpoint away and run again"):
        _commit(target, BATCHES)
    for path in [*log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"]:
        path.unlink()
    _commit(target, BATCHES)
    found = DeltaTable(str(target)).to_pyarrow_dataset().to_table()["a"].to_pylist()
    assert sorted(found) == list(range(BATCHES + 1))


def test_entries_that_a_checkpoint_covers_do_no_harm(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "table"
    shutil.copytree(written, target)
    (target / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    _commit(target, BATCHES)
