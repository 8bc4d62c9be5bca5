"""What is acknowledged survives a power failure: its bytes, its name, and the folders above it.

Shown by the system calls of real processes, not by what this package believes that it does.
"""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.syscalls import Disk, trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("strace") is None and not os.environ.get("CI"),
        reason="strace is not installed (apt-get install strace)",
    ),
]

NOT_DURABLE = ("*.lock", "*/.cloudfiles-*", "*/_delta_log/_commits*")
"""Locks are for the living, and drafts are nobody's."""

TABLE = """
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.extensions.merge.batch_write import add_action
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.state.sink_log import BatchId

TARGET = str(ROOT / "new" / "folders" / "table")

def files(schema, *rows):
    batch = pa.RecordBatch.from_pylist(list(rows), schema)
    return DataFileWriter(TARGET, schema).write([batch])

def commit(number, schema, *rows):
    return delta_commit.commit_batch(
        TARGET, batch=BatchId("stream", number), files=files(schema, *rows), schema=schema,
        rules=WriteRules(merge_schema=True, widened_bytes=2**30),
    )

A = pa.schema([("a", pa.int32())])
AB = pa.schema([("a", pa.int32()), ("b", pa.string())])
WIDE = pa.schema([("a", pa.int64()), ("b", pa.string())])
LOCAL = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())])
"""

COMMITS = """
commit(0, A, {"a": 1}); ack("created")
commit(1, A, {"a": 2}); ack("appended")
commit(1, A, {"a": 2}); ack("repeated")
commit(2, AB, {"a": 3, "b": "x"}); ack("new column")
commit(3, WIDE, {"a": 4, "b": "x"}); ack("wider type")
commit(4, LOCAL, {"a": 4, "b": "x", "c": None}); ack("another column")
delta_commit.add_columns(TARGET, pa.schema([("d", pa.string())]), widened_bytes=None); ack("grown")
"""

UNSYNCED = """
# What another process, which was killed before it could sync anything, has left.
os.makedirs(TARGET)
interval = {"delta.checkpointInterval": "4"}
DeltaTable.create(TARGET, Schema.from_arrow(A), configuration=interval)
def foreign(number):
    table = DeltaTable(TARGET)
    table.create_write_transaction(
        [add_action(each) for each in files(A, {"a": number})], "append", table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("stream", number)]),
    )
foreign(0)
assert not commit(0, A, {"a": 0}).is_new
ack("found")
for number in range(1, 7):
    foreign(number)
commit(7, A, {"a": 7})
ack("behind others")
assert list((ROOT / "new/folders/table/_delta_log").glob("*.checkpoint.parquet"))
"""

CHECKPOINTS = """
os.makedirs(TARGET)
DeltaTable.create(TARGET, Schema.from_arrow(A), configuration={
    "delta.checkpointInterval": "3", "delta.logRetentionDuration": "interval 0 seconds"})
log = ROOT / "new/folders/table/_delta_log"
for number in range(8):
    commit(number, A, {"a": number})
    ack(f"{number}")
ack("end")
assert len(list(log.glob("*.checkpoint.parquet"))) >= 1
assert len(list(log.glob("*.json"))) < 9, "entries that are covered are removed"
"""

PROMOTION = """
from tests.support.promoted import Landed
landed = Landed.create(ROOT / "new", "id string")
landed.land({"id": "1", "n": 1}, {"id": "2"})
landed.land({"id": "3", "n": 2})
ack("landed")
promoted = landed.promote({"n": "bigint"})
ack("promoted")
assert promoted.rows == 2
"""

STATE = """
from contextlib import closing
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.files import START, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.snapshots import maybe_snapshot
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.state import run_history

landing, state = ROOT.parent / "landing", str(ROOT / "new" / "state")
landing.mkdir()
(landing / "1.json").write_text("{}")
with closing(Intake.open(source=str(landing), format="json", checkpoint_location=state)) as intake:
    ack("identity")
    intake.discover()
    ack("discovered")
    end = intake.plans.plan(intake.files, START, ReadLimit(), intake.head())
    ack("planned")
    ledger = intake._open_ledger()
    assert maybe_snapshot(ledger, intake.files, intake.state, worth_files=1)
    ack("snapshot")
    done = run_history.BatchDone(batch_id=0, table_version=0, is_new=True, schema_version=0)
    run_history.note(state, done)
    ack("noted")
log = SchemaLog(open_store(state), "file:///landing")
for version in range(2):
    columns = {"data_schema": parse_schema("id string"), "partition_schema": parse_schema("")}
    log.append(version, **columns, reason={})
    ack(f"schema {version}")
(landing / "2.json").write_text("{}")
with closing(Intake.open(source=str(landing), format="json", checkpoint_location=state)) as intake:
    intake.discover()
    intake.plans.plan(intake.files, end, ReadLimit(), intake.head())
    ack("discovered and planned again")
"""

OF_OTHERS = """
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store

def left_behind(number):
    # Its writer was killed between the link, which the log counts by, and the sync of the folder.
    folder = ROOT / "state" / "log"
    folder.mkdir(parents=True, exist_ok=True)
    with open(ROOT.parent / "draft", "wb") as draft:
        draft.write(encode_entry({"id": "x", "created": "y"}, b"", format_version=1))
        draft.flush()
        os.fsync(draft.fileno())
    os.rename(ROOT.parent / "draft", folder / f"{number:020}")

log = NumberedLog(open_store(str(ROOT / "state")), "log")
left_behind(0)
assert log.latest() == 0; ack("listed")
left_behind(1)
assert log.latest() == 1; ack("found")
left_behind(2)
assert not log.append(2, {}); ack("lost the race")
assert log.append(3, {}); ack("won")
"""

BAD_RECORDS = """
from airflow_cloudfiles.engine.storage import open_store
store = open_store(str(ROOT / "bad" / "records"))
store.put("stream-0-0/bad_records/a.json", b"{}"); ack("put")
store.put("stream-0-0/bad_records/a.json", b"[]"); ack("replaced")
"""

PROGRAMS = {
    "commits": TABLE + COMMITS,
    "what another process has not synced": TABLE + UNSYNCED,
    "checkpoints of the log": TABLE + CHECKPOINTS,
    "promotion": PROMOTION,
    "state": STATE,
    "entries of others": OF_OTHERS,
    "bad records": BAD_RECORDS,
}


def _traced(script: str, tmp_path: Path) -> dict[str, Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    return trace(script, root, tmp_path / "trace", CLOUDFILES_CACHE_DIR=str(tmp_path / "cache"))


@pytest.mark.parametrize("what", PROGRAMS)
def test_what_is_acknowledged_is_on_the_disk(what: str, tmp_path: Path) -> None:
    found = _traced(PROGRAMS[what], tmp_path)
    assert len(found) >= PROGRAMS[what].count("ack(")
    lost = {
        name: [
            each
            for each in disk.lost()
            if not any(fnmatch(each.partition(": its")[0], pattern) for pattern in NOT_DURABLE)
        ]
        for name, disk in found.items()
    }
    assert lost == {name: [] for name in found}


def test_a_commit_syncs_each_thing_once(tmp_path: Path) -> None:
    found = _traced(TABLE + COMMITS, tmp_path)["appended"]
    kinds = {path.rpartition(".")[2].rpartition("/")[2]: n for path, n in found.syncs.items()}
    # Data file, its name; entry under a temporary name, its own name.
    [entry] = [name for name in kinds if name.startswith("cloudfiles-")]
    assert kinds == {"parquet": 1, "table": 1, entry: 1, "_delta_log": 1}
