"""A state that holds no file belongs to nobody yet; the first recorded file binds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    SourceNotFoundError,
    StateConflictError,
    StateUnreachableError,
)
from airflow_cloudfiles.engine.files import START, FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.metadata import KEY, open_metadata, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import encode_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import PrefetchedStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same
from tests.support.landing_zone import FailingStore, Fault, KilledError, LandingZone
from tests.support.memory_ledger import MemoryLedger

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
BATCH = FileBatch((FileEntry("a", 1, 1),))


@pytest.fixture(params=["memory", "disk"])
def state(request, tmp_path):
    disk = str(tmp_path / "state")
    return open_store(disk if request.param == "disk" else f"memory://{uuid.uuid4().hex}")


def over(state, source, **options):
    return Intake(source=source, state=state, format="json", ledger=MemoryLedger(), **options)


def sources(*names):
    name = uuid.uuid4().hex
    return [MemoryStore(f"memory://{name}/{each}") for each in names]


def recorded(intake):
    return [file.path for file in intake.files.slice(START, intake.head())]


def test_a_typo_in_the_source_can_be_corrected(tmp_path):
    zone, state = LandingZone(tmp_path / "landing"), str(tmp_path / "state")
    zone.write("a.json")
    wrong = Intake.open(source=str(tmp_path / "landign"), format="json", checkpoint_location=state)
    with pytest.raises(SourceNotFoundError):
        wrong.discover()
    right = Intake.open(source=zone.uri, format="json", checkpoint_location=state)
    assert right.discover().sample == ("a.json",)
    right.close()
    metadata = read_metadata(open_store(state))
    assert (metadata.source, metadata.is_bound) == (zone.uri, True)
    with pytest.raises(StateConflictError, match="landign"):
        Intake.open(source=str(tmp_path / "landign"), format="json", checkpoint_location=state)


def test_the_format_can_be_corrected_and_the_id_stays(state):
    (source,) = sources("in")
    first = over(state, source)
    first.discover()
    second = Intake(source=source, state=state, format="csv", ledger=MemoryLedger())
    assert second.stream_id == first.stream_id
    assert read_metadata(state).format == "csv"


def test_the_first_start_of_the_source_that_takes_over_decides_what_exists(state):
    wrong, right = sources("wrong", "right")
    over(state, wrong)
    right.put("old", b"x")
    from_now_on = replace(DiscoveryOptions(), include_existing_files=False)
    assert over(state, right, discovery=from_now_on).discover().files == 0
    right.put("new", b"x")
    assert over(state, right).discover().sample == ("new",)
    with pytest.raises(StateConflictError):
        over(state, wrong)  # a baseline binds as well


def test_a_baseline_without_a_file_binds(state):
    one, other = sources("one", "other")
    options = replace(DiscoveryOptions(), include_existing_files=False)
    over(state, one, discovery=options).discover()
    with pytest.raises(StateConflictError):
        over(state, other)


@pytest.mark.parametrize("has_found", ["old", "new"])
def test_of_two_sources_at_once_the_first_recorded_file_decides(state, has_found):
    """One has opened the state; another takes it over; then both find files."""
    old_source, new_source = sources("old", "new")
    old, new = over(state, old_source), over(state, new_source)
    old_source.put("of-old", b"x")
    new_source.put("of-new", b"x")
    order = [old, new] if has_found == "old" else [new, old]
    order[0].discover()
    with pytest.raises(StateConflictError, match=has_found):
        order[1].discover()
    with pytest.raises(StateConflictError):
        order[1].has_work()
    found = read_metadata(state)
    assert (found.source.rpartition("/")[2], found.is_bound) == (has_found, True)
    assert recorded(over(state, order[0].source)) == [f"of-{has_found}"]
    assert state.get(KEY) == encode_metadata(found)  # and the file itself says so by now


def test_whoever_is_late_neither_waits_nor_plans_for_files_of_another_source(state):
    old_source, new_source = sources("old", "new")
    old, new = over(state, old_source), over(state, new_source)
    new_source.put("a", b"x")
    new.discover()
    for ask in (old.outstanding, old.has_work, old.arrivals, old.discover):
        with pytest.raises(StateConflictError):
            ask()


def test_metadata_of_a_source_that_was_taken_over_may_come_last(state):
    """Killed between the first entry and the metadata: the entry says whose the state is."""
    one = open_metadata(state, "file:///one", "json")
    log = FileLog(state, one)
    open_metadata(state, "file:///two", "json")
    late = state.get(KEY)
    assert log.append(0, BATCH)
    state.put(KEY, late)
    assert read_metadata(state) == replace(one, is_bound=True)
    with pytest.raises(StateConflictError, match="file:///one"):
        open_metadata(state, "file:///two", "json")
    assert open_metadata(state, "file:///one", "json").is_bound


def test_another_first_start_with_other_options_is_told_to_run_again(state):
    mine = open_metadata(state, "file:///in", "json")
    open_metadata(state, "file:///typo", "json")
    other = open_metadata(state, "file:///in", "json", include_existing_files=False)
    assert FileLog(state, other).append(0, BATCH)
    with pytest.raises(StateConflictError, match=r"includeExistingFiles\. Run again"):
        FileLog(state, mine).append(0, BATCH)


def test_of_two_that_replace_one_content_one_does(state):
    state.put("a", b"1")
    assert replace_if_same(state, "a", b"1", b"2")
    assert not replace_if_same(state, "a", b"1", b"3")
    assert not replace_if_same(state, "none", b"1", b"3")
    assert state.get("a") == b"2"


def test_metadata_that_were_fetched_before_another_source_took_them_are_read_again():
    state = open_store(f"memory://{uuid.uuid4().hex}")
    open_metadata(state, "file:///one", "json")
    ahead = PrefetchedStore(state)
    ahead.fetch([KEY])
    open_metadata(state, "file:///two", "json")
    assert open_metadata(ahead, "file:///three", "json").source == "file:///three"
    assert read_metadata(state).source == "file:///three"


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 5))
def test_a_lost_answer_changes_nothing(fault, number):
    wrong, right = sources("wrong", "right")
    state = open_store(f"memory://{uuid.uuid4().hex}")
    over(state, wrong)
    right.put("a", b"x")
    failing = FailingStore(state, {number: fault})
    for _ in range(3):
        try:
            over(failing, right).discover()
        except (StateUnreachableError, KilledError):
            continue
    assert recorded(over(state, right)) == ["a"]
    assert read_metadata(state).is_bound


# ── real processes ──────────────────────────────────────────────────────────────────────────────


def process(source, *states, crash_at=None):
    environment = {**os.environ, "PYTHONPATH": PACKAGE_FOLDER}
    if crash_at:
        environment[CRASH_AT] = crash_at
    script = str(Path(__file__).with_name("binder.py"))
    started = subprocess.Popen(
        [sys.executable, script, source, *map(str, states)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert started.stdout.readline() == "ready\n"
    return started


def test_two_processes_race_for_states(tmp_path):
    zones = [LandingZone(tmp_path / name) for name in ("one", "two")]
    for zone in zones:
        zone.write(f"of-{zone.folder.name}.json")
    states = [tmp_path / "states" / str(number) for number in range(25)]
    for state in states:  # begun for a source that has nothing
        open_metadata(open_store(str(state)), "file:///typo", "json")
    racing = [process(zone.uri, *states) for zone in zones]
    for each in racing:
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = [json.loads(each.communicate(timeout=120)[0]) for each in racing]
    assert [each.returncode for each in racing] == [0, 0]
    for number, state in enumerate(states):
        (owner,) = [zone for zone, answer in zip(zones, answers, strict=True) if answer[number]]
        metadata = read_metadata(open_store(str(state)))
        assert (metadata.source, metadata.is_bound) == (owner.uri, True)
        log = FileLog(open_store(str(state)))
        files = [file.path for file in log.slice(START, log.head())]
        assert files == [f"of-{owner.folder.name}.json"]


@pytest.mark.parametrize(
    ("point", "owner"),
    [("after-dedupe", "two"), ("before-file-log-append", "two"), ("after-file-log-append", "one")],
)
def test_killed_on_the_way_to_the_first_entry(tmp_path, point, owner):
    zones = {name: LandingZone(tmp_path / name) for name in ("one", "two")}
    for zone in zones.values():
        zone.write("a.json")
    state = tmp_path / "state"
    killed = process(zones["one"].uri, state, crash_at=point)
    killed.communicate("go\n", timeout=60)
    assert killed.returncode == -signal.SIGKILL
    if owner == "two":
        Intake.open(
            source=zones["two"].uri, format="json", checkpoint_location=str(state)
        ).discover()
    else:
        with pytest.raises(StateConflictError):
            Intake.open(source=zones["two"].uri, format="json", checkpoint_location=str(state))
    again = Intake.open(source=zones[owner].uri, format="json", checkpoint_location=str(state))
    again.discover()
    assert recorded(again) == ["a.json"]
    again.close()
    assert read_metadata(open_store(str(state))).source == zones[owner].uri
