"""What became of each file is what its batch, as the table has it, has read; killed or not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.files import FileCounts, RecordError
from airflow_cloudfiles.engine.intake.file_state_columns import cloud_files_state, error_text
from airflow_cloudfiles.engine.intake.upkeep import compact
from airflow_cloudfiles.engine.state import file_results
from airflow_cloudfiles.engine.state.file_results import (
    MOST_FILES,
    FileResults,
    decode_results,
    encode_results,
)
from airflow_cloudfiles.engine.storage import open_store
from tests.support.crash_points import JOB_POINTS
from tests.support.ingested import Ingested

RESCUE = {"cloudFiles.schemaEvolutionMode": "rescue", "cloudFiles.maxFilesPerTrigger": "3"}
WANTED = {
    "clean.json": (2, 0, 0, ""),
    "corrupt.json": (3, 2, 1, "line 2, column z: no column has this field"),
    "rescued.json": (2, 1, 0, "line 2, column a.b: a value does not fit its column"),
    "other.json": (1, 0, 0, ""),
}


def _stream(folder: Path) -> Ingested:
    stream = Ingested(folder, **RESCUE, **{"cloudFiles.schemaHints": "a STRUCT<b: BIGINT>"})
    stream.add("first")
    stream.infer()
    (stream.source / "first.json").unlink()
    for name, content in (
        ("clean", '{"a": {"b": 1}}\n{"a": {"b": 2}}\n'),
        ("corrupt", '{"a": {"b": 1}}\n{"z": 1}\n{"a"\n'),
        ("rescued", '{"a": {"b": 1}}\n{"a": {"b": "x"}}\n'),
        ("other", '{"a": {"b": 1}}\n'),
    ):
        (stream.source / f"{name}.json").write_text(content)
    return stream


def _shown(stream: Ingested) -> dict[str, tuple[Any, ...]]:
    names = ("rows", "rescued_rows", "corrupt_records")
    return {
        row["path"].rpartition("/")[2]: (*(row[name] for name in names), error_text(row))
        for row in cloud_files_state(str(stream.state)).read_all().to_pylist()
    }


def test_each_file_says_what_became_of_it(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    stream.run()
    assert _shown(stream) == WANTED
    table = cloud_files_state(str(stream.state)).read_all()
    assert set(table["ingestion_state"].to_pylist()) == {"INGESTED"}
    sums = {
        name: sum(table[name].to_pylist()) for name in ("rows", "rescued_rows", "corrupt_records")
    }
    assert sums == {"rows": 8, "rescued_rows": 3, "corrupt_records": 1}
    assert len(stream.table.to_pyarrow_table()) == 8


def _killed_at(stream: Ingested, point: str) -> None:
    code = (
        "import sys, pathlib\n"
        "from tests.support.ingested import Ingested\n"
        "from tests.unit.job.test_file_results import RESCUE\n"
        "Ingested(pathlib.Path(sys.argv[1]), **RESCUE).run()\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(stream.source.parent)],
        env={**os.environ, CRASH_AT: point},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.parametrize("point", JOB_POINTS)
def test_a_batch_that_is_killed_and_repeated_shows_the_same(tmp_path: Path, point: str) -> None:
    stream = _stream(tmp_path)
    _killed_at(stream, point)
    is_committed = point == "after-sink-record"
    shown = {name: each for name, each in _shown(stream).items() if each[0] is not None}
    assert len(shown) == (3 if is_committed else 0)
    stream.run()
    assert _shown(stream) == WANTED
    assert len(stream.table.to_pyarrow_table()) == 8


def test_a_file_that_is_read_again_after_a_kill_shows_what_the_table_has(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    _killed_at(stream, "after-file-results")
    changed = stream.source / "clean.json"
    changed.write_text('{"a": {"b": 1}}\n{"a": {"b": 2}}\n{"a": {"b": 3}}\n{"a"\n')
    stream.run()
    assert _shown(stream)["clean.json"][:3] == (4, 1, 1)
    assert len(stream.table.to_pyarrow_table()) == 10


def test_a_replay_of_a_lost_batch_records_its_files_again(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    stream.run()
    stream.table.restore(0)
    (stream.state / "_source/file_results/0").unlink()
    stream.replay(0)
    assert _shown(stream) == WANTED


def test_what_another_run_has_written_since_is_not_shown(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    stream.run()
    key = stream.state / "_source/file_results/0"
    of_batch = decode_results(key.read_bytes(), name="it")
    assert not of_batch.belongs_to({**of_batch.sums, "rows": 99})
    assert of_batch.belongs_to({**of_batch.sums, "files": 3})
    file_results.write_results(open_store(str(stream.state)), 0, {(0, 0): 99})
    assert {each[:3] for each in _shown(stream).values()} == {(None,) * 3, (2, 1, 0)}
    key.write_bytes(key.read_bytes()[:-4])
    assert _shown(stream)["clean.json"][:3] == (None, None, None)


def test_old_ones_are_packed_and_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.state.compaction.KEPT", 2)
    stream = Ingested(tmp_path, **{"cloudFiles.schemaEvolutionMode": "rescue"})
    stream.add(*(f"f{number:03}" for number in range(110)))
    stream.run()
    before = _shown(stream)
    state = open_store(str(stream.state))
    for _ in range(2):
        compact(state, retention_seconds=10**9, grace_seconds=0)
    loose = [each.path for each in state.list("_source/file_results/")]
    assert sum(each.rpartition("/")[2].isdigit() for each in loose) <= 10
    assert _shown(stream) == before
    assert {each[:3] for each in before.values()} == {(1, 0, 0)}


def test_the_line_of_a_batch_counts_corrupt_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = _stream(tmp_path)
    with caplog.at_level(logging.INFO):
        stream.run()
    lines = [each for each in caplog.messages if each.startswith("Batch ")]
    assert "6 rows, 2 rescued, 1 corrupt; table version" in lines[0]
    assert "2 rows, 1 rescued, 0 corrupt; table version" in lines[1]


def test_a_batch_of_many_files_takes_little(tmp_path: Path) -> None:
    """A file that is clean takes a few bytes, and what is kept of a batch is bounded."""
    clean = {(0, index): index % 900 + 100 for index in range(10_000)}
    assert len(encode_results(clean)) < 4.1 * len(clean)
    alike = dict.fromkeys(clean, 2)
    assert len(encode_results(alike)) < 400
    error = RecordError("x" * 5000, "y" * 5000, 1)
    bad: dict[file_results.Place, file_results.Counted] = {
        (0, index): FileCounts(1, 1, error=error) for index in range(MOST_FILES + 5)
    }
    content = encode_results(bad)
    assert len(content) < 4 * 2**20
    found = decode_results(content, name="it")
    assert isinstance(found, FileResults)
    assert found.of(0, MOST_FILES) is None
    last = found.of(0, MOST_FILES - 1)
    assert last == FileCounts(1, 1)
    first = found.of(0, 0)
    assert first is not None
    assert first.error is not None
    assert len(first.error.reason) == file_results.MOST_CHARACTERS


def test_of_the_errors_of_two_parts_the_one_that_comes_first_stays() -> None:
    counts = FileCounts(1, 1, error=RecordError("r", line=9))
    lower = FileCounts(1, 1, error=RecordError("r", line=3))
    behind = FileCounts(1, 1, error=RecordError("r", byte=1))
    for one, other in ((counts, lower), (lower, counts), (behind, lower), (lower, behind)):
        assert (one + other).error == lower.error
