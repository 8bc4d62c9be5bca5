"""Which messages are in our hands, and how do they stay there?

A received message is hidden from others for a while. Recording its file may take longer: a slow
store, a renamed folder with a million files. So a thread keeps hiding again what is held. When that
fails, somebody else may receive the message: its file is recorded once all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_cloudfiles.engine.discovery.queues.base import Message, MessageQueue

_log = logging.getLogger(__name__)

HIDDEN_SECONDS = 60
"""How long a message is hidden at a time: after a crash, it is back that soon."""
RENEWAL_SECONDS = 20
"""How often it is hidden again; two renewals may fail."""


class Heartbeat:
    """Holds messages and keeps them hidden; safe to use from several threads.

    Args:
        queue: Where they come from.
        hidden_seconds: For how long they are hidden at a time.
        renewal_seconds: How long after that they are hidden again.
    """

    def __init__(
        self,
        queue: MessageQueue,
        hidden_seconds: int = HIDDEN_SECONDS,
        renewal_seconds: float = RENEWAL_SECONDS,
    ) -> None:
        self._queue = queue
        self._hidden_seconds = hidden_seconds
        self._renewal_seconds = renewal_seconds
        self._held: dict[str, tuple[Message, float]] = {}
        self._renewing: set[str] = set()
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._beat, name="cloudfiles-heartbeat", daemon=True)
        self.renewals = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def hold(self, messages: Iterable[Message]) -> list[Message]:
        """Take messages just received into the hand.

        Returns:
            Those that were not held already. One that was comes with a newer receipt, which is
            kept: the older one may be worth nothing now.
        """
        due = time.monotonic() + self._renewal_seconds
        fresh: list[Message] = []
        with self._changed:
            for message in messages:
                held = self._held.get(message.id)
                if held is None:
                    self._held[message.id] = (message, due)
                    fresh.append(message)
                else:
                    held[0].receipt = message.receipt
        return fresh

    def release(self, messages: Iterable[Message]) -> None:
        """Let go of messages; when it returns, none of them is being renewed any more."""
        ids = {message.id for message in messages}
        with self._changed:
            self._changed.wait_for(lambda: not ids & self._renewing)
            for each in ids:
                self._held.pop(each, None)

    def release_all(self) -> list[Message]:
        """Let go of everything."""
        with self._changed:
            messages = [message for message, _ in self._held.values()]
        self.release(messages)
        return messages

    def _beat(self) -> None:
        pause = min(self._renewal_seconds / 4, 1.0)
        while True:
            with self._changed:
                if self._stopped or self._changed.wait_for(lambda: self._stopped, pause):
                    return
            for some in batched(self._due(), self._queue.batch_size):
                self._renew(some)

    def _due(self) -> list[Message]:
        now = time.monotonic()
        with self._changed:
            return [message for message, due in self._held.values() if due <= now]

    def _renew(self, messages: Sequence[Message]) -> None:
        with self._changed:
            still = [message for message in messages if message.id in self._held]
            self._renewing = {message.id for message in still}
        try:
            failed = self._queue.hide(still, self._hidden_seconds) if still else []
        except Exception as failure:  # noqa: BLE001 - a thread that ended here would be waited for
            _log.warning("Messages of %s could not be kept hidden: %s", self._queue.name, failure)
            failed = still
        due = time.monotonic() + self._renewal_seconds
        with self._changed:
            for message in still:
                if message.id in self._held:
                    self._held[message.id] = (message, due)
            self.renewals += len(still) - len(failed)
            self._renewing = set()
            self._changed.notify_all()


def batched(messages: Sequence[Message], size: int) -> list[Sequence[Message]]:
    """Cut messages into batches."""
    return [messages[start : start + size] for start in range(0, len(messages), size)]
