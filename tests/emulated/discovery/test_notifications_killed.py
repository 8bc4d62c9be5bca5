"""A process that drains a queue is killed at each step, and no file is lost or repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.crash_points import NOTIFICATION_POINTS
from tests.support.discovery.places import SqsPlace

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
SCRIPT = Path(__file__).with_name("drainer.py")
KEYS = [f"{number:02}" for number in range(25)]


@pytest.mark.parametrize(
    ("point", "passage"), list(zip(NOTIFICATION_POINTS, (1, 1, 2), strict=True))
)
def test_a_kill_while_draining_loses_and_repeats_nothing(aws, tmp_path, point, passage):  # B93
    place = SqsPlace(aws)
    bucket = aws.bucket()
    source = open_store(f"{bucket}/in", aws.access)
    place.bucket = bucket.partition("://")[2]
    for key in KEYS:
        source.put(key, b"x")
    place.send(*(place.event(f"in/{key}") for key in KEYS))
    state = str(tmp_path / "state")

    def drain(crash_at: str) -> int:
        search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
        environment = {CRASH_AT: crash_at, "PYTHONPATH": search, **to_environment(aws.access)}
        arguments = [source.uri, state, place.url, "2"]
        done = subprocess.run(
            [sys.executable, SCRIPT, *arguments],
            env={**os.environ, **environment},
            check=False,
            timeout=600,
        )
        return done.returncode

    assert drain(f"{point}:{passage}") == -signal.SIGKILL
    place.send(*(place.event(f"in/{key}") for key in KEYS[:5]))  # and duplicates meanwhile
    end = time.monotonic() + 300
    assert drain("") == 0
    while place.queue.approximate_size() and time.monotonic() < end:
        assert drain("") == 0
    log = FileLog(open_store(state))
    recorded = [file.path for n in range(log.latest() + 1) for file in log.read(n).files]
    assert Counter(recorded) == Counter(KEYS)
    assert place.left() == []
