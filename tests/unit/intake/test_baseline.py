"""What counts as existing is decided once, at the very first start, and nothing new ever does."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid

import pytest

from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import START, FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.recorder import MARGIN_SECONDS, Baseline
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.landing_zone import FailingStore, Fault, KilledError, LandingZone
from tests.support.memory_ledger import MemoryLedger

ONLY_NEW = DiscoveryOptions(include_existing_files=False)
DAY_US = 86_400_000_000
MARGIN_US = MARGIN_SECONDS * 1_000_000


class Aged(MemoryStore):
    """A store whose first objects have been there since yesterday, and that can break down.

    Attributes:
        old: Paths of yesterday's objects.
        breaks_after: After so many objects of a listing it breaks down; `None`: it does not.
        failure: How it does.
    """

    def __init__(self, uri):
        super().__init__(uri, page_size=10)
        self.old = set()
        self.breaks_after = None
        self.failure = ConnectionError("the line is dead")

    def put_old(self, *keys):
        for key in keys:
            self.put(key, b"{}\n")
        self.old.update(keys)

    def arrived_us(self, entry):
        return entry.modification_time_us - (DAY_US if entry.path in self.old else 0)

    def list(self, *args, **kwargs):
        for number, entry in enumerate(super().list(*args, **kwargs)):
            if self.breaks_after is not None and number >= self.breaks_after:
                raise self.failure
            yield entry


@pytest.fixture
def source():
    store = Aged(f"memory://{uuid.uuid4().hex}/in")
    store.put_old(*(f"old/{number:03}" for number in range(50)))
    return store


@pytest.fixture
def state():
    return MemoryStore(f"memory://{uuid.uuid4().hex}/state")


def opened(source, state):
    """The stream as a new process opens it."""
    intake = Intake(
        source=source, state=state, format="json", discovery=ONLY_NEW, ledger=MemoryLedger()
    )
    return contextlib.closing(intake)


def to_ingest(state):
    """The paths of all files that are to be ingested."""
    log = FileLog(state)
    return [file.path for file in log.slice(START, log.head())]


@pytest.mark.parametrize("failure", [ConnectionError("dead"), KilledError()], ids=["error", "kill"])
@pytest.mark.parametrize("place", ["a-new", "old/025-new", "z-new"])
@pytest.mark.parametrize("listed", [0, 1, 25, 49])
def test_what_arrives_after_an_interrupted_first_listing_is_ingested(
    source, state, failure, place, listed
):  # B88
    source.breaks_after, source.failure = listed, failure
    with opened(source, state) as first, pytest.raises((ListingError, KilledError)):
        first.discover()
    source.breaks_after = None
    source.put(place, b"{}\n")
    with opened(source, state) as second:
        found = second.discover()
    assert found.files == 1
    assert to_ingest(state) == [place]


def test_what_arrives_while_the_first_listing_goes_on_is_ingested(source, state):  # B88
    def arrives(entries):
        for number, entry in enumerate(entries):
            if number == 20:
                source.put("old/030-new", b"{}\n")
            yield entry

    listed = source.list
    source.list = lambda *args, **kwargs: arrives(listed(*args, **kwargs))
    with opened(source, state) as first:
        first.discover()
        source.list = listed
        first.discover()
    assert to_ingest(state) == ["old/030-new"]


@pytest.mark.parametrize("put", range(1, 8))
@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER])
def test_a_kill_at_any_write_of_the_first_start_changes_nothing(source, state, put, fault):  # B88
    failing = FailingStore(state, {put: fault})
    with contextlib.suppress(KilledError), opened(source, failing) as first:
        first.discover()
    if read_metadata(state) is None:  # killed before the first start was noted: it has not been
        with opened(source, state):
            pass
    source.put("old/010-new", b"{}\n")
    with opened(source, state) as second:
        second.discover()
    assert to_ingest(state) == ["old/010-new"]


def test_what_may_have_been_there_is_ingested_and_named(source, state, caplog):
    source.put("just/before", b"{}\n")
    source.breaks_after = 0
    with opened(source, state) as first, pytest.raises(ListingError):
        first.discover()
    source.breaks_after = None
    with opened(source, state) as second, caplog.at_level(logging.WARNING):
        second.discover()
    assert to_ingest(state) == ["just/before"]
    assert "1 file of about the time of the first start is ingested" in caplog.text
    assert "just/before" in caplog.text


def test_an_uninterrupted_first_listing_knows_what_was_there(source, state, caplog):
    source.put("just/before", b"{}\n")
    with opened(source, state) as first, caplog.at_level(logging.WARNING):
        found = first.discover()
    assert (found.files, found.existing) == (0, 51)
    assert not caplog.text


def test_a_file_that_is_moved_in_after_the_start_is_new_whatever_its_age(tmp_path):  # B88
    zone, state = LandingZone(tmp_path / "in"), open_store(str(tmp_path / "state"))
    for number in range(3):
        zone.write(f"{number}.json", "{}")
    tick = open_store(zone.uri).clock_us()
    while open_store(zone.uri).clock_us() <= tick:
        time.sleep(0.001)
    local = open_store(zone.uri)
    with opened(local, state):
        pass  # killed right after its start
    elsewhere = tmp_path / "made-last-year.json"
    elsewhere.write_text("{}")
    os.utime(elsewhere, (1_600_000_000, 1_600_000_000))
    elsewhere.rename(tmp_path / "in" / "moved.json")
    with opened(local, state) as second:
        second.discover()
    assert "moved.json" in to_ingest(state)


@pytest.mark.parametrize(
    ("age_us", "is_first", "is_existing"),
    [
        (1, True, True),
        (0, True, False),
        (-1, True, False),
        (MARGIN_US + 1, False, True),
        (MARGIN_US, False, False),
        (1, False, False),
        (-1, False, False),
    ],
)
def test_the_margin_is_on_the_side_of_ingesting(age_us, is_first, is_existing):
    start = 1_700_000_000_000_000
    baseline = Baseline(MemoryStore("memory://any/in"), start, is_first)
    file = FileEntry("a", 1, start - age_us)
    assert baseline.existing([file]) == ([file] if is_existing else [])
