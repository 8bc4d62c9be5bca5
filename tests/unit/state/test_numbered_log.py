"""A numbered log: written once, read whole or not at all."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateError,
    StateUnreachableError,
)
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import FailingStore, Fault


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    uri = str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return open_store(uri)


def test_an_empty_log_has_no_latest(store):
    assert NumberedLog(store, "log").latest() == -1
    assert NumberedLog(store, "log").numbers() == []


def test_an_entry_is_read_as_it_was_appended(store):
    log = NumberedLog(store, "a/log")
    assert log.append(0, {"files": 3, "name": "caf\u00e9 \udcff"}, b"body\nwith lines\n")
    entry = NumberedLog(store, "a/log").read(0)
    assert entry.number == 0
    assert entry.header["files"] == 3
    assert entry.header["name"] == "caf\u00e9 \udcff"
    assert entry.body == b"body\nwith lines\n"
    assert len(entry.id) == 32
    assert entry.header["created"].endswith("+00:00")
    assert log.header(0) == entry.header


def test_an_entry_is_never_replaced(store):
    log = NumberedLog(store, "log")
    assert log.append(0, {"by": "first"})
    assert not NumberedLog(store, "log").append(0, {"by": "second"})
    assert log.read(0).header["by"] == "first"


def test_the_latest_is_found_also_when_others_append(store):
    one, two = NumberedLog(store, "log"), NumberedLog(store, "log")
    for number in range(12):
        assert (one, two)[number % 2].append(number, {})
        assert one.latest() == two.latest() == number
    assert NumberedLog(store, "log").latest() == 11
    assert one.numbers() == list(range(12))
    assert one.numbers(after=9) == [10, 11]


@pytest.mark.parametrize(("width", "name"), [(20, "0" * 19 + "7"), (0, "7"), (3, "007")])
def test_numbers_are_padded_to_the_width(store, width, name):
    log = NumberedLog(store, "log", width=width)
    log.append(7, {})
    assert [entry.path for entry in store.list()] == [f"log/{name}"]
    assert log.name(7) == store.child_uri(f"log/{name}")


def test_plain_numbers_are_ordered_as_numbers(store):
    log = NumberedLog(store, "log", width=0)
    for number in range(12):
        log.append(number, {})
    assert NumberedLog(store, "log", width=0).numbers(after=1) == list(range(2, 12))
    assert NumberedLog(store, "log", width=0).latest() == 11


def test_other_files_in_the_folder_are_no_entries(store):
    log = NumberedLog(store, "log")
    log.append(0, {})
    for name in (".0.crc", "1.tmp", "_SUCCESS", "1", "00", "\u0661" * 20, "0" * 19 + "2/x"):
        store.put(f"log/{name}", b"")
    store.put("log2/" + "0" * 19 + "5", b"")
    assert NumberedLog(store, "log").latest() == 0


def test_a_lost_answer_is_found_out(store):
    log = NumberedLog(FailingStore(store, {1: Fault.LOST}), "log")
    assert log.append(0, {"by": "me"}) is True
    assert log.latest() == 0


def test_a_retry_that_meets_itself_has_won(store):
    log = NumberedLog(FailingStore(store, {1: Fault.DENIED}), "log")
    assert log.append(0, {"by": "me"}) is True


def test_a_lost_answer_about_another_s_entry_is_a_lost_race(store):
    NumberedLog(store, "log").append(0, {"by": "other"})
    for fault in (Fault.LOST, Fault.DENIED, Fault.REFUSED):
        log = NumberedLog(FailingStore(store, {1: fault}), "log")
        assert log.append(0, {"by": "me"}) is False


def test_a_refused_write_is_an_outage_of_the_state(store):
    log = NumberedLog(FailingStore(store, {1: Fault.REFUSED}), "log")
    with pytest.raises(StateUnreachableError, match="put 1 was refused"):
        log.append(0, {})
    assert log.latest() == -1
    assert log.append(0, {}) is True


def test_a_missing_entry_names_itself(store):
    log = NumberedLog(store, "log")
    for read in (log.read, log.header):
        with pytest.raises(CorruptedStateError, match=r"log/0{19}3 is missing"):
            read(3)


def test_a_newer_version_is_refused_by_name_and_number(store):
    store.put("log/" + "0" * 20, encode_entry({"id": "x"}, b"", format_version=2))
    log = NumberedLog(store, "log")
    for read in (log.read, log.header):
        with pytest.raises(IncompatibleStateError, match=r"log/0{20} has format version 2.* 1\."):
            read(0)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"v", b"v1", b"v1\n", b"v1\n{}", b"v1\n{}\n", b"hello", b"\xff\x00" * 99],
)
def test_what_is_no_entry_is_refused_by_name(store, content):
    store.put("log/" + "0" * 20, content)
    with pytest.raises(CorruptedStateError, match=r"log/0{20}"):
        NumberedLog(store, "log").read(0)


ENTRY = encode_entry(
    {"id": "0" * 32, "created": "now", "files": 2}, b"one\ntwo\n", format_version=1
)


def test_an_entry_is_text_that_people_can_read():
    version, header, body = ENTRY.split(b"\n", 2)
    assert version == b"v1"
    assert json.loads(header)["files"] == 2
    assert body == b"one\ntwo\n"


@given(st.integers(0, len(ENTRY) - 1))
def test_every_truncation_is_found(length):
    with pytest.raises(StateError):
        decode_entry(ENTRY[:length], name="x", format_version=1)


@given(st.integers(0, len(ENTRY) - 1), st.integers(1, 255))
def test_every_changed_byte_is_found(place, change):
    damaged = bytearray(ENTRY)
    damaged[place] ^= change
    with pytest.raises(StateError):
        decode_entry(bytes(damaged), name="x", format_version=1)
