"""Runs on a Spark Connect server whose state is in an object store."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import SparkUnreachableError, StateLockedError
from tests.support.connect_server import (
    MANY,
    ConnectServer,
    ConnectStream,
    each_once,
    identity,
    ids,
    land,
)
from tests.support.emulators.aws import Aws
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server with an identity of its own: a client's credentials are never sent to it."""
    with ConnectServer(tmp_path_factory.mktemp("server"), environment=identity(aws)) as running:
        yield running


@pytest.fixture(scope="module")
def other_server(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """Another one; a test may start it again."""
    with ConnectServer(tmp_path_factory.mktemp("other"), environment=identity(aws)) as running:
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


def test_a_killed_client_leaves_nothing_that_keeps_the_next_run_out(server, stream):
    land(stream, MANY)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    assert "exit code 137" in begun.end().error.message

    stream.take_the_rest_at_once()
    stream.run(server.remote)
    assert ids(stream) == each_once(MANY)


def test_the_lock_of_a_killed_client_keeps_a_run_on_another_server_out(
    server, other_server, stream
):
    land(stream, MANY)
    begun = stream.begin(server.remote)
    until(lambda: stream.batches() >= 1)
    begun.driver().send_signal(signal.SIGKILL)
    begun.end()
    stream.take_the_rest_at_once()
    for _ in range(100):
        ended = stream.begin(other_server.remote).end()
        if ended.error is None:
            break
        assert isinstance(ended.error, StateLockedError), ended.error
        assert ended.error.is_retryable
    assert ids(stream) == each_once(MANY)


def test_a_killed_server_loses_nothing(other_server, stream):
    land(stream, MANY)
    begun = stream.begin(other_server.remote)
    until(lambda: stream.batches() >= 1)
    other_server.kill()
    other_server.start()
    assert isinstance(begun.end().error, SparkUnreachableError), begun.error
    stream.take_the_rest_at_once()
    stream.run(other_server.remote)
    assert ids(stream) == each_once(MANY)


def test_of_two_runs_at_once_one_does_the_work(server, stream):
    land(stream, 6)
    first, second = stream.begin(server.remote), stream.begin(server.remote)
    reports = [each.end().report for each in (first, second)]

    assert sum(report["rows"] for report in reports if report) == 18
    assert ids(stream) == each_once(6)
