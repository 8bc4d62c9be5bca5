"""Kill the process at a named point, where the environment asks for it.

Every durable step of DESIGN's crash table passes a named point before or after it. The points do
nothing, unless the environment variable `CLOUDFILES_CRASH_AT` names one: then the process kills
itself there with SIGKILL, as an out-of-memory killer or a lost machine would. The recovery tests
use it on real processes; it is also a way to rehearse a failure in one's own deployment.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter

from airflow_cloudfiles.engine.processes import descendants

CRASH_AT = "CLOUDFILES_CRASH_AT"
"""Environment variable: `<point>` or `<point>:<k>`, to be killed at the k-th passage (from 1).

Or `@<path>`, a local file that holds one of these, written when processes already run (those of a
Spark Connect server, say). The one process that dies renames it to `<path>.taken-<its pid>`."""

DRIVER = "CLOUDFILES_CRASH_DRIVER"
"""Environment variable: process id of the Spark driver that is to die with its helpers."""

_passages: Counter[tuple[str, int]] = Counter()


def crash_point(name: str) -> None:
    """Pass a named point; be killed there when the environment asks for it.

    Args:
        name: The point, for instance `after-file-log-append`.
    """
    wanted = os.environ.get(CRASH_AT)
    if not wanted:
        return
    order, path = 0, wanted[1:] if wanted[0] == "@" else ""
    if path:
        wanted, order = _read_order(path)
    point, _, passage = wanted.partition(":")
    if point != name:
        return
    _passages[name, order] += 1
    if _passages[name, order] == int(passage or 1) and (not path or _is_taken(path)):
        _kill()


def _read_order(path: str) -> tuple[str, int]:
    """Read what a file asks for, and when it was written: passages before that do not count."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - of one file, whole
            return file.read().strip(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return "", 0


def _is_taken(path: str) -> bool:
    """Tell whether this process is the one that dies of the file."""
    try:
        os.rename(path, f"{path}.taken-{os.getpid()}")  # noqa: PTH104 - as above
    except FileNotFoundError:  # another one was
        return False
    return True


def be_the_driver() -> None:
    """Mark this process as the one that dies when one of its Spark helpers passes a crash point.

    Planning, reading and committing happen in Python processes beside the driver. Killing only
    the helper would be an error that Spark sees and reports; a lost machine is not.
    """
    if os.environ.get(CRASH_AT):
        os.environ[DRIVER] = str(os.getpid())


def _kill() -> None:
    """Kill this process, and before it the driver and whatever that has started."""
    driver = int(os.environ.get(DRIVER, "0"))
    if driver:
        # First the driver: it must not see the others end.
        below = descendants(driver)
        for pid in (driver, *below):
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
