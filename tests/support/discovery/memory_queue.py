"""A queue in this process: it lends messages, and shows them again, as the three services do."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.events import FileEvent, IgnoredMessage, Poison
from airflow_cloudfiles.engine.discovery.queues.base import Message, WaitingMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.engine.discovery.events import Parsed

_MOST = 10


class MemoryQueue:
    """A queue of keys of new files; `?` before one makes it poison, `!` the end of a file.

    Args:
        root: URI of what the keys are in.

    Attributes:
        calls: How many requests were made.
    """

    name = "memory queue"
    batch_size = _MOST

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._messages: dict[str, Message] = {}
        self._hidden: dict[str, float] = {}
        self._ids = itertools.count()
        self.calls = 0

    def send(self, *bodies: bytes) -> None:
        with self._lock:
            for body in bodies:
                name = str(next(self._ids))
                sent_us = time.time_ns() // 1000
                self._messages[name] = Message(name, "", body, sent_us=sent_us)

    def receive(self, seconds: int) -> list[Message]:
        now = time.monotonic()
        with self._lock:
            self.calls += 1
            shown = (each for name, each in self._messages.items() if self._is_shown(name, now))
            found = list(itertools.islice(shown, _MOST))
            for message in found:
                message.receipt = f"{message.id}-{next(self._ids)}"
                message.receive_count += 1
                self._hidden[message.id] = now + seconds
            return found

    def _is_shown(self, name: str, now: float) -> bool:
        return self._hidden.get(name, 0.0) <= now

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        with self._lock:
            self.calls += 1
            for message in messages:
                self._hidden[message.id] = time.monotonic() + seconds
        return []

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        with self._lock:
            self.calls += 1
            for message in messages:
                self._messages.pop(message.id, None)
        return []

    def approximate_size(self) -> int:
        with self._lock:
            self.calls += 1
            return len(self._messages)

    def look(self) -> WaitingMessages:
        return WaitingMessages(self.approximate_size())

    def parse(self, message: Message) -> Parsed:
        key = message.body.decode()
        if key.startswith("?"):
            return Poison("not an event")
        if key.startswith("!"):
            return IgnoredMessage("the end of a file")
        return [
            FileEvent(
                location=f"{self._root}/{key}", size=1, time_us=message.sent_us or 0, etag="e"
            )
        ]
