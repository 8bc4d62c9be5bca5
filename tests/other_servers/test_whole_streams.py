"""A stream lives on other people's servers, or is refused there by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SinkError, StateError
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.state.locks.lease import Lease
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.commit import BatchId, commit_batch
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.emulators.other_servers import STORES
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """A server, which the environment gives access to."""
    found: Aws = request.getfixturevalue(request.param)
    for name, value in to_environment(found.access).items():
        monkeypatch.setenv(name, value)
    return found


def _spec(bucket: str, run: str) -> JobSpec:
    return JobSpec(
        kind="ingest",
        source=f"{bucket}/in",
        format="json",
        checkpoint_location=f"{bucket}/state",
        target=f"{bucket}/table",
        options={
            "cloudFiles.cleanSource": "MOVE",
            "cloudFiles.cleanSource.moveDestination": f"{bucket}/archive",
            "cloudFiles.cleanSource.retentionDuration": "0 seconds",
        },
        run_id=run,
    )


def test_runs_ingest_each_file_once_and_move_it(server: Aws) -> None:
    bucket = server.bucket()
    source = open_store(f"{bucket}/in", server.access)
    names = set()
    for run in range(3):
        for number in range(4):
            names.add(name := f"day={run}/{number} \u00e9+.json")
            source.put(name, b'{"a": %d}\n' % (run * 10 + number))
        spec = _spec(bucket, f"run-{run}")
        report = launch(spec, LocalPython(), on_log=print, access=server.access).wait()
        assert (report["files"], report["rows"]) == (4, 4)
    location = DeltaLocation.of(f"{bucket}/table")
    table = DeltaTable(location.table_uri, storage_options=location.storage_options())
    found = [int(each) for each in table.to_pyarrow_table()["a"].to_pylist()]
    assert sorted(found) == [run * 10 + number for run in range(3) for number in range(4)]
    left = {entry.path for entry in source.list()}
    moved = {entry.path for entry in open_store(f"{bucket}/archive", server.access).list()}
    assert left.isdisjoint(moved)
    assert left | moved == names
    assert len(moved) >= 8  # all but those of the last run, which nothing cleans


def test_a_lock_is_held_while_it_is_renewed_and_taken_over_when_it_is_not(server: Aws) -> None:
    store = open_store(f"{server.bucket()}/state", server.access)
    mine, other = (Lease(store, "lock", {}, lease_seconds=1) for _ in range(2))
    assert mine.try_acquire()
    with pytest.raises(AssertionError):  # it is renewed
        until(other.try_acquire, seconds=3, every=0.2)
    mine.release()
    assert Lease(store, "lock", {}, lease_seconds=3600).try_acquire()  # renewed in half an hour
    until(other.try_acquire, seconds=10, every=0.2)
    other.release()


def test_a_state_on_a_server_that_replaces_no_version_is_refused(
    swift: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in to_environment(swift.access).items():
        monkeypatch.setenv(name, value)
    bucket = swift.bucket()
    open_store(f"{bucket}/in", swift.access).put("a.json", b'{"a": 1}\n')
    run = launch(_spec(bucket, "run"), LocalPython(), on_log=print, access=swift.access)
    with pytest.raises(StateError, match=rf"{bucket}/state/.* the server has no such request"):
        run.wait()
    assert list(open_store(f"{bucket}/table", swift.access).list()) == []


def test_a_server_without_conditional_writes_is_refused(
    gofakes3: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in to_environment(gofakes3.access).items():
        monkeypatch.setenv(name, value)
    bucket = gofakes3.bucket()
    with pytest.raises(StateError, match=rf"{bucket}/state ignores If-None-Match"):
        Intake.open(source=f"{bucket}/in", format="json", checkpoint_location=f"{bucket}/state")
    schema = pa.schema([("a", pa.int64())])
    batch = BatchId("stream", 0, "plan")
    with pytest.raises(SinkError, match=rf"{bucket}/table ignores If-None-Match"):
        commit_batch(
            f"{bucket}/table",
            batch=batch,
            files=[],
            schema=schema,
            rules=WriteRules(merge_schema=True),
        )
    assert list(open_store(bucket, gofakes3.access).list()) == []
