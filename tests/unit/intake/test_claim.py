"""A state that holds no file belongs to nobody yet; one that holds a file, to its source."""

from __future__ import annotations

import threading
import uuid
from contextlib import closing

import pytest

from airflow_cloudfiles.engine.errors import SourceNotFoundError, StateConflictError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.metadata import KEY, open_metadata, read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.testing import FailingStore, Fault, KilledError, LandingZone


@pytest.fixture
def state():
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def source():
    return open_store(f"memory://{uuid.uuid4().hex}")


def intake_of(source, state, **options):
    return Intake.over(
        source=source, state=state, format="json", discovery=DiscoveryOptions(**options)
    )


def paths_in(state, source):
    with closing(intake_of(source, state)) as intake:
        return [file.path for file in intake.files.slice(START, intake.head())]


@pytest.mark.parametrize("include_existing_files", [True, False])
def test_a_misspelled_source_can_be_corrected(tmp_path, state, include_existing_files):
    zone = LandingZone(tmp_path / "in")
    zone.write("a.json")
    wrong = open_store(str(tmp_path / "inn"))
    for call in (Intake.discover, Intake.has_arrivals):
        with (
            closing(
                intake_of(wrong, state, include_existing_files=include_existing_files)
            ) as intake,
            pytest.raises(SourceNotFoundError),
        ):
            call(intake)
    assert read_metadata(state) is None
    right = open_store(zone.uri)
    with closing(intake_of(right, state, include_existing_files=include_existing_files)) as intake:
        assert intake.discover().listed == 1


def test_an_empty_source_leaves_nothing_in_the_state(source, state):
    source.put("other.csv", b"a\n")
    with closing(intake_of(source, state, path_glob_filter="*.json")) as intake:
        found = intake.discover()
        assert not intake.has_arrivals()
        assert found.listing is not None
        assert sum(found.listing.rejected.values()) == 1  # the report says why nothing was found
        assert intake.outstanding().files == 0
    assert list(state.list("")) == []


def test_a_file_that_comes_later_is_found_by_an_intake_that_is_open(source, state):
    with closing(intake_of(source, state)) as intake:
        assert intake.discover().files == 0
        source.put("a.json", b"{}\n")
        assert intake.has_arrivals()
        assert intake.discover().files == 1
        assert intake.discover().files == 0
    assert paths_in(state, source) == ["a.json"]


def test_a_file_that_comes_between_the_look_and_the_listing_is_recorded_once(source, state):
    listed = source.list
    calls = []

    def list_and_put(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            source.put("a.json", b"{}\n")
        return listed(*args, **kwargs)

    source.list = list_and_put
    with closing(intake_of(source, state)) as intake:
        assert intake.discover().files == 1
        assert intake.discover().files == 0
    assert paths_in(state, source) == ["a.json"]
    assert read_metadata(state).source == source.uri


def test_a_state_that_holds_a_file_stays_its_sources(source, state):
    source.put("a.json", b"{}\n")
    with closing(intake_of(source, state)) as intake:
        intake.discover()
    with pytest.raises(StateConflictError):
        intake_of(open_store(f"memory://{uuid.uuid4().hex}"), state)


def test_of_two_sources_at_once_one_records_and_the_other_is_refused(source, state):
    other = open_store(f"memory://{uuid.uuid4().hex}")
    sources = {each.uri: each for each in (source, other)}
    gate = threading.Barrier(2)
    refused = []

    def discover(one):
        one.put(f"{one.uri[-8:]}.json", b"{}\n")
        with closing(intake_of(one, state)) as intake:  # the state is nobody's for both
            gate.wait()
            try:
                intake.discover()
            except StateConflictError:
                refused.append(one.uri)

    threads = [threading.Thread(target=discover, args=(one,)) for one in (source, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (loser,) = refused
    (winner,) = set(sources) - {loser}
    assert read_metadata(state).source == winner
    assert paths_in(state, sources[winner]) == [f"{winner[-8:]}.json"]


def test_who_opened_a_state_before_another_took_it_records_nothing(source, state):
    source.put("a.json", b"{}\n")
    with closing(intake_of(source, state)) as late:
        open_metadata(state, "memory://another", "json")
        with pytest.raises(StateConflictError, match="memory://another"):
            late.discover()
    assert [entry.path for entry in state.list("")] == [KEY]


@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER])
@pytest.mark.parametrize("put", [1, 2, 3])
def test_a_kill_at_any_first_write_loses_no_file(source, state, put, fault):
    source.put("a.json", b"{}\n")
    failing = FailingStore(state, {put: fault})
    try:
        with closing(intake_of(source, failing)) as intake:
            intake.discover()
    except KilledError:
        pass
    with closing(intake_of(source, state)) as intake:
        intake.discover()
    assert paths_in(state, source) == ["a.json"]
