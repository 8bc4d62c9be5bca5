"""The file log gives back exactly what was discovered."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.state.file_log import (
    BASELINE,
    COMPLETE,
    MAX_ENTRY_FILES,
    FileBatch,
    FileLog,
    decode_files,
    encode_files,
)
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import open_store

FIRST = "_source/files/" + "0" * 20
ODD = [
    "a b", "100%", "a%20b", "+", "#", "k=v/x", "caf\u00e9", "cafe\u0301", "new\nline", "\r\n",
    "\u2028", "\x85", '"', "\\", "\\u0041", "\x00-is-not-a-name-but-a-key", "\x7f", "\U0001f600",
    "not-utf8-\udcff", "\udce2\udc82", "\uffff",
]  # fmt: skip


@pytest.fixture
def store():
    return open_store(f"memory://{uuid.uuid4().hex}")


def batch(*paths: str, size: int = 10) -> FileBatch:
    return FileBatch(tuple(FileEntry(path, size, 1234567, f'"{path}"') for path in paths))


def test_a_batch_is_read_as_it_was_appended(store):
    written = FileBatch(
        (FileEntry("a", 0, 0), FileEntry("b", 2**50, -1, "etag"), FileEntry("c", 1, 2**62)),
        found_by="backfill",
        position="somewhere",
    )
    assert FileLog(store).append(0, written)
    assert FileLog(store).read(0) == written
    summary = FileLog(store).summary(0)
    assert (summary.files, summary.bytes, summary.found_by) == (3, 2**50 + 1, "backfill")
    assert summary.position == "somewhere"


def test_the_baseline_ends_with_the_entry_that_says_so(store):  # B88
    log, other = FileLog(store), FileLog(store)
    assert not log.baseline_complete()
    log.append(0, FileBatch((FileEntry("a", 1, 0),), "existing"))
    log.append(1, FileBatch((FileEntry("b", 1, 0),), "notification", "complete"))
    assert not log.baseline_complete()
    log.append(2, FileBatch((), "existing", "complete"))
    assert log.baseline_complete()
    assert other.baseline_complete()
    with pytest.raises(ValueError, match="1 to"):
        log.append(3, FileBatch((), "listing"))


def test_odd_names_come_back_unchanged(store):
    FileLog(store).append(0, batch(*ODD))
    assert [file.path for file in FileLog(store).read(0).files] == ODD
    assert store.get(FIRST).isascii()
    assert store.get(FIRST).count(b"\n") == 2 + len(ODD)


@pytest.mark.law
@given(
    st.lists(
        st.builds(
            FileEntry, st.text(), st.integers(0, 2**62), st.integers(-(2**62), 2**62), st.text()
        )
        | st.builds(
            FileEntry,
            st.binary(max_size=9).map(lambda name: name.decode("utf-8", "surrogateescape")),
            st.just(1),
            st.just(2),
        )
    )
)
def test_decoding_undoes_encoding(files):
    assert decode_files(encode_files(files)) == tuple(files)


def test_an_entry_holds_some_files_but_not_too_many(store):
    log = FileLog(store)
    for wrong in (0, MAX_ENTRY_FILES + 1):
        with pytest.raises(ValueError, match="holds 1 to 100000 files"):
            log.append(0, FileBatch((FileEntry("a", 1, 1),) * wrong))
    assert log.latest() == -1


@pytest.fixture
def log(store):
    files = FileLog(store)
    files.append(0, batch("a", "b", "c"))
    files.append(1, batch("d"))
    files.append(2, batch("e", "f"))
    return files


@pytest.mark.parametrize(
    ("start", "end", "paths"),
    [
        ((0, 0), (3, 0), "abcdef"),
        ((0, 0), (0, 0), ""),
        ((0, 1), (0, 2), "b"),
        ((0, 1), (1, 0), "bc"),
        ((0, 3), (1, 0), ""),
        ((0, 2), (2, 1), "cde"),
        ((1, 0), (2, 0), "d"),
        ((2, 2), (3, 0), ""),
        ((3, 0), (3, 0), ""),
    ],
)
def test_a_slice_is_from_inclusive_to_exclusive(log, start, end, paths):
    assert "".join(file.path for file in log.slice(Offset(*start), Offset(*end))) == paths


@pytest.mark.parametrize(
    ("start", "end"), [((0, 0), (4, 0)), ((0, 4), (1, 0)), ((0, 0), (2, 3)), ((7, 1), (7, 2))]
)
def test_a_slice_that_the_log_does_not_have_is_refused(log, start, end):
    with pytest.raises(CorruptedStateError, match=r"belong together|missing"):
        list(log.slice(Offset(*start), Offset(*end)))


def test_the_head_is_behind_everything(store, log):
    assert log.head() == Offset(3, 0)
    assert FileLog(open_store(f"memory://{uuid.uuid4().hex}")).head() == Offset(0, 0)


GOOD = {"id": "x", "created": "", "files": 1, "bytes": 5, "found_by": "listing", "position": None}


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (GOOD, b""),
        (GOOD, b'["a",5,1,""]\n["b",0,1,""]\n'),
        (GOOD, b'["a",6,1,""]\n'),
        (GOOD, b'["a",5,1]\n'),
        (GOOD, b'["a","5",1,""]\n'),
        (GOOD, b"[5,5,1,5]\n"),
        (GOOD, b"nonsense\n"),
        (GOOD, b'["\\udcff",5,1,""]\nnonsense\n'),
        ({**GOOD, "files": "1"}, b'["a",5,1,""]\n'),
        ({**GOOD, "found_by": "magic"}, b'["a",5,1,""]\n'),
        ({"id": "x"}, b'["a",5,1,""]\n'),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused_by_name(store, header, body):
    store.put(FIRST, encode_entry(header, body, format_version=1))
    with pytest.raises(CorruptedStateError, match=FIRST):
        FileLog(store).read(0)


def test_a_newer_version_is_refused(store):
    store.put(FIRST, encode_entry(GOOD, b'["a",5,1,""]\n', format_version=2))
    with pytest.raises(IncompatibleStateError, match=FIRST):
        FileLog(store).read(0)


def test_the_end_of_a_long_baseline_is_found_with_a_fixed_number_of_requests(store):
    log = FileLog(store)
    for number in range(40):
        assert log.append(number, FileBatch((FileEntry(f"{number}", 1, 2),), "existing"))
    assert not FileLog(store).baseline_complete()
    assert log.append(40, FileBatch((), "existing", COMPLETE))
    assert FileLog(store).baseline_complete()
    before = store.requests["get"]
    assert FileLog(store).baseline_complete()
    assert store.requests["get"] - before <= 12
    for hint in (b"", b"x", b"39", b"41", b"9" * 50):
        store.put(BASELINE, hint)
        assert FileLog(store).baseline_complete()
        assert store.get(BASELINE) == b"40"
