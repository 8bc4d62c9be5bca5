"""How long nothing has arrived is what the state knows, and each silence is told of once."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake import silence
from airflow_cloudfiles.engine.intake.silence import last_arrival, note_notified, was_notified
from airflow_cloudfiles.engine.state.file_log import FileBatch
from airflow_cloudfiles.engine.state.operations import Operation
from airflow_cloudfiles.engine.storage import open_store
from tests.support.written_state import WrittenState


@pytest.fixture
def written() -> WrittenState:
    """A stream in which nothing has arrived yet."""
    return WrittenState(f"memory://{uuid.uuid4().hex}")


def operate(written: WrittenState) -> None:
    """Skip a file, which is an entry of the file log and no arrival."""
    number = written.files.head().entry
    entry = FileBatch((FileEntry("x", 1, 1, "e"),), "skip", None, Operation("skip"))
    assert written.files.append(number, entry)


def test_the_newest_file_that_was_found_counts_and_no_operation(written: WrittenState) -> None:
    written.discover("a")
    written.discover("b")
    operate(written)
    found = last_arrival(written.state)
    assert found is not None
    assert found.entry == 1
    assert found.at.isoformat() == written.files.summary(1).created
    assert found.seconds() < timedelta(hours=1).total_seconds()


def test_before_the_first_file_the_beginning_of_the_state_counts(written: WrittenState) -> None:
    found = last_arrival(written.state)
    assert found is not None
    assert found.entry == -1
    assert datetime.now(tz=UTC) - found.at < timedelta(hours=1)
    assert last_arrival(open_store(f"memory://{uuid.uuid4().hex}")) is None


def test_behind_many_operations_the_oldest_that_is_looked_at_counts(
    written: WrittenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "MOST_ENTRIES", 2)
    written.discover("a")
    for _ in range(3):
        operate(written)
    found = last_arrival(written.state)
    assert found is not None
    assert found.entry == 2


def test_a_silence_is_told_once_by_each_until_something_arrives(written: WrittenState) -> None:
    written.discover("a")
    state = written.state
    first = last_arrival(state)
    assert first is not None
    assert not was_notified(state, "d.t", first)
    note_notified(state, "d.t", first)
    assert was_notified(state, "d.t", first)
    assert not was_notified(state, "d.other", first)
    written.discover("b")
    second = last_arrival(state)
    assert second is not None
    assert not was_notified(state, "d.t", second)


def test_a_note_that_is_damaged_says_nothing(written: WrittenState) -> None:
    written.discover("a")
    found = last_arrival(written.state)
    assert found is not None
    note_notified(written.state, "d.t", found)
    [note] = written.state.list(f"{silence.PREFIX}/")
    written.state.put(note.path, written.state.get(note.path)[:-9])
    assert not was_notified(written.state, "d.t", found)
