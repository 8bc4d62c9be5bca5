"""When is a listing full? What the rules promise, and what they cost."""

from __future__ import annotations

import logging
import threading
import uuid

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing import ranges as ranges_module
from airflow_cloudfiles.engine.discovery.listing import run as listing_run
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import (
    KEY,
    load_state,
    remember_notifications,
)
from airflow_cloudfiles.engine.errors import ListingError, OptionError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.known import MemoryRecorder

AUTO = DiscoveryOptions()
ALWAYS = DiscoveryOptions(use_incremental_listing="true")
NEVER = DiscoveryOptions(use_incremental_listing="false")


class Landing:
    """A source with pages of ten keys, its state, and a recorder of what was found."""

    def __init__(self, store=MemoryStore):
        name = f"memory://{uuid.uuid4().hex}"
        self.source = store(f"{name}/in", page_size=10)
        self.state = MemoryStore(f"{name}/state")
        self.recorder = MemoryRecorder()
        self.now = 1_000_000.0
        self.day = 0

    def put(self, *names):
        for name in names:
            self.source.put(name, b"")

    def put_days(self, count, region="eu", files=9):
        """Files land in the next days."""
        for _ in range(count):
            self.day += 1
            self.put(*(f"{region}/2024-{self.day:03d}/f-{n}" for n in range(files)))

    def listing(self, options=AUTO, pattern=None):
        wanted = FileFilter(self.source.uri, pattern, options)
        return DirectoryListing(
            self.source, wanted, state=self.state, options=options, clock=lambda: self.now
        )

    def run(self, options=AUTO, *, pattern=None, **kwargs):
        self.now += 60
        return self.listing(options, pattern).run(self.recorder, **kwargs)

    def kinds(self, count, options=AUTO):
        """Kinds of the next listings, each after a new day."""
        found = []
        for _ in range(count):
            self.put_days(1)
            report = self.run(options)
            assert report.new >= 9
            found.append(report.kind)
        return found

    @property
    def all_found(self):
        return sorted(self.recorder.recorded) == [entry.path for entry in self.source.list()]


@pytest.fixture
def landing(monkeypatch):
    monkeypatch.setattr("airflow_cloudfiles.engine.discovery.listing.edges.OVERLAP_FILES", 5)
    made = Landing()
    made.put_days(100)
    return made


def test_auto_is_incremental_once_it_was_seen_to_be_safe_and_full_every_eighth_time(landing):  # B81
    assert landing.kinds(2) == ["full", "full"]
    assert landing.kinds(8) == ["incremental"] * 7 + ["full"]
    assert landing.kinds(8) == ["incremental"] * 7 + ["full"]
    assert landing.all_found


def test_true_is_never_full_after_the_first(landing):  # B82
    assert landing.kinds(12, ALWAYS) == ["full"] + ["incremental"] * 11
    assert landing.all_found


def test_false_is_always_full(landing):  # B83
    assert landing.kinds(4, NEVER) == ["full"] * 4


@pytest.mark.parametrize("options", [AUTO, ALWAYS], ids=["auto", "true"])
def test_backfill_interval_has_a_clock_of_its_own(landing, options):  # B82
    hourly = DiscoveryOptions(
        use_incremental_listing=options.use_incremental_listing, backfill_interval_seconds=3600
    )
    landing.kinds(3, hourly)
    assert landing.kinds(1, hourly) == ["incremental"]
    landing.now += 3600
    landing.recorder.batches.clear()
    assert landing.kinds(2, hourly) == ["full", "incremental"]
    assert [found_by for _, found_by in landing.recorder.batches] == ["backfill", "listing"]


def test_a_folder_that_is_not_lexical_is_listed_in_full(landing, caplog):  # B84
    landing.run()
    landing.put_days(1)
    landing.put("eu/2024-003/late")
    with caplog.at_level(logging.WARNING):
        report = landing.run()
    assert (report.kind, report.new, report.missed_by_incremental) == ("full", 10, 1)
    assert report.missed_sample == ("eu/2024-003/late",)
    assert "eu/2024-003/late" in caplog.text
    assert landing.kinds(5) == ["full"] * 3 + ["incremental"] * 2  # three were as they should be
    landing.put("eu/2024-004/late")
    for _ in range(6):
        landing.run()
    assert landing.all_found


def test_true_misses_a_late_lower_key_until_a_backfill_which_counts_it(landing):  # B84
    options = DiscoveryOptions(use_incremental_listing="true", backfill_interval_seconds=3600)
    landing.run(options)
    landing.put("eu/2024-003/late")
    assert (landing.run(options).kind, landing.all_found) == ("incremental", False)
    landing.now += 3600
    report = landing.run(options)
    assert (report.kind, report.missed_by_incremental, report.new) == ("full", 1, 1)
    assert landing.all_found


