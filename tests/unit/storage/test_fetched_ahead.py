"""What is fetched ahead is what reading would have given, until somebody may have changed it."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import storage
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import (
    SMALL_BYTES,
    FetchedAhead,
    fetched_ahead,
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
def ahead(store: MemoryStore) -> FetchedAhead:
    found = FetchedAhead(store)
    found.fetch(["log/0", "none"], ["log/", "empty/"], ["hint"])
    store.requests.clear()
    return found


def test_what_was_fetched_costs_nothing(store: MemoryStore, ahead: FetchedAhead) -> None:
    before = store.requests
    assert [entry.path for entry in ahead.list("log/")] == ["log/0", "log/1", "log/2"]
    assert list(ahead.list("empty/")) == []
    assert (ahead.get("log/0"), ahead.get("log/2")) == (b"entry 0", b"entry 2")
    assert ahead.get_range("log/2", 1, 3) == b"ntr"
    with pytest.raises(ObjectNotFoundError):
        ahead.get("none")
    assert store.requests == before


def test_a_listing_is_given_once(store: MemoryStore, ahead: FetchedAhead) -> None:
    store.put("log/3", b"")
    names = [[entry.path for entry in ahead.list("log/", start_after="log/1")] for _ in range(2)]
    assert names == [["log/2"], ["log/2", "log/3"]]


def test_what_others_may_replace_is_given_once(store: MemoryStore, ahead: FetchedAhead) -> None:
    store.put("hint", b"new")
    assert [ahead.get("hint") for _ in range(2)] == [b"old", b"new"]


@pytest.mark.parametrize("way", ["put", "put_if_absent", "delete"])
def test_what_is_written_here_is_read_anew(ahead: FetchedAhead, way: str) -> None:
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
    assert isinstance(pickle.loads(pickle.dumps(FetchedAhead(local))), LocalStore)


def test_a_large_entry_is_not_fetched(store: MemoryStore) -> None:
    store.put("log/9", bytes(SMALL_BYTES))
    ahead = FetchedAhead(store)
    ahead.fetch([], ["log/"])
    before = store.requests["get"]
    assert len(ahead.get("log/9")) == SMALL_BYTES
    assert store.requests["get"] == before + 1


def test_a_local_state_is_read_as_it_is(store: MemoryStore) -> None:
    with fetched_ahead(store.uri, keys=["log/0"], folders=["log/"]) as end:
        assert not storage.FETCHED
        end()


def test_calls_side_by_side_give_both_results(ahead: FetchedAhead) -> None:
    assert side_by_side(ahead, lambda: 1, lambda: "two") == (1, "two")
