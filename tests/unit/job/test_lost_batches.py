"""A table that lacks batches of its stream is not written on top of the gap."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructField, StructType

from airflow_cloudfiles.engine.errors import DataFileLostError, LostBatchesError, SinkError
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state.metadata import bind, open_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable, DeltaWriter
from tests.support.crash_points import STREAM_POINTS
from tests.support.delta_tables import expire_transactions

A = StructType([StructField("a", LongType())])
BATCHES = 5


class Stream:
    """A stream that writes one row a batch, as Spark's processes do: each with a writer of its own.

    Its numbers of batches are its values.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        self.state, self.target = str(folder / "state"), folder / "table"
        self.options = {"checkpointlocation": self.state, **options}
        open_metadata(open_store(self.state), "file:///in", "json")

    def writer(self) -> DeltaWriter:
        options = SinkOptions.read(self.options)
        return DeltaTargetTable(str(self.target)).writer(options, state=self.state, schema=A)

    def write(self, number: int) -> Any:
        return self.writer().write_rows(iter([pa.RecordBatch.from_pydict({"a": [number]})]))

    def commit(self, number: int) -> None:
        self.writer().commit([self.write(number)], number)
        self.spark_commits(number)

    def spark_commits(self, number: int) -> None:
        for folder in ("offsets", "commits"):
            place = Path(self.state, folder)
            place.mkdir(exist_ok=True)
            (place / str(number)).write_text("v1\n{}")

    def check(self) -> None:
        """What a job does before it starts Spark."""
        target_table(str(self.target)).check_before_run(open_store(self.state))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.target))

    def rows(self) -> list[int]:
        return sorted(self.table.to_pyarrow_dataset().to_table()["a"].to_pylist())

    def log_file(self, version: int) -> Path:
        return self.target / "_delta_log" / f"{version:020d}.json"


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream with some batches in its table; version 0 made the table, version 1 has batch 0."""
    found = Stream(tmp_path)
    for number in range(BATCHES):
        found.commit(number)
    return found


def _other_table(stream: Stream) -> None:
    shutil.rmtree(stream.target)
    write_deltalake(str(stream.target), pa.table({"a": [7]}))


def _overwritten_newest(stream: Stream) -> None:
    stream.log_file(BATCHES).unlink()
    write_deltalake(str(stream.target), pa.table({"a": [7]}), mode="append")


def _newest_two_gone_behind_a_checkpoint(stream: Stream) -> None:
    DeltaTable(str(stream.target), version=3).create_checkpoint()
    for version in range(4):
        stream.log_file(version).unlink()
    stream.log_file(BATCHES).unlink()
    stream.log_file(BATCHES - 1).unlink()


def _restored_and_appended(stream: Stream) -> None:
    stream.table.restore(3)
    write_deltalake(str(stream.target), pa.table({"a": [7]}), mode="append")


def _restored_twice(stream: Stream) -> None:
    stream.table.restore(4)
    stream.table.restore(2)


def _moved(stream: Stream) -> None:
    stream.target = stream.target.with_name("elsewhere")


LOSSES = {
    "the table is deleted": lambda each: shutil.rmtree(each.target),
    "its log is deleted": lambda each: shutil.rmtree(each.target / "_delta_log"),
    "another table is in its place": _other_table,
    "the target is another one": _moved,
    "the newest commit is gone": lambda each: each.log_file(BATCHES).unlink(),
    "the newest commit is empty": lambda each: each.log_file(BATCHES).write_bytes(b""),
    "the newest commit is gone and another writer's has its number": _overwritten_newest,
    "commits behind a checkpoint are gone": _newest_two_gone_behind_a_checkpoint,
    "it was restored": lambda each: each.table.restore(2),
    "it was restored, and written since": _restored_and_appended,
    "it was restored more than once": _restored_twice,
}


@pytest.mark.slow
@pytest.mark.parametrize("has_records", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_batch_is_noticed_by_the_job_and_by_the_sink(
    stream: Stream, loss: str, has_records: bool
) -> None:
    if not has_records:  # as version 0.1.0 left a state
        shutil.rmtree(Path(stream.state, "_source/sink"))
    LOSSES[loss](stream)
    before = {path.name for path in stream.target.rglob("*.json")}
    for _ in range(3):
        with pytest.raises(LostBatchesError, match=r"lacks batch.*cloudfiles replay") as told:
            stream.check()
        assert not told.value.is_retryable
        with pytest.raises(LostBatchesError, match="lacks batch"):
            stream.commit(BATCHES)
        if has_records:  # else repeating it may well bring back what is missing
            with pytest.raises(LostBatchesError, match="lacks batch"):
                stream.commit(BATCHES - 1)
    # An empty newest entry is set aside, as after a power failure; none is written.
    assert {path.name for path in stream.target.rglob("*.json")} <= before


def _compact(stream: Stream) -> None:
    table = stream.table
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _cleaned_up(stream: Stream) -> None:
    stream.table.create_checkpoint()
    for version in range(BATCHES):
        stream.log_file(version).unlink()


def _deleted_rows(stream: Stream) -> None:
    stream.table.delete("a < 2")


def _restored_and_back(stream: Stream) -> None:
    stream.table.restore(2)
    stream.table.restore(BATCHES)


def _copied(stream: Stream) -> None:
    target = stream.target.with_name("elsewhere")
    shutil.move(stream.target, target)
    stream.target = target


def _restored_to_what_was_written_since(stream: Stream) -> None:
    write_deltalake(str(stream.target), pa.table({"a": [7]}), mode="append")
    write_deltalake(str(stream.target), pa.table({"a": [8]}), mode="append")
    stream.table.restore(BATCHES + 1)


def _expired(stream: Stream) -> None:
    expire_transactions(stream.target, is_cleaned=False)


HARMLESS = {
    "its transactions expire": _expired,
    "nothing": lambda _: None,
    "others append": lambda each: write_deltalake(
        str(each.target), pa.table({"a": [7]}), mode="append"
    ),
    "it is compacted and vacuumed": _compact,
    "its log is cleaned up": _cleaned_up,
    "rows are deleted on purpose": _deleted_rows,
    "it is restored, and back again": _restored_and_back,
    "it is restored to a newer version": _restored_to_what_was_written_since,
    "it is moved as a whole": _copied,
}


@pytest.mark.slow
@pytest.mark.parametrize("has_records", [True, False])
@pytest.mark.parametrize("change", HARMLESS)
def test_what_others_do_with_a_table_is_no_loss(
    stream: Stream, change: str, has_records: bool
) -> None:
    if not has_records:
        shutil.rmtree(Path(stream.state, "_source/sink"))
    HARMLESS[change](stream)
    stream.check()
    before = stream.rows()
    stream.commit(BATCHES - 1)  # repeated: dropped
    stream.commit(BATCHES)
    stream.check()
    assert stream.rows() == sorted([*before, BATCHES])


def _expired_and_cleaned_up(stream: Stream) -> None:
    expire_transactions(stream.target, is_cleaned=True)


def test_an_expired_transaction_is_no_lost_batch(stream: Stream) -> None:
    _expired_and_cleaned_up(stream)
    stream.check()
    before = stream.rows()
    stream.commit(BATCHES)
    _expired_and_cleaned_up(stream)
    stream.commit(BATCHES + 1)
    stream.check()
    assert stream.rows() == [*before, BATCHES, BATCHES + 1]


def test_a_batch_without_a_record_is_found_by_its_commit_when_its_transaction_has_expired(
    stream: Stream,
) -> None:
    stream.commit(BATCHES)
    (Path(stream.state) / f"_source/sink/0/{BATCHES:020}").unlink()  # killed before it
    _expired(stream)
    before = stream.rows()
    stream.check()
    stream.commit(BATCHES)
    assert stream.rows() == before


@pytest.mark.parametrize("loss", ["restored", "another's commit", "replaced"])
def test_an_expired_transaction_hides_no_lost_batch(stream: Stream, loss: str) -> None:
    if loss == "restored":
        stream.table.restore(2)
        _expired(stream)
    elif loss == "replaced":
        _other_table(stream)
    else:
        stream.log_file(BATCHES).unlink()
        _expired(stream)
    for _ in range(2):
        with pytest.raises(LostBatchesError, match=f"lacks batch.* {BATCHES - 1} of"):
            stream.check()
        with pytest.raises(LostBatchesError, match="lacks batch"):
            stream.commit(BATCHES)


def test_one_failed_look_at_the_newest_entry_is_no_lost_batch(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a flaky disk: `deltalake` passes over an entry that it cannot stat."""
    looks: list[int | None] = []

    def look(target: str) -> DeltaTable | None:
        looks.append(None)
        return DeltaTable(target, version=BATCHES - 1 if len(looks) == 1 else None)

    for module in ("delta_table", "delta.commit", "delta.lineage"):
        monkeypatch.setattr(f"airflow_cloudfiles.engine.tables.{module}.open_to_write", look)
    stream.check()
    assert len(looks) == 2
    looks.clear()
    before = stream.rows()
    stream.commit(BATCHES - 1)
    assert stream.rows() == before


