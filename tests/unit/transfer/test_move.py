"""A state is moved: never two of them work, and in the end the new one does."""

from __future__ import annotations

import uuid

import pytest

from airflow_cloudfiles.engine.errors import (
    OptionError,
    StateError,
    StateLockedError,
    StateMovedError,
)
from airflow_cloudfiles.engine.extensions.transfer import move
from airflow_cloudfiles.engine.extensions.transfer.move import move_state
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import KEY, open_metadata, read_metadata
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import open_store
from tests.support.crash_points import MOVE_POINTS
from tests.support.transferred import Stream, killed

BOTH = ["2026/a.json", "2026/b.json"]


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


@pytest.fixture(params=["memory", "disk"])
def new(request, tmp_path):
    return str(tmp_path / "new") if request.param == "disk" else f"memory://{uuid.uuid4().hex}/new"


def test_the_stream_goes_on_at_the_new_location_and_the_old_one_says_where_it_is(stream, new):
    before = read_metadata(open_store(stream.state)), position(open_store(stream.state))
    done = move_state(stream.state, new)
    state = open_store(new)
    assert (read_metadata(state), position(state)) == before
    assert done.objects > 4
    stream.zone.write("c.json")
    with pytest.raises(StateMovedError, match=f"was moved to {state.uri}"):
        stream.open(stream.state)
    assert stream.ingest(new) == ("c.json",)
    assert move_state(stream.state, new).was_moved  # and changes nothing
    assert stream.recorded(new) == [*BOTH, "c.json"]


def test_it_may_be_moved_again_but_not_back_over_what_is_left(stream, tmp_path, new):
    move_state(stream.state, new)
    with pytest.raises(StateError, match="not empty"):
        move_state(new, stream.state)
    assert stream.works(new)
    move_state(new, str(tmp_path / "third"))
    assert stream.recorded(str(tmp_path / "third")) == BOTH
    with pytest.raises(StateMovedError, match=r"was moved to .*new"):
        move_state(stream.state, str(tmp_path / "third"))


def test_a_state_without_a_file_stays_nobodys(tmp_path):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    open_metadata(open_store(old), "file:///typo", "json")
    move_state(old, new)
    assert open_metadata(open_store(new), "file:///in", "json").source == "file:///in"


@pytest.mark.parametrize("where", ["within", "around", "full"])
def test_a_new_location_that_cannot_be_one_is_refused_and_changes_nothing(stream, tmp_path, where):
    to = {"within": stream.state + "/new", "around": str(tmp_path), "full": str(tmp_path / "full")}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("")
    with pytest.raises(OptionError if where != "full" else StateError, match=r"not (apart|empty)"):
        move_state(stream.state, to[where])
    assert stream.works(stream.state)


def test_while_a_run_is_at_work_nothing_is_moved(stream, tmp_path):
    with RunLock(open_store(stream.state)), pytest.raises(StateLockedError):
        move_state(stream.state, str(tmp_path / "new"))
    assert stream.works(stream.state)


def test_what_is_no_state_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError, match="no state"):
        move_state(str(tmp_path / "empty"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("point", MOVE_POINTS)
def test_killed_anywhere_it_is_repeated_and_exactly_one_works(stream, tmp_path, point):
    new = str(tmp_path / "new")
    killed(point, "move", stream.state, new)
    is_old = MOVE_POINTS.index(point) < MOVE_POINTS.index("after-move-seal")
    assert stream.works(stream.state) == is_old
    assert stream.works(new) == (point == "after-move")
    if is_old:  # it may go on there for long
        stream.zone.write("c.json")
        stream.ingest(stream.state)
    move_state(stream.state, new)
    assert not stream.works(stream.state)
    assert stream.works(new)
    assert stream.recorded(new) == ([*BOTH, "c.json"] if is_old else BOTH)
    assert stream.ingest(new) == ()


# ── who has opened the state before ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("has_read", [False, True])
def test_whoever_has_opened_the_old_state_records_nothing_more(stream, tmp_path, has_read):
    new = str(tmp_path / "new")
    late = stream.open(stream.state)
    if has_read:
        late.discover()
    move_state(stream.state, new)
    stream.zone.write("c.json")
    for ask in (late.discover, late.arrivals, late.outstanding):
        with pytest.raises(StateMovedError):
            ask()
    assert stream.ingest(new) == ("c.json",)


@pytest.mark.parametrize(
    ("module", "point"),
    [(move, "after-move-claim"), (move, "after-move-copy"), (move, "after-fence-mark")],
)
def test_what_is_recorded_while_it_is_moved_goes_with_it(
    stream, tmp_path, monkeypatch, module, point
):
    """A discoverer without a lock appends at that moment."""
    other = stream.open(stream.state)
    other.discover()
    stream.zone.write("c.json")
    met = []

    def meanwhile(name: str) -> None:
        if name == point and not met:
            met.append(name)
            if point == "after-fence-mark":  # between the mark and the entry: no listing shows it
                monkeypatch.setattr(other.files, "_fence", None)
            other.discover()

    monkeypatch.setattr(module, "crash_point", meanwhile)
    new = str(tmp_path / "new")
    move_state(stream.state, new)
    assert met
    assert stream.recorded(new) == [*BOTH, "c.json"]
    assert stream.ingest(new) == ("c.json",)


def test_what_an_earlier_try_has_copied_and_is_gone_since_is_removed(stream, tmp_path):
    new = tmp_path / "new"
    (tmp_path / "state" / "_runs").mkdir()
    note = tmp_path / "state" / "_runs" / "old.json"
    note.write_text("{}")
    killed("after-move-copy", "move", stream.state, new)
    assert (new / "_runs" / "old.json").exists()
    note.unlink()
    move_state(stream.state, str(new))
    assert not (new / "_runs" / "old.json").exists()
    assert b"incoming" not in open_store(str(new)).get(KEY)