def test_hours_without_zeros_are_not_lexical_and_lose_nothing(monkeypatch):  # B85
    monkeypatch.setattr("airflow_cloudfiles.engine.discovery.listing.edges.OVERLAP_FILES", 5)
    landing = Landing()
    landing.put(*(f"hour={hour}/f-{n:02d}" for hour in range(1, 9) for n in range(50)))
    landing.run()
    landing.put("hour=9/f-00")
    assert landing.run().missed_by_incremental == 0
    landing.put("hour=10/f-00")
    for _ in range(8):
        report = landing.run()
    assert (report.kind, report.missed_by_incremental) == ("full", 1)
    landing.put("hour=11/f-00")
    assert "up to the second number" in landing.run().reason  # each hour is looked at
    assert landing.all_found


def test_a_second_file_of_the_minute_that_sorts_lower_is_found(landing):  # B86
    landing.kinds(3, ALWAYS)
    landing.put(f"eu/2024-{landing.day:03d}/f-7b")
    landing.run(ALWAYS)
    landing.put(f"eu/2024-{landing.day:03d}/f-7a")
    assert landing.run(ALWAYS).kind == "incremental"
    assert landing.all_found


def test_a_new_region_is_found_incrementally(landing):
    landing.kinds(3, ALWAYS)
    landing.put("aa/2024-001/f", "zz/2024-001/f")
    landing.run(ALWAYS)
    assert landing.all_found


def test_an_incremental_listing_costs_what_is_new(landing):
    landing.kinds(2)
    landing.put_days(1, files=1)
    report = landing.run()
    assert (report.kind, report.new) == ("incremental", 1)
    assert report.list_calls <= 3
    assert report.listed < 30


def test_a_small_folder_is_always_listed_in_full(landing):
    small = Landing()
    small.put_days(1)
    assert small.kinds(1) == ["full"]
    assert [small.run().kind for _ in range(4)] == ["full"] * 4


def test_what_is_remembered_may_be_lost_or_damaged(landing):
    landing.kinds(3)
    landing.state.delete(KEY)
    assert landing.kinds(3) == ["full", "full", "incremental"]
    for content in (b"", b"{", b"[]", b'{"version": 9}', b'{"version": 1}', b"\xff"):
        landing.state.put(KEY, content)
        assert landing.kinds(1) == ["full"]


def test_what_is_remembered_of_another_file_log_is_not_believed(landing):
    landing.kinds(3)
    landing.recorder = MemoryRecorder()
    assert landing.run().kind == "full"
    assert landing.all_found


def test_another_filter_asks_for_a_full_listing(landing):
    landing.put("eu/2024-001/x.log")
    first = DiscoveryOptions(use_incremental_listing="true", path_glob_filter="f-*")
    landing.run(first)
    assert landing.run(first).kind == "incremental"
    assert landing.run(ALWAYS).kind == "full"
    assert landing.all_found


def test_notifications_ask_for_a_full_listing(landing):  # B100
    landing.kinds(3)
    remember_notifications(landing.state, landing.now)
    writes = landing.state.requests["put"]
    remember_notifications(landing.state, landing.now + 5)
    assert landing.state.requests["put"] == writes
    landing.now += 10
    assert landing.kinds(2) == ["full", "incremental"]


def test_overwritten_files_are_looked_for_in_full(landing):
    options = DiscoveryOptions(allow_overwrites=True)
    assert landing.kinds(4, options) == ["full"] * 4
    with pytest.raises(OptionError, match="exclude each other"):
        landing.listing(DiscoveryOptions(allow_overwrites=True, use_incremental_listing="true"))


def test_a_report_is_plain_data(landing):
    report = landing.run()
    assert report.to_json() == {
        "kind": "full",
        "reason": "none was finished before",
        "listed": 900,
        "new": 900,
        "list_calls": report.list_calls,
        "ranges": report.ranges,
        "edges": 0,
        "missed_by_incremental": 0,
        "missed_sample": [],
        "rejected": {},
        "seconds": report.seconds,
    }


def test_rejected_files_are_counted_by_each_report(landing):
    landing.put("eu/2024-001/_x", "eu/2024-001/y.log")
    options = DiscoveryOptions(use_incremental_listing="false", path_glob_filter="f-*")
    for _ in range(2):
        report = landing.run(options)
        assert report.rejected == {"hidden name": 1, "not in pathGlobFilter": 1}
        assert report.listed == 900


class BreakingStore(MemoryStore):
    """A source that stops answering after some pages, and is slow enough to be shared."""

    pages_left = 10_000

    def list(self, *args, **kwargs):
        for number, entry in enumerate(super().list(*args, **kwargs)):
            if number % self.page_size == 0:
                threading.Event().wait(0.0005)
                self.pages_left -= 1
                if self.pages_left < 0:
                    raise ConnectionError("no answer")
            yield entry


