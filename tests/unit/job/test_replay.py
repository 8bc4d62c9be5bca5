"""Batches that a table has lost are ingested again, once, and those that it has are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    FileMissingError,
    LostBatchesError,
    OptionError,
    StateLockedError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import open_store
from tests.support.crash_points import REPLAY_POINTS
from tests.support.delta_tables import expire_transactions
from tests.support.ingested import Ingested
from tests.support.laws import some

FILES = ["f0", "f1", "f2", "f3", "f4"]


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """A stream with a batch a file; version 0 made the table, version 1 has batch 0."""
    found = Ingested(tmp_path)
    found.add(*FILES)
    found.run()
    assert found.rows() == FILES
    return found


def _log_file(stream: Ingested, version: int) -> Path:
    return stream.target / "_delta_log" / f"{version:020d}.json"


def _newest_gone(stream: Ingested) -> None:
    _log_file(stream, 5).unlink()
    _log_file(stream, 4).unlink()


def _restored_and_appended(stream: Ingested) -> None:
    stream.table.restore(3)
    other = pa.table({"a": ["other"], "_rescued_data": pa.nulls(1, pa.string())})
    write_deltalake(str(stream.target), other, mode="append")


def _cleaned_up_and_restored(stream: Ingested) -> None:
    stream.table.restore(4)
    stream.table.create_checkpoint()
    for version in range(4):
        _log_file(stream, version).unlink()


def _moved(stream: Ingested) -> None:
    stream.target = stream.target.with_name("elsewhere")


LOSSES: dict[str, tuple[Any, list[int]]] = {
    "deleted": (lambda each: shutil.rmtree(each.target), [0, 1, 2, 3, 4]),
    "log deleted": (lambda each: shutil.rmtree(each.target / "_delta_log"), [0, 1, 2, 3, 4]),
    "another target": (_moved, [0, 1, 2, 3, 4]),
    "newest commits gone": (_newest_gone, [3, 4]),
    "newest commit empty": (lambda each: _log_file(each, 5).write_bytes(b""), [4]),
    "restored": (lambda each: each.table.restore(2), [2, 3, 4]),
    "restored, and appended to": (_restored_and_appended, [3, 4]),
    "restored, and its log cleaned up": (_cleaned_up_and_restored, [4]),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_is_ingested_again_once(stream: Ingested, loss: str) -> None:
    lose, lost = LOSSES[loss]
    lose(stream)
    stream.add("later")
    with pytest.raises(LostBatchesError, match=f"--from-batch {lost[0]}"):
        stream.run()
    planned = stream.replay(lost[0], dry_run=True)
    assert (planned["batches"], planned["is_done"]) == (lost, False)
    with pytest.raises(LostBatchesError):
        stream.run()
    done = stream.replay(lost[0])
    assert (done["batches"], done["rows"], done["is_done"]) == (lost, len(lost), True)
    again = stream.replay(lost[0])
    assert (again["batches"], again["is_done"]) == ([], False)
    stream.run()
    others = ["other"] if "appended" in loss else []
    assert stream.rows() == sorted([*FILES, "later", *others])


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_is_accepted_stays_one(stream: Ingested, loss: str) -> None:
    lose, lost = LOSSES[loss]
    lose(stream)
    stream.add("later")
    done = stream.replay(lost[0], accept_loss=True)
    assert done["batches"] == lost
    stream.run()
    others = ["other"] if "appended" in loss else []
    kept = [name for number, name in enumerate(FILES) if number not in lost]
    assert stream.rows() == sorted([*kept, "later", *others])
    decision = SinkLog(open_store(str(stream.state))).decision()
    assert (decision.kind, list(decision.batches)) == ("acceptLoss", lost)
    shutil.rmtree(stream.target)
    with pytest.raises(LostBatchesError):
        stream.run()


KILLS = [
    *product(REPLAY_POINTS, ["deleted", "restored", "newest commits gone"]),
    *product([f"{each}:2" for each in REPLAY_POINTS], ["deleted"]),
]
KILLS_AT_THE_COMMIT = [("before-sink-commit", "deleted")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "loss"),
    some(
        KILLS, len(KILLS) // 3, name="kills of a replay", always=[("before-sink-commit", "deleted")]
    ),
)
def test_a_replay_that_is_killed_is_run_again(stream: Ingested, point: str, loss: str) -> None:
    lose, lost = LOSSES[loss]
    lose(stream)
    code = (
        "import sys, pathlib\n"
        "from tests.support.ingested import Ingested\n"
        "Ingested(pathlib.Path(sys.argv[1])).replay(int(sys.argv[2]))\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(stream.source.parent), str(lost[0])],
        env={**os.environ, CRASH_AT: point},
        check=False,
        capture_output=True,
    )
    is_passed_once = point.startswith("after-replay-decision:")
    assert killed.returncode == (0 if is_passed_once else -signal.SIGKILL), killed.stderr
    if not is_passed_once:
        with pytest.raises(LostBatchesError, match="has begun and not ended"):
            stream.run()
    stream.replay(lost[0])
    stream.run()
    assert stream.rows() == FILES


def test_batches_that_the_table_has_are_left_alone(stream: Ingested) -> None:
    stream.table.restore(3)
    assert stream.replay(0)["batches"] == [3, 4]
    stream.run()
    assert stream.rows() == FILES


def test_a_gap_in_the_middle_of_an_older_version_is_filled(stream: Ingested) -> None:
    # As version 0.1.0 left it: lost, and written on top of the gap.
    stream.table.restore(3)
    shutil.rmtree(stream.state / "_source/sink")
    stream.add("late")
    log = SinkLog(open_store(str(stream.state)))
    log.add(SinkRecord(batch=3, table_id=str(stream.table.metadata().id), version=6))
    assert stream.replay(2)["batches"] == [3, 4]
    stream.run()
    assert stream.rows() == [*FILES, "late"]


@pytest.mark.slow
def test_a_table_that_is_lost_once_more_is_replayed_once_more(stream: Ingested) -> None:
    for _ in range(3):
        version = stream.table.version()
        stream.table.restore(2)
        assert stream.replay(2)["batches"] == [2, 3, 4]
        assert stream.table.version() > version
    shutil.rmtree(stream.target)
    assert stream.replay(0)["batches"] == [0, 1, 2, 3, 4]
    stream.add("later")
    stream.run()
    assert stream.rows() == [*FILES, "later"]


@pytest.mark.slow
def test_spark_repeating_its_last_batch_after_a_replay_changes_nothing(stream: Ingested) -> None:
    """As a plain query does that was killed before Spark's commit, whose checkpoint is behind."""
    for loss in ("restored", "deleted"):
        lose, lost = LOSSES[loss]
        lose(stream)
        stream.replay(lost[0])
        stream.batch_again(4)
        stream.run()
        assert stream.rows() == FILES


