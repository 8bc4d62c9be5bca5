"""The bytes of version 1 of the state: read for ever, and still written the same.

The files in `state_v1/` are frozen. Should a test here fail, do not touch them: raise the format
version in the code, and keep the old reader. Only the index of seen files is a cache, and one of an
older version is built anew.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from airflow_cloudfiles.engine.files import START, FileEntry, Offset, ReadLimit
from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog, encode_files
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    decode_metadata,
    encode_metadata,
)
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.storage import open_store

FROZEN = Path(__file__).with_name("state_v1")

BATCH = FileBatch(
    (
        FileEntry("2026/01/a b%20+#.json", 1234, 1_767_225_600_000_001),
        FileEntry("2026/01/caf\u00e9.json", 0, 1_767_225_600_000_002, '"0123abcd-2"'),
        FileEntry("2026/01/cafe\u0301.json", 2**40, 1_767_225_600_000_003),
        FileEntry("2026/01/new\nline.json", 1, 0),
        FileEntry("2026/01/not-utf8-\udcff.json", 1, -1),
        FileEntry("2026/01/\U0001f600.json", 1, 1),
    ),
    found_by="backfill",
    position="2026/01/\U0001f600.json",
)
PLAN = Plan(0, START, Offset(0, 4), 4, 1234 + 2**40 + 1)
METADATA = StreamMetadata("00112233445566778899aabbccddeeff", "file:///in/caf\u00e9 \udcff", "json")
STAMP = {"id": "ffeeddccbbaa99887766554433221100", "created": "2026-01-01T00:00:00.000000+00:00"}


@pytest.fixture
def state():
    """A state of version 1, as it was written once."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    store.put(KEY, (FROZEN / "metadata.json").read_bytes())
    store.put("_source/files/" + "0" * 20, (FROZEN / "files-0").read_bytes())
    store.put("_source/plans/" + "0" * 20, (FROZEN / "plans-0").read_bytes())
    return store


def test_metadata_of_version_1_is_read(state):
    assert read_metadata(state) == METADATA


def test_metadata_of_a_stream_that_leaves_out_existing_files_is_written_and_read():
    other = replace(METADATA, include_existing_files=False, started_us=1_700_000_000_000_000)
    content = encode_metadata(other)
    lines = (FROZEN / "metadata.json").read_bytes().splitlines(keepends=True)
    added = b' "includeExistingFiles": false,\n "startedUs": 1700000000000000,\n'
    assert content == b"".join([*lines[:-2], added, b' "crc32": "a71d77c5"\n}\n'])
    assert decode_metadata(content, name="metadata") == other


def test_metadata_of_version_1_is_still_written():
    assert encode_metadata(METADATA) == (FROZEN / "metadata.json").read_bytes()


def test_a_file_log_of_version_1_is_read(state):
    log = FileLog(state)
    assert log.latest() == 0
    assert log.read(0) == BATCH
    assert log.summary(0).id == STAMP["id"]
    assert log.summary(0).bytes == 1234 + 2**40 + 3


def test_a_file_log_of_version_1_is_still_written(state):
    header = {
        **STAMP,
        "files": 6,
        "bytes": 1234 + 2**40 + 3,
        "found_by": "backfill",
        "position": BATCH.position,
    }
    frozen = (FROZEN / "files-0").read_bytes()
    assert encode_entry(header, encode_files(BATCH.files), format_version=1) == frozen
    FileLog(state).append(1, BATCH)
    assert _without_stamp(state.get("_source/files/" + "0" * 19 + "1")) == _without_stamp(frozen)


def test_a_plan_log_of_version_1_is_read(state):
    assert PlanLog(state).latest() == PLAN
    assert PlanLog(state).find(START) == PLAN


def test_a_plan_log_of_version_1_is_still_written(state):
    frozen = (FROZEN / "plans-0").read_bytes()
    other = open_store(f"memory://{uuid.uuid4().hex}")
    PlanLog(other).plan(FileLog(state), START, ReadLimit(), Offset(0, 4))
    assert _without_stamp(other.get("_source/plans/" + "0" * 20)) == _without_stamp(frozen)


@pytest.mark.parametrize("version", [1, 2])
def test_a_ledger_of_version_2_is_read_and_an_older_one_forgotten(tmp_path, version):
    database = Rdict(str(tmp_path / "index"), options=Options(raw_mode=True))
    for key, value in _frozen_ledger(version).items():
        database[key] = value
    database.close()
    ledger = RocksDBLedger(tmp_path / "index")
    if version == 1:
        assert ledger.caught_up == -1
        assert list(ledger.unseen(BATCH.files)) == list(BATCH.files)
    else:
        assert (ledger.caught_up, ledger.caught_up_id) == (300, STAMP["id"])
        assert list(ledger.unseen(BATCH.files, versions=True)) == []
        assert len(list(ledger.unseen([FileEntry("2026/01/a", 1, 1)]))) == 1
    ledger.close()


def test_a_ledger_of_version_2_is_still_written(tmp_path):
    ledger = RocksDBLedger(tmp_path / "index")
    for number in range(301):
        files = BATCH.files if number == 256 else (FileEntry(f"{number:03d}", 1, 1),)
        ledger.record(number, STAMP["id"], FileBatch(files))
    ledger.close()
    database = Rdict(str(tmp_path / "index"), options=Options(raw_mode=True))
    written = dict(database.items())
    database.close()
    frozen = _frozen_ledger(2)
    assert {key: written[key] for key in frozen} == frozen
    assert len(written) == 300 + len(BATCH.files) + 1


def _frozen_ledger(version: int) -> dict[bytes, bytes]:
    name = {1: "ledger.json", 2: "ledger_v2.json"}[version]
    pairs = json.loads((FROZEN / name).read_text(encoding="ascii"))
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in pairs.items()}


def _without_stamp(entry: bytes) -> tuple[bytes, dict[str, object], bytes]:
    """An entry without what differs in every writing."""
    version, line, body = entry.split(b"\n", 2)
    header = json.loads(line)
    assert list(header)[:2] == ["id", "created"]
    assert list(header)[-1] == "crc32"
    rest = {name: header[name] for name in header if name not in {"id", "created", "crc32"}}
    return version, rest, body