@pytest.fixture
def broken(monkeypatch):
    """A landing whose first full listing broke off in the middle."""
    monkeypatch.setattr(ranges_module, "_BATCH_FILES", 200)
    made = Landing(BreakingStore)
    made.put_days(100)
    made.source.pages_left = 60
    with pytest.raises(ListingError):
        made.run()
    made.source.pages_left = 10_000
    assert 0 < len(made.recorder.recorded) < 900
    return made


def test_an_interrupted_listing_is_continued_and_the_next_is_full(broken):
    before = len(broken.recorder.recorded)
    broken.put("eu/2024-001/late")
    report = broken.run()
    assert report.kind == "resumed"
    assert report.listed < 900
    assert report.new >= 900 - before
    assert load_state(broken.state).unfinished is None
    report = broken.run()
    assert report.kind == "full"
    assert broken.all_found


def test_a_check_lists_what_an_interrupted_listing_has_behind_it(broken):
    broken.recorder.record(list(broken.source.list()), "listing")
    listing = broken.listing()
    assert not listing.has_new(broken.recorder)
    broken.put("eu/2024-001/late")
    assert listing.has_new(broken.recorder)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["age", "filter", "log", "full", "found_by"])
def test_an_interrupted_listing_is_begun_anew_when_it_may_not_be_continued(broken, change):
    options, arguments = AUTO, {}
    if change == "age":
        broken.now += 7 * 3600
    elif change == "filter":
        options = DiscoveryOptions(path_glob_filter="*")
    elif change == "log":
        broken.recorder = MemoryRecorder()
    elif change == "full":
        arguments = {"full": True}
    else:
        arguments = {"found_by": "existing"}
    assert broken.run(options, **arguments).kind == "full"
    assert broken.all_found


def test_an_incremental_listing_that_breaks_off_leaves_no_gap(monkeypatch):
    """Several readers: what comes last may be recorded when what comes before it is not."""
    monkeypatch.setattr("airflow_cloudfiles.engine.discovery.listing.edges.OVERLAP_FILES", 5)
    monkeypatch.setattr(ranges_module, "_BATCH_FILES", 200)
    landing = Landing(BreakingStore)
    assert landing.kinds(2, ALWAYS) == ["full", "incremental"]
    landing.put_days(200)
    landing.source.pages_left = 100
    with pytest.raises(ListingError):
        landing.run(ALWAYS)
    landing.source.pages_left = 10_000
    recorded = set(landing.recorder.recorded)
    last = max(recorded)
    assert any(entry.path < last and entry.path not in recorded for entry in landing.source.list())
    assert landing.run(ALWAYS).kind == "full"
    assert landing.all_found
    assert landing.kinds(1, ALWAYS) == ["incremental"]


def test_a_listing_of_a_part_that_is_killed_leaves_no_gap(landing):
    landing.kinds(2, ALWAYS)
    landing.put_days(2)

    class KilledError(Exception):
        pass

    class KilledAfterRecording(MemoryRecorder):
        def record(self, files, found_by):
            landing.recorder.record(files, found_by)
            raise KilledError

    killed = KilledAfterRecording()
    killed.known = landing.recorder.known
    state = landing.state.get(KEY)
    with pytest.raises(KilledError):
        landing.listing(ALWAYS, f"eu/2024-{landing.day:03d}").run(killed)
    assert landing.state.get(KEY) != state
    assert landing.run(ALWAYS).kind == "full"
    assert landing.all_found


def test_what_others_have_remembered_meanwhile_is_not_overwritten(landing):
    landing.kinds(2, ALWAYS)

    class Meanwhile(MemoryRecorder):
        def unseen(self, candidates):
            landing.run(ALWAYS, pattern="eu/2024-100")
            return super().unseen(candidates)

    other = Meanwhile()
    other.known = landing.recorder.known
    assert landing.listing(ALWAYS).run(other).kind == "incremental"
    assert landing.run(ALWAYS).kind == "full"


def test_a_long_listing_tells_and_notes_how_far_it_is(landing, monkeypatch, caplog):
    monkeypatch.setattr(listing_run, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(listing_run, "_SAVE_SECONDS", 0.0)
    with caplog.at_level(logging.INFO):
        landing.run()
    assert "keys so far" in caplog.text
    assert landing.state.requests["put"] > 2


def test_a_long_listing_that_found_nothing_leaves_nothing_to_continue(landing, monkeypatch):  # B83
    landing.kinds(2, NEVER)
    with monkeypatch.context() as patched:
        patched.setattr(listing_run, "_SAVE_SECONDS", 0.0)
        assert landing.run(NEVER).new == 0
    landing.put("eu/2024-001/late")
    report = landing.run(NEVER)
    assert (report.kind, report.new) == ("full", 1)
