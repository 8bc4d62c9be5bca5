"""A table in a cloud keeps the promises of one on a disk, without jars."""

from __future__ import annotations

import contextlib
import http.client
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.errors import (
    SchemaMismatchError,
    SinkError,
    TargetAccessError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_table, table_schema
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

A = pa.schema([("a", pa.int64())])
AB = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])


def _use(monkeypatch: pytest.MonkeyPatch, access: Any) -> None:
    for name, value in to_environment(access).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["aws", "seaweed", "azurite", "gcs_xml"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a table in each cloud, the access in the environment."""
    cloud = request.getfixturevalue(request.param)
    _use(monkeypatch, cloud.access)
    root = cloud.container() if request.param == "azurite" else cloud.bucket()
    return f"{root}/tables/ünï t+1"


@pytest.fixture
def on_s3(aws: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a table in S3."""
    _use(monkeypatch, aws.access)
    return f"{aws.bucket()}/t"


def _files(target: str, schema: pa.Schema, values: list[dict[str, Any]]) -> list[DataFile]:
    return DataFileWriter(target, schema).write([pa.RecordBatch.from_pylist(values, schema)])


def _commit(target: str, number: int, schema: pa.Schema, *values: dict[str, Any]) -> Any:
    return delta_commit.commit_batch(
        target,
        batch=BatchId("stream", number, f"p{number}"),
        files=_files(target, schema, list(values)),
        schema=schema,
        rules=WriteRules(merge_schema=True),
    )


def _rows(target: str) -> list[dict[str, Any]]:
    """The rows, as `deltalake` alone reads them."""
    options = DeltaLocation.of(target).storage_options()
    table = DeltaTable(target, storage_options=options).to_pyarrow_dataset().to_table()
    return sorted(table.to_pylist(), key=lambda row: row["a"])


def _data_files(target: str) -> list[str]:
    return [key.path for key in open_store(target).list() if key.path.endswith(".parquet")]


def _at_once(count: int, work: Any) -> None:
    barrier = threading.Barrier(count)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as failure:  # noqa: BLE001 - shown by the assertion below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_batch_is_in_the_table_once_and_nothing_shows_before(target: str) -> None:  # B130
    written = _files(target, A, [{"a": 1}])
    assert open_table(target) is None, "a data file is no table"
    delta_commit.remove_files(target, written)
    assert _data_files(target) == []
    assert _commit(target, 0, A, {"a": 1}).is_new
    again = _commit(target, 0, A, {"a": 1})
    assert (again.is_new, again.version) == (False, 1)
    assert len(_data_files(target)) == 1, "the second try's file is removed"
    _commit(target, 1, AB, {"a": 2, "b": {"c": "x"}})  # B48, B125
    _commit(target, 2, A)
    assert _rows(target) == [{"a": 1, "b": None}, {"a": 2, "b": {"c": "x"}}]
    reader = DeltaTableReader(target, table_schema(target))
    read = [batch.to_pylist() for part in reader.partitions() for batch in reader.read(part)]
    assert sorted(row["a"] for rows in read for row in rows) == [1, 2]
    with pytest.raises(SchemaMismatchError):
        _commit(target, 3, pa.schema([("a", pa.string())]), {"a": "x"})
    assert len(_data_files(target)) == 2, "the files of a refused batch are removed"


def test_committers_at_once_each_version_has_one_winner(target: str) -> None:
    outcomes: list[bool] = []
    _at_once(3, lambda _: outcomes.append(_commit(target, 0, A, {"a": 0}).is_new))
    assert sorted(outcomes) == [False, False, True]

    def write(stream: int) -> None:
        schema = pa.schema([("a", pa.int64()), (f"c{stream}", pa.string())])
        for batch in range(2):
            delta_commit.commit_batch(
                target,
                batch=BatchId(f"stream {stream}", batch),
                files=_files(target, schema, [{"a": 10 * stream + batch}]),
                schema=schema,
                rules=WriteRules(merge_schema=True),
            )

    _at_once(3, write)
    assert [row["a"] for row in _rows(target)] == [0, 0, 1, 10, 11, 20, 21]
    assert len(_data_files(target)) == 7


def test_a_commit_whose_answer_is_lost_keeps_its_files(
    on_s3: str, aws: Any, microburst: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commit(on_s3, 0, A, {"a": 0})
    proxy = microburst(aws.endpoint.removeprefix("http://"), "tcp")
    proxy.rules(
        [
            {
                "service": "tcp",
                "operation": "conn",
                "payload": "PUT /.*_delta_log/0",
                "cut_reply": {"after_bytes": 5},
                "times": 1,
            }
        ]
    )
    _use(monkeypatch, aws.access_through(proxy.endpoint))
    files = _files(on_s3, A, [{"a": 1}])
    committed = delta_commit.commit_batch(
        on_s3,
        batch=BatchId("stream", 1),
        files=files,
        schema=A,
        rules=WriteRules(merge_schema=False),
    )
    assert len(proxy.fired()) == 1
    assert (committed.is_new, committed.version) == (True, 2)
    assert _rows(on_s3) == [{"a": 0}, {"a": 1}]


def test_a_batch_given_up_at_its_commit_keeps_its_files_and_one_with_a_failed_task_does_not(
    on_s3: str,
) -> None:
    writer = DeltaTargetTable(on_s3).writer(
        SinkOptions.read({"txnappid": "x"}),
        state=None,
        schema=StructType().add("a", "long"),
    )
    written = TaskWritten(_files(on_s3, A, [{"a": 1}]), A)
    writer.commit([written], 0)
    writer.abort([written], 0)  # as Spark does when what follows the commit fails
    assert _rows(on_s3) == [{"a": 1}]
    other = TaskWritten(_files(on_s3, A, [{"a": 2}]), A)
    writer.abort([other, None], 1)
    assert len(_data_files(on_s3)) == 1


def test_files_are_cut_by_size_and_a_failed_task_removes_what_it_uploaded(
    on_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "CLOUD_FILE_BYTES", 1000)
    batch = pa.RecordBatch.from_pydict({"a": list(range(500))}, A)
    files = DataFileWriter(on_s3, A).write([batch, batch])
    assert len(files) == 2
    assert {file.name: file.size for file in files} == {
        key.path: key.size for key in open_store(on_s3).list()
    }

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch
        assert len(_data_files(on_s3)) == 3, "uploaded already"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DataFileWriter(on_s3, A).write(broken())
    assert len(_data_files(on_s3)) == 2


@pytest.mark.parametrize("name", ["t%41", "t#x", "t?x", "a//b", "a/../b", "a/./b", "t\tx"])
def test_names_that_deltalake_would_change_are_refused(name: str) -> None:
    with pytest.raises(SinkError, match="Choose another path"):
        DeltaLocation.of(f"s3://bucket/{name}")


def test_something_else_in_its_place_is_refused_by_name(on_s3: str) -> None:
    store = open_store(on_s3)
    for key in ("_SUCCESS", ".hidden/x", "part-0.parquet", "photos/cat.jpg"):
        store.put(key, b"x")
    with pytest.raises(TargetNotDeltaError, match=r"photos/cat\.jpg"):
        delta_commit.check_target(on_s3, A, WriteRules(merge_schema=True))
    store.delete("photos/cat.jpg")
    delta_commit.check_target(on_s3, A, WriteRules(merge_schema=True))


def test_a_role_signs_the_log_as_it_signs_the_files(
    aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = replace(aws.access, role_arn="arn:aws:iam::000000000000:role/writer")
    _use(monkeypatch, role)
    target = f"{aws.bucket()}/t"
    options = DeltaLocation.of(target).storage_options()
    assert options["aws_access_key_id"] != aws.access.access_key_id
    assert options["aws_session_token"]
    assert _commit(target, 0, A, {"a": 1}).is_new


def test_a_server_that_ignores_conditions_is_refused_when_a_table_is_created(
    aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(BaseHTTPRequestHandler):
        """Passes everything on but the condition."""

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            dropped = {"if-none-match", "expect"}
            headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
            upstream = http.client.HTTPConnection(aws.endpoint.removeprefix("http://"), timeout=30)
            with contextlib.closing(upstream):
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = do_PUT  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    target = f"{aws.bucket()}/t"
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _use(monkeypatch, aws.access_through(f"http://127.0.0.1:{server.server_address[1]}"))
        with pytest.raises(SinkError, match="ignores If-None-Match"):
            _commit(target, 0, A)
        server.shutdown()
    _use(monkeypatch, aws.access)
    assert list(open_store(target).list()) == []


def test_no_secret_shows_in_what_goes_wrong(
    azurite: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    target = f"{azurite.container()}/t"
    _use(monkeypatch, azurite.access)
    _commit(target, 0, A, {"a": 1})
    secret = "sv=2022-11-02&ss=b&srt=sco&sp=rl&sig=U0VDUkVUU0lHTkFUVVJF"
    _use(
        monkeypatch,
        AzureAccess(sas_token=secret, blob_endpoint=azurite.blob_endpoint),
    )
    location = DeltaLocation.of(target)
    options = location.storage_options()
    assert secret in options.values()
    with (
        pytest.raises(TargetAccessError, match="cannot be opened") as raised,
        location.translate_errors("cannot be opened"),
    ):
        DeltaTable(location.table_uri, storage_options=options)
    text = f"{raised.value} {raised.value.__cause__} {location!r} {caplog.text}"
    assert "U0VDUkVU" not in text
    assert not raised.value.is_retryable
    assert azurite.key not in text


@pytest.mark.spark
def test_a_whole_job_lives_in_s3(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = aws.bucket()
    source = open_store(f"{bucket}/in", aws.access)
    spec = JobSpec(
        kind="ingest",
        source=f"{bucket}/in",
        format="json",
        checkpoint_location=f"{bucket}/state",
        target=f"{bucket}/table",
        run_id="only",
    )
    for number in range(3):
        source.put(f"{number}.json", f'{{"a": {number}}}\n{{"a": {number + 10}}}\n'.encode())
    report = launch(spec, LocalSpark(), on_log=print, access=aws.access).wait()
    assert (report["files"], report["rows"], report["target_version"]) == (3, 6, 1)
    _use(monkeypatch, aws.access)
    found = [row["a"] for row in _rows(spec.target or "")]
    assert found == ["0", "1", "10", "11", "12", "2"]
