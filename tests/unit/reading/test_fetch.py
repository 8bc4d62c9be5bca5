"""Whatever way a file is cut and packed, its lines come out once each and whole."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import itertools
import lzma
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    FileUnreadableError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading import opened as fetching
from airflow_cloudfiles.engine.reading.decoding import MARKS
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, packed
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.lines import fetch

SOMEBODY = 65534


def _entry(store: ObjectStore, name: str) -> FileEntry:
    found = store.head(name)
    assert found is not None
    return found


def _read(store: ObjectStore, part: FileRange, **options: bool) -> bytes:
    ignore = options.get("ignore_missing", False)
    return b"".join(fetch(store, part, FetchCounts(), ignore_missing=ignore))


@pytest.mark.law
@settings(max_examples=150)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=40),
    cuts=st.lists(st.integers(0, 1300), max_size=6),
    ends_with_newline=st.booleans(),
    block=st.integers(1, 64),
    text=st.integers(1, 64),
)
def test_ranges_of_a_file_give_each_line_exactly_once(
    lines: list[bytes], cuts: list[int], ends_with_newline: bool, block: int, text: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if ends_with_newline else b"")
    content = content.lstrip(b"\x00\xef\xbb\xbf\xff\xfe")  # no mark of an encoding
    assume(b"\x00" not in content[:4])  # nor a silent one
    assume(not content.startswith((*MARKS, b"ORC", b"PAR1", b"Obj", b"PK")))
    store = open_store("memory://ranges")
    store.put("f.json", content)
    file = _entry(store, "f.json")
    points = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
    before = fetching.BLOCK_BYTES, fetching.TEXT_BYTES
    fetching.BLOCK_BYTES, fetching.TEXT_BYTES = block, text
    try:
        parts = [
            _read(store, FileRange(file, start, end)) for start, end in itertools.pairwise(points)
        ]
    finally:
        fetching.BLOCK_BYTES, fetching.TEXT_BYTES = before
    assert b"".join(parts) == content


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.json.gz", gzip.compress),
        ("no-ending", gzip.compress),
        ("a.json.bz2", bz2.compress),
        ("a.json.xz", lzma.compress),
        ("a.json.zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
        ("a.json", bytes),
        ("bom.json", lambda data: b"\xef\xbb\xbf" + data),
    ],
)
def test_compression_and_byte_order_marks_are_taken_off(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    content = b'{"a":1}\n{"a":2}\n'
    (tmp_path / name).write_bytes(pack(content))
    store = open_store(str(tmp_path))
    assert _read(store, FileRange(_entry(store, name))) == content


@pytest.mark.parametrize("name", ["cut.json.gz", "cut.json.xz", "cut.json.bz2"])
def test_a_truncated_archive_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[name.rpartition(".")[2]]
    content = b"".join(b'{"a":%d}\n' % i for i in range(10_000))
    (tmp_path / name).write_bytes(pack(content)[:-200])
    store = open_store(str(tmp_path))
    with pytest.raises(FileUnreadableError, match=name):
        _read(store, FileRange(_entry(store, name)))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("wide.json", '{"a":1}'.encode("utf-16")[:-1], "is not in UTF-16"),
        ("not.json.gz", b'{"a":1}\n', "not of that kind"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    store = open_store(str(tmp_path))
    with pytest.raises(FileUnreadableError, match=says) as caught:
        _read(store, FileRange(_entry(store, name)))
    assert name in str(caught.value)


def test_a_file_that_is_gone_is_an_error_unless_missing_files_are_ignored(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    gone = FileRange(FileEntry("gone.json", 10, 0))
    with pytest.raises(FileMissingError, match=r"gone\.json.*ignoreMissingFiles"):
        _read(store, gone)
    counts = FetchCounts()
    assert list(fetch(store, gone, counts, ignore_missing=True)) == []
    assert (counts.files, counts.missing_files) == (0, 1)


def test_a_file_deleted_while_it_is_read_is_not_kept_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"123456789\n" * (fetching.TEXT_BYTES // 5))
    store = open_store(str(tmp_path))
    (entry,) = store.list()
    blocks = fetch(store, FileRange(entry), FetchCounts(), ignore_missing=True)
    next(blocks)
    path.unlink()
    with pytest.raises(FileChangedError, match=r"a\.json was deleted while it was being read"):
        list(blocks)
    # Other tasks may have read other parts of it: the next try reads it as a whole, or leaves it.
    with pytest.raises(FileChangedError, match=r"a\.json was deleted"):
        list(fetch(store, FileRange(entry, 0, 5), FetchCounts(), ignore_missing=True))
    (parts,) = packed(store, [replace(entry, size=2**30)], parallelism=1, can_cut=True)
    counts = FetchCounts()
    assert list(fetch(store, parts[0], counts, ignore_missing=True)) == []
    assert counts.missing_files == 1


def test_an_unreadable_file_is_an_error_that_names_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "secret.json")
        path.write_bytes(b"{}")
        path.chmod(0)
        store = open_store(folder)
        part = FileRange(_entry(store, "secret.json"))
        with _not_root(), pytest.raises(FileUnreadableError, match=r"secret\.json.*denied"):
            _read(store, part, ignore_missing=True)


@contextlib.contextmanager
def _not_root() -> Iterator[None]:
    """Permissions mean nothing to root, so a test of them runs as somebody else."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(SOMEBODY)
    yield
    os.seteuid(me)


