"""What every index of seen files promises, tried on every one there is."""

from __future__ import annotations

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.ledger.base import catch_up
from airflow_cloudfiles.engine.ledger.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.ledger.memory import MemoryLedger
from airflow_cloudfiles.engine.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import key_bytes


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


def test_files_out_of_order_are_refused(ledger):
    for wrong in (["b", "a"], ["a", "a"]):
        with pytest.raises(ValueError, match="order"):
            list(ledger.unseen([FileEntry(path, 0, 0) for path in wrong]))


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


def test_a_ledger_ahead_of_the_log_begins_anew(ledger, log):
    ledger.record(0, "id of another life", batch("a"))
    ledger.record(1, "id of another life", batch("b"))
    log.append(0, batch("c"))
    catch_up(ledger, log)
    assert ledger.caught_up == 0
    assert unseen(ledger, "a", "b", "c") == ["a", "b"]


def test_a_ledger_of_another_log_of_the_same_length_begins_anew(ledger, log):
    ledger.record(0, "id of another life", batch("a"))
    log.append(0, batch("c"))
    catch_up(ledger, log)
    assert unseen(ledger, "a", "c") == ["a"]


def test_a_ledger_of_a_shorter_other_log_begins_anew(ledger, log):
    ledger.record(0, "id of another life", batch("a"))
    log.append(0, batch("c"))
    log.append(1, batch("d"))
    catch_up(ledger, log)
    assert ledger.caught_up == 1
    assert unseen(ledger, "a", "c", "d") == ["a"]


paths = st.text(st.one_of(st.sampled_from("ab/-0"), st.characters(codec="utf-8")), max_size=5)


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
