"""What every index of seen files promises, tried on every one there is."""

from __future__ import annotations

import uuid
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.ledger.base import catch_up
from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import key_bytes
from tests.support.memory_ledger import MemoryLedger


@pytest.fixture(params=["memory", "rocksdb"])
def ledger(request, tmp_path):
    made = MemoryLedger() if request.param == "memory" else RocksDBLedger(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def log():
    return FileLog(open_store(f"memory://{uuid.uuid4().hex}"))


def entries(*paths: str) -> list[FileEntry]:
    return [FileEntry(path, 1, 2) for path in sorted(paths, key=key_bytes)]


def batch(*paths: str) -> FileBatch:
    return FileBatch(tuple(FileEntry(path, 1, 2) for path in paths))


def unseen(ledger, *paths: str) -> list[str]:
    return [entry.path for entry in ledger.unseen(entries(*paths))]


def test_a_new_ledger_has_seen_nothing(ledger):
    assert (ledger.caught_up, ledger.caught_up_id) == (-1, "")
    assert unseen(ledger, "a", "b") == ["a", "b"]
    assert unseen(ledger) == []


def test_a_recorded_file_is_seen(ledger):
    ledger.record(0, "id0", batch("b", "d"))
    assert unseen(ledger, "a", "b", "c", "d", "e") == ["a", "c", "e"]
    ledger.record(1, "id1", batch("a", "e"))
    assert unseen(ledger, "a", "b", "c", "d", "e") == ["c"]
    assert (ledger.caught_up, ledger.caught_up_id) == (1, "id1")


def test_the_newest_entry_of_a_file_is_known(ledger):
    assert ledger.entry_of("b") is None
    ledger.record(0, "id0", batch("b", "d"))
    ledger.record(1, "id1", batch("b", "a"))
    assert [ledger.entry_of(name) for name in ("a", "b", "c", "d")] == [1, 1, None, 0]
    ledger.clear()
    assert ledger.entry_of("b") is None


def test_seen_is_the_whole_path(ledger):
    ledger.record(0, "id", batch("a/b", "caf\u00e9", "x-\udcff"))
    others = ("a", "a/", "a/b/c", "a/bc", "cafe\u0301", "x-\udcfe", "", "a/B")
    assert set(unseen(ledger, *others)) == set(others)
    assert unseen(ledger, "a/b", "caf\u00e9", "x-\udcff") == []


def test_few_files_are_found_among_many(ledger):
    ledger.record(0, "id", batch(*(f"{number:06d}" for number in range(0, 5000, 2))))
    assert unseen(ledger, "000000", "000001", "003000", "003001", "004998", "z") == [
        "000001", "003001", "z",
    ]  # fmt: skip


def test_files_may_be_asked_for_in_any_order(ledger):
    ledger.record(0, "id", batch(*(f"{number:03d}" for number in range(0, 100, 2))))
    asked = ["050", "051", "000", "099", "098", "097", "000", "001", "x", "a", "002"]
    expected = ["051", "099", "097", "001", "x", "a"]
    assert [entry.path for entry in ledger.unseen(FileEntry(p, 0, 0) for p in asked)] == expected


def test_another_version_is_unseen_only_for_who_asks(ledger):  # B104
    old, new = FileEntry("f", 1, 2, "e"), FileEntry("f", 1, 3, "e")
    ledger.record(0, "id", FileBatch((old,)))
    for other in (new, replace(old, size=2), replace(old, etag="")):
        assert list(ledger.unseen([other])) == []
        assert list(ledger.unseen([old, other], versions=True)) == [other]
    ledger.record(1, "id", FileBatch((new,)))
    assert list(ledger.unseen([new, old], versions=True)) == [old]


def test_threads_ask_while_another_records(ledger):
    ledger.record(0, "id", batch(*(f"{number:05d}" for number in range(0, 4000, 2))))

    def ask(part: int) -> list[str]:
        return unseen(
            ledger, *(f"{number:05d}" for number in range(part * 1000, part * 1000 + 1000))
        )

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, part) for part in range(4)]
        for number in range(1, 30):
            ledger.record(number, "id", batch(f"other {number}"))
        found = [path for future in asked for path in future.result()]
    assert found == [f"{number:05d}" for number in range(1, 4000, 2)]
    assert ledger.last("other ") == "other 9"


def test_an_entry_out_of_order_is_refused(ledger):
    ledger.record(0, "id", batch("a"))
    for wrong in (0, 2):
        with pytest.raises(ValueError, match="follow"):
            ledger.record(wrong, "id", batch("b"))


