"""Hadoop's S3A and the package's own clients see the same objects."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.emulated.storage.test_storage_behaviors import ODD_NAMES
from tests.support import s3a_spark
from tests.support.s3a_spark import COMMITTERS, S3aSpark

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws

pytestmark = [pytest.mark.emulator, pytest.mark.spark]


@pytest.fixture(scope="module")
def s3a(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3aSpark]:
    """A session with S3A."""
    with S3aSpark(aws, tmp_path_factory.mktemp("s3a")) as session:
        yield session


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket, which the environment gives access to."""
    for name, value in to_environment(aws.access).items():
        monkeypatch.setenv(name, value)
    return aws.bucket()


def _s3a(uri: str) -> str:
    return uri.replace("s3://", "s3a://", 1)


def _ingest(bucket: str, source: str, state: str, *, options: dict[str, str] | None = None) -> int:
    """Ingest what is there, by a run of this package; how many rows were new."""
    spec = JobSpec(
        kind="ingest",
        source=source,
        format="json",
        checkpoint_location=state,
        target=f"{bucket}/table",
        options=options or {},
        run_id=uuid.uuid4().hex,
    )
    return int(launch(spec, LocalPython(), on_log=print).wait()["rows"])


def _table(bucket: str) -> DeltaTable:
    location = DeltaLocation.of(f"{bucket}/table")
    return DeltaTable(location.table_uri, storage_options=location.storage_options())


def test_both_give_an_object_one_name(s3a: S3aSpark, bucket: str) -> None:
    store = open_store(f"{bucket}/in")
    for name in ODD_NAMES:
        if "\r" not in name:  # which ministack writes as it is, and XML takes for a line end
            store.put(name, b"x")
    ours = sorted(f"/in/{entry.path}" for entry in store.list())
    assert s3a.run(s3a_spark.names, f"{_s3a(bucket)}/in") == ours


def test_spark_reads_the_files_of_our_table(s3a: S3aSpark, bucket: str) -> None:
    store = open_store(f"{bucket}/in")
    days = ["a b", "50%", "x/y", "caf\u00e9", "q?#&+="]
    for number, day in enumerate(days):
        store.put(f"{number}.json", b'{"a": %d, "day": "%s"}\n' % (number, day.encode()))
    options = {"partitionBy": "day"}
    assert _ingest(bucket, f"{bucket}/in", f"{bucket}/state", options=options) == len(days)
    table = open_store(f"{bucket}/table")
    names = [entry.path for entry in table.list() if entry.path.endswith(".parquet")]
    files = [f"{_s3a(table.uri)}/{name}" for name in names]
    found = s3a.run(s3a_spark.read_parquet, files, ["a"])
    assert found == [(str(number),) for number in range(len(days))]


@pytest.mark.parametrize("committer", COMMITTERS)
def test_what_spark_commits_is_ingested_once(s3a: S3aSpark, bucket: str, committer: str) -> None:
    """Discovery looks again and again while Spark writes."""
    source, state = f"{bucket}/in", f"{bucket}/state"
    with ThreadPoolExecutor(1) as pool:
        seen = 0
        for start in (0, 40):
            write = pool.submit(
                s3a.run, s3a_spark.write_json, _s3a(source), start, start + 40, committer
            )
            while not write.done():
                intake = Intake.open(source=source, format="json", checkpoint_location=state)
                with closing(intake):
                    intake.discover()
                seen += 1
            write.result()
            _ingest(bucket, source, state)
    assert seen > 2
    found = sorted(int(each) for each in _table(bucket).to_pyarrow_table()["a"].to_pylist())
    assert found == list(range(80))
    store = open_store(source)
    assert {entry.path for entry in store.list() if not entry.path.endswith(".json")} == {
        "_SUCCESS"
    }
    said = store.get("_SUCCESS")  # S3A's committers give their name there
    assert json.loads(said)["committer"] == committer if committer != "file" else said == b""


def test_a_state_is_reached_through_the_jar_and_by_our_clients(s3a: S3aSpark, bucket: str) -> None:
    store, state = open_store(f"{bucket}/in"), f"{bucket}/state"
    read = []
    for turn in range(4):
        store.put(f"{turn}.json", b'{"a": %d}\n' % turn)
        if turn % 2:
            read.append(_ingest(bucket, f"{_s3a(bucket)}/in", _s3a(state)))
        else:
            rows, batch = s3a.run(
                s3a_spark.stream, _s3a(f"{bucket}/in"), _s3a(state), f"{bucket}/table"
            )
            assert batch == turn
            read.append(rows)
    assert read == [1] * 4
    found = sorted(int(each) for each in _table(bucket).to_pyarrow_table()["a"].to_pylist())
    assert found == list(range(4))
    ours = sorted(f"/state/{entry.path}" for entry in open_store(state).list())
    assert s3a.run(s3a_spark.names, _s3a(state)) == ours
