"""What opening has fetched is not asked for again, and an answer that is a moment old does no harm.

The stores are in memory; each process of a run has one of its own, which counts its requests.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.files import Offset, ReadLimit
from airflow_cloudfiles.engine.intake import opening, upkeep
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.state import compaction
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock, end_releases
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import (
    Position,
    SinkLog,
    SinkRecord,
    position_of_a_job,
)
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState, PrefetchedStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore


class Stream:
    """A stream whose source and state are in a store."""

    def __init__(self) -> None:
        self.name = f"memory://{uuid.uuid4().hex}"
        self.state = f"{self.name}/state"
        self.files = 0

    def drop(self) -> None:
        """Let a file arrive."""
        self.files += 1
        MemoryStore(f"{self.name}/in").put(f"{self.files}.json", b"{}\n")

    def intake(self, state: ObjectStore) -> contextlib.closing[Intake]:
        source = MemoryStore(f"{self.name}/in")
        return contextlib.closing(Intake(source=source, state=state, format="json"))

    def job(self, *, commits: bool = True) -> None:
        """What another run does: discover, plan, commit one batch."""
        state = MemoryStore(self.state)
        with self.intake(state) as intake:
            before = position_of_a_job(state, intake.plans)
            intake.discover()
            end = intake.plans.plan(intake.files, before.end, ReadLimit(), intake.head())
            if commits:
                SinkLog(state).add(SinkRecord(batch=before.batch + 1, end=end))


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """With one batch that is committed, and an index on this disk."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    stream = Stream()
    stream.drop()
    stream.job()
    return stream


@contextlib.contextmanager
def driver(
    stream: Stream, between: Any = lambda: None
) -> Iterator[tuple[Intake, Position, PrefetchedStore, MemoryStore]]:
    """The driver of a job; something happens between what it reads before its lock and under it."""
    store = MemoryStore(stream.state)
    ahead = PrefetchedStore(store)
    opening._before_the_lock(ahead)
    between()
    opening._under_the_lock(ahead)
    with OpenedState(ahead).until_written() as opened:
        state = opened.open(stream.state)
        before = position_of_a_job(state, PlanLog(state))
        with stream.intake(state) as intake:
            intake.begin_at(before)
            yield intake, before, ahead, store


def test_a_run_that_finds_nothing_new_asks_for_nothing_more(stream: Stream) -> None:
    with driver(stream) as (intake, before, _, store):
        asked = store.requests
        assert before == Position(0, Offset(1, 0), is_of_a_job=True)
        intake.check()
        assert not intake.has_work(up_to=intake.known_head())
        assert not intake.discover().files
        assert store.requests == asked
    assert asked == Counter(list=7, get=7, head=1)


def test_a_run_that_records_files_only_writes(stream: Stream) -> None:
    stream.drop()
    with driver(stream) as (intake, _, ahead, store):
        asked = store.requests
        intake.check()
        assert intake.discover().files == 1
        assert intake.has_work(up_to=intake.known_head())
        assert intake.outstanding(up_to=intake.known_head()).files == 1
        ahead.end_aside()
        # the entry; the mark of the log's length; what the listing showed
        assert store.requests - asked == Counter(put=3)


def test_planning_asks_only_what_is_committed(stream: Stream) -> None:
    stream.drop()
    with driver(stream) as (intake, before, ahead, _):
        intake.check()
        intake.discover()
        head = intake.known_head()
    store = MemoryStore(stream.state)
    other = PrefetchedStore(store)
    other.seed(ahead, opening._LOGS)
    with (
        OpenedState(other).until_written() as opened,
        stream.intake(opened.open(stream.state)) as intake,
    ):
        assert position_of_a_job(intake.state, intake.plans) == before
        intake.begin_at(before)
        intake.check()
    assert store.requests == Counter(list=2), "the records of jobs, and Spark's commits"
    end = intake.plans.plan(intake.files, before.end, ReadLimit(), head)
    assert end == head
    assert [file.path for file in intake.files.slice(before.end, end)] == ["2.json"]
    assert intake.plans.plan(intake.files, end, ReadLimit(), head) == end
    assert store.requests == Counter(list=2, put=1)


@pytest.mark.parametrize("commits", [True, False])
def test_what_another_run_did_before_it_freed_the_lock_is_seen(
    stream: Stream, *, commits: bool
) -> None:
    """It goes on, or its plan is taken over, although the listings are older."""

    def other() -> None:
        stream.drop()
        stream.job(commits=commits)

    stream.drop()
    with driver(stream, other) as (intake, before, _, _):
        assert before.batch == int(commits)
        intake.check()
        stream.drop()
        assert intake.discover().files == 1
        ends = [before.end]
        while (end := plan_on(intake, ends[-1])) != ends[-1]:
            ends.append(end)
    assert ends == ([Offset(2, 0), Offset(3, 0)] if commits else [Offset(n, 0) for n in (1, 2, 3)])
    plans = PlanLog(MemoryStore(stream.state))
    assert [plans.at(number).end.entry for number in range(3)] == [1, 2, 3]


def plan_on(intake: Intake, start: Offset) -> Offset:
    return intake.plans.plan(intake.files, start, ReadLimit(), intake.known_head())


def test_a_log_that_has_lost_its_end_is_refused_by_an_older_listing_too(stream: Stream) -> None:
    stream.drop()
    stream.job()
    MemoryStore(stream.state).delete(f"_source/files/{1:020}")
    with driver(stream) as (intake, *_), pytest.raises(Exception, match="has lost its newest"):
        intake.check()


def test_a_state_that_is_near_is_opened_under_its_lock(stream: Stream) -> None:
    lock = RunLock(MemoryStore(stream.state))
    with opening.opened_under(lock, stream.state, timeout_seconds=0.0) as opened:
        assert lock.is_held
        assert opened.ahead is None
        opened.end_reads()
    end_releases()
    assert not lock.is_held


def test_whether_old_entries_are_to_be_packed_is_known_from_what_was_listed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEPT", 1)
    monkeypatch.setattr(compaction, "PACK_ENTRIES", 2)
    spent = []
    for is_due in (False, True, False):
        with driver(stream) as (intake, _, ahead, store):
            intake.check()
            assert not intake.has_work()
            before = store.requests
            assert upkeep.is_due(ahead.listed, 2) == is_due
            assert store.requests == before
            spent.append(before)
        if is_due:
            state = MemoryStore(stream.state)
            upkeep.compact(state, retention_seconds=86400.0, grace_seconds=0.0)
            assert not list(state.list(f"_source/files/{0:020}"))
        else:
            for _ in range(4):
                stream.drop()
                stream.job()
    assert spent[0] == spent[1] == spent[2], "packs cost no request"
