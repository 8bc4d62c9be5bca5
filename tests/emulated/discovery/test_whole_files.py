"""Files wait until they are whole, and changed ones are reported, wherever and however found."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.state.sink_log import Position
from tests.support.discovery.ways import Landing, landing, recorded, try_some_ways
from tests.support.waiting import until

pytestmark = pytest.mark.emulator
pytest_generate_tests = try_some_ways
AGE = 3.0
"""Seconds: the clocks of stores give whole ones."""


@pytest.fixture
def place(request, tmp_path):
    """A new place of one of the kinds that this run tries."""
    return landing(request.param, tmp_path, request.getfixturevalue)


@pytest.fixture
def notified(request, tmp_path):
    """The same, of those that tell a queue."""
    return landing(request.param, tmp_path, request.getfixturevalue)


def discover(place: Landing, state: object, **options: Any) -> Any:
    """Discover once, as a run of its own."""
    with contextlib.closing(place.open(state, **options)) as intake:
        return intake.discover()


def found(place: Landing, state: object, **options: Any) -> list[str]:
    with contextlib.closing(place.open(state, **options)) as intake:
        return sorted(recorded(intake))


def test_a_young_file_waits_and_is_recorded_once(place, tmp_path):
    state = tmp_path / "state"
    discover(place, state, min_file_age_seconds=AGE)  # a queue that was listed for before
    place.put("a.json")
    place.put("b/c.json")
    young = discover(place, state, min_file_age_seconds=AGE)
    assert (young.files, young.waiting.files) == (0, 2)
    until(lambda: discover(place, state, min_file_age_seconds=AGE).waiting.files == 0)
    assert found(place, state, min_file_age_seconds=AGE) == ["a.json", "b/c.json"]
    if place.options.use_notifications:
        assert young.notifications.deleted == 2, "a message does not wait, and is not poison"


@pytest.mark.parametrize("is_first", [False, True], ids=["file first", "marker first"])
@pytest.mark.parametrize("pattern", ["{name}.done", "_SUCCESS"])
def test_a_file_is_recorded_when_its_marker_has_come(place, tmp_path, pattern, is_first):
    state, marker = tmp_path / "state", f"in/{pattern.replace('{name}', 'a.json')}"
    options = {"completion_marker": pattern}
    discover(place, state, **options)
    for name in [marker, "in/a.json"] if is_first else ["in/a.json", marker]:
        assert discover(place, state, **options).files == 0
        place.put(name)
    assert discover(place, state, **options).files == 1
    place.tell("in/a.json")
    place.tell(marker)
    assert discover(place, state, **options).files == 0
    assert found(place, state, **options) == ["in/a.json"]


def test_a_file_that_has_changed_since_it_was_ingested_is_reported_once(place, tmp_path):
    state = tmp_path / "state"

    def changed(**options: Any) -> list[str]:
        with contextlib.closing(place.open(state, **options)) as intake:
            head: Offset = intake.head()
            intake.begin_at(replace(Position(), end=head))
            return [each["path"] for each in intake.discover().changed]

    place.put("a.json", b"{}\n")
    place.put("b.json", b"{}\n")
    discover(place, state)
    place.tell("b.json", b"{}\n")
    assert changed() == changed(list_on_start=True) == []
    place.put("a.json", b'{"a": 1}\n')
    assert changed() == ["a.json"]
    place.tell("a.json", b'{"a": 1}\n')
    assert changed() == []


def test_a_listing_notices_files_that_notifications_announced_only_if_asked(notified, tmp_path):
    place, state = notified, tmp_path / "state"
    discover(place, state)
    place.put("a.json", b"{}\n")
    place.put("b.json", b"{}\n")
    assert discover(place, state).by == {"notification": 2}
    place.lose("a.json", b'{"a": 1}\n')
    for value, wanted in (("auto", 0), ("true", 1), ("true", 0)):
        with contextlib.closing(
            place.open(state, notice_changes=value, list_on_start=True)
        ) as intake:
            intake.begin_at(replace(Position(), end=intake.head()))
            assert intake.discover().changed_files == wanted
