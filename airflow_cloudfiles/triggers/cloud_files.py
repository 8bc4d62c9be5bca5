"""Have Airflow learn that files have arrived, once each, without a worker that waits.

A trigger only checks whether there is something to ingest and fires an event: it acknowledges no
message, records nothing and never names files. The task that the event starts discovers and records
in its worker, because an event may be lost, repeated or late, and a task may fail between the event
and its start. See docs/decisions/0025-trigger-events.md.

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

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_cloudfiles.engine.intake.results import Arrivals
from airflow_cloudfiles.hooks.arguments import (
    StreamArguments,
    as_text,
    check_at_parse,
    options_of,
)
from airflow_cloudfiles.hooks.assets import location_of
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.silence import is_past, soonest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable
    from typing import Unpack

    from airflow_cloudfiles.hooks.keywords import StreamFields


def judged(arrivals: Arrivals, before: object) -> tuple[bool, dict[str, Any] | None]:
    """Decide whether what was found now is due an event.

    Args:
        arrivals: What was found.
        before: The memory of the watcher: what was there at the last check, as this function gives
            it; anything else where nothing was.

    Returns:
        Whether it is; and what was there now, as plain values, or `None` when nothing was.
    """
    if not arrivals:
        return False, None
    memory: dict[str, Any] = {
        "head": arrivals.head.to_json(),
        "unrecorded": arrivals.unrecorded,
        "messages": arrivals.messages,
        "newest_us": arrivals.newest_us,
    }
    if not isinstance(before, dict):
        return True, memory
    newest_us = int(before.get("newest_us") or 0)
    memory["newest_us"] = max(newest_us, arrivals.newest_us)  # a check sees some of them
    is_waiting = arrivals.unrecorded or arrivals.messages > 0
    was_waiting = before.get("unrecorded") or before.get("messages")
    if is_waiting and not (was_waiting and before.get("head") == memory["head"]):
        return True, memory
    is_more = arrivals.messages > int(before.get("messages") or 0)
    return is_more or arrivals.newest_us > newest_us, memory


_log = logging.getLogger(__name__)
_Seen = TypeVar("_Seen")

MEMORY = "cloudfiles_trigger_events"
"""Key of the asset's state store (Airflow 3.3) under which a watcher keeps what it fired for."""

_LEAST_PAUSE = 1.0
LONGEST_PAUSE_SECONDS = 600.0
"""Between two checks that fail."""


async def read_memory(trigger: BaseEventTrigger, key: str, problem: str) -> dict[str, Any] | None:
    """Read what a watcher has stored for its asset; `None` for nothing, and before Airflow 3.3.

    Args:
        trigger: The watcher.
        key: Of its memory in the asset's state store.
        problem: What is logged where the store fails, before the reason.
    """
    store = _store_of(trigger)
    if store is None:
        return None
    try:
        memory = await store.aget(key)
    except Exception as failure:  # noqa: BLE001 - a store that fails costs one more event
        _log.warning("%s: %s", problem, failure)
        return None
    return memory if isinstance(memory, dict) and memory else None


async def write_memory(
    trigger: BaseEventTrigger, key: str, memory: dict[str, Any], problem: str
) -> None:
    """Store what a watcher is to know later; arguments as of `read_memory`."""
    store = _store_of(trigger)
    if store is None:
        return
    try:
        await store.aset(key, memory)
    except Exception as failure:  # noqa: BLE001 - a store that fails costs one more event
        _log.warning("%s: %s", problem, failure)


async def repeated(
    check: Callable[[], _Seen],
    what: str,
    poke_interval: float,
    *,
    pause_after: Callable[[_Seen], float] | None = None,
    ends_at: float | None = None,
) -> AsyncIterator[_Seen | None]:
    """Check again and again, never in the event loop's own thread; `None` for a failed check.

    Args:
        check: Makes one check.
        what: Is checked, for the log.
        poke_interval: Seconds between two checks, and before the first one.
        pause_after: Gives the seconds after a check, where that may be fewer.
        ends_at: When the last check is, in seconds since 1970, if there is one.
    """
    pause = poke_interval
    while True:
        left = pause if ends_at is None else ends_at - time.time()
        await asyncio.sleep(max(0.0, min(pause, left)))
        seen: _Seen | None = None
        try:
            seen = await asyncio.to_thread(check)
            pause = poke_interval if pause_after is None else pause_after(seen)
        except Exception as failure:  # noqa: BLE001 - a store that fails costs one more event
            pause = max(poke_interval, min(2 * max(pause, 1.0), LONGEST_PAUSE_SECONDS))
            _log.warning(
                "Checking %s failed; the next check is in %.0f s: %s", what, pause, failure
            )
        yield seen


def _store_of(trigger: BaseEventTrigger) -> Any:
    """Return the state store of the one asset that is watched; `None` before Airflow 3.3."""
    store = getattr(trigger, "asset_state_store", None)
    return store if hasattr(store, "aget") and hasattr(store, "aset") else None


