"""How does a test wait until something is so, or a process is gone?"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable

import psutil

PATIENCE_SECONDS = 600
"""Ends a wait that hangs; on a busy machine the start of a JVM alone takes minutes."""


def until(
    is_so: Callable[[], object],
    seconds: float = PATIENCE_SECONDS,
    more: Callable[[], str] = str,
    every: float = 0.02,
) -> None:
    """Wait until something is so; when it is not in time, fail with the end of what `more` says.

    Args:
        is_so: Whether it is.
        seconds: How long it may take.
        more: What to say when it was not so in time.
        every: Seconds between two looks; more for one that lasts and whose look costs.
    """
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, more()[-3000:]
        time.sleep(every)


def ended(thread: threading.Thread, what: str, seconds: float = 60) -> None:
    """Wait until a thread that was told to end has ended; fail with what it does when not."""
    thread.join(seconds)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)[-8:])
        raise AssertionError(f"{what} has not ended in {seconds:g} s:\n{stack}")


def is_there(process: psutil.Process | int) -> bool:
    """Whether a process runs; what nobody has waited for yet does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    return False
