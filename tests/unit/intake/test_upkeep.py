"""A state stays small however many runs there are, and loses nothing that anybody reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from itertools import count, product
from pathlib import Path
from unittest import mock

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateError,
    StateLockedError,
)
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.intake.file_state_columns import rows
from airflow_cloudfiles.engine.intake.file_states import FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.state import compaction, metadata, metadata_format, run_history
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.packs import COPIES
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, RUNS_PREFIX
from airflow_cloudfiles.engine.state.sink_log import SinkLog, position
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from tests.support.crash_points import COMPACTION_POINTS
from tests.support.laws import some
from tests.support.memory_ledger import MemoryLedger
from tests.support.written_state import WrittenState

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
MONTH = 30 * 86400.0
HOUR_US = 3600 * 10**6
SOURCE = "memory://lake/in"


def compacted(uri: str, **given):
    return upkeep.compact(open_store(uri), retention_seconds=MONTH, grace_seconds=0, **given)


def stream(uri: str, runs: int) -> WrittenState:
    written = WrittenState(uri, SOURCE)
    for number in range(runs):
        run(written, number)
    return written


def run(written: WrittenState, number: int) -> None:
    """What a run with one new file leaves."""
    run_id = f"run-{number}"
    spec = {"kind": "ingest", "run_id": run_id}
    written.state.put(f"{RUNS_PREFIX}/{run_id}.json", seal(spec))
    written.discover(f"{number:06}.json")
    written.plan()
    written.commit(run_id)
    written.state.put(f"{REPORTS_PREFIX}/{run_id}.json", b"{}")


def table(uri: str):
    return list(rows(FileStates(StateSnapshot.take(uri)).groups()))


def new_uri() -> str:
    return f"memory://{uuid.uuid4().hex}/state"


@pytest.fixture
def clock(monkeypatch):
    """The clock of stores in memory, which a test moves."""
    ticks = count(1)
    now = [10**15]
    monkeypatch.setattr(memory, "now_us", lambda: now[0] + next(ticks))
    return now


def lived(uri: str, runs: int, clock) -> list[int]:
    """Run a stream every hour; gives how many objects its state had after each run."""
    written, objects = WrittenState(uri, SOURCE), []
    sizes = {"KEPT": 10, "PACK_ENTRIES": 10, "MAX_ENTRIES": 1000}
    with (
        mock.patch.multiple(compaction, **sizes),
        mock.patch.object(run_history, "KEPT_RUNS", 10),
    ):
        for number in range(runs):
            clock[0] += HOUR_US
            is_due = upkeep.is_due(written.state.list, 10)
            run(written, number)
            upkeep.after_run(
                uri,
                compacts=is_due,
                least=10,
                sweeps=number % 10 == 0,
                retention_seconds=2 * 86400.0,
            )
            objects.append(sum(1 for _ in written.state.list()))
    return objects


def requests_to_open(uri: str) -> Counter[str]:
    state = MemoryStore(uri)
    intake = Intake(source=MemoryStore(SOURCE), state=state, format="json")
    intake.begin_at(position(state, intake.plans))
    intake.check()
    assert not intake.has_work()
    return state.requests


def test_a_stream_of_many_runs_has_few_objects_and_opens_with_as_many_requests(clock):
    """A tenth of the sizes, so that six hundred runs stand for six thousand."""
    uri, young = new_uri(), new_uri()
    lived(young, 60, clock)
    objects = lived(uri, 600, clock)
    packs = 2 * 4 * 9  # copies, logs, and packs of one size that are not ten yet
    assert max(objects) <= max(objects[:100]) + 3 * packs, "two sizes, and those merged today"
    assert requests_to_open(uri) == requests_to_open(young)
    found = table(uri)
    assert [row["path"][-11:] for row in found] == [f"{n:06}.json" for n in range(600)]
    assert {row["status"] for row in found} == {"committed"}
    assert [row["run_id"] for row in found] == [f"run-{n}" for n in range(600)]


def test_nothing_that_anybody_reads_changes():
    uri = new_uri()
    written = stream(uri, 350)
    written.discover("later.json")
    before = table(uri)
    records = [SinkLog(written.state).find(batch) for batch in range(350)]
    names = {each.path for each in written.state.list()}
    done = compacted(uri)
    assert (done.packed, done.removed) == (200 * 4, 200 * 4)
    assert {each.path for each in written.state.list()} < names | {
        each.path for each in written.state.list() if "/packs/" in each.path
    }
    assert table(uri) == before
    assert [SinkLog(written.state).find(batch) for batch in range(350)] == records
    assert [SinkLog(written.state).find_in_any(batch) for batch in range(350)] == records
    intake = Intake(
        source=MemoryStore(SOURCE), state=written.state, format="json", ledger=MemoryLedger()
    )
    files = [file.path for file in intake.files.slice(START, intake.head())]
    assert Counter(files) == Counter({f"{n:06}.json": 1 for n in range(350)} | {"later.json": 1})
    assert intake.has_work()
    assert intake.committed().entry == 350
    assert compacted(uri) == upkeep.CompactionResult()


def test_a_run_with_nothing_to_compact_asks_for_nothing():
    uri = new_uri()
    written = stream(uri, 199)
    listed = {folder: list(written.state.list(folder)) for folder in
              ("_source/files/", "_source/plans/", "_source/sink/")}  # fmt: skip
    asked = []
    assert not upkeep.is_due(lambda folder: asked.append(folder) or listed[folder], 100)
    assert asked == list(listed)
    assert not upkeep.is_due(lambda _: pytest.fail("asked"), 0)
    run(written, 199)
    assert upkeep.is_due(written.state.list, 100)
    assert not upkeep.is_due(written.state.list, 101)
    state = MemoryStore(uri)
    upkeep.after_run(state.uri, compacts=False, least=100, sweeps=False, retention_seconds=MONTH)
    assert not state.requests


def test_what_is_packed_goes_a_day_later(clock):
    uri = new_uri()
    stream(uri, 250)
    state = open_store(uri)
    done = upkeep.compact(state, retention_seconds=MONTH)
    assert (done.packed, done.removed) == (400, 0)
    assert metadata.read_metadata(state).format_version == 1
    clock[0] += 23 * 3600 * 10**6
    assert upkeep.compact(state, retention_seconds=MONTH) == upkeep.CompactionResult()
    clock[0] += 2 * 3600 * 10**6
    assert upkeep.compact(state, retention_seconds=MONTH).removed == 400
    assert metadata.read_metadata(state).format_version == 2


def test_an_older_version_of_the_package_refuses_the_state_by_name():
    uri = new_uri()
    stream(uri, 250)
    compacted(uri)
    with (
        mock.patch.object(metadata_format, "FORMAT_VERSION", 1),
        pytest.raises(IncompatibleStateError, match=r"metadata.json has format version 2.*Upgrade"),
    ):
        Intake(source=MemoryStore(SOURCE), state=open_store(uri), format="json")


def test_a_dry_run_tells_and_changes_nothing():
    uri = new_uri()
    written = stream(uri, 250)
    before = written.content()
    told = compacted(uri, dry_run=True)
    assert (told.packed, told.removed, told.expired) == (400, 0, 0)
    assert {key: each for key, each in written.content().items() if "lock" not in key} == before


@pytest.mark.parametrize(
    ("key", "number"),
    [
        *(("_source/files/", number) for number in (0, 120, 349)),
        *(("_source/plans/", number) for number in (0, 120)),
    ],
)
def test_a_log_that_has_lost_entries_is_refused_before_and_after(key, number):
    uri = new_uri()
    written = stream(uri, 350)
    object_key = f"{key}{number:020}"
    entry = written.state.get(object_key)
    written.state.delete(object_key)
    with pytest.raises(CorruptedStateError):
        compacted(uri)
    assert not list(written.state.list(f"{key}packs/"))
    written.state.put(object_key, entry)
    compacted(uri)
    if number < 200:
        lost = [each.path for each in written.state.list(f"{key}packs/")
                if int(each.path[-22:-2]) <= number <= int(each.path[-43:-23])]  # fmt: skip
        assert len(lost) == len(COPIES)
        for each in lost:
            written.state.delete(each)
    else:
        written.state.delete(object_key)
    with pytest.raises(CorruptedStateError, match=r"missing|Missing"):
        compacted(uri)
    with pytest.raises(CorruptedStateError, match=r"missing|Missing"):
        Intake(source=MemoryStore(SOURCE), state=open_store(uri), format="json").check()


def test_a_state_at_work_is_left_alone():
    uri = new_uri()
    written = stream(uri, 250)
    before = written.content()
    for key in ("_source/run.lock", JOB_KEY):
        with RunLock(written.state, key):
            with pytest.raises(StateLockedError):
                compacted(uri)
            upkeep.after_run(uri, compacts=True, least=1, sweeps=True, retention_seconds=MONTH)
    assert written.content() == before
    with pytest.raises(StateError, match="There is no state in"):
        compacted(new_uri())


def test_that_a_state_is_damaged_does_not_fail_a_run_that_has_succeeded(caplog):
    uri = new_uri()
    written = stream(uri, 250)
    written.state.put(f"_source/files/{7:020}", b"damaged")
    upkeep.after_run(uri, compacts=True, least=1, sweeps=False, retention_seconds=MONTH)
    assert "could not be compacted, which loses nothing" in caplog.text


def test_a_note_that_is_written_again_is_not_lost():
    uri = new_uri()
    written = stream(uri, 250)
    upkeep.compact(written.state, retention_seconds=MONTH)
    note = unseal(written.state.get("_source/batches/7"))
    written.state.put("_source/batches/7", seal({**note, "run_id": "again"}))
    compacted(uri)
    assert [row["run_id"] for row in table(uri)][6:9] == ["run-6", "again", "run-8"]


# ── runs of the past ────────────────────────────────────────────────────────────────────────────


def test_specifications_and_reports_go_by_age_but_for_the_newest(clock):
    state = MemoryStore(new_uri())
    for number in range(400):
        clock[0] += HOUR_US // 12
        kind = "ingest" if number == 3 else "infer"
        state.put(f"{RUNS_PREFIX}/{number:03}.json", seal({"kind": kind}))
        state.put(f"{REPORTS_PREFIX}/{number:03}.json", b"{}")
        state.put(f"{run_history.LEFT_RUNS_PREFIX}/{number:03}.json", b"{}")
    day = 86400.0
    assert run_history.sweep(state, state.clock_us(), day, dry_run=True) == 3 * (400 - 288) - 1
    assert len(list(state.list())) == 1200
    clock[0] += int(MONTH * 10**6)
    assert run_history.sweep(state, state.clock_us(), day) == 3 * 300 - 1
    left = [each.path for each in state.list(f"{RUNS_PREFIX}/")]
    assert left == [f"{RUNS_PREFIX}/{number:03}.json" for number in (3, *range(300, 400))]
    assert len(list(state.list(f"{REPORTS_PREFIX}/"))) == 100
    assert run_history.newest_ingest(state) == (f"{RUNS_PREFIX}/003.json", {"kind": "ingest"})


def test_about_one_run_in_a_hundred_sweeps():
    assert 50 < sum(run_history.sweeps(f"run-{number}") for number in range(10_000)) < 200


# ── real processes ──────────────────────────────────────────────────────────────────────────────

SCRIPT = """
import sys
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.state import compaction
from airflow_cloudfiles.engine.storage import open_store
compaction.KEPT = compaction.PACK_ENTRIES = 10
compaction.MERGED_PACKS = 2
upkeep.compact(open_store(sys.argv[1]), retention_seconds=1e9, grace_seconds=0)
"""


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A state on a disk, of a stream with old entries."""
    folder = tmp_path_factory.mktemp("grown")
    stream(str(folder / "state"), 52)
    return folder / "state", table(str(folder / "state"))


