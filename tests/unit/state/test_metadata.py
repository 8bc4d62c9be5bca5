"""A checkpoint location belongs to one source."""

from __future__ import annotations

import threading
import uuid

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateConflictError,
    StateError,
    StateUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.metadata import KEY, open_metadata, read_metadata
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import FailingStore, Fault

ID = b"0" * 32


@pytest.fixture
def state():
    return open_store(f"memory://{uuid.uuid4().hex}")


def test_the_first_to_come_takes_it(state):
    assert read_metadata(state) is None
    taken = open_metadata(state, "file:///in", "json")
    assert (taken.source, taken.format, taken.format_version) == ("file:///in", "json", 1)
    assert open_metadata(state, "file:///in", "json") == taken == read_metadata(state)


def test_two_states_have_two_ids(state):
    other = open_store(f"memory://{uuid.uuid4().hex}")
    one, two = (open_metadata(store, "file:///in", "json") for store in (state, other))
    assert one.stream_id != two.stream_id


def record(state, taken):
    """Record a first file, which binds the location."""
    assert FileLog(state, taken).append(0, FileBatch((FileEntry("a", 1, 1),)))


def test_a_second_source_is_refused_and_both_are_named(state):
    record(state, open_metadata(state, "file:///in", "json"))
    with pytest.raises(StateConflictError) as caught:
        open_metadata(state, "file:///else", "json")
    for part in (state.uri, "file:///in", "file:///else", "checkpoint location of its own"):
        assert part in str(caught.value)


def test_a_second_format_is_refused(state):
    record(state, open_metadata(state, "file:///in", "json"))
    with pytest.raises(StateConflictError, match=r"with format json, not to .* with format csv"):
        open_metadata(state, "file:///in", "csv")


def test_a_source_whose_name_is_not_utf8_is_recognised(state):
    taken = open_metadata(state, "file:///in-\udcff", "json")
    assert open_metadata(state, "file:///in-\udcff", "json") == taken
    record(state, taken)
    with pytest.raises(StateConflictError) as caught:
        open_metadata(state, "file:///in-\udcfe", "json")
    str(caught.value).encode("utf-8")


def test_of_many_at_once_one_decides_the_id(state):
    gate = threading.Barrier(8)
    ids = []

    def take() -> None:
        gate.wait()
        ids.append(open_metadata(state, "file:///in", "json").stream_id)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.DENIED, Fault.REFUSED])
def test_a_lost_answer_does_not_change_the_id(state, fault):
    failing = FailingStore(state, {1: fault})
    try:
        first = open_metadata(failing, "file:///in", "json")
    except StateUnreachableError:
        first = open_metadata(failing, "file:///in", "json")
    assert open_metadata(state, "file:///in", "json") == first


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"v6\n{}", IncompatibleStateError),
        (b"v9\n{}", CorruptedStateError),
        (b'v9\n{"standing": "unbound", "formatVersion": 1}', CorruptedStateError),
        (b'v9\n{"standing": "moved", "place": "s3://b/x"}', CorruptedStateError),
        (b"v2\n{}", CorruptedStateError),
        (b"", CorruptedStateError),
        (b"v1\n", CorruptedStateError),
        (b"v1\n{}", CorruptedStateError),
        (b"v1\n[]", CorruptedStateError),
        (b'v1\n{"streamId": "../../x", "source": "a", "format": "json"}', CorruptedStateError),
        (b'v1\n{"streamId": 1, "source": "a", "format": "json"}', CorruptedStateError),
        (b"{}", CorruptedStateError),
        # Whole but for a checksum: what a version wrote that is older than these formats.
        (b'v1\n{"streamId": "%b", "source": "a", "format": "json"}' % ID, IncompatibleStateError),
        (b'{"streamId": "%b", "source": "a", "format": "json"}' % ID, IncompatibleStateError),
    ],
)
def test_metadata_that_cannot_be_read_is_refused_by_name(state, content, error):
    state.put(KEY, content)
    with pytest.raises(error, match=KEY):
        open_metadata(state, "file:///in", "json")


def test_a_state_that_lost_its_metadata_is_not_taken_as_new(state):
    FileLog(state).append(0, FileBatch((FileEntry("a", 1, 1),)))
    with pytest.raises(CorruptedStateError, match=KEY):
        open_metadata(state, "file:///in", "json")


def test_a_state_that_cannot_be_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="Make it a folder"):
        open_metadata(open_store(str(tmp_path / "file")), "file:///in", "json")


def test_the_first_start_decides_whether_existing_files_are_included():  # B88
    state = open_store(f"memory://{uuid.uuid4().hex}")
    assert not open_metadata(
        state, "file:///in", "json", include_existing_files=False
    ).include_existing_files
    assert not open_metadata(state, "file:///in", "json").include_existing_files
