"""Which warm Sparks does this user have on this machine, and how is one ended?"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from airflow_cloudfiles.engine.job.warm import wire
from airflow_cloudfiles.engine.job.warm.client import end_hung
from airflow_cloudfiles.engine.job.warm.instances import Instance, instances, remove_dead_ones

STOP_SECONDS = 30.0
"""How long one may take to end until it counts as hung."""
_STATUS_SECONDS = 5.0
_POLL_SECONDS = 0.05


def found() -> list[dict[str, Any]]:
    """The status of each one that is alive, the newest first.

    Returns:
        What each says of itself, with `answers`; of one that does not answer, only
        `folder` and `answers`.
    """
    return [_status(each) for each in instances() if each.is_alive()]


def stop_all() -> list[dict[str, Any]]:
    """End all of this user's, and everything that they have started, and wait for it.

    Runs in progress fail, and can be tried again. Doing it twice is harmless.

    Returns:
        What each was (`found`), with `ended`.
    """
    stopped = []
    for each in instances():
        if each.is_alive():
            status = _status(each)
            stopped.append({**status, "ended": _stop(each)})
    remove_dead_ones()
    return stopped


def _status(instance: Instance) -> dict[str, Any]:
    status: dict[str, Any] = {"folder": str(instance.folder), "answers": False}
    with contextlib.suppress(OSError, EOFError, ValueError):
        status |= {**wire.ask(instance, wire.STATUS, _STATUS_SECONDS), "answers": True}
    return status


def _stop(instance: Instance) -> bool:
    """End one, and kill it where it does not."""
    with contextlib.suppress(OSError, EOFError, ValueError):
        wire.ask(instance, wire.STOP, _STATUS_SECONDS)
        if _has_ended(instance):
            return True
    with contextlib.suppress(OSError), wire.connected(instance) as connection:
        end_hung(instance, wire.peer(connection))
    return _has_ended(instance)


def _has_ended(instance: Instance) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while instance.is_alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
