"""What is fetched ahead is what reading would have given, until somebody may have changed it."""

from __future__ import annotations

import pickle
import threading
import uuid
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import storage
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import (
    SMALL_BYTES,
    OpenedState,
    PrefetchedStore,
    aside,
    at_once,
    side_by_side,
)
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    found = MemoryStore(f"memory://{uuid.uuid4().hex}")
    for number in range(3):
        found.put(f"log/{number}", b"entry %d" % number)
    found.put("hint", b"old")
    return found


@pytest.fixture
def ahead(store: MemoryStore) -> PrefetchedStore:
    found = PrefetchedStore(store)
    found.fetch(["log/0", "none"], ["log/", "empty/"], ["hint"])
    found.fetch(found.newest(["log/", "empty/"]))
    return found


def test_what_was_fetched_costs_nothing(store: MemoryStore, ahead: PrefetchedStore) -> None:
    before = store.requests
    assert [entry.path for entry in ahead.list("log/")] == ["log/0", "log/1", "log/2"]
    assert list(ahead.list("empty/")) == []
    assert (ahead.get("log/0"), ahead.get("log/2")) == (b"entry 0", b"entry 2")
    assert ahead.get_range("log/2", 1, 3) == b"ntr"
    with pytest.raises(ObjectNotFoundError):
        ahead.get("none")
    assert store.requests == before


def test_a_listing_is_given_once(store: MemoryStore, ahead: PrefetchedStore) -> None:
    store.put("log/3", b"")
    names = [[entry.path for entry in ahead.list("log/", start_after="log/1")] for _ in range(2)]
    assert names == [["log/2"], ["log/2", "log/3"]]


def test_what_others_may_replace_is_given_once(store: MemoryStore, ahead: PrefetchedStore) -> None:
    store.put("hint", b"new")
    assert [ahead.get("hint") for _ in range(2)] == [b"old", b"new"]


@pytest.mark.parametrize("way", ["put", "put_if_absent", "delete"])
def test_what_is_written_here_is_read_anew(ahead: PrefetchedStore, way: str) -> None:
    if way == "delete":
        ahead.delete("log/0")
        with pytest.raises(ObjectNotFoundError):
            ahead.get("log/0")
        assert [entry.path for entry in ahead.list("log/")] == ["log/1", "log/2"]
        return
    getattr(ahead, way)("none", b"now")
    assert ahead.get("none") == b"now"


def test_another_process_gets_the_store_itself(tmp_path: Path) -> None:
    local = LocalStore(tmp_path.as_uri())
    assert isinstance(pickle.loads(pickle.dumps(PrefetchedStore(local))), LocalStore)


def test_a_large_entry_is_not_fetched(store: MemoryStore) -> None:
    store.put("log/9", bytes(SMALL_BYTES))
    ahead = PrefetchedStore(store)
    ahead.fetch([], ["log/"])
    assert ahead.newest(["log/"]) == []


def test_numbers_without_zeros_are_numbers(store: MemoryStore) -> None:
    store.put("log/10", b"")
    ahead = PrefetchedStore(store)
    ahead.fetch([], ["log/"])
    assert ahead.newest(["log/"]) == ["log/10"]


def test_what_this_process_creates_in_a_log_is_known(
    store: MemoryStore, ahead: PrefetchedStore
) -> None:
    assert ahead.put_if_absent("log/3", b"mine")
    assert not ahead.put_if_absent("log/0", b"mine")
    before = store.requests
    assert ahead.get("log/3") == b"mine"
    assert store.requests == before
    assert ahead.get("log/0") == b"entry 0"
    assert [entry.path for entry in ahead.list("log/")][-1] == "log/3"


def test_what_is_no_entry_of_a_log_is_asked_for(store: MemoryStore, ahead: PrefetchedStore) -> None:
    """A lock is created, too, and others may take it over."""
    assert ahead.put_if_absent("lock", b"mine")
    store.put("lock", b"theirs")
    assert ahead.get("lock") == b"theirs"


def test_a_later_part_of_the_run_asks_for_nothing_that_is_known(
    store: MemoryStore, ahead: PrefetchedStore
) -> None:
    ahead.put_if_absent("log/3", b"mine \xff")
    ahead.put("hint", b"new")
    other = PrefetchedStore(store)
    other.seed(ahead, ["log/", "empty/", "not listed/"])
    before = store.requests
    assert [entry.path for entry in other.list("log/")] == [f"log/{each}" for each in range(4)]
    assert list(other.list("empty/")) == []
    assert (other.get("log/0"), other.get("log/3")) == (b"entry 0", b"mine \xff")
    assert other.get("hint") == b"new"
    assert store.requests == before
    store.put("none", b"now")
    assert other.get("none") == b"now", "that something was not there is not handed over"
    store.put("hint", b"newer")
    assert other.get("hint") == b"newer"


