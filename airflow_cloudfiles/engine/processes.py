"""Find processes of this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Tell whether there is a process; one that has ended and was not waited for is none."""
    with contextlib.suppress(OSError):  # of a process that has gone, or a system without /proc
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return state.rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
