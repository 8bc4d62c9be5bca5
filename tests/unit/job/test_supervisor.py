"""Spark ends with whoever started it, in whatever way that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUPERVISOR = [sys.executable, "-m", "airflow_cloudfiles.engine.job.supervisor", "--"]
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


def _gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


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
        assert process.wait(30) == code


@pytest.mark.slow
def test_when_the_parent_is_killed_the_whole_tree_goes(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
            *SUPERVISOR,
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
    assert _gone(child, 300), "ignores SIGTERM, so it is killed after the grace period"
    assert _gone(own_session, 300), "left the process group, but not the tree"
    assert _gone(supervisor, 300)
    parent.stdout.close()
