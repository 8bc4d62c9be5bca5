"""The bytes that identities of files add to a state: read for ever, and still written the same.

Should a test here fail, do not touch what it expects: raise the format version in the code, and
keep the old reader. Only the index of seen files is a cache.
"""

from __future__ import annotations

import pytest
from rocksdict import Options, Rdict

from airflow_cloudfiles.engine.files import FileEntry, FileIdentity
from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.state.file_log import FileBatch, decode_files, encode_files
from tests.support.memory_ledger import MemoryLedger

CONTENT = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
FILES = (
    FileEntry("a b.json", 3, 1_767_225_600_000_001, "etag", CONTENT),
    FileEntry("not-utf8-\udcff", 3, 2, "", CONTENT),
)
LINES = b'["a b.json",3,1767225600000001,"etag","%s"]\n["not-utf8-\\udcff",3,2,"","%s"]\n' % (
    CONTENT.encode(),
    CONTENT.encode(),
)
INDEXES: dict[FileIdentity, dict[bytes, bytes]] = {
    "pathAndVersion": {
        b"fa b.json": bytes.fromhex("22ece487d8e482ab") + b"\x01",
        b"fnot-utf8-\xff": bytes.fromhex("fe3122d6d73769a2") + b"\x01",
        b"m": b'{"version": 3, "entry": 1, "id": "id1", "files": 3}',
    },
    "content": {
        bytes.fromhex("63" + CONTENT[:32]): b"\x01",
        b"fa b.json": bytes.fromhex("22ece487d8e482ab") + b"\x01",
        b"fnot-utf8-\xff": bytes.fromhex("fe3122d6d73769a2") + b"\x01",
        b"m": b'{"version": 4, "entry": 1, "id": "id1", "files": 3}',
    },
}


def test_lines_with_a_content() -> None:
    assert encode_files(FILES) == LINES
    assert decode_files(LINES) == FILES


@pytest.mark.parametrize("identity", INDEXES)
def test_an_index(tmp_path, identity: FileIdentity) -> None:
    ledger = RocksDBLedger(tmp_path / "index", identity)
    ledger.record(0, "id0", FileBatch(FILES[:1], "duplicate"))
    ledger.record(1, "id1", FileBatch(FILES))
    ledger.close()
    database = Rdict(str(tmp_path / "index"), options=Options(raw_mode=True))
    written = dict(database.items())
    database.close()
    assert written == INDEXES[identity]


@pytest.mark.parametrize("identity", INDEXES)
def test_an_index_for_another_identity_is_begun_anew(tmp_path, identity: FileIdentity) -> None:
    for each in ("path", identity, "pathAndModificationTime"):
        ledger = RocksDBLedger(tmp_path / "index", each)
        assert ledger.caught_up == -1
        ledger.record(0, "id0", FileBatch(FILES))
        ledger.close()
    ledger = RocksDBLedger(tmp_path / "index", "path")
    assert ledger.caught_up == 0
    ledger.close()


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_contents_are_those_of_ingested_files(tmp_path, kind: str) -> None:
    ledger = (
        MemoryLedger("content")
        if kind == "memory"
        else RocksDBLedger(tmp_path / "index", "content")
    )
    other = "0" * 64
    ledger.record(0, "id0", FileBatch(FILES[:1], "duplicate"))
    assert ledger.entry_of_content(CONTENT) is None
    ledger.record(1, "id1", FileBatch(FILES[1:]))
    assert ledger.entry_of_content(CONTENT) == 1
    assert ledger.entry_of_content(other) is None
    touched = FileEntry("a b.json", 3, 5, "etag")
    assert list(ledger.unseen([touched], versions=True)) == []
    assert ledger.last() == "not-utf8-\udcff"
    assert ledger.back("a b.json", 1) is None  # what stands before the files is no file
    ledger.clear()
    assert ledger.entry_of_content(CONTENT) is None
    ledger.close()
