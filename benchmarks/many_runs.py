"""One step with a state that very many runs have made: `python -m benchmarks.many_runs '{…}'`.

Prints one line of JSON figures. Each step is a process of its own.

The runs are made in one process and without Spark, with the package's own logs: for each one its
specification, an entry of the file log and of the index, a snapshot of the index where one is due,
a plan, the record of the batch, its note, the report, and what keeps a state small. A run every
five minutes: the state's clock goes on by so much, and its objects have times by that clock.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.base import catch_up
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, mark_head, open_ledger
from airflow_cloudfiles.engine.intake.ledger.snapshots import maybe_snapshot
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.discovery import UpkeepOptions
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord, position
from airflow_cloudfiles.engine.storage import local, open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.uri import local_path
from tests.support.written_state import WrittenState

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

Figures = dict[str, Any]
SOURCE = "memory://bench/landing"
EVERY_US = 300 * 10**6
START_US = 1_600_000_000 * 10**6
LOOK_EVERY = 50
"""A run looks whether entries are to be packed; here one in so many does, for the time it takes."""
SCHEMA_EVERY = 10_000
"""So many runs share a version of the schema."""
_GROWTH = 1000
_OPTIONS = UpkeepOptions()


class TimedStore(LocalStore):
    """A local store with a clock that is set, and objects that have its time."""

    now_us = START_US

    def put(self, key: str, content: bytes) -> None:
        """Write an object, at the time that is set."""
        super().put(key, content)
        self._date(key)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object, at the time that is set."""
        is_mine = super().put_if_absent(key, content)
        if is_mine:
            self._date(key)
        return is_mine

    def clock_us(self) -> int:
        """Give the time that is set."""
        return self.now_us

    def _date(self, key: str) -> None:
        path = f"{local_path(self.uri)}/{key}"
        os.utime(path, ns=(self.now_us * 1000, self.now_us * 1000))


def main(task: Figures) -> None:
    """Do a step and tell what it took."""
    figures = STEPS[task["step"]](task)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    figures["resident_mb"] = usage.ru_maxrss / 1024
    print("FIGURES " + json.dumps(figures))


