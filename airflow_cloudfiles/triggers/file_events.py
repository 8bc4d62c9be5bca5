"""Start the DAGs whose folders got files by one watcher of a bucket.

All watchers of a bucket share one poller (Airflow 3.3), which drains the queue into the event log
and reads what is new; each counts the files of its folder. An event only says that there is
something, and how much was announced: the task that it starts finds the files itself, in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_cloudfiles.engine.extensions.event_log.collector import LogCheck
from airflow_cloudfiles.hooks.arguments import as_text
from airflow_cloudfiles.hooks.assets import location_of
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.triggers.cloud_files import read_memory, repeated, write_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

MEMORY = "cloudfiles_file_events"
"""Key of the asset's state store (Airflow 3.3) under which a watcher keeps how far it has read."""

STORED_ENTRIES = 50
"""After so many entries without a file of its folder, a watcher stores how far it has read."""


class CloudFilesEventsTrigger(BaseEventTrigger):
    """Fire an event when the event log of a bucket announces files of a folder.

    For an `AssetWatcher`: an asset for each folder, and one poller for all of them. The event's
    `extra` has the payload `{"source", "files", "bytes"}`: how many files were announced since the
    last event, which may count one twice; `files` is `None` where that is not known, because the
    watcher is new or the log was not kept so long. Nothing in a watcher is templated.

    Args:
        events_location: Path or URI of the event log (`cloudFiles.fileEventsLocation`).
        source: The folder, as the stream has it, without a pattern.
        conn_id: Connection that says how the cloud is reached.
        poke_interval: Seconds between two checks, and before the first one.
    """

    def __init__(
        self,
        *,
        events_location: str,
        source: str,
        conn_id: str | None = None,
        poke_interval: float = 10.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.events_location = as_text(events_location)
        self.source = as_text(location_of(source))
        self.conn_id = conn_id
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Describe how the triggerer makes this trigger again."""
        return (
            f"{__name__}.{type(self).__name__}",
            {
                "events_location": self.events_location,
                "source": self.source,
                "conn_id": self.conn_id,
                "poke_interval": self.poke_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check every `poke_interval` seconds, and fire events; goes on for ever."""
        checks = _checks(self.events_location, self.conn_id, self.poke_interval)
        async for event in self.filter_shared_stream(checks):
            yield event

    def shared_stream_key(self) -> Hashable | None:
        """Name what is polled: watchers with the same key share one poller (Airflow 3.3)."""
        return (__name__, self.events_location, self.conn_id, self.poke_interval)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[LogCheck]:
        """Check, for every watcher with this key."""
        one = cls(**kwargs)
        async for check in _checks(one.events_location, one.conn_id, one.poke_interval):
            yield check

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[LogCheck]
    ) -> AsyncIterator[TriggerEvent]:
        """Fire for files of the folder that the poller found, a shared one or its own.

        How far that goes is stored at the next check, when Airflow has the event in its database: a
        triggerer that dies in between fires twice rather than never.
        """
        problem = "How far the watcher has read is not known; it fires once"
        stored = memory = _place(await read_memory(self, MEMORY, problem))
        is_due = False
        async for check in shared_stream:
            if memory is not None and (is_due or _is_far(stored, memory)):
                problem = "How far the watcher has read cannot be stored"
                await write_memory(self, MEMORY, memory, problem)
                stored = memory
            files, size = await self._arrived(check, memory)
            memory = {"log": check.log, "next": check.end}
            is_due = files != 0
            if is_due:
                yield TriggerEvent(  # type: ignore[no-untyped-call]  # Airflow's
                    {"source": self.source, "files": files, "bytes": size}
                )

    async def _arrived(
        self, check: LogCheck, memory: dict[str, Any] | None
    ) -> tuple[int | None, int | None]:
        """Count the files since the last check of this watcher; `None` where that is not known."""
        if memory is None or memory["log"] != check.log or check.is_gone:
            return None, None
        start, parts = int(memory["next"]), []
        while start < check.start:  # what came before the poller began
            part = await asyncio.to_thread(
                CloudFilesHook(self.conn_id).check_events,
                self.events_location,
                start,
                end=check.start,
            )
            if part.is_gone or part.end <= start:
                return None, None
            parts.append(part)
            start = part.end
        found = [
            each
            for part in (*parts, check)
            for each in part.below(self.source)
            if each.entry >= int(memory["next"])
        ]
        return len(found), sum(each.size for each in found)


def _place(memory: dict[str, Any] | None) -> dict[str, Any] | None:
    """Read a place in a log, as a watcher stores it; return `None` for anything else."""
    match memory:
        case {"log": str(), "next": int()}:
            return memory
    return None


def _is_far(stored: dict[str, Any] | None, memory: dict[str, Any] | None) -> bool:
    if stored is None or memory is None or stored["log"] != memory["log"]:
        return stored != memory
    return bool(memory["next"] - stored["next"] >= STORED_ENTRIES)


async def _checks(
    events_location: str, conn_id: str | None, poke_interval: float
) -> AsyncIterator[LogCheck]:
    """Check an event log again and again, each time from where the last check ended."""
    start: int | None = None

    def check() -> LogCheck:
        return CloudFilesHook(conn_id).check_events(events_location, start)

    async for seen in repeated(check, f"the event log in {events_location}", poke_interval):
        if seen is not None:
            start = seen.end
            yield seen
