"""A run from a Delta table goes on with the checkpoint that Spark has left, in Spark's own form.

`golden/table_stream_4` is the checkpoint of a query of Spark 4.3 that was killed when it had
planned its third micro-batch. It read three files, one in each micro-batch.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.batches.run import PlannedBatch
from airflow_cloudfiles.engine.batches.table_source import TableBatches, TableRange
from airflow_cloudfiles.engine.errors import (
    BlockedSchemaChangeError,
    CorruptedStateError,
    IncompatibleStateError,
    StateConflictError,
    StateLockedError,
    TableEvolvedError,
)
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions, table_options
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.stream.commits import backlog
from tests.support.table_streams import GrowingTable

GOLDEN = Path(__file__).parents[2] / "golden" / "table_stream_4"
CHANGED = "spark.databricks.delta.streaming.allowSourceColumnRename"


class Run:
    """One run: a loop over the micro-batches, whose rows are kept by their numbers."""

    def __init__(
        self, table: GrowingTable, state: Path | str, *, parallelism: int = 2, **options: Any
    ) -> None:
        settings = {key: options.pop(key) for key in list(options) if key.startswith("spark.")}
        given = table_options(options, str(state), None)
        self.read: list[TableRange] = []
        self.batches = TableBatches(
            str(table.folder),
            TableStreamOptions.read(given),
            str(state),
            settings=settings,
            parallelism=parallelism,
            read=self.read,
        )
        self.rows: dict[int, list[Any]] = {}

    def open(self) -> Run:
        """Open the state."""
        self.batches.open()
        return self

    def plan(self) -> PlannedBatch | None:
        """Plan a micro-batch and read it."""
        planned = self.batches.plan()
        if planned is not None:
            read, parts = pickle.loads(pickle.dumps((self.batches.rows(), planned.parts)))
            self.rows[planned.number] = [
                tuple(row.values())
                for part in parts
                for batch in read(part)
                for row in batch.to_pylist()
            ]
        return planned

    def to_end(self) -> dict[int, list[Any]]:
        """Run it to its end; the rows of each micro-batch."""
        self.open()
        while (planned := self.plan()) is not None:
            self.batches.committed(planned)
        return self.rows


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    found = GrowingTable(tmp_path / "bronze", "a", "b")
    for value in (1, 2, 3):
        found.append(value)
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def left(state: Path) -> Path:
    """A state that Spark has left."""
    shutil.copytree(GOLDEN, state)
    return state


def lines(state: Path, batch: int) -> list[str]:
    return (state / "offsets" / str(batch)).read_text().split("\n")


def without_time(settings: str) -> str:
    return re.sub(r'"batchTimestampMs":\d+', "", settings)


def test_a_state_of_spark_goes_on_with_the_batch_that_was_planned(
    table: GrowingTable, left: Path
) -> None:
    assert backlog(open_store(str(left)), str(table.folder)).is_planned
    table.append(4)
    table.append(5)
    run = Run(table, left, maxFilesPerTrigger=1)
    assert run.to_end() == {2: [(3, 3)], 3: [(4, 4)], 4: [(5, 5)]}
    assert [each.files for each in run.read] == [1, 1, 1]
    assert Run(table, left).to_end() == {}


def test_what_a_run_writes_is_byte_for_byte_what_spark_does(
    table: GrowingTable, left: Path
) -> None:
    table.append(4)
    Run(table, left, maxFilesPerTrigger=1).to_end()
    [version, settings, offset] = lines(left, 3)
    [_, of_spark, end] = lines(GOLDEN, 2)
    assert version == "v1"
    assert settings != of_spark
    assert without_time(settings) == without_time(of_spark)
    moved = end.replace('"reservoirVersion": 4', '"reservoirVersion": 5')
    assert offset == moved
    commit = (GOLDEN / "commits" / "0").read_bytes()
    assert [(left / "commits" / name).read_bytes() for name in "23"] == [commit, commit]
    # Hadoop refuses a file that does not match its checksum.
    assert sorted(path.name for path in (left / "offsets").iterdir()) == [
        ".0.crc", ".1.crc", ".2.crc", "0", "1", "2", "3",
    ]  # fmt: skip


def test_a_new_state_is_as_spark_begins_one(table: GrowingTable, state: Path) -> None:
    run = Run(table, state)
    assert run.to_end() == {0: [(1, 1), (2, 2), (3, 3)]}
    assert [run.read[0].start.version, run.read[0].end.version] == [3, 4]
    metadata = (state / "metadata").read_bytes()
    known, is_whole = spark_checkpoint.query_id(open_store(str(state)))
    assert is_whole
    golden = json.loads((GOLDEN / "metadata").read_text())["id"].encode()
    assert metadata.replace(str(known).encode(), golden) == (GOLDEN / "metadata").read_bytes()
    assert without_time(lines(state, 0)[1]) == '{"batchWatermarkMs":0,,"conf":{}}'
    assert lines(state, 0)[2] == lines(GOLDEN, 2)[2]


def test_a_batch_that_was_planned_is_the_same_one_after_the_table_has_gone_on(
    table: GrowingTable, state: Path
) -> None:
    killed = Run(table, state, maxFilesPerTrigger=2).open()
    assert killed.plan() is not None
    table.append(4)
    again = Run(table, state, maxFilesPerTrigger=1)
    assert again.to_end() == {0: [(1, 1), (2, 2)], 1: [(3, 3)], 2: [(4, 4)]}


@pytest.mark.parametrize("lost", ["commits/1", "commits/1 and commits/0"])
def test_a_commit_that_is_lost_is_read_again_or_known_by_the_plan_behind_it(
    table: GrowingTable, left: Path, lost: str
) -> None:
    for key in lost.split(" and "):
        (left / key).unlink()
    assert Run(table, left, maxFilesPerTrigger=1).to_end() == {2: [(3, 3)]}
    (left / "commits" / "2").unlink()
    assert Run(table, left, maxFilesPerTrigger=1).to_end() == {2: [(3, 3)]}


def _no_metadata(state: Path) -> None:
    (state / "metadata").unlink()


def _no_plan(state: Path) -> None:
    (state / "offsets" / "2").unlink()
    (state / "offsets" / "1").unlink()


def _no_start(state: Path) -> None:
    (state / "offsets" / "1").unlink()


def _cut_off(state: Path) -> None:
    (state / "offsets" / ".2.crc").unlink()
    (state / "offsets" / "2").write_bytes(b"")


def _flipped(state: Path) -> None:
    path = state / "offsets" / "2"
    path.write_bytes(path.read_bytes().replace(b"reservoirVersion", b"reservoirVersiom"))


def _of_two_sources(state: Path) -> None:
    (state / "offsets" / ".2.crc").unlink()
    path = state / "offsets" / "2"
    path.write_text(f"{path.read_text()}\n{{}}")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (_no_metadata, "metadata is missing"),
        (_no_plan, "offsets/1 is missing"),
        (_no_start, "offsets are missing: .*offsets/1"),
        (_cut_off, "offsets/2 is cut off or damaged"),
        (_flipped, "offsets/2 does not match its checksum"),
        (_of_two_sources, "offsets/2 is not that of a query from one source"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_left_as_it_is(
    table: GrowingTable, left: Path, damage: Callable[[Path], None], what: str
) -> None:
    damage(left)
    before = {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}
    with pytest.raises(CorruptedStateError, match=what):
        Run(table, left).to_end()
    after = {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}
    assert before == {path: after[path] for path in before}
    assert {path.relative_to(left).parts[0] for path in after.keys() - before.keys()} <= {
        "_schema_tracking"
    }


def test_a_checkpoint_of_a_newer_spark_and_one_of_another_table_are_refused(
    table: GrowingTable, left: Path
) -> None:
    (left / "offsets" / ".2.crc").unlink()
    path = left / "offsets" / "2"
    mine = path.read_text()
    path.write_text(mine.replace("v1", "v2", 1))
    with pytest.raises(IncompatibleStateError, match="v2"):
        Run(table, left).to_end()
    path.write_text(mine.replace("5fba94ed", "00000000"))
    with pytest.raises(StateConflictError, match="unexpected Delta table"):
        Run(table, left).to_end()


def test_of_two_runs_at_once_one_fails(table: GrowingTable, state: Path) -> None:
    one, other = (Run(table, state, maxFilesPerTrigger=most).open() for most in (1, 2))
    planned = one.plan()
    assert planned is not None
    with pytest.raises(StateLockedError, match="has planned batch 0"):
        other.plan()
    one.batches.committed(planned)
    assert Run(table, state).to_end() == {1: [(2, 2), (3, 3)]}


def test_the_newest_entries_are_kept_as_spark_keeps_them(table: GrowingTable) -> None:
    state = f"memory://{uuid.uuid4().hex}"
    store = open_store(state)
    for value in range(4, 105):
        table.append(value)
    run = Run(table, state, maxFilesPerTrigger=1, startingVersion=1)
    assert len(run.to_end()) == 104
    kept = list(range(103 - spark_checkpoint.KEPT_BATCHES, 104))
    assert spark_checkpoint.numbers(store, "offsets") == kept
    assert spark_checkpoint.numbers(store, "commits") == kept


def test_a_version_without_rows_is_passed_in_a_micro_batch_with_one_part(
    table: GrowingTable, state: Path
) -> None:
    Run(table, state).to_end()
    table.append(1, dataChange=False)
    run = Run(table, state).open()
    planned = run.plan()
    assert planned is not None
    assert (planned.number, len(planned.parts), run.rows) == (1, 1, {1: []})
    run.batches.committed(planned)
    assert not backlog(open_store(str(state)), str(table.folder)).has_work


def test_small_files_are_packed_and_large_ones_shared_out(table: GrowingTable, state: Path) -> None:
    planned = Run(table, state).open().plan()
    assert planned is not None
    assert [len(part.files) for part in planned.parts] == [3]
    for size in (40_000_000, 30_000_000, 20_000_000):
        table.append(size, size=size)
    run = Run(table, state).open()
    first = run.batches.plan()
    assert first is not None
    assert [len(part.files) for part in first.parts] == [3]
    run.batches.committed(first)
    second = run.batches.plan()
    assert second is not None
    assert [[file.size for file in part.files] for part in second.parts] == [
        [40_000_000],
        [30_000_000, 20_000_000],
    ]


def test_a_change_of_the_schema_ends_the_run_once_what_is_before_it_was_committed(
    table: GrowingTable, state: Path
) -> None:
    version = table.rename("b", "c")
    table.append(4)
    first = Run(table, state, startingVersion=1)
    with pytest.raises(TableEvolvedError):
        first.to_end()
    assert first.rows == {0: [(1, 1), (2, 2), (3, 3)]}
    with pytest.raises(BlockedSchemaChangeError):
        Run(table, state).to_end()
    run = Run(table, state, **{CHANGED: str(version)})
    assert run.to_end() == {1: [(4, 4)]}
    assert run.batches.schema.names == ["a", "c"]
