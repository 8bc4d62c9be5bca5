"""End Spark when the process that asked for it is gone.

`python -m airflow_cloudfiles.engine.job.supervisor -- COMMAND ...` runs a command in a process
group of its own and watches its own standard input, which the parent holds open. When that ends,
because the parent closed it or was killed in whatever way, the whole group is terminated, and
killed if it does not go; likewise when it gets SIGTERM or SIGINT. Otherwise it exits with the
command's exit code.

It works on every POSIX system and for every parent, since the kernel closes the pipe of a process
that is killed with SIGKILL too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from airflow_cloudfiles.engine.processes import descendants

GRACE_SECONDS = 10.0
"""How long the command may take to end by itself before it is killed."""


def run(command: Sequence[str]) -> int:
    """Run a command until it ends, or until standard input does.

    Returns:
        The exit code of the command; 128 + the signal's number when a signal ended it.
    """
    signals, wakeup = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(wakeup, b"."))
    child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, start_new_session=True)
    watcher = threading.Thread(target=_watch, args=(child, signals), daemon=True)
    watcher.start()
    code = child.wait()
    # Whatever the command started and left behind (a JVM, Python workers) goes with it.
    _signal(child.pid, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _watch(child: subprocess.Popen[bytes], signals: int) -> None:
    """End the group when the parent's end of standard input is closed, or a signal has come.

    Not in the handler of the signal, which runs within `child.wait()` of the main thread: whoever
    waits for the child there sees its end only when the grace period is over.
    """
    with contextlib.suppress(OSError, ValueError):
        while signals not in (ready := select.select([sys.stdin, signals], [], [])[0]):
            if ready and not os.read(sys.stdin.fileno(), 4096):
                break
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, and kill it when it does not."""
    _signal(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    for pid in (*descendants(child.pid), child.pid):
        _signal(pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(run(arguments[1:] if arguments[:1] == ["--"] else arguments))
