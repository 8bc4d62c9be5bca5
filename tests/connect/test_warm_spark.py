"""Runs that keep a Spark warm: one JVM for many, alone with its user, and nothing left behind."""

from __future__ import annotations

import contextlib
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import RunFailedError, SparkUnreachableError
from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.warm import listing
from airflow_cloudfiles.engine.job.warm.listing import found
from tests.support.connect_server import MANY
from tests.support.landing import rows
from tests.support.waiting import is_there, until
from tests.support.warm_spark import (
    KEEP,
    WarmStream,
    all_have_ended,
    below,
    folders,
    only,
    warm_home,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_MAIN = """
import sys
from datetime import timedelta
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
how = LocalSpark(master="local[2]", keep_warm=timedelta(minutes=10))
launch(JobSpec.from_json(sys.stdin.readline()), how, on_log=sys.stderr.write).wait()
"""
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Where the warm Sparks of these tests are; none is left."""
    with warm_home() as folder:
        yield folder


@pytest.fixture(autouse=True)
def _one_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as all tests have the same environment, they share a warm Spark."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(home.with_name(f"{home.name}-cache")))


@pytest.fixture
def stream(tmp_path: Path) -> WarmStream:
    return WarmStream(tmp_path)


@pytest.fixture
def small_batches(tmp_path: Path) -> WarmStream:
    return WarmStream(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "1"})


def _each_once(stream: WarmStream) -> bool:
    ids = Counter(str(row["id"]) for row in rows(stream.target))
    return ids == Counter(str(n) for n in range(3 * len(list(stream.source.iterdir()))))


def test_two_first_runs_at_once_get_one_spark_and_both_have_all_rows(
    home: Path, tmp_path: Path
) -> None:
    listing.stop_all()  # those of other tests
    streams = [WarmStream(tmp_path / name) for name in ("one", "two")]
    runs = [stream.in_background(2) for stream in streams]
    for run in runs:
        assert run.end().error is None

    assert only()["runs_ended"] == 2
    assert len(folders(home)) == 1
    assert all(_each_once(stream) for stream in streams)


def test_eight_runs_use_one_jvm_and_leave_as_many_processes_as_four(stream: WarmStream) -> None:
    stream.warm(2)
    before = only()
    processes = []
    for run in range(2, 9):
        assert stream.warm(2)["rows"] == 6
        if run in {4, 8}:
            # A daemon of a session is asked to end when its run has.
            until(lambda: only()["processes"] <= before["processes"])
            processes.append(only()["processes"])
    assert stream.warm()["rows"] == 0

    after = only()
    assert after["jvm_pid"] == before["jvm_pid"]
    assert after["runs_ended"] == before["runs_ended"] + 8
    assert processes[0] == processes[1]
    assert _each_once(stream)
    assert not any("one of its own" in line for line in stream.log)


def test_only_this_user_can_reach_the_token(stream: WarmStream) -> None:
    stream.warm(1)
    status = only()
    environment = psutil.Process(status["jvm_pid"]).environ()
    token = environment[_TOKEN]
    assert stat.S_IMODE(Path(f"/proc/{status['jvm_pid']}/environ").stat().st_mode) == 0o400

    folder = Path(status["folder"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    for path in (each for each in folder.rglob("*") if each.is_file()):
        assert token.encode() not in path.read_bytes(), path
    for path in (folder / name for name in ("s", "alive", "server.json", "settings.json", "log")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for process in below(status["pid"]):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert token not in " ".join(process.cmdline())
    listening = {
        each.laddr.ip.removeprefix("::ffff:")
        for each in psutil.Process(status["jvm_pid"]).net_connections()
        if each.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_a_client_that_is_killed_takes_its_driver_along_and_nobody_else(
    small_batches: WarmStream,
) -> None:
    small_batches.land(MANY)
    client = subprocess.Popen(
        [sys.executable, "-c", _MAIN], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert client.stdin is not None
    with client:
        client.stdin.write(small_batches.spec().to_json().replace("\n", " ").encode() + b"\n")
        client.stdin.flush()
        until(lambda: small_batches.batches() > 0)
        before = only()
        assert before["runs_in_progress"] == 1
        client.kill()
    until(lambda: only()["runs_in_progress"] == 0)

    small_batches.take_the_rest_at_once()
    assert small_batches.warm()["rows"] > 0
    assert only()["jvm_pid"] == before["jvm_pid"]
    assert _each_once(small_batches)


def test_a_run_that_is_killed_ends_alone(small_batches: WarmStream) -> None:
    small_batches.land(MANY)
    how = LocalSpark(master="local[2]", keep_warm=KEEP)
    run = launch(small_batches.spec(), how, on_log=small_batches.log.append)
    until(lambda: small_batches.batches() > 0)
    before = only()
    run.kill()
    with pytest.raises(RunFailedError, match=r"was killed|was stopped by signal 15"):
        run.wait()
    until(lambda: only()["runs_in_progress"] == 0)

    small_batches.take_the_rest_at_once()
    assert small_batches.warm()["rows"] > 0
    assert only()["jvm_pid"] == before["jvm_pid"]
    assert _each_once(small_batches)


@pytest.mark.parametrize("victim", ["jvm_pid", "pid"])
def test_a_spark_that_is_killed_fails_its_run_retryably_and_the_retry_starts_another(
    small_batches: WarmStream, victim: str
) -> None:
    small_batches.warm(1)
    status = only()
    processes = below(status["pid"])
    forked = psutil.Process(status["pid"]).children()
    daemons = [each for each in forked if each.pid != status["jvm_pid"]]
    run = small_batches.in_background(MANY)
    until(lambda: small_batches.batches() > 1)
    # Workers that are stuck: they neither read nor end by themselves.
    stuck = 0
    for each in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in each.children():
                worker.suspend()
                stuck += 1
    assert stuck
    processes += below(status["pid"])
    psutil.Process(status[victim]).send_signal(signal.SIGKILL)

    error = run.end().error
    assert isinstance(error, SparkUnreachableError), error
    assert error.is_retryable
    all_have_ended(processes)
    small_batches.take_the_rest_at_once()
    assert small_batches.warm()["rows"] > 0
    assert only()["pid"] != status["pid"]
    assert _each_once(small_batches)


def test_stop_ends_everything_and_says_what_there_was(
    stream: WarmStream, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.warm(1)
    status = only()
    processes = below(status["pid"])
    assert cli.main(["spark", "status"]) == 0
    assert f"jvm_pid: {status['jvm_pid']:,}" in capsys.readouterr().out

    assert cli.main(["spark", "stop"]) == 0

    assert "ended: yes" in capsys.readouterr().out
    until(lambda: not any(is_there(each) for each in processes))  # killed; the kernel ends them
    assert found() == []
    assert folders(home) == []
    assert cli.main(["spark", "stop"]) == 0
    assert "No warm Spark" in capsys.readouterr().out
