"""How does Airflow learn that files have arrived, without a worker that waits?

A trigger only rings: it looks whether there is something to ingest, receives no message for good,
records nothing and never says which files. A task that is woken looks for itself and records in the
worker, because an event may be lost, doubled or come late, and a task may fail between the ring and
its start. See docs/decisions/0025-doorbells.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.triggers import BaseEventTrigger
from airflow.triggers.base import TriggerEvent

from airflow_cloudfiles.engine.intake.results import Arrivals
from airflow_cloudfiles.hooks.arguments import StreamArguments, check_at_parse
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.triggers.event_deduplication import Doorbell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

_log = logging.getLogger(__name__)

MEMORY = "cloudfiles_doorbell"
"""Key of the asset's state store (Airflow 3.3) under which a watcher keeps what it has rung for."""

LONGEST_PAUSE_SECONDS = 600.0
"""Between two looks that fail."""


class CloudFilesTrigger(BaseEventTrigger):
    """Ring when a stream has something to ingest.

    In an `AssetWatcher` it makes a DAG run for what arrived; `CloudFilesSensor(deferrable=True)`
    waits with it. Watchers of one stream share one poller, however many assets they belong to
    (Airflow 3.3). Nothing in a watcher is templated.

    Args:
        conn_id: Connection that says how the cloud is reached, or where relative locations begin.
        poke_interval: Seconds between two looks, and before the first one.
        stream: The fields of `StreamArguments`. Options are stored in Airflow's database:
            credentials are refused.
    """

    def __init__(
        self, *, conn_id: str | None = None, poke_interval: float = 60.0, **stream: Any
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.stream = StreamArguments(**{**stream, "options": dict(stream.get("options") or {})})
        self.conn_id = conn_id
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how this trigger is made again in the triggerer.

        Raises:
            OptionError: An option is not valid. Here and not in `__init__`, where an error would
                end the triggerer and not this trigger.
        """
        stream = self.stream
        check_at_parse(source=stream.source, format=stream.format, options=stream.options)
        return (
            f"{__name__}.{type(self).__name__}",
            {
                **stream.as_keywords(),
                "conn_id": self.conn_id,
                "poke_interval": self.poke_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every `poke_interval` seconds, and ring.

        A deferred task is woken by a look that fails too, once: the worker meets the error where
        it is judged, as in the other modes of the sensor. A watcher goes on for ever; Airflow would
        start it again within seconds, so it waits longer itself.
        """
        if getattr(self, "task_instance", None) is None:
            async for event in self._rings(_looks(self.stream, self.conn_id, self.poke_interval)):
                yield event
        else:
            async for seen in _looks(self.stream, self.conn_id, self.poke_interval):
                if seen is None or seen:
                    yield self._event(arrived=bool(seen))
                    return

    def shared_stream_key(self) -> Hashable | None:
        """Name what is looked at: watchers with the same key share one poller (Airflow 3.3).

        A deferred task has a poller of its own: an event soon after its deferral could be lost.
        """
        if getattr(self, "task_instance", None) is not None:
            return None
        path, arguments = self.serialize()
        return (path, *(repr(sorted(_plain(value))) for value in arguments.items()))

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Arrivals | None]:
        """Look, for every watcher with this key."""
        one = cls(**kwargs)
        async for seen in _looks(one.stream, one.conn_id, one.poke_interval):
            yield seen

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Arrivals | None]
    ) -> AsyncIterator[TriggerEvent]:
        """Ring for what the shared poller saw."""
        async for event in self._rings(shared_stream):
            yield event

    async def _rings(self, looks: AsyncIterator[Arrivals | None]) -> AsyncIterator[TriggerEvent]:
        """Ring once for what arrived.

        What was rung for is stored at the next look, when Airflow has the event in its database: a
        triggerer that dies in between rings twice rather than never.
        """
        bell = stored = await self._remembered()
        async for seen in looks:
            if seen is None:
                continue
            if bell != stored:
                await self._remember(bell)
                stored = bell
            doorbell = Doorbell(bell)
            rings = doorbell.rings(seen)
            bell = doorbell.memory
            if rings:
                yield self._event()

    def _event(self, *, arrived: bool = True) -> TriggerEvent:
        return TriggerEvent(  # type: ignore[no-untyped-call]  # Airflow's
            {
                "source": self.stream.source,
                "checkpoint_location": self.stream.checkpoint_location,
                "arrived": arrived,
            }
        )

    async def _remembered(self) -> dict[str, Any] | None:
        """What this asset's watcher has rung for, before this triggerer was started."""
        store = self._store()
        if store is None:
            return None
        try:
            memory = await store.aget(MEMORY)
        except Exception as failure:  # noqa: BLE001 - a store that fails costs one further ring
            _log.warning("What was rung for cannot be read; ringing again. %s", failure)
            return None
        return memory if isinstance(memory, dict) and memory else None

    async def _remember(self, memory: dict[str, Any] | None) -> None:
        store = self._store()
        if store is None:
            return
        try:
            await store.aset(MEMORY, memory or {})
        except Exception as failure:  # noqa: BLE001 - as above
            _log.warning("What was rung for cannot be stored. %s", failure)

    def _store(self) -> Any:
        """The state store of the one asset that is watched; none before Airflow 3.3."""
        store = getattr(self, "asset_state_store", None)
        return store if hasattr(store, "aget") and hasattr(store, "aset") else None


async def _looks(
    stream: StreamArguments, conn_id: str | None, poke_interval: float
) -> AsyncIterator[Arrivals | None]:
    """Look again and again, never in the event loop's own thread; `None` for a look that failed."""
    pause = poke_interval
    while True:
        await asyncio.sleep(pause)
        try:
            seen: Arrivals | None = await asyncio.to_thread(CloudFilesHook(conn_id).look, stream)
            pause = poke_interval
        except Exception as failure:  # noqa: BLE001 - whatever it is, the bell has to stay
            seen = None
            pause = max(poke_interval, min(2 * max(pause, 1.0), LONGEST_PAUSE_SECONDS))
            _log.warning(
                "Looking for files in %s failed, next try in %.0f s: %s",
                stream.source,
                pause,
                failure,
            )
        yield seen


def _plain(item: tuple[str, object]) -> list[str]:
    """An argument as texts, whatever order its options were written in."""
    name, value = item
    if isinstance(value, Mapping):
        return [f"{name}.{option}={text!r}" for option, text in value.items()]
    return [f"{name}={value!r}"]
