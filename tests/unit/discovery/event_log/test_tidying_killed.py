"""Who drops old entries of an event log is killed: the log is whole, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog, LoggedEvent
from airflow_cloudfiles.engine.storage import open_store

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
SCRIPT = Path(__file__).with_name("tidier.py")
QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}
ENTRIES, KEPT, STEP = 12, 3, 4


def _tidy(location: str, crash_at: str = "") -> int:
    search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": search, CRASH_AT: crash_at}
    command = [sys.executable, SCRIPT, location, str(KEPT), str(STEP)]
    return subprocess.run(command, env=environment, check=False, timeout=300).returncode


def _append(location: str) -> int:
    return EventLog.open(location).append([LoggedEvent("created", "in/a", 1, 5, "e", "s")])


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [0, 2])
def test_a_kill_while_old_entries_go_leaves_a_log_without_a_gap(tmp_path, dropped):
    location = str(tmp_path / "log")
    create_log(open_store(location), str(tmp_path), QUEUE)
    for _ in range(ENTRIES):
        _append(location)
    assert _tidy(location, f"before-packed-removal:{dropped + 1}") == -signal.SIGKILL
    log = EventLog.open(location)
    seen = log.look(0)
    assert (seen.first, seen.end) == (dropped * STEP, ENTRIES)
    assert all(list(log.read(number)) for number in range(seen.first, seen.end))
    assert _append(location) == ENTRIES
    assert _tidy(location) == 0
    seen = EventLog.open(location).look(0)
    assert (seen.first, seen.end) == (ENTRIES + 1 - KEPT, ENTRIES + 1)
