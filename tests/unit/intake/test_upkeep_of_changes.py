"""Notes of changed files stay few objects, and what they say is said no second time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import IncompatibleStateError, StateLockedError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.intake.ledger.changed import (
    PACKED,
    PREFIX,
    Change,
    ChangedFolder,
    Notices,
    changed_times,
    claim_change,
    note_change,
    note_read,
    notices,
    was_read,
)
from airflow_cloudfiles.engine.state.compaction import Compaction, CompactionResult, work_of
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import ObjectStore, memory, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.crash_points import COMPACTION_POINTS
from tests.support.written_state import WrittenState

_FORKED = multiprocessing.get_context("forkserver")
DAY_US = 86400 * 10**6
MONTH = 30 * 86400.0


@pytest.fixture
def clock(monkeypatch):
    """The clock of stores in memory, which a test moves."""
    ticks = count(1)
    now = [10**15]
    monkeypatch.setattr(memory, "now_us", lambda: now[0] + next(ticks))
    return now


def new_state() -> MemoryStore:
    return MemoryStore(f"memory://{uuid.uuid4().hex}/state")


def changed(number: int) -> Change:
    before = FileEntry(f"{number:06}.json", 10, 5, "etag-5")
    return Change(number, before, replace(before, size=11, etag="etag-6"))


def note(state: ObjectStore, *numbers: int, is_reported: bool = True) -> None:
    """What discoveries leave that find changed files."""
    for number in numbers:
        note_change(state, changed(number))
        if is_reported:
            assert claim_change(state, changed(number))


def loose(state: ObjectStore) -> list[str]:
    return [each.path for each in state.list(f"{PREFIX}/") if each.path != PACKED]


def sweep(
    state: ObjectStore,
    *,
    may_go_on: Callable[[], None] = lambda: None,
    dry_run: bool = False,
    **grace: float,
) -> CompactionResult:
    """Do what is due, or tell of it."""
    now_us = state.clock_us()
    folder = ChangedFolder(state, now_us)
    compaction = Compaction(state, folder, may_go_on)
    work = work_of(folder, now_us, **grace)
    compaction.tell(work) if dry_run else compaction.run(work)
    return compaction.done


def sweep_all(state: ObjectStore) -> None:
    """Pack and remove, until there is nothing to do."""
    while sweep(state, grace_seconds=0) != CompactionResult():
        pass


def test_changed_files_of_many_runs_are_few_objects_and_are_remembered(clock):
    state = new_state()
    written = WrittenState(state.uri)
    written.discover("a.json")
    objects = []
    for run in range(500):
        clock[0] += DAY_US // 4
        note(state, run)
        if run % 3 == 0:
            note_read(state, replace(changed(run).now, path=f"read-{run}.json"))
        if run % 20 == 0:
            upkeep.after_run(
                state.uri, compacts=False, least=100, sweeps=True, retention_seconds=MONTH
            )
        objects.append(len(loose(state)))
    assert max(objects) < 100 + 100 + 4 * 50, "the newest, those to be packed, those of some sweeps"
    found = notices(state)
    assert found.reported == set(found.times_us) == set(notices_of(range(500)))
    since_us = found.times_us[hash_of(7)] - (10**15 + 8 * DAY_US // 4)
    assert 0 < since_us < 10**6, "the time is that of the note"
    assert changed_times(state)[7]
    for run in range(500):
        version = replace(changed(run).now, path=f"read-{run}.json")
        assert was_read(state, version, found) == (run % 3 == 0)


def hash_of(number: int) -> tuple[str, int]:
    return next(iter(notices_of([number])))


def notices_of(numbers) -> dict[tuple[str, int], int]:
    state = new_state()
    note(state, *numbers)
    return notices(state).times_us


def test_a_note_goes_a_day_after_it_was_packed_and_is_packed_once(clock):
    state = new_state()
    note(state, *range(150))
    told = sweep(state, dry_run=True)
    assert (told.packed, told.removed, len(loose(state))) == (200, 0, 300)
    assert sweep(state) == told
    before = notices(state)
    clock[0] += DAY_US - 10**6
    assert sweep(state) == CompactionResult()
    clock[0] += 2 * 10**6
    note(state, *range(150, 160))
    assert sweep(state) == CompactionResult(removed=200)
    assert len(loose(state)) == 120
    found = notices(state)
    assert found.reported == before.reported | set(notices_of(range(150, 160)))
    assert {key: found.times_us[key] for key in before.times_us} == before.times_us


def test_a_state_without_changed_files_is_asked_once_and_gets_no_object():
    state = new_state()
    sweep(state)
    assert dict(state.requests) == {"list": 1}
    note(state, *range(50))
    assert sweep(state) == CompactionResult()
    assert PACKED not in {each.path for each in state.list()}


def test_compacting_by_hand_sweeps_them_and_tells_of_it(clock):
    state = new_state()
    WrittenState(state.uri).discover("a.json")
    note(state, *range(150))
    told = upkeep.compact(state, retention_seconds=MONTH, dry_run=True)
    assert (told.packed, told.removed) == (200, 0)
    done = upkeep.compact(state, retention_seconds=MONTH, grace_seconds=0)
    assert (done.packed, done.removed) == (200, 200)
    assert len(notices(state).reported) == 150


def test_what_was_noted_and_not_reported_is_still_to_be_reported():
    state = new_state()
    note(state, *range(120), is_reported=False)
    note(state, *range(120, 300))
    sweep_all(state)
    found = notices(state)
    assert len(found.times_us) == 300
    assert found.reported == set(notices_of(range(120, 300)))
    assert claim_change(state, changed(0))


@pytest.mark.parametrize("damage", [b"", b"damaged", b'v1\n{"id": "a", "crc32": "00000000"}\nab'])
def test_of_a_damaged_object_nothing_is_believed_and_it_is_written_anew(damage, caplog):
    state = new_state()
    note(state, *range(150))
    sweep_all(state)
    state.put(PACKED, damage)
    assert len(notices(state).reported) == 50
    assert "changes of files that it had are reported once more" in caplog.text
    note(state, *range(100))
    sweep_all(state)
    assert len(notices(state).reported) == 150


def test_a_newer_object_is_refused_by_name():
    state = new_state()
    state.put(PACKED, encode_entry({"id": "a"}, b"", format_version=2))
    with pytest.raises(IncompatibleStateError, match="_source/changed/packed"):
        notices(state)
    with pytest.raises(IncompatibleStateError, match="_source/changed/packed"):
        sweep(state)


def test_who_has_lost_the_lock_changes_nothing():
    state = new_state()
    note(state, *range(150))

    def lost() -> None:
        raise StateLockedError("lost")

    before = {each.path for each in state.list()}
    with pytest.raises(StateLockedError):
        sweep(state, grace_seconds=0, may_go_on=lost)
    assert {each.path for each in state.list()} == before


def _sweep_killed(uri: str, point: str) -> None:
    os.environ[CRASH_AT] = point
    sweep_all(open_store(uri))


def _said(state: ObjectStore) -> tuple[Notices, list[bool]]:
    found = notices(state)
    return found, [was_read(state, changed(number).now, found) for number in range(150)]


@pytest.mark.slow
@pytest.mark.parametrize("passage", [1, 2])
@pytest.mark.parametrize("point", COMPACTION_POINTS)
def test_a_sweep_that_is_killed_loses_no_note(tmp_path: Path, point: str, passage: int) -> None:
    """A second passage of packing: more notes come after the first sweep."""
    state = open_store(str(tmp_path / "state"))
    note(state, *range(110))
    if point in {"before-pack", "after-pack-copy"} and passage > 1:
        sweep_all(state)
        passage = 1
    note(state, *range(110, 190))
    for number in range(0, 150, 2):
        note_read(state, changed(number).now)
    before = _said(state)
    process = _FORKED.Process(target=_sweep_killed, args=(state.uri, f"{point}:{passage}"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert _said(state)[1] == before[1]
    assert _said(state)[0].times_us == before[0].times_us
    assert _said(state)[0].reported == before[0].reported
    sweep_all(state)
    assert _said(state)[0].reported == before[0].reported
    assert _said(state)[0].times_us == before[0].times_us
    assert _said(state)[1] == before[1]
    assert len(loose(state)) == 100
