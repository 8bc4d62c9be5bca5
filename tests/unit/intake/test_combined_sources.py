"""A report, an event log, files that wait, changes and a source that is emptied, all in one stream.

However writes, events, discoveries and kills follow each other, each file is recorded once, and
only when it has been still for long enough.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery import settling
from airflow_cloudfiles.engine.discovery.listing.state import load_state, save_state
from airflow_cloudfiles.engine.extensions.event_log import reading as reading_events
from airflow_cloudfiles.engine.extensions.event_log.log import LoggedEvent
from airflow_cloudfiles.engine.extensions.inventory import reading as reading_reports
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake import announcements, changes, intake, recorder
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.laws import examples
from tests.unit.intake.test_event_log_inventory import NOW, Bucket

AGE = 60
OLD = (9, 6.5, 2.6)
"""Days; the queue of the log was never left alone for more than four."""
NAMES = {f"old-{days}" for days in OLD}
CRASHING = (
    announcements,
    changes,
    file_log,
    intake,
    reading_events,
    reading_reports,
    recorder,
    settling,
)


class Killed(Exception):  # noqa: N818 - it is no error
    """What a discovery ends with in the place of a kill."""


class World(Bucket):
    """A bucket, its report, its log and one stream, by a clock of their own.

    Args:
        age: `minFileAge`; 0 for none.
        marker: Whether each file waits for its marker, too.
    """

    def __init__(self, monkeypatch, *, age: int = AGE, marker: bool = False) -> None:
        super().__init__(monkeypatch)
        self.clock = NOW - timedelta(hours=20)
        self.age, self.marker = age, marker
        self.options = {"notice_changes": "true"}
        if age:
            self.options["min_file_age_seconds"] = float(age)
        if marker:
            self.options["completion_marker"] = "{name}.done"
        self.wanted, self.untold = set(), []
        self.sizes = Counter()
        for days in OLD:  # all are in the report, two of them in the log, too
            for name in (f"old-{days}", *([f"old-{days}.done"] if marker else [])):
                self.land(name, days, is_told=days < 9)
            self.wanted.add(f"old-{days}")
        self.report(*self.wanted, *(f"{each}.done" for each in self.wanted))
        self.seen = {}

    def now(self):
        """The time of the world, for all stores."""
        return self.ago((NOW - self.clock) / timedelta(days=1))

    def write(self, key: str, *, marks: bool = True) -> None:
        """Write a file anew, larger than before; it will be announced."""
        self.wanted.add(key)
        self.sizes[key] += 1
        for name in (key, *([f"{key}.done"] if self.marker and marks else [])):
            with self.now():
                self.store.put(f"in/{name}", b"x" * self.sizes[key])
                self.untold.append(self._event(name))

    def _event(self, name: str) -> LoggedEvent:
        found = self.store.head(f"in/{name}")
        return LoggedEvent("created", f"in/{name}", found.size, found.modification_time_us, "", "")

    def announce(self, pick: int, *, again: bool = False) -> None:
        """One of the events that are under way arrives; perhaps not for the last time."""
        if self.untold:
            at = pick % len(self.untold)
            event = self.untold[at] if again else self.untold.pop(at)
            with self.now():
                self.log.append([event])

    def discover(self, kill_at: int | None = None):
        """Discover; end at a crash point, if the discovery passes so many."""
        passed = 0

        def point(_: str) -> None:
            nonlocal passed
            passed += 1
            if passed == kill_at:
                raise Killed

        with (
            contextlib.closing(self.open(**self.options)) as stream,  # by the real clock
            self._monkeypatch.context() as patched,
            self.now(),
            contextlib.suppress(Killed),
        ):
            for module in CRASHING:
                patched.setattr(module, "crash_point", point)
            return stream.discover()
        return None

    def check(self) -> None:
        """Each file is there once at most, and was still when it was recorded."""
        with contextlib.closing(self.open(**self.options)) as stream:
            files = list(stream.files.slice(START, stream.head()))
        counts = Counter(file.path for file in files)
        assert max(counts.values(), default=0) <= 1, counts
        for file in files:
            if file.path not in self.seen:
                self.seen[file.path] = file
                still = self.clock.timestamp() - file.modification_time_us / 1e6
                assert still >= self.age, (file, still)

    def clean(self) -> None:
        """Remove what is recorded, as `cleanSource` does."""
        for path in self.seen:
            self.store.delete(f"in/{path}")

    def do(self, step: str, how) -> None:
        """One of the steps of the law."""
        if step == "arrive":
            self.write(how)
            while self.untold:
                self.announce(0)
        elif step in {"write", "bare"}:
            self.write(how, marks=step == "write")
        elif step in {"announce", "twice"}:
            self.announce(how, again=step == "twice")
        elif step == "pass":
            self.pass_time(how)
        elif step == "clean":
            self.clean()
        else:
            self.discover(how)
            self.check()

    def pass_time(self, seconds: int) -> None:
        self.clock += timedelta(seconds=seconds)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["a", "b", "c", "old-9"])),
        st.tuples(st.just("arrive"), st.sampled_from("defg")),
        st.tuples(st.just("bare"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("announce"), st.integers(0, 9)),
        st.tuples(st.just("twice"), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.sampled_from([5, 30, 59, 61, 3600])),
        st.tuples(st.just("discover"), st.none()),
        st.tuples(st.just("discover"), st.integers(1, 12)),
        st.tuples(st.just("clean"), st.none()),
    ),
    min_size=6,
    max_size=30,
)


@settings(max_examples=examples(150))
@given(steps=STEPS, age=st.sampled_from([0, AGE]), marker=st.booleans())
def test_whatever_happens_each_file_is_recorded_once_and_still(steps, age, marker):
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(monkeypatch, age=age, marker=marker)
        for step, how in steps:
            world.do(step, how)
        bare = {key for key in world.wanted if world.store.head(f"in/{key}.done") is None}
        for key in sorted(bare if marker else ()):
            world.write(key)
        while world.untold:
            world.announce(0)
        for _ in range(3):
            world.pass_time(3600)
            world.discover()
            world.check()
        assert set(world.seen) == world.wanted


def _age_listing(world, days):
    """Let the last full listing be so long ago."""
    state = MemoryStore(f"memory://{world.name}-state")
    save_state(state, replace(load_state(state), full_started=NOW.timestamp() - days * 86400))


def test_a_backfill_by_a_report_beside_a_log_needs_no_listing_and_is_not_due_again(
    monkeypatch, caplog
):
    world = World(monkeypatch, age=0)
    world.options["backfill_interval_seconds"] = 7 * 86400.0
    assert world.discover().inventory.completed_by == "notifications"
    with world.ago(4):
        world.store.put("in/lost", b"{}")  # its event never comes
    world.report(*NAMES, "lost", days=1)
    assert world.discover().inventory is None
    _age_listing(world, 8)
    caplog.clear()
    found = world.discover()
    assert (found.listing, found.by) == (None, {"backfill": 1})
    assert found.inventory.completed_by == "notifications"
    assert "full listing" not in caplog.text
    world.report(*NAMES, "lost", days=0.5)
    found = world.discover()
    assert (found.listing, found.inventory) == (None, None)
    world.check()
    assert set(world.seen) == NAMES | {"lost"}


def test_a_backfill_is_no_excuse_for_a_lost_position(monkeypatch):
    world = World(monkeypatch, age=0)
    world.options["backfill_interval_seconds"] = 7 * 86400.0
    world.discover()
    _age_listing(world, 8)
    world.clock = NOW
    world.report(*NAMES, days=1)
    world.land("passed", 0.3)
    for each in world.log.store.list("events/"):
        world.log.store.delete(each.path)  # dropped, as if nobody had read for long
    world.land("later", 0.2, is_told=False)
    world.land("last", 0.1)
    for _ in range(2):
        world.discover()
    world.check()
    assert set(world.seen) == NAMES | {"passed", "later", "last"}
