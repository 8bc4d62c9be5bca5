"""A process that meets archived objects is killed at each step, and no file is lost or repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.crash_points import WAITING_POINTS

pytestmark = pytest.mark.slow
RECORDING_POINTS = (
    "after-dedupe",
    "before-file-log-append",
    "after-file-log-append",
    "after-ledger-record",
)
COLD, WARM = ("b.json", "d.json"), ("a.json", "c.json", "e.json")


class Stream:
    """A bucket with archived objects, and what discovers there."""

    def __init__(self, aws, state) -> None:
        self._aws = aws
        self._state = str(state)
        self._bucket = aws.bucket()
        for key in COLD:
            self.put(key, "GLACIER")
        for key in WARM:
            self.put(key, "STANDARD")

    def put(self, key: str, storage_class: str) -> None:
        self._aws.client("s3").put_object(
            Bucket=self._bucket[5:], Key=f"in/{key}", Body=b"{}", StorageClass=storage_class
        )

    def discover(self, policy: str, crash_at: str = "") -> int:
        """Discover in a process of its own."""
        command = ["discover", f"--source={self._bucket}/in", "--format=json"]
        command += [f"--checkpoint-location={self._state}"]
        command += [f"--option=cloudFiles.onArchivedFile={policy}"]
        environment = {CRASH_AT: crash_at, **to_environment(self._aws.access)}
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cloudfiles.cli", *command],
            env={**os.environ, **environment},
            capture_output=True,
            check=False,
            timeout=600,
        )
        return done.returncode

    def recorded(self) -> tuple[Counter[str], Counter[str]]:
        """The files that are ingested, and those that are skipped."""
        log = FileLog(open_store(self._state))
        found: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for number in range(log.latest() + 1):
            is_ingested = log.summary(number).is_ingested
            found[not is_ingested].update(file.path for file in log.read(number).files)
        return found


@pytest.mark.parametrize("point", RECORDING_POINTS)
def test_each_object_is_skipped_once(aws, tmp_path, point):
    stream = Stream(aws, tmp_path / "state")
    assert stream.discover("skip", point) == -signal.SIGKILL
    assert stream.discover("skip", f"{point}:2") in {-signal.SIGKILL, 0}
    assert stream.discover("skip") == 0
    assert stream.recorded() == (Counter(WARM), Counter(COLD))


@pytest.mark.parametrize("point", WAITING_POINTS)
def test_each_object_that_waits_is_taken_once_when_it_was_restored(aws, tmp_path, point):
    stream = Stream(aws, tmp_path / "state")
    killed = [stream.discover("wait", point)]
    assert stream.discover("wait") == 0
    assert stream.recorded() == (Counter(WARM), Counter())
    stream.put(COLD[0], "STANDARD")
    killed.append(stream.discover("wait", point))
    assert stream.discover("wait") == 0
    assert stream.recorded() == (Counter([*WARM, COLD[0]]), Counter())
    stream.put(COLD[1], "STANDARD")
    assert stream.discover("wait") == 0
    assert stream.recorded() == (Counter([*WARM, *COLD]), Counter())
    assert -signal.SIGKILL in killed
