"""The formats below a checkpoint location."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import (
    ListingState,
    TrackRecord,
    UnfinishedListing,
    load_state,
    save_state,
)
from airflow_cloudfiles.engine.discovery.settling import (
    UnsettledFile,
    keep_waiting,
    load_waiting,
)
from airflow_cloudfiles.engine.errors import CorruptedStateError, StateLockedError
from airflow_cloudfiles.engine.extensions.cleaning.one_file import (
    CleaningProgress,
    DueFile,
    encode_cleaned,
    read_cleaned,
)
from airflow_cloudfiles.engine.extensions.inventory.base import (
    FileRead,
    ReportProgress,
    load_progress,
    save_progress,
)
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, ReadLimit
from airflow_cloudfiles.engine.intake import silence
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.ledger.base import version_hash
from airflow_cloudfiles.engine.intake.ledger.changed import (
    Change,
    claim_change,
    note_change,
    note_overwritten,
    note_read,
    note_refused,
    notices,
    overwritten,
    path_hash,
    read_change,
    was_read,
    was_refused,
)
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole, mark_head
from airflow_cloudfiles.engine.intake.ledger.snapshots import IndexSnapshot, SnapshotFile
from airflow_cloudfiles.engine.job.connect.left_query import (
    LeftQuery,
    LeftRun,
    newest_query,
    read_run,
    write_run,
)
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog, SchemaVersion
from airflow_cloudfiles.engine.schema.proposals import (
    Proposal,
    ProposedChange,
    find_proposal,
    propose,
)
from airflow_cloudfiles.engine.state import run_history, spark_checkpoint
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.locks.lease import Lease
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    FORMAT_VERSION,
    StreamMetadata,
    encode_metadata,
)
from airflow_cloudfiles.engine.state.packs import Pack, encode_pack, read_pack
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.state.run_history import BatchDone
from airflow_cloudfiles.engine.state.sink_log import Decision, SinkLog, SinkRecord
from airflow_cloudfiles.engine.state.spark_checkpoint import offset_of_batch
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.golden.kinds import CREATED, ID, Format, in_store, new_store, stamped, written
from tests.golden.of_events import OF_STREAM
from tests.golden.of_files import OF_FILES
from tests.golden.of_runs import OF_RUNS, REPORT

FIRST = "0" * 20
FILES = FileBatch(
    (
        FileEntry("2026/01/a b%20+#.json", 1234, 1_767_225_600_000_001),
        FileEntry("2026/01/café.json", 0, 1_767_225_600_000_002, '"0123abcd-2"'),
        FileEntry("2026/01/new\nline\\.json", 1, 0),
        FileEntry("2026/01/not-utf8-\udcff.json", 2**40, -1),
        FileEntry("../../etc/\U0001f600", 1, 1),
    ),
    found_by="backfill",
    position="2026/01/\U0001f600.json",
)
METADATA = StreamMetadata(ID, "file:///in/café \udcff", "json")
PACKED = replace(
    METADATA, format_version=2, include_existing_files=False, started_us=1_700_000_000_000_000
)
PLAN = Plan(0, START, Offset(0, 4), 4, 1235 + 2**40)
RECORD = SinkRecord(
    batch=0, table_id="t-1", version=7, target="s3://lake/t", plan=ID, end=Offset(1, 0)
)
DONE_RECORD = replace(RECORD, run_id="r.1", schema_version=2, counts={"rows": 3})
DECISION = Decision(
    number=0, kind="acceptLoss", first=3, last=5, batches=(3, 5), target="s3://lake/t"
)
CLEANED = CleaningProgress(
    Offset(3, 1), 2, (DueFile(FILES.files[1], datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=UTC)),)
)
COLUMNS, PARTITIONS = parse_schema("a STRING, b STRUCT<c: BIGINT>"), parse_schema("date DATE")
OPTIONS = {"schemaHints": "a STRING", "inferColumnTypes": True, "partitionColumns": None}
SCHEMA = SchemaVersion(0, COLUMNS, PARTITIONS, {"change": "inferred", "files": 3}, None, OPTIONS)
PROPOSAL = Proposal(
    number=0,
    created="",
    source="file:///in",
    by="d.t",
    changes=(ProposedChange("added", "b.\u00e9", None, "bigint", "file:///in/a b.json", ("1",)),),
    reason={"change": "newFields", "files": ["file:///in/a b.json"]},
    data_schema=json.loads(COLUMNS.json()),
    partition_schema=json.loads(PARTITIONS.json()),
)
DONE = BatchDone(
    batch_id=0, table_version=7, is_new=True, schema_version=2, counts={"rows": 3}, run_id="r.1"
)
LISTING = ListingState(
    full_started=1.5,
    full_listed=7,
    incremental=2,
    evidence={"newest": TrackRecord(3, missed=True)},
    order="seen",
    notified=1.25,
    queue="q",
    filter="f",
    witness="a",
    unfinished=UnfinishedListing(2.5, "listing", "f", "a", (KeyRange("a", "b"),)),
)
READ = ReportProgress(
    "0" * 32, "f", "backfill", {3: FileRead(9, 7, "a", "\u00e9", has_recent=True)}
)
SNAPSHOT = IndexSnapshot(
    "", 299, ID, 12345, (SnapshotFile("000012.sst", 9, 7, "0" * 64),), 1_000, 4
)
QUERY = LeftQuery(user_id="u", session_id="s", server_session_id="t", query_id="q", run_id="w")
LEFT = LeftRun(run_id="r.1", before=-1, last_entry=3, started=CREATED, query=QUERY, next_line=2)
SPEC = JobSpec(
    kind="ingest",
    source="/in",
    format="json",
    checkpoint_location="/state",
    run_id="r.1",
    target="/table",
    options={"mergeSchema": "true"},
    batch={"version": 1, "checkpoint_location": "/state", "last_entry": 3},
)
HOLDER = {
    "pid": 4711,
    "host": "node7",
    "since": "2026-01-01T00:00:00+00:00",
    "machine": "elsewhere",
    "started": "1",
    "nonce": ID,
}


def _append_files(store: ObjectStore) -> None:
    assert FileLog(store).append(0, FILES)


def _plan(store: ObjectStore) -> None:
    _append_files(store)
    PlanLog(store).plan(FileLog(store), START, ReadLimit(), Offset(0, 4))


def _append_schema(store: ObjectStore) -> None:
    SchemaLog(store, "file:///in").append(
        0,
        data_schema=COLUMNS,
        partition_schema=PARTITIONS,
        reason=SCHEMA.reason,
        options=OPTIONS,
    )


def _pack() -> bytes:
    return encode_pack(Pack(0, 1), [b"v1\nfirst", b""])


def _read_pack(content: bytes) -> object:
    store = new_store()
    for copy in "ab":
        store.put(f"_source/files/packs/{1:020}-{0:020}.{copy}", content)
    return read_pack(store, "_source/files", Pack(0, 1))


def _shown_by_head(store: ObjectStore) -> str:
    """What the mark shows of a file log that has lost its entries."""
    try:
        check_whole(store, FileLog(store), PlanLog(store))
    except CorruptedStateError as shown:
        return shown.message.partition(": ")[2].partition(",")[0]
    return "nothing"


def _noted(write: Callable[[str], object], key: str) -> bytes:
    """What is written by those that take the URI of a state."""
    return written(key, lambda store: write(store.uri))


def _refusal() -> tuple[str, bytes]:
    store = new_store()
    note_refused(store.uri, FILES.files[:1], {"b": 1, "a": 2})
    [entry] = store.list()
    return entry.path, store.get(entry.path)


def _overwriting() -> tuple[str, bytes]:
    store = new_store()
    note_overwritten(store, FILES.files[4])
    [entry] = store.list()
    return entry.path, store.get(entry.path)


def _only(writer: Callable[[ObjectStore], object]) -> bytes:
    """The bytes of the one object that a writer puts."""
    store = new_store()
    writer(store)
    [entry] = store.list()
    return store.get(entry.path)


def _first_waiting(store: ObjectStore) -> list[UnsettledFile]:
    [found] = load_waiting(store).values()
    return found


def _lease() -> bytes:
    store = new_store()
    held = Lease(store, "_source/run.lock", {"version": 1, **HOLDER})
    assert held.try_acquire()
    content = store.get("_source/run.lock")
    held.release()
    return stamped(content, **HOLDER)


def _takes_lease(store: ObjectStore) -> bool:
    return Lease(store, "_source/run.lock", {}).try_acquire()


def _lock_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        lock = RunLock(open_store(folder), JOB_KEY)
        with lock:
            content = Path(folder, JOB_KEY).read_bytes()
    return stamped(content, **HOLDER)


def _holder(content: bytes) -> object:
    """How a lock that somebody has is refused, with these bytes in its file."""
    with tempfile.TemporaryDirectory() as folder:
        lock = RunLock(open_store(folder), JOB_KEY)
        with lock:
            Path(folder, JOB_KEY).write_bytes(content)
            try:
                RunLock(open_store(folder), JOB_KEY).acquire()
            except StateLockedError as shown:
                return "4711 on node7" in shown.message
    return None


def _spark_offset() -> bytes:
    return spark_checkpoint.encode_offsets('{"batchWatermarkMs":0}', Offset(3, 1))


def _sinks(store: ObjectStore) -> object:
    return SinkLog(store).find(0)


_REFUSED, _ = _refusal()
_OVERWRITTEN, _ = _overwriting()


def _log(name: str, key: str, write: Callable[[ObjectStore], object], **more: Any) -> Format:
    pattern = more.pop("keys", rf"_source/{name}/[0-9]{{20}}")
    reader = more.pop("reader")
    return Format(
        name=name,
        keys=pattern,
        write=lambda: written(key, write),
        read=in_store(key, reader),
        **more,
    )


LOGS = [
    _log(
        "files",
        f"_source/files/{FIRST}",
        _append_files,
        reader=lambda store: FileLog(store).read(0),
        expected=FILES,
    ),
    _log(
        "plans",
        f"_source/plans/{FIRST}",
        _plan,
        reader=lambda store: PlanLog(store).latest(),
        expected=PLAN,
    ),
    _log(
        "sink",
        f"_source/sink/0/{FIRST}",
        lambda store: SinkLog(store).add(RECORD),
        keys=r"_source/sink/[0-9]+/[0-9]{20}",
        reader=_sinks,
        expected=RECORD,
    ),
    _log(
        "sink-of-job",
        f"_source/sink/0/{FIRST}",
        lambda store: SinkLog(store).add(DONE_RECORD),
        keys=r"_source/sink/[0-9]+/[0-9]{20}",
        reader=_sinks,
        expected=DONE_RECORD,
    ),
    _log(
        "replays",
        f"_source/replays/{FIRST}",
        lambda store: SinkLog(store).decide(DECISION),
        reader=lambda store: SinkLog(store).decision(),
        expected=DECISION,
    ),
    _log(
        "schemas",
        "_schemas/0",
        _append_schema,
        keys=r"_schemas/[0-9]+",
        reader=lambda store: SchemaLog(store, "file:///in").latest(),
        expected=SCHEMA,
    ),
    _log(
        "proposals",
        "_schemas/proposed/0",
        lambda store: propose(store, PROPOSAL),
        keys=r"_schemas/proposed/[0-9]+",
        reader=lambda store: find_proposal(store, 0),
        expected=replace(PROPOSAL, created=CREATED),
    ),
    Format(
        name="pack",
        keys=r"_source/(files|plans|batches|sink/[0-9]+)/packs/[0-9]{20}-[0-9]{20}\.[ab]",
        write=_pack,
        read=_read_pack,
        expected=[b"v1\nfirst", b""],
    ),
    Format(
        name="cleaned",
        keys=r"_source/cleaned",
        write=lambda: stamped(encode_cleaned(CLEANED)),
        read=in_store("_source/cleaned", read_cleaned),
        expected=CLEANED,
    ),
]
"""Entries: a line with the version, a header, a body."""

ONE_OBJECT = [
    Format(
        name="metadata",
        keys=r"_source/metadata\.json",
        understood=FORMAT_VERSION,
        write=lambda: encode_metadata(METADATA),
        read=in_store(KEY, read_metadata),
        expected=METADATA,
    ),
    Format(
        name="metadata",
        keys=r"_source/metadata\.json",
        version=2,
        understood=FORMAT_VERSION,
        write=lambda: encode_metadata(PACKED),
        read=in_store(KEY, read_metadata),
        expected=PACKED,
    ),
    Format(
        name="head",
        keys=r"_source/head\.json",
        write=lambda: written(
            "_source/head.json",
            lambda store: (_append_files(store), mark_head(store, _met(store))),
        ),
        read=in_store("_source/head.json", _shown_by_head),
        expected="the mark _source/head.json refers to entry 0",
    ),
    Format(
        name="inventory",
        keys=r"_source/inventory\.json",
        write=lambda: written("_source/inventory.json", lambda store: save_progress(store, READ)),
        read=in_store("_source/inventory.json", load_progress),
        expected=READ,
        newer="passed over",
        nothing=ReportProgress(),
    ),
    Format(
        name="listing",
        keys=r"_source/listing\.json",
        version=2,
        write=lambda: written("_source/listing.json", lambda store: save_state(store, LISTING)),
        read=in_store("_source/listing.json", load_state),
        expected=LISTING,
        newer="passed over",
        nothing=ListingState(),
    ),
    Format(
        name="snapshot",
        version=2,
        keys=r"_source/snapshots/[0-9]{20}-[0-9a-f]{32}/(complete\.json|[A-Z0-9a-z.-]+)",
        write=lambda: snapshots._encode(SNAPSHOT),
        read=lambda content: _or_none(lambda: snapshots._decode("", content)),
        expected=SNAPSHOT,
        newer="passed over",
    ),
    Format(
        name="lease",
        keys=r"_source/(run|job)\.lock",
        write=_lease,
        read=in_store("_source/run.lock", _takes_lease),
        expected=False,
    ),
    Format(
        name="lock",
        keys=r"_source/(run|job)\.lock",
        write=_lock_file,
        read=_holder,
        expected=True,
        newer="read",
    ),
]

_WAITING = [
    UnsettledFile(FILES.files[1], 1_767_225_600_000_003, "notification"),
    UnsettledFile(FILES.files[3], 1_767_225_600_000_004, "listing"),
]
_CHANGE = Change(7, FILES.files[3], replace(FILES.files[3], size=3, modification_time_us=4))
_CHANGED = f"_source/changed/{path_hash(_CHANGE.before.path)}"

_ARRIVAL = silence.LastArrival(7, datetime(2026, 1, 1, tzinfo=UTC))
_TOLD = silence._key("d.t")

NOTES = [
    Format(
        name="refused",
        keys=r"_source/refused/[0-9a-f]{64}",
        write=lambda: _refusal()[1],
        read=in_store(_REFUSED, lambda store: was_refused(store.uri, FILES.files[0])),
        expected=True,
    ),
    Format(
        name="overwritten",
        keys=r"_source/overwritten/[0-9a-f]{32}-[0-9a-f]{16}",
        write=lambda: _overwriting()[1],
        read=in_store(_OVERWRITTEN, lambda store: list(overwritten(store))),
        expected=[(_OVERWRITTEN, "../../etc/\U0001f600")],
    ),
    Format(
        name="waiting",
        keys=r"_source/waiting/[0-9a-f]{32}\.json",
        write=lambda: _only(lambda store: keep_waiting(store, _WAITING)),
        read=in_store(f"_source/waiting/{ID}.json", _first_waiting),
        expected=_WAITING,
    ),
    Format(
        name="change",
        keys=r"_source/changed/[0-9a-f]{32}-[0-9]+\.json",
        write=lambda: _only(lambda store: note_change(store, _CHANGE)),
        read=in_store(
            f"{_CHANGED}-7.json", lambda store: read_change(store, _CHANGE.before.path, 7)
        ),
        expected=_CHANGE,
    ),
    Format(
        name="change_reported",
        keys=r"_source/changed/[0-9a-f]{32}-[0-9]+\.reported",
        write=lambda: _only(lambda store: claim_change(store, _CHANGE)),
        read=in_store(f"{_CHANGED}-7.reported", lambda store: len(notices(store).reported)),
        expected=1,
        newer="read",
    ),
    Format(
        name="changed_read",
        keys=r"_source/changed/[0-9a-f]{32}-[0-9a-f]{16}\.read",
        write=lambda: _only(lambda store: note_read(store, _CHANGE.now)),
        read=in_store(
            f"{_CHANGED}-{version_hash(_CHANGE.now).hex()}.read",
            lambda store: was_read(store, _CHANGE.now),
        ),
        expected=True,
        newer="read",
    ),
    Format(
        name="batch",
        keys=r"_source/batches/[0-9]+",
        write=lambda: _noted(lambda uri: run_history.note(uri, DONE), "_source/batches/0"),
        read=in_store("_source/batches/0", lambda store: run_history.note_of(store, 0)),
        expected=DONE,
    ),
    Format(
        name="silence",
        keys=r"_source/silence/[0-9a-f]{64}",
        write=lambda: written(_TOLD, lambda store: silence.note_notified(store, "d.t", _ARRIVAL)),
        read=in_store(_TOLD, lambda store: silence.was_notified(store, "d.t", _ARRIVAL)),
        expected=True,
    ),
    Format(
        name="left_run",
        keys=r"_source/left_runs/[^/]+\.json",
        write=lambda: written("_source/left_runs/r.1.json", lambda store: write_run(store, LEFT)),
        read=in_store("_source/left_runs/r.1.json", lambda store: read_run(store, "r.1")),
        expected=LEFT,
        newer="passed over",
    ),
    Format(
        name="left_query",
        keys=r"_source/left_query\.json",
        write=lambda: written("_source/left_query.json", lambda store: write_run(store, LEFT)),
        read=in_store("_source/left_query.json", newest_query),
        expected=LEFT,
        newer="passed over",
    ),
    Format(
        name="run",
        keys=r"_runs/[^/]+\.json",
        write=SPEC.sealed,
        read=in_store("_runs/r.1.json", lambda store: JobSpec.stored(store, "r.1")),
        expected=SPEC,
    ),
    Format(
        name="report",
        keys=r"_reports/[^/]+\.json",
        write=lambda: run_history.encode_report(REPORT),
        read=lambda content: run_history.decode_report(content, name="_reports/r.1.json"),
        expected=REPORT,
    ),
    Format(
        name="spark_offset",
        keys=r"(offsets/\.?|commits/\.?|\.?metadata)([0-9]+)?(\.crc)?",
        write=_spark_offset,
        read=in_store("offsets/3", lambda store: offset_of_batch(store, 3)),
        expected=Offset(3, 1),
    ),
]


def _met(store: ObjectStore) -> FileLog:
    files = FileLog(store)
    files.latest()
    return files


def _or_none(read: Callable[[], object]) -> object:
    """What is read; a snapshot that raises one of these is skipped, and its name is logged."""
    try:
        return read()
    except snapshots._FAILURES:
        return None


IN_STATE = [*OF_STREAM, *LOGS, *ONE_OBJECT, *NOTES, *OF_FILES, *OF_RUNS]


def format_of(key: str) -> Format | None:
    """The format of a key below a checkpoint location."""
    return next((each for each in IN_STATE if re.fullmatch(each.keys, key)), None)
