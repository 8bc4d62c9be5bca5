"""Does what waits for ingestion deserve a trigger event, or was one fired for it already?

An event of a watcher starts a DAG run. What arrived stays where it is until that run has ingested
it, which takes minutes, or for ever when the run fails; a trigger that fired at every check would
start a run at every check (apache/airflow #49900). The run that follows an event takes everything
that is there when it begins discovery. So an event is due only for what a run that was already
triggered may miss:

1. There is something, and there was nothing before.
2. A file that is not recorded, or a message, and at the last check there was none, or something has
   been recorded since: a run has discovered files, and this may have come after.
3. More messages in the queue than at the last check; or, where nobody counts them, one that was
   sent later than those seen before.

What is recorded and not yet ingested fires no event by itself: its run is under way, or has failed
and has to be cleared by a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.results import Arrivals


class EventDeduplication:
    """The memory of one watcher: what it has fired events for.

    Args:
        memory: The `memory` of an earlier one.
    """

    def __init__(self, memory: object = None) -> None:
        self.memory: dict[str, Any] | None = dict(memory) if isinstance(memory, dict) else None
        """What was there at the last check, as plain values; `None` when nothing was."""

    def should_fire(self, arrivals: Arrivals) -> bool:
        """Whether what was found now is due an event; it is remembered as seen."""
        before, self.memory = self.memory, None
        if not arrivals:
            return False
        self.memory = {
            "head": arrivals.head.to_json(),
            "unrecorded": arrivals.unrecorded,
            "messages": arrivals.messages,
            "newest_us": arrivals.newest_us,
        }
        if before is None:
            return True
        newest_us = int(before.get("newest_us") or 0)
        self.memory["newest_us"] = max(newest_us, arrivals.newest_us)  # a check sees some of them
        is_waiting = arrivals.unrecorded or arrivals.messages > 0
        was_waiting = before.get("unrecorded") or before.get("messages")
        if is_waiting and not (was_waiting and before.get("head") == self.memory["head"]):
            return True
        is_more = arrivals.messages > int(before.get("messages") or 0)
        return is_more or arrivals.newest_us > newest_us
