"""Stores that keep no order, or start listings elsewhere, are noticed and listed whole."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from bisect import bisect_right

import pytest

from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing import ranges as ranges_module
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import load_state
from airflow_cloudfiles.engine.errors import ListingError, UnsupportedOptionError
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.known import MemoryRecorder
from tests.support.memory_ledger import MemoryLedger

PAGE = 10
FOLDERS = [f"{letter}{tail}" for letter in "abcdefgh" for tail in ("/x", "/y", "-z", ".z", "0")]
KINDS = ("by folder", "in no order", "from the first")


POSITIONS = {
    "by folder": lambda key: key.replace(b"/", b"\0"),
    "in no order": lambda key: hashlib.sha256(key).digest(),
}


class UnorderedStore(MemoryStore):
    """A store that does not keep the order that listings rest on.

    Args:
        lists: How it lists. `by folder`: `a/x` comes before `a-b`, as in SeaweedFS. `in no order`:
            as in directory buckets of S3. `from the first`: in order, but never from where it is
            asked to.
    """

    is_order_promised = False

    def __init__(self, uri, *, page_size, lists):
        super().__init__(uri, page_size=page_size)
        self._lists = lists

    def _pages(self, prefix, size, end_before=""):
        first, position = key_bytes(self._root + prefix), POSITIONS.get(self._lists, bytes)
        there = self._space.keys()
        keys = sorted((key for key in there if key.startswith(first)), key=position)

        def fetch(start_after, mark):
            begin = mark or 0
            after = key_bytes(start_after)
            if mark is None and self._lists != "from the first" and after > first:
                begin = bisect_right(keys, position(after), key=position)
            return self._page(keys, begin, begin + size)

        return fetch


class Source:
    """A source in a store that lists in one of the ways there are."""

    def __init__(self, lists, keys, store=UnorderedStore):
        name = f"memory://{uuid.uuid4().hex}"
        self.source = store(f"{name}/in", page_size=PAGE, lists=lists)
        self.state = MemoryStore(f"{name}/state")
        self.recorder = MemoryRecorder()
        self.put(*keys)

    def put(self, *keys):
        for key in keys:
            self.source.put(key, b"")

    def listing(self, option="auto"):
        options = DiscoveryOptions(use_incremental_listing=option)
        wanted = FileFilter(self.source.uri, None, options)
        return DirectoryListing(self.source, wanted, state=self.state, options=options)

    def run(self, option="auto"):
        return self.listing(option).run(self.recorder)

    @property
    def all_found(self):
        there = sorted(entry.path for entry in self.source.list(ordered=False))
        return sorted(self.recorder.recorded) == there


def nested(count):
    return [f"{n % 7}{FOLDERS[n % len(FOLDERS)]}{n:05d}" for n in range(count)]


def flat(count):
    return [f"{n * 7919 % 65537:05d}.json" for n in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("lists", KINDS)
@pytest.mark.parametrize("keys", [nested, flat])
@pytest.mark.parametrize("count", [0, 1, PAGE, 11 * PAGE, 100 * PAGE])
def test_all_files_are_found_whatever_the_order(lists, keys, count):
    source = Source(lists, keys(count))
    new = (f"{name}{n}" for n in range(3) for name in ("a/late", "a-late", "9", "0"))
    for _ in range(12):
        source.run()
        assert source.all_found
        source.put(next(new))


@pytest.mark.parametrize("lists", KINDS)
def test_a_store_without_an_order_costs_its_pages_and_is_remembered(lists):
    source = Source(lists, nested(100 * PAGE))
    first = source.run()
    assert load_state(source.state).order == "none"
    assert first.list_calls <= 100 + 10 * 11 // 10 + 2  # what was in vain, and the whole
    for _ in range(10):
        report = source.run()
        assert (report.kind, report.list_calls, report.ranges) == ("full", 100, 1)
        assert "does not list keys in order" in report.reason
    assert source.all_found


@pytest.mark.slow
@pytest.mark.parametrize("count", [3_500, 26_000])
def test_a_store_that_always_starts_at_the_first_key_ends(count):
    """26,000 keys made 4,332 requests until somebody stopped it."""
    source = Source("from the first", [f"{n % 26:02d}/{n:06d}" for n in range(count)])
    source.source.page_size = 1000
    pages = -(-count // 1000)
    assert source.run().list_calls <= 2 * pages
    assert source.run().list_calls == pages
    assert source.all_found


def test_pages_before_the_start_are_noticed_by_the_first_of_them():
    source = Source("from the first", [f"{n:05d}" for n in range(50 * PAGE)])
    with pytest.raises(OSError, match="does not start a listing where it is asked to"):
        next(source.source.list(start_after="00400"))
    with pytest.raises(OSError, match="does not start a listing where it is asked to"):
        source.source.key_after("00400")
    assert source.source.requests["list"] == 2


def is_refused(source):
    try:
        source.run("true")
    except UnsupportedOptionError as refusal:
        return "useIncrementalListing=true needs a store that lists its keys in" in str(refusal)
    return False


@pytest.mark.parametrize("lists", KINDS)
def test_incremental_listing_is_refused_by_name(lists):
    source = Source(lists, nested(100 * PAGE))
    # The first listing is full. One that never starts in the middle shows nothing, and is right.
    assert is_refused(source) or lists == "from the first"
    assert [is_refused(source) for _ in range(2)] == [True, True]
    assert source.run("auto").kind == "full"
    assert source.all_found


def test_an_incremental_listing_of_a_store_that_lists_by_folder_is_never_relied_on():
    """Nothing shows the order before `a-x` is there, and then an incremental listing misses it."""
    source = Source("by folder", [f"{n // 100:02d}/{n:05d}" for n in range(50 * PAGE)])
    source.run()
    source.put("04/99999")
    source.run()
    assert load_state(source.state).order == "none"
    source.put("04-x", "04.x")
    source.run()
    assert source.all_found


def test_what_a_sensor_asks_is_answered_without_an_order():
    source = Source("in no order", nested(5 * PAGE))
    assert source.listing().has_new(source.recorder)
    source.run()
    assert not source.listing().has_new(source.recorder)
    source.put("a/late")
    assert source.listing().has_new(source.recorder)


def test_all_files_are_given_once_to_who_only_lists():
    for lists in KINDS:
        source = Source(lists, nested(5 * PAGE))
        paths = [entry.path for entry in source.listing().discover()]
        assert sorted(paths) == sorted(nested(5 * PAGE))


class Breaking(UnorderedStore):
    """A store that stops answering after some files."""

    left = 10**9

    def list(self, *args, **kwargs):
        for entry in super().list(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                raise ConnectionError("no answer")
            yield entry


def test_an_interrupted_listing_without_an_order_begins_again(monkeypatch):
    monkeypatch.setattr(ranges_module, "_BATCH_FILES", 60)
    source = Source("in no order", nested(2), Breaking)
    source.run()
    source.put(*nested(40 * PAGE))
    source.run()
    source.put(*(f"{n}-new" for n in range(40 * PAGE)))
    source.source.left = 50 * PAGE
    with pytest.raises(ListingError):
        source.run()
    assert load_state(source.state).unfinished is None
    source.source.left = 10**9
    assert source.run().kind == "full"
    assert source.all_found


def test_a_server_that_lists_folder_by_folder_is_listed_whole(seaweed):
    """SeaweedFS: `data/x` comes before `data-y`."""
    source = S3Store(f"{seaweed.bucket()}/in", seaweed.access, page_size=3)
    names = [f"{day}{tail}" for day in ("1", "2", "3") for tail in ("/x", "/y", "-z", ".z")]
    state = MemoryStore(f"memory://{uuid.uuid4().hex}")
    ledger = MemoryLedger()
    for some in itertools.batched(names, 4) if hasattr(itertools, "batched") else [names]:
        for name in some:
            source.put(name, b"x")
        intake = Intake(source=source, state=state, format="json", ledger=ledger)
        assert intake.discover().files == len(some)
        assert intake.discover().files == 0
    assert load_state(state).order == "none"
