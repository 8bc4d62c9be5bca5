"""A pack: old entries of a log, byte for byte, twice."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.state.packs import (
    COPIES,
    Pack,
    Packs,
    decode_pack,
    encode_pack,
    parse_name,
    widest,
)
from airflow_cloudfiles.engine.storage.memory import MemoryStore

OBJECTS = [b"v1\none\n", b"", b"\x00\xff\n"]
FROZEN = b'v1\n{"id": "pack-7-9", "lengths": [7, 0, 3], "crc32": "62e9b43a"}\nv1\none\n\x00\xff\n'
NAME = "packs/00000000000000000009-00000000000000000007"


@pytest.fixture
def store():
    return MemoryStore(f"memory://{uuid.uuid4().hex}")


def put(store, pack, *, objects=None, copies=COPIES):
    objects = [f"{number}".encode() for number in pack.numbers] if objects is None else objects
    for copy in copies:
        store.put(f"log/{pack.key(copy)}", encode_pack(pack, objects))


def test_the_bytes_of_a_pack_are_frozen():
    assert encode_pack(Pack(7, 9), OBJECTS) == FROZEN
    assert decode_pack(FROZEN, Pack(7, 9), name="x") == OBJECTS


def test_a_name_says_what_is_in_it():
    assert Pack(7, 9).key("a") == f"{NAME}.a"
    assert parse_name(f"{NAME}.b") == (Pack(7, 9), "b")
    for name in (
        NAME,
        f"{NAME}.c",
        f"{NAME}.a/x",
        f"x{NAME}.a",
        f"packs/{'0' * 19}6-{'0' * 19}7.a",
    ):
        assert parse_name(name) is None


def test_a_newer_version_and_another_pack_are_refused_by_name():
    with pytest.raises(IncompatibleStateError, match="x has format version 2"):
        decode_pack(FROZEN.replace(b"v1\n{", b"v2\n{"), Pack(7, 9), name="x")
    for other in (Pack(7, 8), Pack(6, 8), Pack(6, 9)):
        with pytest.raises(CorruptedStateError, match=f"x .*{other.first} to {other.last}"):
            decode_pack(FROZEN, other, name="x")


@pytest.mark.parametrize("at", range(len(FROZEN)))
def test_no_flipped_byte_is_believed(at):
    damaged = bytearray(FROZEN)
    damaged[at] ^= 1
    with pytest.raises((CorruptedStateError, IncompatibleStateError), match="x "):
        decode_pack(bytes(damaged), Pack(7, 9), name="x")
    with pytest.raises((CorruptedStateError, IncompatibleStateError), match="x "):
        decode_pack(FROZEN[:at], Pack(7, 9), name="x")


def test_a_reader_takes_the_copy_that_is_whole(store):
    pack = Pack(0, 2)
    for damaged, content in ((0, b""), (1, b"v1\n{}\n"), (0, None), (1, None)):
        put(store, pack)
        key = f"log/{pack.key(COPIES[damaged])}"
        store.delete(key) if content is None else store.put(key, content)
        assert [Packs(store, "log").read(number) for number in range(4)] == [b"0", b"1", b"2", None]


@pytest.mark.parametrize("other", [None, b"v1\n"])
def test_two_damaged_copies_are_refused_by_name(store, other):
    pack = Pack(0, 2)
    put(store, pack)
    store.put(f"log/{pack.key('a')}", b"damaged")
    store.delete(f"log/{pack.key('b')}") if other is None else store.put(
        f"log/{pack.key('b')}", other
    )
    with pytest.raises(CorruptedStateError, match=r"Both copies .*-0{20}\.a and .*-0{20}\.b"):
        Packs(store, "log").read(1)


def test_a_smaller_pack_that_is_still_there_serves_for_a_damaged_one(store):
    put(store, Pack(0, 2))
    put(store, Pack(0, 5))
    for copy in COPIES:
        store.put(f"log/{Pack(0, 5).key(copy)}", b"damaged")
    assert Packs(store, "log").read(1) == b"1"
    with pytest.raises(CorruptedStateError, match="Both copies"):
        Packs(store, "log").read(4)


def test_a_pack_that_became_part_of_a_larger_one_is_found_there(store):
    put(store, Pack(0, 2))
    packs = Packs(store, "log")
    packs.refresh()
    put(store, Pack(0, 5))
    for copy in COPIES:
        store.delete(f"log/{Pack(0, 2).key(copy)}")
    assert packs.read(1) == b"1"


def test_entries_of_one_pack_are_read_with_one_request(store):
    put(store, Pack(0, 99))
    packs = Packs(store, "log")
    assert [packs.read(number) for number in range(100)] == [b"%d" % each for each in range(100)]
    assert store.requests["get"] == 1
    assert store.requests["list"] == 1


ranges = st.tuples(st.integers(0, 30), st.integers(0, 12))


@pytest.mark.law
@given(st.lists(ranges, max_size=8))
def test_whatever_packs_there_are_each_number_is_found(found):
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    packs = [Pack(first, first + more) for first, more in found]
    for pack in packs:
        put(store, pack)
    held = {number for pack in packs for number in pack.numbers}
    kept = widest(packs)
    assert {number for pack in kept for number in pack.numbers} == held
    assert not any(one.has(other) for one in kept for other in kept)
    reader = Packs(store, "log")
    for number in range(50):
        assert reader.read(number) == (b"%d" % number if number in held else None)