def test_records_that_are_lost_hide_no_lost_table(stream: Ingested) -> None:
    """The plan log knows that all batches but the newest were committed."""
    shutil.rmtree(stream.state / "_source/sink")
    stream.table.restore(2)
    with pytest.raises(LostBatchesError, match="lacks batches 2 to 3"):
        stream.run()
    assert stream.replay(2)["batches"] == [2, 3, 4]
    stream.run()
    assert stream.rows() == FILES


def test_records_that_are_lost_repeat_nothing(stream: Ingested) -> None:
    shutil.rmtree(stream.state / "_source/sink")
    stream.add("f5")
    stream.run()
    assert stream.rows() == [*FILES, "f5"]
    assert stream.position().batch == 5


def test_more_is_missing_than_was_asked_for(stream: Ingested) -> None:
    stream.table.restore(2)
    with pytest.raises(LostBatchesError, match=r"lacks batch 3 as well.*--from-batch 2"):
        stream.replay(4)
    with pytest.raises(LostBatchesError, match="--from-batch 2"):
        stream.replay(3, accept_loss=True)
    with pytest.raises(OptionError, match="no committed batch 5"):
        stream.replay(5)


def test_files_that_are_gone_are_named(stream: Ingested) -> None:
    stream.table.restore(2)
    (stream.source / "f3.json").unlink()
    for is_dry in (True, False):
        with pytest.raises(FileMissingError, match=r"f3\.json \(batch 3\)"):
            stream.replay(2, dry_run=is_dry)
    stream.given["ignoreMissingFiles"] = "true"
    stream.replay(2)
    stream.run()
    assert stream.rows() == ["f0", "f1", "f2", "f4"]


def test_a_history_that_does_not_tell_is_not_guessed(stream: Ingested) -> None:
    shutil.rmtree(stream.state / "_source/sink")
    stream.table.create_checkpoint()
    for version in range(5):
        _log_file(stream, version).unlink()
    shutil.rmtree(stream.state / "_source/sink", ignore_errors=True)
    with pytest.raises(LostBatchesError, match="no longer shows"):
        stream.replay(2)
    assert stream.rows() == FILES


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_no_row_is_doubled_where_the_transaction_has_expired(
    stream: Ingested, is_cleaned: bool
) -> None:
    expire_transactions(stream.target, is_cleaned=is_cleaned)
    assert stream.replay(0)["batches"] == []
    stream.add("f9")
    stream.run()
    assert stream.rows() == sorted([*FILES, "f9"])
    expire_transactions(stream.target, is_cleaned=is_cleaned)
    shutil.rmtree(stream.state / "_source/sink")
    if is_cleaned:  # nothing proves any more that rows are missing
        with pytest.raises(LostBatchesError, match="no longer shows"):
            stream.replay(0)
    else:
        assert stream.replay(0)["batches"] == []
    assert stream.rows() == sorted([*FILES, "f9"])


def test_a_running_stream_is_not_replayed(stream: Ingested) -> None:
    with RunLock(open_store(str(stream.state)), JOB_KEY), pytest.raises(StateLockedError):
        stream.replay(0)


def test_a_schema_that_changes_on_the_way_heals_itself(stream: Ingested) -> None:
    stream.add("f2", b="new")
    stream.table.restore(2)
    stream.replay(2)
    stream.run()
    assert stream.rows() == FILES
    stream.add("f3", c="new")
    stream.table.restore(2)
    stream.given["cloudFiles.schemaEvolutionMode"] = "failOnNewColumns"
    with pytest.raises(UnknownFieldException):
        stream.replay(2)
    with pytest.raises(LostBatchesError):
        stream.run()
    stream.given["cloudFiles.schemaEvolutionMode"] = "rescue"
    stream.replay(2)
    assert stream.rows() == FILES


def test_rows_of_a_query_of_ones_own_are_not_made_up(stream: Ingested) -> None:
    stream.table.restore(2)
    for number in range(5):
        path = stream.state / "_source/sink/0" / f"{number:020d}"
        path.unlink()
        log = SinkLog(open_store(str(stream.state)))
        table_id = str(stream.table.metadata().id)
        log.add(SinkRecord(batch=number, table_id=table_id, version=number + 1, read_by="query"))
    with pytest.raises(OptionError, match=r"2 to 4 were written by a query.*--as-read"):
        stream.replay(2)
    stream.replay(2, as_read=True)
    assert stream.rows() == FILES


def test_the_note_of_a_replayed_batch_says_so(stream: Ingested) -> None:
    stream.table.restore(4)
    stream.replay(4)
    note = DeltaTable(str(stream.target)).history(1)[0]["cloudfiles"]
    assert (note["number"], note["replay"]) == (4, 0)
