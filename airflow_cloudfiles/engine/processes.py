"""Which processes were started by one, how much memory do they take, and when do they end?"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def descendants(root: int) -> list[int]:
    """Give the processes below one that runs.

    They may lead groups of their own, as Spark's Python daemons do. Those whose parent has ended
    are below another one by then.
    """
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = entry.read_text(encoding="utf-8", errors="replace")
            parents[int(entry.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found: list[int] = []
    wave = {root}
    while wave:
        wave = {pid for pid, parent in parents.items() if parent in wave}
        found.extend(wave)
    return found


def memory_bytes(processes: Iterable[int]) -> int:
    """Memory of some processes, pages that they share counted once (proportional set size).

    Those that have ended, or are another user's, count nothing. Linux only; 0 elsewhere.
    """
    total = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
            total += int(text.partition("\nPss:")[2].split()[0]) * 1024
    return total


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends; on Linux.

    It holds for this process alone: what it starts has to ask for it again.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:  # it has ended meanwhile
        os.kill(os.getpid(), signal.SIGKILL)
