"""Runs on a Spark Connect server whose state is in an object store."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import SparkUnreachableError, StateLockedError
from tests.support.connect_server import (
    ConnectServer,
    ConnectStream,
    each_once,
    ids,
    land,
    until,
)
from tests.support.emulators.aws import REGION, Aws

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def start_server(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> type:
    """A server with an identity of its own: a client's credentials are never sent to it."""
    identity = {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "server",
        "AWS_SECRET_ACCESS_KEY": "server-secret",
    }

    class Server(ConnectServer):
        def __init__(self) -> None:
            super().__init__(tmp_path_factory.mktemp("server"), environment=identity)

    return Server


@pytest.fixture(scope="module")
def server(start_server: type[ConnectServer]) -> Iterator[ConnectServer]:
    with start_server() as running:
        yield running


@pytest.fixture
def stream(aws: Aws, tmp_path: Path) -> ConnectStream:
    """A stream of small micro-batches; only its client has `aws.access`."""
    made = ConnectStream(tmp_path, aws.access, **{"cloudFiles.maxFilesPerTrigger": "1"})
    made.checkpoint_location = f"{aws.bucket()}/streams/orders"
    return made


def test_every_row_arrives_once_and_nothing_of_spark_is_left(server, stream):
    land(stream, 3)
    first = stream.run(server.remote)
    nothing_new = stream.run(server.remote)
    land(stream, 2, first=3)
    second = stream.run(server.remote)

    assert [each["rows"] for each in (first, nothing_new, second)] == [9, 0, 6]
    assert "Nothing is new: no Spark is started" in "\n".join(stream.log)
    assert ids(stream) == each_once(5)
    kept = {entry.path.partition("/")[0] for entry in stream.store().list()}
    assert kept == {"_reports", "_runs", "_schemas", "_source"}
    until(lambda: not [each for each in stream.store().list() if each.path.endswith(".lock")])
    until(lambda: not server.checkpoints())


def test_the_query_of_a_killed_client_gives_way_to_the_next_run(server, stream):
    land(stream, 60)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    assert "exit code 137" in begun.end().error.message

    stream.run(server.remote)
    assert "Stopping existing streaming query" in server.log()
    assert ids(stream) == each_once(60)
    until(lambda: not server.checkpoints())


def test_a_query_that_ended_without_its_client_leaves_nothing_to_do(server, stream):
    land(stream, 10)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    begun.end()

    until(lambda: stream.batches() == 10)
    stream.run(server.remote)
    assert ids(stream) == each_once(10)


def test_a_query_without_client_keeps_a_run_on_another_server_out(server, start_server, stream):
    land(stream, 10)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    begun.end()
    with start_server() as other:
        for _ in range(20):
            ended = stream.begin(other.remote).end()
            if ended.error is None:
                break
            assert isinstance(ended.error, StateLockedError), ended.error
            assert ended.error.is_retryable
    assert ids(stream) == each_once(10)


def test_a_killed_server_loses_nothing(start_server, stream):
    land(stream, 8)
    server = start_server()
    try:
        server.start()
        begun = stream.begin(server.remote)
        until(lambda: stream.batches() >= 1)
        server.kill()
        server.start()
        assert isinstance(begun.end().error, SparkUnreachableError), begun.error
        stream.run(server.remote)
    finally:
        server.stop()
    assert ids(stream) == each_once(8)


def test_of_two_runs_at_once_one_does_the_work(server, stream):
    land(stream, 6)
    first, second = stream.begin(server.remote), stream.begin(server.remote)
    reports = [each.end().report for each in (first, second)]

    assert sum(report["rows"] for report in reports if report) == 18
    assert ids(stream) == each_once(6)