class CloudFilesTrigger(BaseEventTrigger):
    """Fire an event when a stream has something to ingest.

    In an `AssetWatcher` it starts a DAG run for what arrived; `CloudFilesSensor(deferrable=True)`
    waits with it. Watchers of one stream share one poller, however many assets they belong to
    (Airflow 3.3). Nothing in a watcher is templated.

    Args:
        conn_id: Connection that says how the cloud is reached, or where relative locations begin.
        poke_interval: Seconds between two checks, and before the first one.
        ends_at: When a deferred task is resumed though nothing arrived, in seconds since 1970: were
            it Airflow that ends the trigger, a quiet time would be an error in the task's log.
        wakes_at: When a deferred task is resumed before that, to tell people that nothing arrives.
        stream: The fields of `StreamArguments`. Options are stored in Airflow's database:
            credentials are refused.
    """

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        poke_interval: float = 60.0,
        ends_at: float | None = None,
        wakes_at: float | None = None,
        **stream: Unpack[StreamFields],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        given: dict[str, Any] = {name: _location(value) for name, value in stream.items()}
        given["options"] = _decoded(options_of(stream.get("options")))
        self.stream = StreamArguments(**given)
        self.conn_id = conn_id
        self.poke_interval = poke_interval
        self.ends_at = ends_at
        self.wakes_at = wakes_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Describe how the triggerer makes this trigger again.

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
                **({} if self.ends_at is None else {"ends_at": self.ends_at}),
                **({} if self.wakes_at is None else {"wakes_at": self.wakes_at}),
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check every `poke_interval` seconds, and fire events.

        A deferred task is resumed by a check that fails too, once: the worker meets the error and
        handles it as in the other modes of the sensor. A watcher goes on for ever; Airflow would
        start it again within seconds, so it waits longer itself.
        """
        if self._is_watcher():
            async for event in self.filter_shared_stream(
                _checks(self.stream, self.conn_id, self.poke_interval)
            ):
                yield event
        else:
            first = soonest(self.ends_at, self.wakes_at)
            async for seen in _checks(self.stream, self.conn_id, self.poke_interval, first):
                is_over = is_past(self.ends_at)
                if seen is None or seen or is_past(first):
                    yield self._event(arrived=bool(seen), is_over=is_over)
                    return

    def shared_stream_key(self) -> Hashable | None:
        """Name what is checked: watchers with the same key share one poller (Airflow 3.3).

        A deferred task has a poller of its own: an event soon after its deferral could be lost.
        """
        if not self._is_watcher():
            return None
        path, arguments = self.serialize()
        return (path, *(repr(sorted(_plain(value))) for value in arguments.items()))

    def _is_watcher(self) -> bool:
        """Tell whether this is not the trigger of a deferred task: those have an end."""
        return getattr(self, "task_instance", None) is None and self.ends_at is None

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Arrivals | None]:
        """Check, for every watcher with this key."""
        one = cls(**kwargs)
        async for seen in _checks(one.stream, one.conn_id, one.poke_interval):
            yield seen

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Arrivals | None]
    ) -> AsyncIterator[TriggerEvent]:
        """Fire once for what the poller found, a shared one or its own.

        What was fired for is stored at the next check, when Airflow has the event in its database:
        a triggerer that dies in between fires twice rather than never.
        """
        problem = "The state of the watcher cannot be read; it may fire again for known files"
        memory = stored = await read_memory(self, MEMORY, problem)
        async for seen in shared_stream:
            if seen is None:
                continue
            if memory != stored:
                problem = (
                    "The state of the watcher cannot be stored; it may fire again after a restart"
                )
                await write_memory(self, MEMORY, memory or {}, problem)
                stored = memory
            should_fire, memory = judged(seen, memory)
            if should_fire:
                yield self._event()

    def _event(self, *, arrived: bool = True, is_over: bool = False) -> TriggerEvent:
        return TriggerEvent(  # type: ignore[no-untyped-call]  # Airflow's
            {
                "source": self.stream.source,
                "checkpoint_location": self.stream.checkpoint_location,
                "arrived": arrived,
                **({"is_over": True} if is_over else {}),
                **({} if self.ends_at is None else {"ends_at": self.ends_at}),
            }
        )


def _checks(
    stream: StreamArguments, conn_id: str | None, poke_interval: float, ends_at: float | None = None
) -> AsyncIterator[Arrivals | None]:
    """Check a stream again and again."""
    return repeated(
        lambda: CloudFilesHook(conn_id).check(stream),
        f"{stream.source} for new files",
        poke_interval,
        pause_after=lambda seen: _pause(seen, poke_interval),
        ends_at=ends_at,
    )


def _pause(seen: Arrivals | None, poke_interval: float) -> float:
    """Until the next check: less than usual where a file that was found has settled before."""
    settles = None if seen is None or seen.waiting is None else seen.waiting.settles_in_seconds
    return poke_interval if settles is None else min(poke_interval, max(_LEAST_PAUSE, settles))


def _location(given: object) -> object:
    """Encode an argument for the database: a path as its text, an asset as its URI."""
    return as_text(location_of(given))


def _decoded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the options of a watcher for the database.

    Airflow 3.2 hands them over as it has serialized them.
    """
    encoded = options.get("Encoding.VAR")
    found = encoded if isinstance(encoded, Mapping) else options
    plain = (bool, int, float, str)
    return {name: each if isinstance(each, plain) else str(each) for name, each in found.items()}


def _plain(item: tuple[str, object]) -> list[str]:
    """Encode an argument as strings, whatever order its options were written in."""
    name, value = item
    if isinstance(value, Mapping):
        return [f"{name}.{option}={text!r}" for option, text in value.items()]
    return [f"{name}={value!r}"]
