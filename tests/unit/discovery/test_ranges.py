"""Several readers find what one finds; interrupted ones what is left; and none of it costs much."""

from __future__ import annotations

import threading
import uuid
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing import ranges as ranges_module
from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange, above, behind, midpoint
from airflow_cloudfiles.engine.discovery.listing.ranges import Readers
from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.known import MemoryRecorder

EVERYTHING = (KeyRange(),)


class Quiet:
    """A watcher that watches nothing."""

    def found(self, files):
        pass

    def advanced(self, readers):
        pass


class RacingStore(MemoryStore):
    """A store whose readers wait for each other now and then, so that all of them get to work."""

    def __init__(self, uri, page_size, readers=0):
        super().__init__(uri, page_size=page_size)
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def list(self, *args, **kwargs):
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            for number, entry in enumerate(super().list(*args, **kwargs)):
                if number % self.page_size == 0:
                    threading.Event().wait(0.0005)
                yield entry
        finally:
            with self._lock:
                self._at_once -= 1


class PagedStore(MemoryStore):
    """A store that needs no time."""

    def __init__(self, uri, page_size):
        super().__init__(uri, page_size=page_size)


def filled(keys, page_size=5, kind=RacingStore):
    store = kind(f"memory://{uuid.uuid4().hex}", page_size)
    for key in keys:
        store.put(key, b"")
    return store


def readers_of(store, recorder, ranges=EVERYTHING, *, threads=8, prefix=None):
    return Readers(
        store,
        FileFilter(store.uri, prefix, DiscoveryOptions()),
        recorder,
        ranges,
        found_by="listing",
        threads=threads,
        page_size=store.page_size,
        order=key_bytes,
        is_order_certain=True,
        watcher=Quiet(),
    )


PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=3)
KEYS = st.one_of(
    st.sets(st.lists(PARTS, min_size=1, max_size=3).map("/".join), max_size=150),
    st.sets(st.integers(0, 5000).map(lambda n: f"dt={n // 50:03d}/part-{n:05d}"), max_size=400),
    st.sets(st.text("ab", min_size=1, max_size=9), max_size=300),
)


@settings(max_examples=40)
@given(KEYS)
def test_readers_together_find_what_one_finds(keys):
    keys = {key for key in keys if not any(p in {".", ".."} for p in key.split("/"))}
    store = filled(keys, page_size=3)
    alone, together = MemoryRecorder(), MemoryRecorder()
    readers_of(store, alone, threads=1).run()
    readers_of(store, together).run()
    assert sorted(together.recorded) == sorted(alone.recorded)


def test_a_short_listing_costs_its_pages():  # B87
    store = filled([f"{n:04d}" for n in range(49)])
    recorder = MemoryRecorder()
    readers_of(store, recorder).run()
    assert store.requests["list"] == 10
    assert len(recorder.recorded) == 49
    assert store.most_at_once == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        lambda n: f"in/2024/{n // 100:02d}/part-{n:06d}.json",
        lambda n: uuid.uuid5(uuid.NAMESPACE_OID, str(n)).hex,
        lambda n: f"é/{chr(0x4E00 + n % 500)}/{n:05d}",
        lambda n: "x" * 300 + f"{n:05d}",
        lambda n: f"a/{n:05d}" if n else "z",
    ],
    ids=["dates", "random", "unicode", "long", "lopsided"],
)
def test_a_long_listing_is_shared_and_costs_little_more_than_its_pages(key):
    store = filled([key(n) for n in range(4000)], page_size=10)
    recorder = MemoryRecorder()
    readers = readers_of(store, recorder)
    readers.run()
    assert len(recorder.recorded) == 4000
    assert readers.listed < 4000 + 10 * readers.ranges_begun
    assert store.requests["list"] <= ceil(4000 / 10) * 11 // 10
    assert readers.ranges_begun > 4
    assert store.most_at_once > 3


SHAPES = {
    "numbers": lambda n: f"{n:07d}",
    "random": lambda n: uuid.uuid5(uuid.NAMESPACE_OID, str(n)).hex,
    "dates": lambda n: f"dt={2019 + n // 9999}-{n // 900 % 12:02d}-{n // 30 % 30:02d}/{n:06d}",
    "nested": lambda n: f"{n % 3}/{n % 11}/{n % 7}/{n}",
    "long": lambda n: "x" * 300 + f"{n:06d}",
    "unicode": lambda n: f"\u00e9/{chr(0x4E00 + n % 500)}/{chr(0x1F300 + n % 200)}{n:06d}",
    "one large folder": lambda n: f"large/{n:06d}" if n % 10 else f"s{n % 7}/{n}",
    "all but one": lambda n: f"a/{n:06d}" if n else "z",
    "hidden": lambda n: f"a/{n:06d}" if n % 3 else f"_b/{n:06d}",
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 2_000, 6_000, 20_000])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_full_listing_costs_a_tenth_more_than_its_pages_at_most(shape, count, is_known):
    """The documents promise the number of files divided by the page (S1)."""
    keys = [SHAPES[shape](n) for n in range(count)]
    store = filled(keys, page_size=100, kind=RacingStore if count <= 6_000 else PagedStore)
    recorder = MemoryRecorder(keys if is_known else ())
    readers_of(store, recorder).run()
    assert store.requests["list"] <= max(1, ceil(count / 100)) * 11 // 10
    assert len(recorder.known.keys) == sum(not key.startswith("_") for key in keys) or is_known