def test_clearing_forgets_everything(ledger):
    ledger.record(0, "id", batch("a"))
    ledger.clear()
    assert (ledger.caught_up, ledger.caught_up_id) == (-1, "")
    assert unseen(ledger, "a") == ["a"]
    ledger.record(0, "id", batch("b"))
    assert unseen(ledger, "a", "b") == ["a"]


def test_clearing_does_not_wait_for_a_scan_that_did_not_end(ledger):
    """A failure in the middle of a scan keeps it alive, and is what an index is cleared for."""
    ledger.record(0, "id", batch("a"))
    scan = ledger.unseen(batch("b", "c").files)
    assert next(scan).path == "b"
    ledger.clear()
    assert unseen(ledger, "a") == ["a"]
    ledger.record(0, "id", batch("b"))
    assert unseen(ledger, "a", "b") == ["a"]


def test_closing_twice_is_closing_once(ledger):
    ledger.close()
    ledger.close()


def test_catching_up_reads_each_entry_once(ledger, log):
    assert catch_up(ledger, log) == 0
    log.append(0, batch("a"))
    log.append(1, batch("b", "c"))
    assert catch_up(ledger, log) == 2
    assert catch_up(ledger, log) == 0
    assert ledger.caught_up == 1
    assert ledger.caught_up_id == log.summary(1).id
    assert unseen(ledger, "a", "b", "c", "d") == ["d"]


@pytest.mark.parametrize(
    ("known", "there"),
    [(["a", "b"], ["c"]), (["a"], ["c"]), (["a"], ["c", "d"]), (["a"], [])],
    ids=["ahead of it", "of the same length", "of a shorter one", "of an empty one"],
)
def test_a_ledger_of_another_log_refuses_it_every_time_and_stays(ledger, log, known, there):
    for number, name in enumerate(known):
        ledger.record(number, "id of another life", batch(name))
    for number, name in enumerate(there):
        log.append(number, batch(name))
    for _ in range(3):
        with pytest.raises(CorruptedStateError, match="has lost entries") as told:
            catch_up(ledger, log)
        assert not told.value.is_retryable
    assert ledger.caught_up == len(known) - 1
    assert unseen(ledger, *known) == []


paths = st.text(st.one_of(st.sampled_from("ab/-0"), st.characters(codec="utf-8")), max_size=5)


@pytest.mark.law
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(paths, min_size=1, max_size=30), max_size=4), st.sets(paths, max_size=60))
def test_all_ledgers_agree(recorded, asked):
    memory = MemoryLedger()
    seen: set[str] = set()
    with TemporaryDirectory() as folder:
        rocksdb = RocksDBLedger(Path(folder) / "index")
        for number, names in enumerate(recorded):
            for ledger in (memory, rocksdb):
                ledger.record(number, "id", batch(*names))
            seen |= names
        expected = sorted(asked - seen, key=key_bytes)
        assert unseen(memory, *asked) == unseen(rocksdb, *asked) == expected
        rocksdb.close()


@pytest.mark.law
@settings(max_examples=60, deadline=None)
@given(
    st.sets(paths, max_size=30),
    st.lists(st.tuples(paths, paths, st.integers(1, 9)), min_size=1, max_size=10),
)
def test_all_ledgers_know_their_neighbors(recorded, asked):
    known = sorted(recorded, key=key_bytes)
    keys = [key_bytes(path) for path in known]
    with TemporaryDirectory() as folder:
        memory, rocksdb = MemoryLedger(), RocksDBLedger(Path(folder) / "index")
        for ledger in (memory, rocksdb):
            ledger.record(0, "id", batch(*recorded))
        for prefix, path, steps in [*asked, *((path[:1], path, 1) for path in known)]:
            place = bisect_left(keys, key_bytes(path))
            with_prefix = [key for key in known if key.startswith(prefix)]
            less = [key for key in with_prefix if key_bytes(key) < key_bytes(path)]
            after = [key for key in known if key_bytes(key) > key_bytes(path)]
            for ledger in (memory, rocksdb):
                assert ledger.last(prefix) == (with_prefix[-1] if with_prefix else None)
                assert ledger.last(prefix, before=path) == (less[-1] if less else None)
                assert ledger.first_after(path) == (after[0] if after else None)
                assert ledger.back(path, steps) == (
                    known[place - steps] if place >= steps else None
                )
        rocksdb.close()
