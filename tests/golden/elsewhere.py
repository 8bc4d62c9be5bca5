"""The formats in tables, in the cache of a machine, and between tasks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from pyiceberg.table.metadata import TableMetadataUtil

from airflow_cloudfiles.engine.extensions.iceberg.lineage import (
    NotedBatch,
    SnapshotLineage,
    lineage,
)
from airflow_cloudfiles.engine.intake.ledger.rocksdb import IndexMark, decode_mark, encode_mark
from airflow_cloudfiles.engine.job.jvm import ClassArchive
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.commit import note_of
from airflow_cloudfiles.engine.tables.delta.lineage import COMMIT_NOTE, batch_note
from airflow_cloudfiles.engine.tables.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.stream.commits import AFTER_CHANGE, TableOffset
from airflow_cloudfiles.engine.tables.delta.stream.tracking import TrackedSchema, TrackingLog
from airflow_cloudfiles.hooks.arguments import check_batch
from tests.golden.kinds import ID, Format, new_store
from tests.golden.of_events import OF_LOG

BATCH = {
    "version": 1,
    "checkpoint_location": "/state",
    "first_entry": 0,
    "last_entry": 3,
    "files": 1,
    "bytes": 60,
    "sample": ["1.json"],
}
NOTE = note_of(BatchId(ID, 3, plan="p", replay=1))
DONE_NOTE = note_of(BatchId(ID, 3, plan="p", schema_version=2, counts={"rows": 3}))
NOTED = NotedBatch(3, "p", "w", 1, 1)
DONE_NOTED = NotedBatch(3, "p", "w", 1, 1, schema_version=2, counts={"rows": 3})
OFFSET = TableOffset("t-1", 7, AFTER_CHANGE)
TRACKED = TrackedSchema(
    0,
    TableState(
        "/table",
        7,
        Metadata(
            id="t-1",
            schema_string=parse_schema("a BIGINT, p STRING").json(),
            partition_columns=["p"],
            configuration={"delta.appendOnly": "true"},
        ),
        Protocol(3, 7, ["columnMapping"], ["columnMapping"]),
    ),
    "file:/state/sources/0",
)


def _iceberg(summary: dict[str, str], properties: dict[str, str]) -> dict[str, Any]:
    """The metadata of a table with one snapshot."""
    return {
        "format-version": 2,
        "table-uuid": "00112233-4455-6677-8899-aabbccddeeff",
        "location": "file:///table",
        "last-sequence-number": 1,
        "last-updated-ms": 1_767_225_600_000,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}],
            }
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties,
        "current-snapshot-id": 1,
        "snapshots": [
            {
                "snapshot-id": 1,
                "sequence-number": 1,
                "timestamp-ms": 1_767_225_600_000,
                "manifest-list": "file:///table/metadata/m.avro",
                "summary": {"operation": "append", **summary},
                "schema-id": 0,
            }
        ],
    }


def _read_iceberg(content: bytes) -> SnapshotLineage:
    return lineage(TableMetadataUtil.parse_obj(json.loads(content)), ID)


def _tracking(content: bytes) -> object:
    store = new_store()
    store.put("_schema_log_t-1/0", content)
    return TrackingLog(store.uri, TRACKED.state).current()


def _makes_archive(content: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "key.archive.json").write_bytes(content)
        options = ClassArchive(Path(folder), "key", {}).options(["java"])
        return any("DumpLoadedClassList" in each for each in options)


def _first_note() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ClassArchive(Path(folder), "key", {}).options(["java"])
        return Path(folder, "key.archive.json").read_bytes()


IN_TABLES = [
    Format(
        name="delta_commit_note",
        keys="",
        write=lambda: json.dumps(NOTE).encode(),
        read=lambda content: batch_note({COMMIT_NOTE: content.decode()}, "/table", ID),
        expected=NOTE,
    ),
    Format(
        name="delta_commit_note_of_job",
        keys="",
        write=lambda: json.dumps(DONE_NOTE).encode(),
        read=lambda content: batch_note({COMMIT_NOTE: content.decode()}, "/table", ID),
        expected=DONE_NOTE,
    ),
    Format(
        name="iceberg_metadata",
        keys="",
        write=lambda: json.dumps(
            _iceberg(NOTED.summary(ID), NOTED.properties(ID)), indent=1
        ).encode(),
        read=_read_iceberg,
        expected=SnapshotLineage(NOTED, {3: NOTED}, has_newest=True),
    ),
    Format(
        name="iceberg_metadata_of_job",
        keys="",
        write=lambda: json.dumps(
            _iceberg(DONE_NOTED.summary(ID), DONE_NOTED.properties(ID)), indent=1
        ).encode(),
        read=_read_iceberg,
        expected=SnapshotLineage(NOTED, {3: DONE_NOTED}, has_newest=True),
    ),
    Format(
        name="delta_source_offset",
        keys="",
        version=3,
        write=lambda: json.dumps(OFFSET.to_json()).encode(),
        read=lambda content: TableOffset.from_json(json.loads(content), "t-1", "/table"),
        expected=OFFSET,
    ),
    Format(
        name="delta_schema_tracking",
        keys=r"_schema_log_[^/]+/[0-9]+",
        write=TRACKED.encoded,
        read=_tracking,
        expected=TRACKED,
    ),
]

IN_CACHE = [
    Format(
        name="index_mark",
        keys="",
        version=2,
        write=lambda: encode_mark(IndexMark(300, ID, 306)),
        read=decode_mark,
        expected=IndexMark(300, ID, 306),
        newer="passed over",
    ),
    Format(
        name="jvm_archive",
        keys="",
        write=_first_note,
        read=_makes_archive,
        expected=True,
        newer="passed over",
        nothing=False,
    ),
]

BETWEEN_TASKS = [
    Format(
        name="xcom_batch",
        keys="",
        write=lambda: json.dumps(BATCH).encode(),
        read=lambda content: check_batch(json.loads(content), "/state"),
        expected=BATCH,
    ),
]

ELSEWHERE = [*IN_TABLES, *IN_CACHE, *BETWEEN_TASKS, *OF_LOG]
