"""Old entries become packs, and each stays what it was, whatever is killed or left behind."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.state import compaction, numbered_log
from airflow_cloudfiles.engine.state.compaction import Compaction, Folder, Work, work_of
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.packs import COPIES, Pack, parse_name
from airflow_cloudfiles.engine.storage.fetched_ahead import PrefetchedStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.landing_zone import FailingStore, Fault, KilledError
from tests.support.laws import examples

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

DAY_US = 24 * 3600 * 10**6


def listing(numbers, packs=(), *, size=100, sizes=None, packed_us=10):
    entries = [
        FileEntry(f"log/{number:020}", (sizes or {}).get(number, size), 5) for number in numbers
    ]
    for pack, copies in packs:
        entries += [FileEntry(f"log/{pack.key(copy)}", 1000, packed_us) for copy in copies]
    return Folder.of("log", entries)


def test_the_newest_are_never_packed_and_few_are_left_alone():
    assert not work_of(listing(range(199)), DAY_US)
    assert work_of(listing(range(200)), DAY_US) == Work(create=(Pack(0, 99),))
    assert work_of(listing(range(399)), DAY_US).create == (Pack(0, 99), Pack(100, 199))
    assert not work_of(listing(range(399)), DAY_US, least=201)


def test_a_large_entry_stays_an_object():
    sizes = dict.fromkeys((3, 4, 50, 52), compaction.MAX_ENTRY_BYTES + 1)
    work = work_of(listing(range(253), sizes=sizes), DAY_US, least=1)
    assert work.create == (Pack(0, 2), Pack(5, 49), Pack(53, 152))


def test_a_pack_has_few_bytes():
    work = work_of(listing(range(300), size=compaction.MAX_BYTES // 10), DAY_US, least=1)
    assert work.create[0] == Pack(0, 9)
    assert sum(map(len, work.create)) == 190, "the last one may get more"


def test_a_gap_ends_a_pack():
    numbers = [*range(40), *range(45, 400)]
    assert work_of(listing(numbers), DAY_US).create[:2] == (Pack(0, 39), Pack(45, 144))


def test_what_is_packed_goes_a_day_later():
    packs = [(Pack(0, 99), "ab")]
    folder = listing(range(199), packs, packed_us=10)
    assert not work_of(folder, DAY_US)
    assert work_of(folder, DAY_US + 10).remove == (Pack(0, 99),)
    assert not work_of(listing(range(100, 199), packs), 9 * DAY_US)


def test_a_note_that_is_newer_than_its_pack_is_no_reason_to_remove():
    folder = listing(range(150), [(Pack(0, 99), "ab")], packed_us=4)
    assert work_of(folder, 9 * DAY_US).remove
    assert not work_of(replace(folder, is_log=False), 9 * DAY_US)


@pytest.mark.parametrize("copy", COPIES)
def test_a_pack_with_one_copy_gets_the_other_and_removes_nothing(copy):
    work = work_of(listing(range(199), [(Pack(0, 99), copy)]), 9 * DAY_US)
    assert work == Work(restore=(Pack(0, 99),))


def test_ten_neighbors_of_one_size_become_one():
    packs = [(Pack(100 * each, 100 * each + 99), "ab") for each in range(12)]
    work = work_of(listing(range(1200, 1300), packs), 0)
    assert work.merge == (tuple(pack for pack, _ in packs[:10]),)
    merged = [(Pack(0, 999), "ab")]
    assert work_of(listing(range(1200, 1300), packs + merged), 0).merge == ()
    assert work_of(listing(range(1200, 1300), packs + merged), DAY_US + 10).remove == (
        Pack(0, 999),
    )


def test_packs_with_many_bytes_are_not_merged():
    packs = [(Pack(100 * each, 100 * each + 99), "ab") for each in range(12)]
    with mock.patch.object(compaction, "MAX_BYTES", 9999):
        assert work_of(listing([], packs), 0).merge == ()
    with mock.patch.object(compaction, "MAX_ENTRIES", 999):
        assert work_of(listing([], packs), 0).merge == ()


# ── with a store ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small():
    sizes = {"KEPT": 2, "PACK_ENTRIES": 3, "MERGED_PACKS": 2, "MAX_ENTRIES": 24}
    with mock.patch.multiple(compaction, **sizes):
        yield


def a_log(store):
    return NumberedLog(store, "log", has_all=True, is_packed=True)


def compact(store, **given):
    folder = Folder.of("log", store.list("log/"))
    work = work_of(folder, store.clock_us(), least=1, grace_seconds=0)
    Compaction(store, folder).run(work, **given)
    return bool(work)


def compact_all(store):
    while compact(store):
        pass


def a_store(entries=0):
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    log = a_log(store)
    for number in range(entries):
        assert log.append(number, {"n": number}, b"%d" % number)
    return store


def fresh(store):
    """A log whose reader begins with the packs."""
    log = a_log(store)
    log.meet_packs()
    return log


def ids(log, upto):
    return [log.read(number).id for number in range(upto)]


def test_all_entries_stay_and_few_objects_remain(small):
    store = a_store(50)
    before = ids(a_log(store), 50)
    compact_all(store)
    assert len(list(store.list())) < 16
    log = a_log(store)
    assert log.latest() == 49
    assert ids(log, 50) == ids(a_log(store), 50) == before
    assert log.numbers() == list(range(50))
    assert log.numbers(after=40) == list(range(41, 50))
    assert log.newest() == 49
    assert [log.header(number)["n"] for number in range(50)] == list(range(50))
    assert log.append(50, {})


def test_who_has_listed_the_log_before_finds_what_was_packed_since(small):
    store = a_store(30)
    reader, stranger = a_log(store), a_log(store)
    assert reader.latest() == 29
    before = ids(a_log(store), 30)
    compact_all(store)
    assert ids(reader, 30) == ids(stranger, 30) == before
    assert reader.latest() == 29


@pytest.mark.parametrize("lost", range(20))
def test_an_entry_that_is_lost_is_still_refused(small, lost):
    store = a_store(20)
    compact_all(store)
    names = [each.path.removeprefix("log/") for each in store.list("log/")]
    packed = [found[0] for found in map(parse_name, names) if found and lost in found[0].numbers]
    store.delete(f"log/{lost:020}")
    for pack in packed:
        for copy in COPIES:
            store.delete(f"log/{pack.key(copy)}")
    if lost == 19:
        assert a_log(store).latest() == 18  # what else knows of it shows it (`check_whole`)
        return
    with pytest.raises(CorruptedStateError, match=r"log/0+\d+ is missing"):
        a_log(store).latest()
    with pytest.raises(CorruptedStateError, match=rf"log/0*{lost} is missing"):
        a_log(store).read(lost)


def test_a_damaged_entry_is_not_packed(small):
    store = a_store(20)
    store.put(f"log/{1:020}", b"damaged")
    with pytest.raises(CorruptedStateError, match=r"log/0+1 "):
        compact(store)
    assert not list(store.list("log/packs/"))


@pytest.mark.parametrize("copy", COPIES)
def test_a_damaged_copy_is_written_anew_before_anything_goes(small, copy):
    store = a_store(20)
    before = ids(a_log(store), 20)
    assert compact(store)
    for each in list(store.list("log/packs/")):
        if each.path.endswith(copy):
            content = bytearray(store.get(each.path))
            content[len(content) // 2] ^= 1
            store.put(each.path, bytes(content))
    objects = {each.path for each in store.list("log/0")}
    assert ids(a_log(store), 20) == before
    assert compact(store)
    assert {each.path for each in store.list("log/0")} == objects
    compact_all(store)
    assert len(list(store.list("log/0"))) < len(objects)
    assert ids(a_log(store), 20) == before
    for each in list(store.list("log/packs/")):
        other = each.path[:-1] + ("b" if each.path.endswith("a") else "a")
        assert store.get(each.path) == store.get(other)


def test_two_damaged_copies_are_refused_unless_the_objects_are_there(small):
    store = a_store(20)
    before = ids(a_log(store), 20)
    assert compact(store)
    damaged = [each.path for each in store.list("log/packs/")]
    for key in damaged:
        store.put(key, b"damaged")
    log = a_log(store)
    log.latest()
    assert ids(log, 20) == ids(a_log(store), 20) == before
    compact_all(store)
    assert ids(a_log(store), 20) == before
    for each in list(store.list("log/packs/")):
        store.put(each.path, b"damaged")
    with pytest.raises(CorruptedStateError, match="Both copies of a pack"):
        ids(a_log(store), 20)
    assert a_log(store).read(19).id == before[19]


def test_a_writer_that_was_left_behind_does_not_get_a_number_twice(small):
    store = a_store(4)
    late = a_log(store)
    assert late.latest() == 3
    others = a_log(store)
    for number in range(4, 30):
        assert others.append(number, {})
    compact_all(store)
    assert store.head(f"log/{4:020}") is None
    before = ids(a_log(store), 30)
    with mock.patch.object(numbered_log, "MET_SECONDS", 0.0):  # it has stood still for long
        assert late.append(4, {"by": "late"}) is False
    assert late.written is None
    assert store.head(f"log/{4:020}") is None
    assert late.latest() == 29
    assert late.append(30, {"by": "late"}) is True
    assert ids(a_log(store), 30) == before


def test_a_writer_whose_listing_is_old_asks_whether_its_number_was_packed(small):
    store = a_store(4)
    ahead = PrefetchedStore(store)
    ahead.fetch(folders=["log/"])
    others = a_log(store)
    for number in range(4, 30):
        assert others.append(number, {})
    compact_all(store)
    late = NumberedLog(cast("ObjectStore", ahead), "log", has_all=True, is_packed=True)
    seen = ahead.fetched_at
    assert seen is not None
    ahead.fetched_at = replace(seen, running=seen.running - 7200)  # two hours ago
    assert late.latest() == 3
    assert late.append(4, {}) is False
    assert late.latest() == 29


def test_a_reader_that_was_left_behind_lists_again(small):
    store = a_store(4)
    late = a_log(store)
    assert late.latest() == 3
    others = a_log(store)
    for number in range(4, 30):
        assert others.append(number, {})
    compact_all(store)
    with mock.patch.object(numbered_log, "MET_SECONDS", 0.0):
        assert late.latest() == 29


# ── laws ────────────────────────────────────────────────────────────────────────────────────────


class _Stopping:
    """A store that kills the process at the k-th call that changes something."""

    def __init__(self, store, at, *, after):
        self._store, self._at, self._after = store, at, after

    def __getattr__(self, name):
        call = getattr(self._store, name)
        if name not in {"put", "put_if_absent", "delete"}:
            return call

        def change(*given):
            self._at -= 1
            if self._at == 0 and not self._after:
                raise KilledError
            found = call(*given)
            if self._at == 0:
                raise KilledError
            return found

        return change


writings = st.tuples(
    st.just("append"),
    st.integers(0, 2),
    st.sampled_from([1, 1, 7]),
    st.sampled_from([None, *Fault]),
)
passes = st.tuples(st.just("compact"), st.just(0), st.booleans())
kills = st.tuples(st.just("compact"), st.integers(1, 25), st.booleans())
damages = st.tuples(st.just("damage"), st.integers(0, 5), st.sampled_from(COPIES))
steps = st.lists(st.one_of(writings, writings, passes, kills, damages), min_size=8, max_size=40)


class _World:
    """A log with three writers, of which some do not look for a long time."""

    def __init__(self):
        self.store = a_store()
        self.faults = FailingStore(self.store)
        self.writers = [a_log(self.faults) for _ in range(3)]
        self.known = [-1, -1, -1]
        self.given: dict[int, str] = {}

    def append(self, who, times, fault):
        """Write some entries, the last one with a fault."""
        for _ in range(times - 1):
            self._append(who, None)
        self._append(who, fault)

    def _append(self, who, fault):
        log = self.writers[who]
        number = self.known[who] + 1
        self.faults.faults = {} if fault is None else {self.faults.puts + 1: fault}
        try:
            won = log.append(number, {"by": who})
        except Exception:  # noqa: BLE001 - what is there decides
            won = None
        except KilledError:
            won = None
            self.writers[who] = a_log(self.faults)
        if won:
            entry = fresh(self.store).read(number)
            assert entry.header["by"] == who
            assert number not in self.given
        found = fresh(self.store).find(number)
        if found is not None:
            assert self.given.setdefault(number, found.id) == found.id
        self.known[who] = number if won else self.writers[who].latest()

    def compact(self, at, after):
        with suppress(KilledError):
            compact(_Stopping(self.store, at, after=after))

    def damage(self, which, copy):
        """Damage one copy of a pack whose other copy is whole."""
        other = "b" if copy == "a" else "a"
        there = [each.path for each in self.store.list("log/packs/") if each.path[-1] == copy]
        both = [key for key in there if self.store.head(key[:-1] + other) is not None]
        whole = [key for key in both if self.store.get(key[:-1] + other) == self.store.get(key)]
        if which < len(whole):
            self.store.put(whole[which], b"v1\ndamaged")

    def check(self):
        log, other = a_log(self.store), fresh(self.store)
        assert log.latest() == max(self.given, default=-1)
        for number, entry_id in self.given.items():
            assert log.read(number).id == other.read(number).id == entry_id


@pytest.mark.law
@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_whatever_happens_each_number_is_one_entry_for_ever(history):
    sizes = {"KEPT": 2, "PACK_ENTRIES": 3, "MERGED_PACKS": 2, "MAX_ENTRIES": 24}
    with (
        mock.patch.multiple(compaction, **sizes),
        mock.patch.object(numbered_log, "MET_SECONDS", 0.0),
    ):
        world = _World()
        for name, *given_ in history:
            getattr(world, name)(*given_)
            world.check()
        compact_all(world.store)
        world.check()
        sizes_left = len(list(world.store.list()))
        assert sizes_left <= 40