@pytest.mark.parametrize("point", ["after-sink-commit", "after-sink-record"])
def test_a_kill_around_the_record_is_healed(
    stream: Stream, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert point in STREAM_POINTS

    def killed(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    for module in ("delta.commit", "sink_state"):
        monkeypatch.setattr(f"airflow_cloudfiles.engine.tables.{module}.crash_point", killed)
    with pytest.raises(KeyboardInterrupt):
        stream.commit(BATCHES)
    monkeypatch.undo()
    has_record = SinkLog(open_store(stream.state)).find(BATCHES) is not None
    assert has_record == (point == "after-sink-record")
    stream.check()
    stream.commit(BATCHES)
    stream.check()
    assert stream.rows() == list(range(BATCHES + 1))
    assert SinkLog(open_store(stream.state)).newest().batch == BATCHES


def test_a_lost_spark_checkpoint_does_not_hide_a_lost_table(stream: Stream) -> None:
    for folder in ("offsets", "commits"):
        shutil.rmtree(Path(stream.state, folder))
    stream.check()
    stream.commit(0)
    shutil.rmtree(stream.target)
    with pytest.raises(LostBatchesError, match="batches 0 to 4"):
        stream.check()
    with pytest.raises(LostBatchesError):
        stream.commit(0)


def test_a_name_of_ones_own_for_the_stream_is_checked_as_well(tmp_path: Path) -> None:
    stream = Stream(tmp_path, txnappid="mine")
    stream.commit(0)
    stream.commit(1)
    stream.log_file(2).unlink()
    with pytest.raises(LostBatchesError, match="batch 1"):
        stream.commit(2)


@pytest.mark.parametrize("what", ["gone", "cut", "emptied"])
def test_a_data_file_that_vanishes_before_its_commit_is_noticed(stream: Stream, what: str) -> None:
    written = stream.write(BATCHES)
    file = stream.target / written.files[0].name
    file.unlink() if what == "gone" else file.write_bytes(file.read_bytes()[: 9 * (what == "cut")])
    with pytest.raises(DataFileLostError, match=rf"{file.name}.*run again") as told:
        stream.writer().commit([written], BATCHES)
    assert told.value.is_retryable
    assert stream.table.version() == BATCHES
    stream.commit(BATCHES)
    assert stream.rows() == list(range(BATCHES + 1))


def test_a_torn_commit_is_refused_without_a_retry(stream: Stream) -> None:
    file = stream.log_file(BATCHES)
    file.write_bytes(file.read_bytes()[:100])
    for attempt in (stream.check, lambda: stream.commit(BATCHES)):
        with pytest.raises(SinkError) as told:
            attempt()
        assert not told.value.is_retryable


def test_a_batch_costs_the_state_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(tmp_path)
    store = open_store(f"memory://{tmp_path.name}")
    bind(store, open_metadata(store, "file:///in", "json"))  # as the first recorded file does
    monkeypatch.setattr("airflow_cloudfiles.engine.storage.open_store", lambda _: store)
    for number in range(3):
        before = store.requests
        stream.writer().commit([stream.write(number)], number)
        spent = store.requests - before
        assert spent["put"] == 1
    # Who the stream is, no plan, and so whether old ones are packed, whether files may be replayed,
    # and whether rows were put aside (all of which who the stream is says, and is read once where
    # the state is far away); no decision, no record of this batch, the one of the last.
    assert spent == {"get": 8, "put": 1}
