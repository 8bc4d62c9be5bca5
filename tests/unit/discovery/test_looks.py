"""Does somebody who only looks learn of every file, a late one too?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import KEY, load_state, save_state
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from tests.unit.discovery.test_incremental import ALWAYS, AUTO, NEVER, Landing

LATE = "eu/2024-003/late"


@pytest.fixture
def landing(monkeypatch):
    """A source whose listings have become incremental."""
    monkeypatch.setattr("airflow_cloudfiles.engine.discovery.listing.edges.OVERLAP_FILES", 5)
    made = Landing()
    made.put_days(100)
    assert made.kinds(3) == ["full", "full", "incremental"]
    return made


def looks(landing, count, options=AUTO, **kwargs):
    """What the next looks see, each by a process of its own."""
    found = []
    for _ in range(count):
        landing.now += 10
        found.append(landing.listing(options).has_new(landing.recorder, **kwargs))
    return found


def test_a_late_file_is_seen_by_the_eighth_look(landing):  # B81
    assert looks(landing, 3) == [False] * 3
    landing.put(LATE)
    seen = looks(landing, 8)
    assert True in seen
    assert seen == sorted(seen), "what is there to ingest is seen until it is recorded"


def test_the_run_that_a_look_leads_to_finds_what_it_saw(landing):
    landing.put(LATE)
    while not looks(landing, 1)[0]:
        pass
    report = landing.run()
    assert (report.kind, report.new) == ("full", 1)
    assert landing.all_found
    assert looks(landing, 20) == [False] * 20


@pytest.mark.parametrize("runs", range(1, 7))
def test_looks_and_runs_count_together(landing, runs):  # B81
    landing.put(LATE)
    for _ in range(runs):
        assert landing.run().kind == "incremental"
    assert looks(landing, 7 - runs)[-1:] == [True]


def test_quiet_looks_are_full_every_eighth_time_only(landing):
    calls = []
    for _ in range(24):
        before = landing.source.requests["list"]
        assert looks(landing, 1) == [False]
        calls.append(landing.source.requests["list"] - before)
    full = [number for number, count in enumerate(calls) if count > 10]
    assert full == [6, 14, 22], "one listing was incremental before"


def test_a_look_at_everything_is_not_repeated_for_the_backfill(landing):  # B82
    hourly = DiscoveryOptions(use_incremental_listing="true", backfill_interval_seconds=3600)
    landing.now += 3600
    before = landing.source.requests["list"]
    assert looks(landing, 1, hourly) == [False]
    assert landing.source.requests["list"] - before > 10
    before = landing.source.requests["list"]
    assert looks(landing, 5, hourly) == [False] * 5
    assert landing.source.requests["list"] - before <= 10
    landing.put(LATE)
    landing.now += 3600
    assert looks(landing, 1, hourly) == [True]
    assert landing.run(hourly).new == 1


def test_true_looks_where_it_lists_only(landing):  # B82
    landing.put(LATE)
    assert looks(landing, 20, ALWAYS) == [False] * 20


def test_looks_that_are_full_anyway_write_nothing(landing):
    landing.run(NEVER)
    before = landing.state.requests["put"]
    assert looks(landing, 20, NEVER) == [False] * 20
    assert landing.state.requests["put"] == before


def test_a_look_of_other_files_is_remembered_as_one_of_these(landing):
    wanted = FileFilter(landing.source.uri, "eu/2024-00*", AUTO)
    listing = DirectoryListing(
        landing.source, wanted, state=landing.state, options=AUTO, clock=lambda: landing.now
    )
    assert not listing.has_new(landing.recorder)
    assert load_state(landing.state).filter == wanted.fingerprint
    landing.put(LATE)
    assert looks(landing, 1) == [True], "files that the look left out are looked for again"


def test_a_look_between_notifications_answers_for_its_own_queue_only(landing):  # B97
    hourly = DiscoveryOptions(use_notifications=True, backfill_interval_seconds=3600)
    state = load_state(landing.state)
    landing.now += 10
    save_state(landing.state, replace(state, notified=landing.now, queue="q"))
    landing.now += 3600
    stored = landing.state.get(KEY)
    assert looks(landing, 1, hourly, queue="another") == [False]
    assert landing.state.get(KEY) == stored
    assert looks(landing, 1, hourly, queue="q") == [False]
    after = load_state(landing.state)
    assert after.full_started == landing.now
    assert after.has_notifications
