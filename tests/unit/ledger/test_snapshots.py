"""A worker with an empty disk begins with a copy of somebody's index, if there is a good one."""

from __future__ import annotations

import json
import shutil
import uuid

import pytest

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.ledger.base import catch_up
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, open_ledger
from airflow_cloudfiles.engine.intake.ledger.snapshots import COMPLETE, DATA, PREFIX, maybe_snapshot
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import FailingStore, Fault
from tests.support.memory_ledger import MemoryLedger

STREAM = "1" * 32
FILES_EACH = 200


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.emulator)])
def state(request, tmp_path):
    if request.param == "local":
        return open_store(str(tmp_path / "state"))
    if request.param == "s3":
        aws = request.getfixturevalue("aws")
        return open_store(f"{aws.bucket()}/state", aws.access)
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def memory():
    return open_store(f"memory://{uuid.uuid4().hex}")


def entry(number: int) -> FileBatch:
    return FileBatch(tuple(FileEntry(f"{number}-{at}", 1, 2) for at in range(FILES_EACH)))


def grow(state, upto: int, first: int = 0) -> FileLog:
    files = FileLog(state)
    for number in range(first, upto):
        assert files.append(number, entry(number))
    return files


def snap(state, *, worth_entries: int = 1) -> bool:
    """Make a snapshot as a discovery at its end does."""
    files = FileLog(state)
    ledger = open_ledger(STREAM, files)
    made = maybe_snapshot(ledger, files, state, worth_entries=worth_entries)
    ledger.close()
    return made


def folders(state) -> list[str]:
    found = {item.path.rpartition("/")[0] for item in state.list(PREFIX + "/")}
    return sorted(found - {DATA})


def tables(state) -> set[str]:
    """What the snapshots share."""
    return {item.path for item in state.list(DATA + "/")}


def named_tables(state) -> set[str]:
    """The tables that the snapshots name."""
    told = [json.loads(state.get(f"{folder}/{COMPLETE}")) for folder in folders(state)]
    named = {item["data"] for each in told for item in each["objects"]}
    return {f"{DATA}/{name}" for name in named - {""}}


def reopened(state, upto: int) -> int:
    """Open the ledger with an empty cache; give how many entries of the log were read."""
    shutil.rmtree(cache_folder(), ignore_errors=True)
    counting = Counting(state)
    ledger = open_ledger(STREAM, counting)
    asked = [*entry(0).files, FileEntry("new", 1, 2), *entry(upto - 1).files]
    assert [file.path for file in ledger.unseen(asked)] == ["new"]
    assert (ledger.caught_up, ledger.files) == (upto - 1, upto * FILES_EACH)
    ledger.close()
    return counting.reads


class Counting(FileLog):
    """A file log that counts the entries read from it."""

    reads = 0

    def read(self, number: int) -> FileBatch:
        self.reads += 1
        return super().read(number)


def test_an_empty_disk_is_filled_from_the_snapshot_and_the_rest_of_the_log(state):
    grow(state, 5)
    assert snap(state)
    grow(state, 7, first=5)
    assert reopened(state, 7) == 2
    assert not list(cache_folder().rglob("*.copy"))


def test_a_snapshot_is_made_when_the_log_has_grown_enough(memory):
    grow(memory, 3)
    assert not snap(memory, worth_entries=4)
    assert snap(memory, worth_entries=3)
    grow(memory, 5, first=3)
    assert not snap(memory, worth_entries=3)
    grow(memory, 6, first=5)
    assert snap(memory, worth_entries=3)
    files = FileLog(memory)
    ledger = open_ledger(STREAM, files)
    for worth, made in ((FILES_EACH, False), (0, True)):
        assert maybe_snapshot(ledger, files, memory, worth_files=worth) is made
    assert not maybe_snapshot(MemoryLedger(), files, memory, worth_files=0)
    ledger.close()


def test_a_small_stream_asks_for_no_snapshots(memory):
    files = grow(memory, 3)
    ledger = open_ledger(STREAM, files)
    before = memory.requests.copy()
    assert not maybe_snapshot(ledger, files, memory)
    assert memory.requests == before
    ledger.close()


def test_the_newest_two_are_kept(memory):
    for upto in range(1, 5):
        grow(memory, upto, first=upto - 1)
        assert snap(memory)
    assert [folder.split("/")[2][:20] for folder in folders(memory)] == [f"{2:020d}", f"{3:020d}"]
    assert tables(memory) == named_tables(memory)


def test_a_snapshot_uploads_only_what_is_new(state):
    """A table of the index is in the state once, however many snapshots have it."""
    grow(state, 50)
    snap(state)
    first = {path: state.head(path).modification_time_us for path in tables(state)}
    size = sum(item.size for item in state.list(PREFIX + "/"))
    grow(state, 51, first=50)
    snap(state)
    assert set(first) < tables(state) == named_tables(state)
    assert {path: state.head(path).modification_time_us for path in first} == first
    assert sum(item.size for item in state.list(PREFIX + "/")) < 2 * size
    assert reopened(state, 51) == 0


def test_no_table_goes_while_a_snapshot_of_another_version_is_there(memory, monkeypatch):
    monkeypatch.setattr(snapshots, "_ABANDONED_US", 0)
    grow(memory, 2)
    snap(memory)
    (folder,) = folders(memory)
    told = json.loads(memory.get(f"{folder}/{COMPLETE}"))
    memory.put(f"{folder}/{COMPLETE}", json.dumps({**told, "version": 99}).encode())
    before = tables(memory)
    grow(memory, 3, first=2)
    snap(memory)
    assert before <= tables(memory)