def test_nothing_old_is_given_when_it_is_over(store: MemoryStore, ahead: PrefetchedStore) -> None:
    ahead.forget()
    store.put("none", b"now")
    store.put("hint", b"new")
    store.put("log/3", b"theirs")
    assert (ahead.get("none"), ahead.get("hint")) == (b"now", b"new")
    assert len(list(ahead.list("log/"))) == 4
    before = store.requests
    assert ahead.get("log/0") == b"entry 0", "which is created once"
    assert store.requests == before


@pytest.mark.parametrize("is_there", [True, False])
def test_an_object_is_replaced_as_long_as_nobody_else_has(
    store: MemoryStore, *, is_there: bool
) -> None:
    if not is_there:
        store.delete("hint")
    one, two = PrefetchedStore(store), PrefetchedStore(store)
    for each in (one, two):
        assert not each.put_if_unchanged("hint", b"unknown")
        each.fetch(versions=["hint"])
        each.fetch(once=["hint"])
    assert one.put_if_unchanged("hint", b"one")
    assert not two.put_if_unchanged("hint", b"two")
    assert not one.put_if_unchanged("hint", b"again"), "its version is not known any more"
    assert store.get("hint") == b"one"


def test_what_was_asked_for_again_is_not_taken_for_what_was_fetched(
    store: MemoryStore, ahead: PrefetchedStore
) -> None:
    ahead.fetch(versions=["hint"])
    assert [ahead.get("hint") for _ in range(2)] == [b"old", b"old"]
    assert not ahead.put_if_unchanged("hint", b"mine")


def test_what_is_written_aside_is_there_for_whoever_asks(
    store: MemoryStore, ahead: PrefetchedStore
) -> None:
    may_write = threading.Event()

    def write() -> None:
        assert may_write.wait(60)
        ahead.put("hint", b"new")

    aside(ahead, "hint", write)
    assert store.get("hint") == b"old", "nobody waits for it"
    may_write.set()
    assert ahead.get("hint") == b"new"
    aside(ahead, "hint", lambda: ahead.put("hint", b"newer"))
    ahead.end_aside()
    assert store.get("hint") == b"newer"
    aside(store, "hint", lambda: store.put("hint", b"newest"))
    assert store.get("hint") == b"newest", "where nothing is far away, at once"


def test_a_local_state_is_read_as_it_is(store: MemoryStore) -> None:
    with OpenedState.at(store.uri).until_written() as opened:
        assert opened.ahead is None
        assert isinstance(opened.open(store.uri), MemoryStore)


def test_whoever_is_given_the_opened_state_gets_its_answers(
    store: MemoryStore, ahead: PrefetchedStore
) -> None:
    with OpenedState(ahead).until_written() as opened:
        assert opened.open(store.uri) is ahead
        assert opened.open(f"{store.uri}/") is ahead
        assert isinstance(opened.open(f"{store.uri}/log"), MemoryStore)
        assert isinstance(storage.open_store(store.uri), MemoryStore)
        store.put("none", b"now")
        with pytest.raises(ObjectNotFoundError):
            ahead.get("none")
    assert ahead.get("none") == b"now", "nothing old is given behind the block"


def test_calls_side_by_side_give_both_results(ahead: PrefetchedStore) -> None:
    assert side_by_side(ahead, lambda: 1, lambda: "two") == (1, "two")
    assert at_once(ahead, [lambda: 1, lambda: 2]) == [1, 2]


def test_what_is_in_a_folder_of_a_log_is_not_its_newest_entry(store: MemoryStore) -> None:
    store.put("log/packs/99-00.a", b"old entries")
    found = PrefetchedStore(store)
    found.fetch(folders=["log/"])
    assert found.newest(["log/"]) == ["log/2"]
    assert [each.path for each in found.listed("log/")][-1] == "log/packs/99-00.a"


def test_how_old_the_answers_are_is_handed_over(store: MemoryStore, ahead: PrefetchedStore) -> None:
    other = PrefetchedStore(store)
    other.seed(ahead, ["log/"])
    assert other.fetched_at == ahead.fetched_at is not None
    other.fetch(["none"])
    assert other.fetched_at == ahead.fetched_at
    other.forget()
    assert other.fetched_at is None
