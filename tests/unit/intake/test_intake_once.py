"""Each file is in exactly one entry, whatever is killed, lost or repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import StateUnreachableError
from airflow_cloudfiles.engine.files import START, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.crash_points import INTAKE_POINTS, PLAN_POINTS
from tests.support.discovery.interrupted import Interrupted
from tests.support.landing_zone import FailingStore, Fault, KilledError, LandingZone
from tests.support.laws import examples
from tests.support.memory_ledger import MemoryLedger

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
SCRIPT = Path(__file__).with_name("discoverer.py")
NAMES = [f"{name}{end}" for name in "abcdef" for end in ("", "-x", "/y", "\u00e9", "\udcff")]


# ── any sequence of arrivals, discoveries, kills and lost answers ───────────────────────────────


class World:
    """A landing folder, a state, and two discoverers that know nothing of each other."""

    def __init__(self, keep_ledgers: bool) -> None:
        name = uuid.uuid4().hex
        self.source = MemoryStore(f"memory://{name}/in")
        self.state = MemoryStore(f"memory://{name}/state")
        self.keep_ledgers = keep_ledgers
        self.ledgers = [MemoryLedger(), MemoryLedger()]
        self.arrived: set[str] = set()

    def arrive(self, names) -> None:
        for name in names:
            self.source.put(name, b"x")
        self.arrived |= set(names)

    def discover(self, who: int, faults, meanwhile=()) -> None:
        state = Interrupted(FailingStore(self.state, dict(faults)), list(meanwhile))
        try:
            Intake(
                source=self.source, state=state, format="json", ledger=self.ledgers[who]
            ).discover()
        except (StateUnreachableError, KilledError):
            if not self.keep_ledgers:
                self.ledgers[who] = MemoryLedger()

    def check(self) -> None:
        self.discover(0, {})
        intake = Intake(source=self.source, state=self.state, format="json", ledger=MemoryLedger())
        files = [file.path for file in intake.files.slice(START, intake.head())]
        assert Counter(files) == Counter(self.arrived)
        assert intake.discover().files == 0


arrivals = st.lists(st.sampled_from(NAMES), max_size=6)
faults = st.dictionaries(st.integers(1, 4), st.sampled_from(Fault), max_size=2)
interruptions = st.lists(
    st.tuples(arrivals, st.none() | st.tuples(st.integers(0, 1), faults)), max_size=4
)
histories = st.lists(st.tuples(arrivals, st.integers(0, 1), faults, interruptions), max_size=8)


@pytest.mark.law
@settings(max_examples=examples(200), deadline=None)
@given(histories, st.booleans(), st.integers(1, 4))
def test_any_history_leaves_each_file_in_exactly_one_entry(history, keep_ledgers, entry_files):
    world = World(keep_ledgers)

    def event(names, other):
        def happen() -> None:
            world.arrive(names)
            if other is not None:
                world.discover(*other)

        return happen

    with mock.patch.object(file_log, "MAX_ENTRY_FILES", entry_files):
        for names, who, some_faults, interrupted in history:
            world.arrive(names)
            world.discover(who, some_faults, [event(*what) for what in interrupted])
        world.check()


# ── real processes ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def zone(tmp_path):
    return LandingZone(tmp_path / "in")


@pytest.fixture
def start(zone, tmp_path):
    """Start a real discovering process."""

    def start_one(crash_at: str = "", rounds: int = 1, files_per_entry: int = 4):
        arguments = [zone.uri, tmp_path / "state", str(rounds), str(files_per_entry)]
        search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            env={**os.environ, CRASH_AT: crash_at, "PYTHONPATH": search},
            stdout=subprocess.PIPE,
        )

    return start_one


def finish(process) -> int:
    process.communicate(timeout=600)
    return process.returncode


def check(zone, tmp_path) -> None:
    """All files are recorded once, and batches planned by whoever was killed cover them once."""
    state = open_store(str(tmp_path / "state"))
    intake = Intake(source=open_store(zone.uri), state=state, format="json", ledger=MemoryLedger())
    assert intake.discover().files == 0
    files = [file.path for file in intake.files.slice(START, intake.head())]
    assert Counter(files) == Counter(zone.paths())
    batch, planned = START, []
    while True:
        end = PlanLog(state).plan(intake.files, batch, ReadLimit(max_files=4), intake.head())
        if end == batch:
            break
        planned += [file.path for file in intake.files.slice(batch, end)]
        batch = end
    assert planned == files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "passage"),
    [(point, 1) for point in (*INTAKE_POINTS, *PLAN_POINTS)]
    + [(point, 3) for point in INTAKE_POINTS if point != "after-listing"],
)
def test_a_kill_at_any_step_loses_and_repeats_nothing(zone, start, tmp_path, point, passage):
    for number in range(10):
        zone.write(f"{number}/caf\u00e9 \udcff%{number}.json", "x")
    assert finish(start(f"{point}:{passage}")) == -signal.SIGKILL
    zone.write("arrived meanwhile")
    assert finish(start(f"{point}:{passage}")) in {0, -signal.SIGKILL}
    assert finish(start()) == 0
    check(zone, tmp_path)


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_repeat_nothing(zone, start, tmp_path):
    rng = random.Random(20260131)
    killed = 0
    for round_ in range(4):
        for number in range(30):
            zone.write(f"{rng.random()}-{round_}-{number}")
        process = start(rounds=10**9, files_per_entry=3)  # it goes on until it is killed
        assert process.stdout.read(6) == b"ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=rng.uniform(0.0, 0.06))
        process.kill()
        killed += finish(process) == -signal.SIGKILL
    assert killed == 4
    assert finish(start()) == 0
    check(zone, tmp_path)


@pytest.mark.slow
def test_processes_discovering_at_once_record_each_file_once(zone, start, tmp_path):
    for number in range(300):
        zone.write(f"{number % 7}/{number}")
    processes = [start(rounds=3, files_per_entry=2) for _ in range(3)]
    for number in range(100):
        zone.write(f"late/{number}")
    assert [finish(process) for process in processes] == [0, 0, 0]
    assert finish(start()) == 0
    check(zone, tmp_path)
    intake = Intake.open(
        source=zone.uri, format="json", checkpoint_location=str(tmp_path / "state")
    )
    assert intake.files.latest() > 100
    intake.close()


@pytest.mark.slow
def test_a_killed_process_among_others_loses_and_repeats_nothing(zone, start, tmp_path):
    for number in range(200):
        zone.write(f"{number}")
    dying = [start(f"after-file-log-append:{k}", rounds=2, files_per_entry=2) for k in (5, 20)]
    living = start(rounds=2, files_per_entry=2)
    for process in [*dying, living]:
        assert finish(process) in {0, -signal.SIGKILL}
    assert finish(start()) == 0
    check(zone, tmp_path)