def test_a_folder_in_the_place_of_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "f.json").mkdir()
    store = open_store(str(tmp_path))
    with pytest.raises((FileUnreadableError, FileMissingError), match=r"f\.json"):
        _read(store, FileRange(FileEntry("f.json", 10, 0)))


def test_a_file_overwritten_after_discovery_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(b'{"a":1}\n')
    store = open_store(str(tmp_path))
    part = FileRange(_entry(store, "f.json"))
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    counts = FetchCounts()
    blocks = list(fetch(store, part, counts, ignore_missing=False))
    assert b"".join(blocks) == b'{"a":1}\n{"a":2}\n'
    assert counts.changed_files == 1


def test_a_file_overwritten_after_it_was_cut_is_refused_and_retryable(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(b'{"a":1}\n' * 4)
    store = open_store(str(tmp_path))
    part = FileRange(_entry(store, "f.json"), 8, 16)
    path.write_bytes(b'{"a":2}\n' * 5)
    with pytest.raises(FileChangedError, match=r"f\.json") as caught:
        _read(store, part)
    assert caught.value.is_retryable


def test_a_file_overwritten_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(b'{"a":1}\n')
    store = open_store(str(tmp_path))
    blocks = fetch(store, FileRange(_entry(store, "f.json")), FetchCounts(), ignore_missing=False)
    next(blocks)
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    with pytest.raises(FileChangedError):
        list(blocks)


def test_a_line_of_twenty_megabytes_comes_out_whole(tmp_path: Path) -> None:
    line = b'{"a":"' + b"x" * (20 * 2**20) + b'"}\n'
    (tmp_path / "huge.json").write_bytes(b'{"a":1}\n' + line + b'{"a":2}\n')
    store = open_store(str(tmp_path))
    assert _read(store, FileRange(_entry(store, "huge.json"))) == b'{"a":1}\n' + line + b'{"a":2}\n'


class _CuttingStore(MemoryStore):
    """A store of which one answer is shorter than it should be, or longer."""

    answer = 0
    by = -1

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        content = super().get_range(key, start, length, etag=etag)
        self.answer -= 1
        if self.answer != 0:
            return content
        return content[: self.by] if self.by <= 0 else content + b"x" * self.by


@pytest.mark.parametrize("by", [-1, -(10**6), 1])
@pytest.mark.parametrize(("name", "parts"), [("whole", [(0, None)]), ("cut", [(0, 60), (60, 120)])])
def test_an_answer_that_is_too_short_or_too_long_is_an_error(
    name: str, parts: list[tuple[int, int | None]], by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 32)
    store = _CuttingStore(f"memory://{uuid.uuid4().hex}")
    content = b"".join(b'{"a":%03d}\n' % number for number in range(12))
    store.put(name, content)
    file = _entry(store, name)
    store.by = by
    for answer in itertools.count(1):
        store.answer = answer
        found = b""
        with contextlib.suppress(FileUnreadableError):
            found = b"".join(_read(store, FileRange(file, *part)) for part in parts)
        if store.answer > 0:  # no answer was changed
            assert found == content
            assert answer > 4
            break
        assert found == b""


def test_an_empty_file_gives_no_block(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    store = open_store(str(tmp_path))
    counts = FetchCounts()
    part = FileRange(_entry(store, "empty.json"))
    assert list(fetch(store, part, counts, ignore_missing=False)) == []
    assert counts.files == 1
