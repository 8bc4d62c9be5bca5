"""When a daemon of Spark's Python workers ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

_DAEMON = """
import subprocess, sys, time
from airflow_cloudfiles.engine.spark.daemon import end_when_idle
worker = subprocess.Popen(["sleep", "2"]) if sys.argv[1] == "busy" else None
begun = time.monotonic()
end_when_idle(0.05)
if worker is not None:
    worker.wait()
    print("its worker has ended", flush=True)
deadline = time.monotonic() + 3
while time.monotonic() < deadline:
    time.sleep(0.1)
"""


def daemon(state: str, artifacts: str | None) -> subprocess.CompletedProcess[str]:
    """Run one to its end, or for some seconds."""
    environment = {**os.environ, "SPARK_JOB_ARTIFACT_UUID": artifacts or ""}
    return subprocess.run(
        [sys.executable, "-c", _DAEMON, state],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


def test_one_of_a_session_ends_without_workers() -> None:
    assert daemon("idle", "3f1b").returncode == -signal.SIGTERM


def test_one_with_a_worker_stays_until_that_has_ended() -> None:
    ended = daemon("busy", "3f1b")
    assert (ended.stdout, ended.returncode) == ("its worker has ended\n", -signal.SIGTERM)


@pytest.mark.parametrize("artifacts", [None, "default"])
def test_one_that_sessions_share_stays(artifacts: str | None) -> None:
    assert daemon("idle", artifacts).returncode == 0
