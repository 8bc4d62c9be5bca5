"""What is the same in the listings of all object stores."""

from __future__ import annotations

import uuid

import pytest

from airflow_cloudfiles.engine.storage.base import ListRequest
from airflow_cloudfiles.engine.storage.flat import (
    Folders,
    ListedObject,
    Page,
    first_key,
    list_flat,
)
from airflow_cloudfiles.engine.storage.memory import MemoryStore


def objects(*keys):
    return [ListedObject(key, 1, 0, "") for key in keys]


def pages_of(*pages):
    """A store that gives these pages, and starts at the first, wherever it is asked to start."""

    def fetch(start_after, mark):
        number = mark or 0
        return Page(objects(*pages[number]), number + 1 if number + 1 < len(pages) else None)

    return fetch


def paths(fetch, root="", **wanted):
    return [entry.path for entry in list_flat(fetch, root, ListRequest(**wanted))]


def test_a_page_may_be_empty():
    fetch = pages_of([], ["a"], [], [], ["b"], [])
    assert paths(fetch) == ["a", "b"]
    assert first_key(fetch, "", "a") == "b"
    assert first_key(fetch, "", "b") is None
    assert paths(pages_of([])) == []


def test_the_root_is_cut_off_and_is_no_file():
    fetch = pages_of(["in/", "in/a", "in//b"][:1], ["in//b", "in/a"])
    assert paths(fetch, root="in/") == ["/b", "a"]
    assert first_key(fetch, "in/", "") == "/b"


def test_marks_of_folders_are_no_files():
    page = Page(
        [
            ListedObject("dir", 0, 0, "", is_folder=True),
            ListedObject("dir/", 0, 0, ""),
            ListedObject("empty", 0, 0, ""),
            ListedObject("file/", 3, 0, ""),
        ]
    )
    assert paths(lambda *_: page) == ["empty", "file/"]


def test_what_a_page_gives_before_its_start_does_no_harm():
    fetch = pages_of(["a", "b/1", "b/2"], ["b/3", "c"])
    assert paths(fetch, start_after="b/2") == ["b/3", "c"]
    assert first_key(fetch, "", "b/2") == "b/3"


def test_a_store_that_cannot_start_behind_a_folder_is_an_error_never_a_gap():
    fetch = pages_of(["a", "b/1"], ["b/2", "c"])
    with pytest.raises(OSError, match="asked for the keys after b"):
        paths(fetch, skip=lambda key, is_folder: key == "b")


def test_nothing_is_asked_for_behind_the_end():
    store = MemoryStore(f"memory://{uuid.uuid4().hex}", page_size=2)
    for name in "abcdefgh":
        store.put(name, b"")
    assert [entry.path for entry in store.list(end_before="d")] == ["a", "b", "c"]
    assert store.requests["list"] == 2


def test_a_listing_that_is_left_early_asks_for_no_more():
    store = MemoryStore(f"memory://{uuid.uuid4().hex}", page_size=2)
    for name in "abcdefgh":
        store.put(name, b"")
    assert next(store.list()).path == "a"
    assert store.requests["list"] == 1


def test_keys_out_of_order_are_an_error_never_a_gap():
    for pages in ([["a", "c", "b"]], [["a", "c"], ["b"]]):
        with pytest.raises(OSError, match="b came too late"):
            paths(pages_of(*pages))


def test_without_an_order_a_listing_is_whole_or_not_made():
    fetch = pages_of(["a/1", "a/2"], ["a-b", "a/3"])
    assert len(list(list_flat(fetch, "", ListRequest(), order=None))) == 4
    skip_a = ListRequest(skip=lambda key, is_folder: key == "a")
    assert [entry.path for entry in list_flat(fetch, "", skip_a, order=None)] == ["a-b"]
    for wanted in (ListRequest(start_after="a"), ListRequest(end_before="z")):
        with pytest.raises(ValueError, match="needs to know"):
            list(list_flat(fetch, "", wanted, order=None))


def test_a_rule_is_asked_about_a_folder_once():
    asked = []

    def skip(key, is_folder):
        asked.append((key, is_folder))
        return key.endswith("x")

    folders = Folders(skip)
    found = [
        folders.skipped(key) for key in ("a/1", "a/2", "a/b/1", "a/x/y/1", "a/x/z", "c", "d/1")
    ]
    assert found == [None, None, None, "a/x/", "a/x/", None, None]
    assert asked == [("a", True), ("a/b", True), ("a/x", True), ("d", True)]


def test_parts_of_a_key_may_be_empty():
    asked = []
    folders = Folders(lambda key, is_folder: bool(asked.append(key)))
    assert folders.skipped("/a//b") is None
    assert asked == ["/a", "/a/"]
