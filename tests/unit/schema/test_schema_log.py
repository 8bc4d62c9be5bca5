from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateConflictError,
)
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog, SchemaVersion, full_schema
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import open_store

_SOURCE = "file:///landing/flights"
_FIRST = parse_schema("a STRING, b STRUCT<c: BIGINT> COMMENT 'naïve'")
_SECOND = parse_schema("a STRING, b STRUCT<c: BIGINT>, d DATE")
_PARTITIONS = parse_schema("event STRING, date DATE")
_GOLDEN = Path(__file__).parents[2] / "golden" / "schema_log_v1" / "0"


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    uri = str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}-{id(tmp_path)}"
    return open_store(uri)


def _append(log, version, schema, **reason):
    return log.append(version, data_schema=schema, partition_schema=_PARTITIONS, reason=reason)


def test_an_empty_location_has_no_version(store):
    assert SchemaLog(store, _SOURCE).latest() is None
    assert SchemaLog(store, _SOURCE).versions() == []


def test_what_is_written_is_read_again(store):
    written = _append(SchemaLog(store, _SOURCE), 0, _FIRST, change="inferred", files=3)
    assert written == SchemaVersion(0, _FIRST, _PARTITIONS, {"change": "inferred", "files": 3})
    assert SchemaLog(store, _SOURCE).latest() == written


def test_the_highest_number_is_the_newest_version(store):  # B67
    log = SchemaLog(store, _SOURCE)
    for version in range(12):
        _append(log, version, _FIRST if version < 11 else _SECOND)
    again = SchemaLog(store, _SOURCE)
    assert again.latest() == SchemaVersion(11, _SECOND, _PARTITIONS, {})
    assert again.versions() == list(range(12))
    assert sorted(entry.path for entry in store.list("_schemas/"))[:3] == [
        "_schemas/0",
        "_schemas/1",
        "_schemas/10",
    ]


def test_a_half_written_file_is_no_version(store):  # B67
    log = SchemaLog(store, _SOURCE)
    _append(log, 0, _FIRST)
    store.put("_schemas/.1.tmp", b"v1\n{")
    store.put("_schemas/1.tmp", b"v1\n{")
    assert SchemaLog(store, _SOURCE).latest() == log.read(0)


def test_who_loses_the_race_for_a_number_gets_the_winners_version(store):
    winner = _append(SchemaLog(store, _SOURCE), 0, _FIRST, change="first")
    assert _append(SchemaLog(store, _SOURCE), 0, _SECOND, change="second") == winner


def test_many_writers_at_once_write_one_version(store):
    found = []
    barrier = threading.Barrier(8)

    def write(number):
        barrier.wait()
        found.append(_append(SchemaLog(store, _SOURCE), 0, _FIRST, writer=number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(each == found[0] for each in found)
    assert SchemaLog(store, _SOURCE).versions() == [0]


def test_two_sources_cannot_share_one_schema_log(store):  # B22
    _append(SchemaLog(store, _SOURCE), 0, _FIRST)
    other = SchemaLog(store, "file:///landing/trains")
    with pytest.raises(StateConflictError, match=r"belongs to the source file:///landing/flights"):
        other.latest()
    with pytest.raises(StateConflictError, match=r"cloudFiles\.schemaLocation of its own"):
        _append(other, 0, _SECOND)


def test_a_version_of_a_newer_package_is_refused(store):
    store.put("_schemas/0", b'v2\n{"id": "x"}\n')
    with pytest.raises(IncompatibleStateError, match=r"_schemas/0 has format version 2"):
        SchemaLog(store, _SOURCE).latest()


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"{}", b'{"source": 1}'])
def test_a_file_that_is_no_schema_is_named(store, body):
    store.put("_schemas/0", encode_entry({"id": "x"}, body, format_version=1))
    with pytest.raises(CorruptedStateError, match=r"_schemas/0 is not a schema version"):
        SchemaLog(store, _SOURCE).latest()


def test_a_torn_file_is_named(store):  # B136
    _append(SchemaLog(store, _SOURCE), 0, _FIRST)
    store.put("_schemas/0", store.get("_schemas/0")[:-40])
    with pytest.raises(CorruptedStateError, match=r"_schemas/0 cannot be read"):
        SchemaLog(store, _SOURCE).latest()


def test_a_partition_column_that_records_have_by_now_is_theirs(store):
    schema = parse_schema("a STRING, Event INT")
    written = _append(SchemaLog(store, _SOURCE), 0, schema)
    assert written.partition_schema == parse_schema("date DATE")
    assert full_schema(written.data_schema, written.partition_schema, None) == parse_schema(
        "a STRING, Event INT, date DATE"
    )


def test_the_rescued_data_column_comes_last():  # B17, B19
    version = SchemaVersion(0, parse_schema("a INT"), parse_schema("p STRING"), {})
    assert full_schema(version.data_schema, version.partition_schema, "_x") == parse_schema(
        "a INT, p STRING, _x STRING"
    )
    assert full_schema(version.data_schema, version.partition_schema, None) == parse_schema(
        "a INT, p STRING"
    )  # B18


def test_latest_code_reads_schema_log_v1(store):
    store.put("_schemas/0", _GOLDEN.read_bytes())
    reason = {"change": "inferred", "files": 3, "bytes": 1234}
    assert SchemaLog(store, _SOURCE).latest() == SchemaVersion(0, _FIRST, _PARTITIONS, reason)


def test_latest_code_still_writes_schema_log_v1(store):
    reason = {"change": "inferred", "files": 3, "bytes": 1234}
    _append(SchemaLog(store, _SOURCE), 0, _FIRST, **reason)
    golden, written = _GOLDEN.read_bytes(), store.get("_schemas/0")
    version, _, rest = written.partition(b"\n")
    header, _, body = rest.partition(b"\n")
    assert version == b"v1"
    assert set(json.loads(header)) == {"id", "created", "crc32"}
    assert body == golden.split(b"\n", 2)[2]
