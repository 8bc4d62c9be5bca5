"""How are processes started, found, struck and awaited?

One process forks all that a schedule runs: it has imported the package already, so a discovery is
there within milliseconds. It has one thread and has opened nothing that its children would share.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def be_subreaper() -> None:
    """Have processes whose parent has ended become children of this one, so that none is lost."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(slots=True)
class Child:
    """A process that was forked here.

    Attributes:
        pid: Its number.
        log: What it has written.
        status: How it has ended, as `os.waitstatus_to_exitcode` says it; `None` while it runs.
        began: When (monotonic).
    """

    pid: int
    log: Path
    status: int | None = None
    began: float = field(default_factory=time.monotonic)

    def has_ended(self) -> bool:
        """Look whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, seconds: float) -> int:
        """Wait for its end, and kill it where it does not come."""
        until = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.003)
        assert self.status is not None
        return self.status


def fork(work: Callable[[], int], log: Path, environment: Mapping[str, str | None]) -> Child:
    """Fork a process that does some work, writes to a log and ends with an exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, log)
    code = 99
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        os.setpgid(0, 0)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        random.seed()
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - it must not go back into the schedule
        import traceback  # noqa: PLC0415 - of a failing child only

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as the kernel shows it."""

    pid: int
    parent: int
    state: str
    started: int


def seen(pid: int) -> Seen | None:
    """Look at a process; `None` where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    parts = text.rpartition(")")[2].split()
    return Seen(pid, int(parts[1]), parts[0], int(parts[19]))


def is_alive(pid: int) -> bool:
    """Whether a process runs, or is stopped."""
    found = seen(pid)
    return found is not None and found.state not in "ZX"


def command(pid: int) -> str:
    """Its command line."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return text.replace(b"\0", b" ").decode(errors="replace")


def below(root: int) -> list[Seen]:
    """The living processes below one, the oldest first."""
    by_parent: dict[int, list[Seen]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - many, and often
        if entry.isdigit() and (found := seen(int(entry))) and found.state not in "ZX":
            by_parent.setdefault(found.parent, []).append(found)
    result: list[Seen] = []
    wave = [root]
    while wave:
        wave_found = [each for pid in wave for each in by_parent.get(pid, ())]
        result += wave_found
        wave = [each.pid for each in wave_found]
    return sorted(result, key=lambda each: (each.started, each.pid))


def end_all_below() -> None:
    """Kill all that this process has started, and what of it has become its child."""
    while found := below(os.getpid()):
        for each in found:
            strike(each.pid, signal.SIGKILL)
        reap_strays()
        time.sleep(0.05)


def strike(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process that lives; returns whether it was sent to one."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Of a process that has ended already and was not reaped, nothing would be killed.
        if not is_alive(pid):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def is_killed(pid: int, seconds: float = 20.0) -> bool:
    """Wait until a process that was killed is gone."""
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def reap_strays() -> None:
    """Wait for all that has become a child of this process and has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
