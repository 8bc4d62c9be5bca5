"""A state is bound, moved, exported and imported in every cloud."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.errors import StateConflictError, StateLockedError, StateMovedError
from airflow_cloudfiles.engine.extensions.start_over import start_over
from airflow_cloudfiles.engine.extensions.transfer.archived import export_state, import_state
from airflow_cloudfiles.engine.extensions.transfer.move import LOCKS, move_state
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import open_metadata, read_metadata
from airflow_cloudfiles.engine.storage import open_store
from tests.support.transferred import Stream

pytestmark = [pytest.mark.emulator]


@pytest.fixture(params=["aws", "azurite", "gcs"])
def cloud(request):
    emulator = request.getfixturevalue(request.param)
    root = emulator.container() if request.param == "azurite" else emulator.bucket()
    return root, emulator.access


def test_the_first_entry_binds_and_not_the_first_metadata(cloud):
    root, access = cloud
    state = open_store(f"{root}/state", access)
    typo = open_metadata(state, "file:///typo", "json")
    mine = open_metadata(state, "file:///in", "json")
    assert mine.stream_id == typo.stream_id
    batch = FileBatch((FileEntry("a", 1, 1),))
    assert FileLog(state, mine).append(0, batch)
    with pytest.raises(StateConflictError):
        FileLog(state, typo).append(0, batch)
    assert (read_metadata(state).source, read_metadata(state).is_bound) == ("file:///in", True)


def test_a_state_goes_to_a_cloud_and_back(cloud, tmp_path):
    root, access = cloud
    stream = Stream(tmp_path)
    there, archive = f"{root}/moved", f"{root}/kept/state.zip"
    moved = move_state(stream.state, there, to_access=access)
    assert move_state(stream.state, there, to_access=access).was_moved
    export_state(there, archive, access=access, to_access=access)
    import_state(archive, f"{root}/restored", access=access, archive_access=access)
    back = move_state(there, str(tmp_path / "back"), access=access)
    assert (back.objects, back.bytes) == (moved.objects, moved.bytes)
    with pytest.raises(StateMovedError, match="back"):
        read_metadata(open_store(there, access))
    stream.zone.write("c.json")
    assert stream.ingest(str(tmp_path / "back")) == ("c.json",)
    move_state(f"{root}/restored", str(tmp_path / "again"), access=access)
    assert stream.ingest(str(tmp_path / "again")) == ("c.json",)


def test_a_state_in_a_cloud_goes_as_a_whole_when_its_stream_starts_over(cloud, tmp_path):
    root, access = cloud
    stream = Stream(tmp_path)
    there = f"{root}/state"
    move_state(stream.state, there, to_access=access)
    state = open_store(there, access)
    state.put("notes.txt", b"of somebody")
    with RunLock(state), pytest.raises(StateLockedError):
        start_over(there, target=str(tmp_path / "again"), access=access)
    would = start_over(there, target=str(tmp_path / "again"), dry_run=True, access=access)
    done = start_over(there, target=str(tmp_path / "again"), access=access)
    assert (done.files, done.batches, done.objects) == (2, 2, would.objects)
    left = {entry.path for entry in state.list()} - {*LOCKS}
    assert left == {"notes.txt"}
    assert read_metadata(state) is None
