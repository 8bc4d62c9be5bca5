"""Spark ends with whoever started it, in whatever way that one ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS, is_there, until

SUPERVISOR = [sys.executable, "-m", "airflow_cloudfiles.engine.job.supervisor", "--"]
IMPATIENT = (
    "import sys\n"
    "from airflow_cloudfiles.engine.job import supervisor\n"
    "supervisor.GRACE_SECONDS = 0.5\n"
    "sys.exit(supervisor.run(sys.argv[1:]))\n"
)
PATIENT = IMPATIENT.replace("0.5", "3600.0")
STUBBORN = (
    "import os, signal, sys, time, subprocess\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "own = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " start_new_session=True)\n"
    "print(os.getpid(), own.pid, flush=True)\n"
    "time.sleep(600)\n"
)
PARENT = (
    "import subprocess, sys, time\n"
    "p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
    "print(p.pid, flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_the_exit_code_is_the_commands_as_a_shell_tells_it(text: str, code: int) -> None:
    command = [*SUPERVISOR, sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_SECONDS) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_soon_as_the_command_has_ended(number: signal.Signals) -> None:
    text = "import time; print('begun', flush=True); time.sleep(3600)"
    command = [sys.executable, "-c", PATIENT, sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        try:
            code = process.wait(60)  # far less than what it would wait for the command
        finally:
            process.kill()
    assert code == 128 + signal.SIGTERM


@pytest.mark.slow
def test_when_the_parent_is_killed_the_whole_tree_goes(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
            *(sys.executable, "-c", IMPATIENT),
            sys.executable,
            str(script),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    child, own_session = map(int, parent.stdout.readline().split())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not is_there(child))  # ignores SIGTERM: killed after the grace period
    until(lambda: not is_there(own_session))  # left the process group, but not the tree
    until(lambda: not is_there(supervisor))
    parent.stdout.close()
