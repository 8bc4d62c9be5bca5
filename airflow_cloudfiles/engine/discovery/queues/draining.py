"""Receive the messages of a queue until it is empty, and keep them hidden meanwhile.

Threads receive until there is nothing left to do. No single answer shows it: a queue that is spread
over many servers may seem empty; one that files trickle into never is. A thread ends

- after two receives in a row that brought nothing new, or
- after five in a row that brought nothing sent before the run began. What arrives during a run may
  wait for the next one, so a run ends although its source never rests.

Who has drained the queue just now does so again and again, as a continuous query does. Then one
receive of either kind is enough: what it has missed is found a moment later, and what it has
brought is ingested a few seconds sooner.

A message that stays in the queue (poison, or one that could not be deleted) comes back when its
time is over. It is not handled again, and does not count as something new.

Of messages that come in order (a FIFO queue, ordering keys), nobody is given more while some of
their group are in hand. So an empty answer says nothing then: the thread has what it was given
recorded and deleted first. And poison is shown again at once, or it would hold up its group.

A received message is hidden from others for a while. Recording its file may take longer: a slow
store, a renamed folder with a million files. So a thread keeps hiding again what is held. When that
fails, somebody else may receive the message: its file is recorded once all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Self

from airflow_cloudfiles.engine.discovery.queues.base import Message, MessageQueue, as_queue_error

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


_log = logging.getLogger(__name__)

EMPTY_RECEIVES = 2
LATE_RECEIVES = 5
AGAIN_SECONDS = 10.0
"""Who drains a queue this soon after it was drained will do so again."""
_TICK_SECONDS = 0.25
_LOOK_SECONDS = 0.02
_SEVERAL = 2
"""Of so many groups, others may have more meanwhile."""


class Drain:
    """Receives messages with some threads, until nothing is left to do.

    Args:
        queue: What is drained.
        heartbeat: Holds what was received.
        threads: How many receive (`cloudFiles.fetchParallelism`).
        hidden_seconds: How long a received message is hidden at first.
        comes_again: Whether the queue was drained just now, and will be again soon.

    Attributes:
        receives: How many times messages were asked for.
        redelivered: How many messages had been delivered before, to this run or another one.
    """

    def __init__(
        self,
        queue: MessageQueue,
        heartbeat: Heartbeat,
        threads: int,
        hidden_seconds: int,
        *,
        comes_again: bool = False,
    ) -> None:
        self._queue = queue
        self._heartbeat = heartbeat
        self._hidden_seconds = hidden_seconds
        self._comes_again = comes_again
        self._most_empty, self._most_late = (
            (1, 1) if comes_again else (EMPTY_RECEIVES, LATE_RECEIVES)
        )
        self._began_us = time.time_ns() // 1000
        self._batches: Queue[list[Message]] = Queue(maxsize=2 * threads)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._left: set[str] = set()
        self._undeleted: set[str] = set()
        self._again: list[Message] = []
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"cloudfiles-receive-{n}", daemon=True)
            for n in range(threads)
        ]
        self.receives = 0
        self.redelivered = 0
        self._in_hand: set[str] = set()
        self._held_up = 0

    @property
    def is_held_up(self) -> bool:
        """Whether what was received has to be deleted before there can be more."""
        return self._held_up > 0

    @property
    def is_ending(self) -> bool:
        """Whether little more is to come, and somebody waits for what has come."""
        return self._comes_again and not all(thread.is_alive() for thread in self._threads)

    def batches(self) -> Iterator[list[Message]]:
        """Give what was received, each message once; an empty list now and then, while waiting.

        Raises:
            QueueAccessError: There is no such queue, or the identity may not read it.
            QueueError: The service failed.
        """
        for thread in self._threads:
            thread.start()
        while True:
            ended = not any(thread.is_alive() for thread in self._threads)
            try:
                yield self._batches.get(timeout=0 if ended else _TICK_SECONDS)
            except Empty:
                if isinstance(self._failure, OSError):
                    raise as_queue_error(self._failure) from self._failure
                if self._failure is not None:
                    raise self._failure from None
                if ended:
                    return
                yield []

    def stop(self) -> None:
        """End the threads; what they hold stays in the heartbeat's hands."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def leave(self, message: Message) -> None:
        """Never give a message again, because it stays in the queue."""
        with self._lock:
            self._left.add(message.id)
            self._in_hand.discard(message.id)
        self._put_back([message])

    def end(self, messages: Iterable[Message]) -> None:
        """Note that messages were deleted, or could not be: their groups may have more."""
        with self._lock:
            self._in_hand.difference_update(message.id for message in messages)

    def leave_undeleted(self, message: Message) -> None:
        """Give a message again once, to `undeleted_again`, because it could not be deleted."""
        with self._lock:
            if message.id not in self._left:
                self._undeleted.add(message.id)
            self._left.add(message.id)

    def undeleted_again(self) -> list[Message]:
        """Take the undeleted messages that came back, with receipts that may serve now."""
        with self._lock:
            messages, self._again = self._again, []
        return messages

    def _run(self) -> None:
        try:
            self._receive_until_empty()
        except BaseException as failure:  # noqa: BLE001 - raised again by `batches`
            self._failure = failure
            self._stopping.set()

    def _receive_until_empty(self) -> None:
        empty = late = 0
        while empty < self._most_empty and late < self._most_late and not self._stopping.is_set():
            messages = self._queue.receive(self._hidden_seconds)
            fresh = self._admit(messages)
            is_held_up = self._is_held_up(fresh)
            if fresh or not is_held_up:
                empty = 0 if fresh else empty + 1
                late = 0 if any(self._is_early(message) for message in fresh) else late + 1
            if is_held_up:
                self._hand_over_and_wait(fresh)
            elif fresh:
                self._hand_over(fresh)

    def _admit(self, messages: list[Message]) -> list[Message]:
        """Hold messages, and leave out those that this run has had."""
        held = self._heartbeat.hold(messages)
        with self._lock:
            fresh = [message for message in held if message.id not in self._left]
            again = [message for message in held if message.id in self._undeleted]
            self._undeleted.difference_update(message.id for message in again)
            self._again += again
            self._in_hand.update(message.id for message in fresh if message.group)
            self.receives += 1
            self.redelivered += len(messages) - len(fresh)
            self.redelivered += sum(message.receive_count > 1 for message in fresh)
            gone = [m for m in held if m.id in self._left and m not in again]
        self._put_back(gone)
        return fresh

    def _put_back(self, messages: list[Message]) -> None:
        """Let go of messages that stay in the queue; their groups do not wait for them."""
        self._heartbeat.release(messages)
        for message in messages:
            if message.group:
                try:
                    self._queue.hide([message], 0)
                except OSError as failure:
                    _log.info("Message %s holds up its group for a while: %s", message.id, failure)

    def _is_held_up(self, fresh: list[Message]) -> bool:
        """Tell whether there can be no more before the messages in hand are deleted."""
        groups = {message.group for message in fresh}
        return groups != {""} and bool(self._in_hand) and len(groups) < _SEVERAL

    def _hand_over_and_wait(self, fresh: list[Message]) -> None:
        """Have everything that is in hand recorded and deleted."""
        with self._lock:
            self._held_up += 1
        if fresh:
            self._hand_over(fresh)
        while self._in_hand and not self._stopping.wait(_LOOK_SECONDS):
            pass
        with self._lock:
            self._held_up -= 1

    def _is_early(self, message: Message) -> bool:
        return message.sent_us is None or message.sent_us < self._began_us

    def _hand_over(self, messages: list[Message]) -> None:
        while not self._stopping.is_set():
            try:
                self._batches.put(messages, timeout=_TICK_SECONDS)
            except Full:
                continue
            return
