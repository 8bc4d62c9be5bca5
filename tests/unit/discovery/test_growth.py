"""Where a source grows is decided by evidence; and what that costs for each layout there is."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing import edges as edges_module
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.edges import EdgeRanges, KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import (
    HANDFUL,
    HYPOTHESES,
    IncrementalPlan,
    TrackRecord,
    best,
    plan_all,
    trusted,
    unproven,
)
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.known import Known, MemoryRecorder

KNOWN, NEW, PAGE, DAYS = 2000, 20, 100, 3
START = datetime(2024, 1, 1, tzinfo=UTC)
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
chance = random.Random(1)


def ending():
    return uuid.UUID(int=chance.getrandbits(128))


def in_base(digits, number, width):
    text = ""
    for _ in range(width):
        number, digit = divmod(number, len(digits))
        text = digits[digit] + text
    return text


def millis(time):
    return int(time.timestamp() * 1000)


def ulid(time):
    return in_base(BASE32, millis(time) << 80 | chance.getrandbits(80), 26)


LAYOUTS = {
    "iso time": lambda n, time: f"{time:%Y-%m-%dT%H-%M-%S}-{ending()}.json",
    "epoch": lambda n, time: f"{int(time.timestamp())}-{ending().hex[:12]}.json",
    "firehose": lambda n, time: f"delivery-1-{time:%Y-%m-%d-%H-%M-%S}-{ending()}",
    "three of firehose": lambda n, time: f"delivery-{n % 3}-{time:%Y-%m-%d-%H-%M-%S}-{ending()}",
    "ulid": lambda n, time: f"{ulid(time)}.json",
    "uuid 7": lambda n, time: f"{millis(time):012x}-{ending()}",
    "ksuid": lambda n, time: in_base(
        BASE62, int(time.timestamp() - 14e8) << 128 | chance.getrandbits(128), 27
    ),
    "ulid a day": lambda n, time: f"{time:%Y-%m-%d}/{ulid(time)}.json",
    "iso time a day": lambda n, time: f"dt={time:%Y-%m-%d}/{time:%Y-%m-%dT%H-%M-%S}-{ending()}",
    "time in days": lambda n, time: f"{time:%Y/%m/%d/%H:%M:%S}-{ending()}.json",  # the S1 example
    "minutes": lambda n, time: f"month={time:%m}/day={time:%d}/minute={time:%H%M}/{ending()}.csv",
    "numbers": lambda n, time: f"part-{n:06d}.json",
    "regions": lambda n, time: f"region={('eu', 'us')[n % 2]}/dt={time:%Y-%m-%d}/{n:06d}",
    "tables by time": lambda n, time: f"t{'abc'[n % 3]}/{time:%Y%m%d%H%M%S}-{ending()}",
}


class Source:
    """A source of a layout, in which a run finds twenty new files."""

    def __init__(self, layout, option):
        name = f"memory://{uuid.uuid4().hex}"
        self.key = LAYOUTS[layout]
        self.options = DiscoveryOptions(use_incremental_listing=option)
        self.source = MemoryStore(f"{name}/in", page_size=PAGE)
        self.state = MemoryStore(f"{name}/state")
        self.recorder = MemoryRecorder()
        self.files = 0
        self.put(KNOWN)

    def put(self, count):
        for _ in range(count):
            time = START + timedelta(days=DAYS) * self.files / KNOWN
            self.source.put(self.key(self.files, time), b"")
            self.files += 1

    def run(self):
        wanted = FileFilter(self.source.uri, None, self.options)
        listing = DirectoryListing(
            self.source, wanted, state=self.state, options=self.options, clock=lambda: 1e6
        )
        return listing.run(self.recorder)


@pytest.fixture(autouse=True)
def half_a_page(monkeypatch):
    """As on S3, an overlap is half a page."""
    monkeypatch.setattr(edges_module, "OVERLAP_FILES", PAGE // 2)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_auto_costs_a_handful_of_requests_once_full_listings_have_shown_where(layout):  # B81
    source = Source(layout, "auto")
    kinds, costs = [], []
    for _ in range(11):
        report = source.run()
        kinds.append(report.kind)
        costs.append(report.list_calls)
        assert len(source.recorder.recorded) == source.files
        source.put(NEW)
    assert kinds == ["full"] * 2 + ["incremental"] * 7 + ["full", "incremental"]
    for kind, cost in zip(kinds, costs, strict=True):
        assert cost <= (HANDFUL if kind == "incremental" else (KNOWN + 11 * NEW) / PAGE * 1.1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_true_looks_at_the_end_of_each_growing_folder_without_evidence(layout):  # B82
    source = Source(layout, "true")
    assert source.run().kind == "full"
    for _ in range(9):
        source.put(NEW)
        report = source.run()
        assert (report.kind, report.new) == ("incremental", NEW)
        assert report.list_calls <= 2 * HANDFUL
    assert len(source.recorder.recorded) == source.files


@pytest.mark.slow
def test_names_without_an_order_are_listed_in_full_and_lose_nothing():  # B84
    LAYOUTS["random"] = lambda n, time: f"{ending()}.json"
    try:
        source = Source("random", "auto")
    finally:
        del LAYOUTS["random"]
    for _ in range(12):
        assert source.run().kind == "full"
        assert len(source.recorder.recorded) == source.files
        source.put(NEW)


@pytest.mark.slow
def test_a_hypothesis_that_missed_gives_way_to_one_that_looks_at_more():
    """One delivery, then a second whose names come before: what is behind all is not enough."""
    source = Source("firehose", "auto")
    for _ in range(3):
        source.run()
        source.put(NEW)
    for number in range(12):
        source.source.put(f"delivery-0-2024-02-01-00-00-{number:02d}-{ending()}", b"")
        source.files += 1
        source.run()
    assert len(source.recorder.recorded) == source.files
    assert source.run().list_calls <= HANDFUL


def test_twenty_new_files_cost_the_same_among_any_number():
    costs = []
    for known in (2_000, 40_000):
        recorder = MemoryRecorder(f"{n:09d}-{n * 7919 % 65537:x}" for n in range(known))
        plans = plan_all(recorder.known, "", key_bytes, page_size=PAGE, pages=known / PAGE)
        costs.append(best([plan for plan in plans if plan.name != "places"]).cost)
    assert costs[0] == costs[1] <= HANDFUL


def plan(name, cost):
    return IncrementalPlan(name, EdgeRanges([KeyRange()], key_bytes), cost)


def test_what_looks_at_most_is_used_if_it_costs_a_handful_and_else_the_cheapest():
    assert best([plan("end", 1), plan("names 1", 4), plan("places", HANDFUL)]).name == "places"
    assert best([plan("end", 1), plan("names 1", 4), plan("places", 9)]).name == "names 1"
    assert best([plan("names 2", 40), plan("names 3", 20), plan("places", 20)]).name == "places"
    assert best([]) is None


def test_once_missed_three_listings_in_a_row_must_find_all():
    evidence = TrackRecord()
    assert not evidence.is_enough
    assert evidence.after(0).is_enough
    missed = evidence.after(0).after(1)
    shown = [missed := missed.after(0) for _ in range(3)]
    assert [each.is_enough for each in shown] == [False, False, True]
    assert not shown[-1].after(5).is_enough


def test_true_prefers_what_was_not_refuted():
    plans = [plan("end", 1), plan("folders", 2), plan("places", 3)]
    refuted = {"places": TrackRecord(0, missed=True)}
    assert [each.name for each in unproven(plans, {})] == ["folders", "places"]
    assert [each.name for each in unproven(plans, refuted)] == ["folders"]
    assert [each.name for each in trusted(plans, {"end": TrackRecord(1)})] == ["end"]
    both = {**refuted, "folders": TrackRecord(0, missed=True)}
    assert [each.name for each in unproven(plans, both)] == ["places"]


PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b-", "1", "2-", "03", "x9"]), min_size=1, max_size=4).map(
        "/".join
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.law
@given(PATHS)
def test_every_hypothesis_looks_behind_all_keys(paths):
    plans = plan_all(Known(paths), "", key_bytes, page_size=10, pages=1e9)
    assert [each.name for each in plans] == list(HYPOTHESES)
    for each in plans:
        assert each.edges.covers(max(paths) + "0")
        assert each.edges.covers("zzz")
        assert each.cost >= len(each.edges.ranges)
