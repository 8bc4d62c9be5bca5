"""States of runs from a table are compacted too, and a plain query says that its own could be."""

from __future__ import annotations

import logging
import uuid
from unittest import mock

import pytest

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.state import compaction, run_history
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import PREFIX, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import open_store
from tests.support.written_state import WrittenState

SIZES = {"KEPT": 5, "PACK_ENTRIES": 10}


def table_runs(uri: str, batches: int) -> None:
    """What runs from a table leave: records of batches, and notes."""
    state = open_store(uri)
    for batch in range(batches):
        SinkLog(state).add(SinkRecord(batch=batch, table_id="t", version=batch))
        done = run_history.BatchDone(
            batch_id=batch,
            table_version=batch,
            is_new=True,
            schema_version=None,
            counts={"rows": 1},
        )
        run_history.note(uri, done)


def compacted(uri: str) -> compaction.CompactionResult:
    return upkeep.compact(open_store(uri), retention_seconds=1e6, grace_seconds=0)


def test_the_records_of_runs_from_a_table_are_packed() -> None:
    uri = f"memory://{uuid.uuid4().hex}/state"
    table_runs(uri, 40)
    state = open_store(uri)
    with mock.patch.multiple(compaction, **SIZES):
        assert upkeep.is_due_of_table(state, 10)
        assert not upkeep.is_due_of_table(state, 0)
        assert not upkeep.is_due_of_table(state, 100)
        upkeep.after_run(uri, compacts=True, least=10, sweeps=False, retention_seconds=1e6)
        assert compacted(uri).removed > 0
        assert not compacted(uri).removed
    loose = [each for each in state.list(f"{PREFIX}/") if "/packs/" not in each.path]
    assert len(loose) == 10
    log = SinkLog(state)
    found = [log.find(batch) for batch in range(40)]
    assert [each.version for each in found if each] == list(range(40))
    newest = log.newest()
    assert newest is not None
    assert newest.batch == 39


def test_a_place_without_a_state_is_refused() -> None:
    with pytest.raises(StateError, match="There is no state in"):
        compacted(f"memory://{uuid.uuid4().hex}/state")


def test_a_plain_query_tells_of_a_state_that_could_be_smaller(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TOLD_ENTRIES", 20)
    uri = f"memory://{uuid.uuid4().hex}/state"
    written = WrittenState(uri)
    with caplog.at_level(logging.WARNING), mock.patch.multiple(compaction, **SIZES):
        for batches, told in ((19, False), (30, True)):
            for number in range(batches - written.files.head().entry):
                written.discover(f"{batches}-{number}")
                written.plan()
                written.commit()
            caplog.clear()
            plans = PlanLog(open_store(uri))
            upkeep.tell_if_large(plans, uri)
            assert not caplog.text, "it has read nothing yet"
            plans.latest()
            upkeep.tell_if_large(plans, uri)
            assert (f"cloudfiles state compact --checkpoint-location {uri}" in caplog.text) is told
        compacted(uri)
        caplog.clear()
        plans = PlanLog(open_store(uri))
        plans.latest()
        upkeep.tell_if_large(plans, uri)
        assert not caplog.text