def test_a_damaged_table_is_uploaded_anew(memory):
    grow(memory, 2)
    snap(memory)
    (table,) = tables(memory)
    good = memory.get(table)
    memory.put(table, good[:-1] + b"?")
    assert reopened(memory, 2) == 2
    assert memory.head(table) is None
    grow(memory, 4, first=2)
    snap(memory)
    assert reopened(memory, 4) == 0


def test_what_is_damaged_is_named(memory):
    grow(memory, 2)
    snap(memory)
    (table,) = tables(memory)
    files = snapshots.files_of_all(memory)
    assert table in files
    for key, item in files.items():
        snapshots.require_whole(memory, key, item)
    memory.put(table, memory.get(table)[:-1] + b"?")
    with pytest.raises(ValueError, match="does not match its checksum"):
        snapshots.require_whole(memory, table, files[table])
    memory.delete(table)
    with pytest.raises(ValueError, match="it is missing"):
        snapshots.require_whole(memory, table, files[table])
    (folder,) = folders(memory)
    memory.put(f"{folder}/complete.json", b"{}")
    assert snapshots.files_of_all(memory) == {}


def test_a_large_index_is_not_copied_for_few_files(memory, monkeypatch):
    monkeypatch.setattr(snapshots, "WORTH_FILES", FILES_EACH)
    monkeypatch.setattr(snapshots, "WORTH_SHARE", 2)
    grow(memory, 3)
    files = FileLog(memory)
    ledger = open_ledger(STREAM, files)
    assert maybe_snapshot(ledger, files, memory)
    for upto, made in ((4, False), (5, False), (6, True)):
        grow(memory, upto, first=upto - 1)
        catch_up(ledger, files)
        assert maybe_snapshot(ledger, files, memory) is made
    ledger.close()


@pytest.mark.parametrize(
    "begun",
    [f"{PREFIX}/{0:020d}-{'0' * 32}/CURRENT", f"{DATA}/{'0' * 40}"],
    ids=["a snapshot", "a table"],
)
def test_what_nobody_will_complete_is_removed_after_a_day(memory, monkeypatch, begun):
    grow(memory, 1)
    memory.put(begun, b"of a snapshot that somebody else may be making")
    snap(memory)
    assert memory.head(begun)
    monkeypatch.setattr(snapshots, "_ABANDONED_US", 0)
    grow(memory, 2, first=1)
    snap(memory)
    assert memory.head(begun) is None
    assert tables(memory) == named_tables(memory)
    assert reopened(memory, 2) == 0


@pytest.mark.slow
def test_a_damaged_snapshot_is_passed_over_for_the_next_older_one(memory):
    grow(memory, 2)
    snap(memory)
    grow(memory, 4, first=2)
    snap(memory)
    (_, newest) = folders(memory)
    names = [item.path for item in memory.list(newest + "/")]
    assert len(names) > 3
    for name in names:
        good = memory.get(name)
        for bad in (b"[]", good[:-1] + b"?"):
            if bad != good:
                memory.put(name, bad)
                assert reopened(memory, 4) == 2
        memory.delete(name)
        assert reopened(memory, 4) == 2
        memory.put(name, good)
    assert reopened(memory, 4) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 1},
        {"version": 3},
        {"index_version": 1},
        {"entry_id": "of another life"},
        {"entry": 0},
        {"entry": 7},
        {"entry": -1},
        {"objects": [{"name": "../CURRENT", "size": 1, "crc32": 1}]},
        {"objects": [{"name": "CURRENT"}]},
        {"objects": [{"name": "CURRENT", "size": 1, "crc32": 1, "data": "../x"}]},
        {"objects": []},
    ],
)
def test_a_snapshot_that_does_not_fit_is_passed_over(memory, changed):
    grow(memory, 2)
    snap(memory)
    (folder,) = folders(memory)
    told = json.loads(memory.get(f"{folder}/{COMPLETE}"))
    memory.put(f"{folder}/{COMPLETE}", json.dumps({**told, **changed}).encode())
    assert reopened(memory, 2) == 2


def test_an_index_that_is_far_behind_is_replaced(memory, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "FAR_BEHIND_ENTRIES", 3)
    grow(memory, 1)
    open_ledger(STREAM, FileLog(memory)).close()
    behind = tmp_path / "behind"
    shutil.copytree(cache_folder(), behind)
    for upto, read in ((3, 2), (4, 0)):  # two entries are read, three are worth a snapshot
        grow(memory, upto, first=FileLog(memory).latest() + 1)
        snap(memory)
        shutil.rmtree(cache_folder())
        shutil.copytree(behind, cache_folder())
        counting = Counting(memory)
        ledger = open_ledger(STREAM, counting)
        assert (counting.reads, ledger.caught_up) == (read, upto - 1)
        ledger.close()
        assert len(list((cache_folder() / STREAM / "0").iterdir())) == 1


@pytest.mark.parametrize("put", [1, 3, 5])
def test_a_store_that_fails_costs_a_snapshot_not_the_discovery(memory, put):
    files = grow(memory, 3)
    ledger = open_ledger(STREAM, files)
    failing = FailingStore(memory, {put: Fault.REFUSED})
    assert not maybe_snapshot(ledger, files, failing, worth_entries=0)
    ledger.close()
    assert reopened(memory, 3) == 3