@settings(max_examples=60)
@given(st.sets(st.text("ab/\u00e9\U0001f600", min_size=1, max_size=12), max_size=400))
def test_no_names_make_a_full_listing_dearer(names):
    keys = {name for name in names if "//" not in f"/{name}/"}
    store = filled(keys, page_size=2)
    readers_of(store, MemoryRecorder()).run()
    assert store.requests["list"] <= max(1, ceil(len(keys) / 2)) * 11 // 10


def test_many_readers_share_one_index(tmp_path):
    keys = [f"{n // 100:02d}/{n:05d}" for n in range(3000)]
    store, state = filled(keys[::2], page_size=10), MemoryStore(f"memory://{uuid.uuid4().hex}")
    ledger = RocksDBLedger(tmp_path / "index")
    intake = Intake(source=store, state=state, format="json", ledger=ledger)
    assert intake.discover().files == 1500
    for key in keys[1::2]:
        store.put(key, b"")
    assert intake.discover().files == 1500
    assert intake.discover().files == 0
    intake.close()
    recorded = [file.path for file in intake.files.slice(START, intake.files.head())]
    assert sorted(recorded) == keys
    assert store.most_at_once > 1


def test_only_what_begins_like_the_pattern_is_listed():
    store = filled([f"{letter}/{n:04d}" for letter in "abc" for n in range(500)], page_size=10)
    recorder = MemoryRecorder()
    readers_of(store, recorder, prefix="b/*").run()
    assert sorted(recorder.recorded) == [f"b/{n:04d}" for n in range(500)]
    assert store.requests["list"] < 100


def test_ranges_are_all_listed_and_nothing_between_them():
    store = filled([f"{n:03d}" for n in range(100)])
    recorder = MemoryRecorder(["005"])
    parts = [KeyRange("", "010"), KeyRange("049", "055"), KeyRange("097")]
    readers_of(store, recorder, parts).run()
    expected = [f"{n:03d}" for n in (*range(10), *range(50, 55), 98, 99) if n != 5]
    assert sorted(recorder.recorded) == expected


class BreakingStore(RacingStore):
    """A store that stops answering after some pages."""

    pages_left = 60

    def list(self, *args, **kwargs):
        for number, entry in enumerate(super().list(*args, **kwargs)):
            if number % self.page_size == 0:
                self.pages_left -= 1
                if self.pages_left < 0:
                    raise ConnectionError("no answer")
            yield entry


@pytest.mark.parametrize("threads", [1, 8])
def test_what_is_left_of_a_broken_listing_completes_it(threads, monkeypatch):
    monkeypatch.setattr(ranges_module, "_BATCH_FILES", 100)
    keys = [f"{n:05d}" for n in range(2000)]
    store = filled(keys, page_size=10, kind=BreakingStore)
    recorder = MemoryRecorder()
    readers = readers_of(store, recorder, threads=threads)
    with pytest.raises(ListingError, match="no answer") as caught:
        readers.run()
    assert caught.value.is_retryable
    before = len(recorder.recorded)
    assert 0 < before < 2000
    rest = readers.unfinished()
    assert rest != [KeyRange()]
    store.pages_left = 10_000
    again = readers_of(store, recorder, rest, threads=threads)
    again.run()
    assert sorted(recorder.recorded) == keys
    assert again.listed < 2000
    assert again.unfinished() == []


def test_batches_are_bounded(monkeypatch):
    monkeypatch.setattr(ranges_module, "_BATCH_FILES", 50)
    recorder = MemoryRecorder()
    readers_of(filled([f"{n:04d}" for n in range(1000)]), recorder, threads=1).run()
    assert max(size for size, _ in recorder.batches) <= 50
    assert len(recorder.batches) >= 20


def test_a_failing_recorder_ends_all_readers():
    class Failing(MemoryRecorder):
        def record(self, files, found_by):
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        readers_of(filled([f"{n:04d}" for n in range(2000)]), Failing()).run()
    assert [t for t in threading.enumerate() if t.name == "cloudfiles-listing"] == []


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@given(TEXTS, TEXTS)
def test_a_midpoint_is_between(one, other):
    low, high = sorted((one, other))
    found = midpoint(low, high)
    assert found is None or low < found < high
    if found is not None:
        found.encode("utf-8")


@given(TEXTS, st.integers(0, 12))
def test_what_is_above_a_text_is_above_it(low, shared):
    assert above(low, shared) > low[: shared + 1]
    assert behind(low[:shared]) >= above(low, shared) or low[shared : shared + 1] == "\U0010ffff"