def compact_in_a_process(state: Path, crash_at: str = "") -> int:
    search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, CRASH_AT: crash_at, "PYTHONPATH": search}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(state)], env=environment, check=False
    ).returncode


def without_uri(found):
    return [{name: value for name, value in row.items() if name != "checkpoint"} for row in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "passage"),
    some([*product(COMPACTION_POINTS, (1, 5))], len(COMPACTION_POINTS) // 2, name="compaction"),
)
def test_a_kill_at_any_step_of_compaction_loses_and_repeats_nothing(
    grown, tmp_path, point, passage
):
    template, before = grown
    state = tmp_path / "state"
    shutil.copytree(template, state)
    assert compact_in_a_process(state, f"{point}:{passage}") == -9
    assert without_uri(table(str(state))) == without_uri(before)
    written = WrittenState(str(state), SOURCE)
    run(written, 52)
    assert compact_in_a_process(state) == 0
    found = table(str(state))
    assert without_uri(found)[:-1] == without_uri(before)
    assert [row["path"][-11:] for row in found] == [f"{n:06}.json" for n in range(53)]
    intake = Intake(
        source=MemoryStore(SOURCE), state=written.state, format="json", ledger=MemoryLedger()
    )
    intake.check()
    assert not intake.has_work()
    assert sum(1 for _ in written.state.list("_source/files/0")) == 13
    assert sum(1 for _ in written.state.list("_source/files/packs/")) == 2 * 1
