"""Tasks of a micro-batch on a Spark Connect server: what they give back, and how they fail."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.batches import connect_tasks
from airflow_cloudfiles.engine.batches.connect_tasks import ConnectTasks
from airflow_cloudfiles.engine.batches.run import TaskFailure
from airflow_cloudfiles.engine.errors import (
    StateUnreachableError,
    TableEvolvedError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.tables.table_writer import TaskWritten
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.connect_server import ConnectServer

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(server: ConnectServer) -> Iterator[Any]:
    """A session as a run has it."""
    from pyspark.sql.connect.session import SparkSession

    made = SparkSession.builder.remote(server.remote).config(
        "spark.sql.artifact.isolation.enabled", "false"
    )
    spark = made.create()
    yield spark
    spark.stop()


@pytest.fixture
def tasks(session: Any) -> ConnectTasks:
    """What carries tasks there."""
    return ConnectTasks(lambda: session, "/lake/orders")


def written(part: object) -> TaskWritten:
    """What a task gives back that writes nothing."""
    return TaskWritten(files=[part], schema=pa.schema([("id", pa.int64())]))


def test_each_part_comes_back_once_and_in_its_place(tasks: ConnectTasks) -> None:
    parts = [f"part {number}" for number in range(50)]
    found = tasks.carry(written, parts, 0)
    assert [each.files for each in found] == [[part] for part in parts]
    assert found[0].schema == pa.schema([("id", pa.int64())])


def test_a_part_larger_than_a_message_comes_back(tasks: ConnectTasks) -> None:
    """Splits of many files, and statistics of many columns: 4 MB is what gRPC takes at once."""
    large = ["x" * 9_000_000, "y" * 9_000_000]
    assert [each.files[0] for each in tasks.carry(written, large, 0)] == large


def _fails(log: str, error: Exception, part: int) -> TaskWritten:
    with Path(log).open("a") as lines:
        lines.write(f"{part}\n")
    if part == 3:
        raise error
    return written(part)


def test_an_error_that_no_retry_helps_comes_back_as_itself(
    tasks: ConnectTasks, tmp_path: Path
) -> None:
    raised = UnknownFieldException("New fields: x", retry=True)
    log = tmp_path / "tries"
    with pytest.raises(TaskFailure) as failed:
        tasks.carry(partial(_fails, str(log), raised), list(range(8)), 0)
    assert type(failed.value.failure) is UnknownFieldException
    assert failed.value.failure.message == "New fields: x"
    assert failed.value.failure.is_retryable
    known = [each.files[0] for each in failed.value.written if each is not None]
    assert known == [0, 1, 2], "what the others have written is to be removed"
    assert log.read_text().split().count("3") == 1


def test_an_error_with_a_long_text_comes_back_whole(tasks: ConnectTasks, tmp_path: Path) -> None:
    """A server shortens the texts of errors."""
    for kind in (TableEvolvedError, StateUnreachableError):
        with pytest.raises(TaskFailure) as failed:
            tasks.carry(partial(_fails, str(tmp_path / "t"), kind("long " * 2000)), [3], 0)
        assert type(failed.value.failure) is kind
        assert failed.value.failure.message == "long " * 2000


def _waits(log: str, seconds: float, part: int) -> TaskWritten:
    with Path(log).open("a") as lines:
        lines.write(f"{part}\n")
    time.sleep(seconds)
    return written(part)


def test_a_signal_ends_the_job_on_the_server(
    tasks: ConnectTasks, session: Any, tmp_path: Path
) -> None:
    log = tmp_path / "started"

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    threading.Thread(target=_signal_once, args=(log,)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            tasks.carry(partial(_waits, str(log), 0.5), list(range(400)), 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    # The server has nothing of it left: what comes next does not wait for 200 seconds of tasks.
    assert tasks.carry(written, [1, 2], 1)[1].files == [2]
    assert len(log.read_text().split()) < 400


def _signal_once(log: Path) -> None:
    until(lambda: log.exists() and len(log.read_text().split()) > 2)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def test_a_long_job_says_how_far_it_is(
    tasks: ConnectTasks,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connect_tasks, "PROGRESS_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    tasks.carry(partial(_waits, str(tmp_path / "t"), 1.0), list(range(8)), 0)
    assert any("of 8 splits are written" in each for each in caplog.messages)