def _make(task: Figures) -> Figures:
    """Make the state, run by run."""
    state = TimedStore(task["state"])
    local.LocalStore = lambda uri: state if uri == state.uri else LocalStore(uri)  # type: ignore[assignment, misc]
    started = time.monotonic()
    written = WrittenState(state.uri, SOURCE)
    stream_id = Intake(source=MemoryStore(SOURCE), state=state, format="json").stream_id
    schemas = SchemaLog(state, SOURCE)
    most, growth = Counter[str](), []
    with closing(open_ledger(stream_id, written.files)) as ledger:
        for number in range(task["runs"]):
            state.now_us += EVERY_US
            _run(written, ledger, schemas, number)
            if number % _GROWTH == _GROWTH - 1:
                found = _sizes(state)
                most |= Counter({"objects": found["objects"]})
                growth.append([number + 1, found["objects"], found["bytes"]])
    step = max(1, len(growth) // 20)
    return {
        "seconds": time.monotonic() - started,
        "most_objects": most["objects"],
        "growth": growth[::-step][::-1],
        **_sizes(state),
    }


def _run(written: WrittenState, ledger: Any, schemas: SchemaLog, number: int) -> None:
    """What a run with one new file leaves."""
    state, run_id = written.state, f"orders.scheduled__{number}.ingest.1"
    spec = JobSpec(
        kind="ingest",
        source=SOURCE,
        format="json",
        checkpoint_location=written.uri,
        run_id=run_id,
        target="/lake/orders",
        options={},
    )
    state.put(spec.spec_key, spec.sealed())
    is_due = number % LOOK_EVERY == 0 and upkeep.is_due(state.list, _OPTIONS.state_compact_interval)
    day, path = divmod(number, 288), f"orders-{number:09}.json"
    file = FileEntry(f"day={day[0]:05}/{path}", 10_000, TimedStore.now_us, "")
    entry = written.append(file)
    catch_up(ledger, written.files, latest=entry)
    mark_head(state, written.files)
    maybe_snapshot(ledger, written.files, state)
    if number % SCHEMA_EVERY == 0:
        _change_schema(schemas, number // SCHEMA_EVERY)
    written.plan()
    _commit(written, number, run_id)
    run_history.write_report(state, spec.report_key, _report(spec, number))
    upkeep.after_run(
        written.uri,
        compacts=is_due,
        least=_OPTIONS.state_compact_interval,
        sweeps=run_history.sweeps(run_id),
        retention_seconds=_OPTIONS.run_retention_seconds,
    )


def _commit(written: WrittenState, batch: int, run_id: str) -> None:
    """Record a batch as its job does, which knows its number."""
    version, counts = batch // SCHEMA_EVERY, {"files": 1, "rows": 10, "rescued_rows": 0}
    end = written.plans.at(batch).end
    SinkLog(written.state).add(
        SinkRecord(
            batch=batch,
            table_id="0b5e2d8e-7a55-4d7a-9c39-6b2f9c1d0a11",
            version=batch,
            end=end,
            run_id=run_id,
            schema_version=version,
            counts=counts,
        )
    )
    done = run_history.BatchDone(
        batch_id=batch,
        table_version=batch,
        is_new=True,
        schema_version=version,
        counts=counts,
        run_id=run_id,
    )
    run_history.note(written.uri, done)


def _change_schema(schemas: SchemaLog, version: int) -> None:
    columns = [StructField(f"c{each}", StringType()) for each in range(version + 1)]
    schemas.append(
        version,
        data_schema=StructType([StructField("id", LongType()), *columns]),
        partition_schema=StructType(),
        reason={"change": "newFields", "fields": [f"c{version}"]},
    )


def _report(spec: JobSpec, batch: int) -> Figures:
    return {
        "kind": spec.kind,
        "run_id": spec.run_id,
        "outcome": "succeeded",
        "source": spec.source,
        "target": spec.target,
        "files": 1,
        "bytes": 10_000,
        "rows": 10,
        "rescued_rows": 0,
        "batches": [batch],
        "schema_version": batch // SCHEMA_EVERY,
        "discovery": {"files": 1, "bytes": 10_000, "listing": {"kind": "incremental"}},
        "durations": {"total_seconds": 9.5, "spark_seconds": 3.1, "ingest_seconds": 5.0},
        "metrics": {"numFilesOutstanding": "0", "numBytesOutstanding": "0"},
        "warnings": [],
    }


def _open(task: Figures) -> Figures:
    """Open the state as a run does, find out that there is nothing to do, and count requests."""
    if task.get("is_empty"):
        shutil.rmtree(cache_folder())
    access = AwsAccess(**task["s3"]) if task.get("s3") else None
    state = open_store(task["state"], access)
    started = time.monotonic()
    intake = Intake(source=MemoryStore(SOURCE), state=state, format="json", access=access)
    with closing(intake):
        intake.begin_at(position(state, intake.plans))
        intake.check()
        assert not intake.has_work()
        opened = time.monotonic()
        to_open = dict(state.requests)
        with closing(open_ledger(intake.stream_id, intake.files)) as ledger:
            assert ledger.files == task["runs"], f"the index has {ledger.files} files"
    return {
        "seconds": opened - started,
        "index_seconds": time.monotonic() - opened,
        "requests": to_open,
        "index_requests": dict(Counter(state.requests) - Counter(to_open)),
    }


STEPS: dict[str, Callable[[Figures], Figures]] = {"make": _make, "open": _open}


def _sizes(state: ObjectStore) -> Figures:
    """What the state takes, by its folders."""
    objects, size = Counter[str](), Counter[str]()
    for each in state.list():
        folder = "/".join(each.path.split("/")[:2]) if each.path[0:8] == "_source/" else ""
        folder = folder or each.path.partition("/")[0]
        objects[folder] += 1
        size[folder] += each.size
    tables = [path.stat().st_size for path in cache_folder().rglob("*.sst")]
    return {
        "objects": objects.total(),
        "bytes": size.total(),
        "objects_by_folder": dict(objects),
        "bytes_by_folder": dict(size),
        "table_bytes": sum(tables),
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
