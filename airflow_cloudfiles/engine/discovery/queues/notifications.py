"""Find the files that the notifications in a queue announce.

The queue is drained at the start of a run:

1. Messages are received, and hidden from others; a heartbeat keeps them hidden.
2. Each is read. What is not understood stays in the queue: after some deliveries the queue's own
   policy moves it to its dead-letter queue.
3. The files of about a thousand messages, or of two seconds, are looked at and recorded.
4. Only then are the messages deleted, in batches. What fails is tried again, then left.

A kill before step 4 leaves messages whose files are recorded, or not. They are delivered again
within a minute; a file that is recorded is not recorded again.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import Recorder
from airflow_cloudfiles.engine.discovery.events import (
    AnnouncedFile,
    Candidates,
    FileEvent,
    IgnoredMessage,
    Poison,
    WantedFiles,
    sample,
)
from airflow_cloudfiles.engine.discovery.queues.base import (
    Message,
    MessageQueue,
    as_queue_error,
)
from airflow_cloudfiles.engine.discovery.queues.draining import (
    AGAIN_SECONDS,
    HIDDEN_SECONDS,
    RENEWAL_SECONDS,
    Drain,
    Heartbeat,
    batched,
)
from airflow_cloudfiles.engine.errors import ListingError, SourceAccessError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.storage.outage import is_transient

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore


_log = logging.getLogger(__name__)

GATHERED_MESSAGES = 1000
GATHERED_SECONDS = 2.0
RECORDED_FILES = 1000
"""Most files of one `record`; only a renamed folder has more."""
DELETE_TRIES = 3
_PAUSE_SECONDS = 0.2
_WORKERS = 16
_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class PoisonSample:
    """A message that was not understood.

    Attributes:
        message_id: Its id, to find it in the dead-letter queue.
        reason: What is wrong with it.
        receive_count: How often it was delivered; 0 when the service does not report it.
        body: How it begins, in printable ASCII.
    """

    message_id: str
    reason: str
    receive_count: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationReport:
    """What draining a queue came to.

    Attributes:
        queue: Name of the queue.
        received: Messages that were handled, each counted once.
        files: Files they announced that are wanted.
        new: Of these, how many nobody had recorded.
        duplicates: Of these, how many were recorded already, or announced twice.
        outside: Events of places that are not below the source.
        rejected: Files that the options leave out.
        ignored: Events that are not about a new file, by reason.
        not_there: URIs of the first files that were announced and are not there.
        poison: Messages that were not understood; they are still in the queue.
        poison_samples: The first five of them.
        deleted: Messages that were deleted.
        failed_deletes: Messages that were handled and may still be there; harmless.
        redelivered: Messages that had been delivered before, to this run or another one.
        receive_calls: How often messages were asked for.
        approximate_size_before: Messages in the queue at the start, hidden ones included; `None`
            where the service does not report it.
        approximate_size_after: The same at the end.
        seconds: How long it took.
    """

    queue: str
    received: int
    files: int
    new: int
    duplicates: int
    outside: int
    rejected: int
    ignored: dict[str, int]
    not_there: tuple[str, ...]
    poison: int
    poison_samples: tuple[PoisonSample, ...]
    deleted: int
    failed_deletes: int
    redelivered: int
    receive_calls: int
    approximate_size_before: int | None
    approximate_size_after: int | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Encode it as a report writes it."""
        return asdict(self)


@dataclass(eq=False)
class NotificationDiscovery:
    """Discovers the files that the messages in a queue announce; may do so again and again.

    Attributes:
        queue: Where the notifications of the source arrive.
        source: The source.
        filter: Which of its files are wanted.
        options: `fetch_parallelism`, `path_rewrites`, `identity`.
        hidden_seconds: How long a message is hidden at a time.
        renewal_seconds: How often it is hidden again.
    """

    queue: MessageQueue
    source: ObjectStore
    filter: WantedFiles
    options: DiscoveryOptions
    _: KW_ONLY
    hidden_seconds: int = HIDDEN_SECONDS
    renewal_seconds: float = RENEWAL_SECONDS
    _ended: float = field(default=-math.inf, init=False)

    def run(self, recorder: Recorder) -> NotificationReport:
        """Drain the queue: record the files, then delete the messages.

        Whatever goes wrong, messages whose files are not recorded stay in the queue.

        Raises:
            QueueAccessError: As `drain`, and so are the others.
        """
        return self.drain(
            lambda found: recorder.record([each.file for each in found], "notification"),
            recorder.record_gone,
        )

    def drain(
        self,
        keep: Callable[[Sequence[AnnouncedFile]], int],
        gone: Callable[[Sequence[str]], int] | None = None,
        *,
        looks: bool = True,
    ) -> NotificationReport:
        """Drain the queue: keep what is announced, then delete the messages.

        Args:
            keep: Makes files durable, and gives how many of them were new.
            gone: Makes durable which of some files are gone; `None`: nobody asks.
            looks: Whether to see that the files are there.

        Raises:
            QueueAccessError: There is no such queue, or the identity may not read it.
            QueueError: The service failed.
            ListingError: The source did not answer when it was asked about a file.
        """
        began = time.monotonic()
        size = self._size()
        candidates = Candidates(self.source, self.filter, self.options, looks=looks)
        with (
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="cloudfiles-notifications") as pool,
            Heartbeat(self.queue, self.hidden_seconds, self.renewal_seconds) as heartbeat,
        ):
            drain = Drain(
                self.queue,
                heartbeat,
                self.options.fetch_parallelism,
                self.hidden_seconds,
                comes_again=began - self._ended < AGAIN_SECONDS,
            )
            work = _QueueDrain(self.queue, keep, gone, candidates, heartbeat, drain, pool)
            try:
                work.drain()
            except BaseException:
                drain.stop()
                self._show(heartbeat.release_all())
                raise
        self._ended = time.monotonic()
        return self._report(work, size, self._ended - began)

    def _size(self) -> int | None:
        try:
            return self.queue.approximate_size()
        except OSError as failure:
            raise as_queue_error(failure) from failure

    def _show(self, messages: Sequence[Message]) -> None:
        """Let others see messages again at once, if that is possible."""
        try:
            for batch in batched(messages, self.queue.batch_size):
                self.queue.hide(batch, 0)
        except OSError as failure:
            _log.info(
                "%s of %s %s back in %s only: %s",
                counted(len(messages), "message"),
                self.queue.name,
                plural(len(messages), "comes", "come"),
                counted(self.hidden_seconds, "second"),
                failure,
            )

    def _report(self, work: _QueueDrain, size: int | None, seconds: float) -> NotificationReport:
        try:
            after = self.queue.approximate_size()
        except OSError as failure:
            _log.info("The number of messages in %s is unknown: %s", self.queue.name, failure)
            after = None
        counts = work.counts
        report = NotificationReport(
            queue=self.queue.name,
            received=counts["received"],
            files=counts["files"],
            new=counts["new"],
            duplicates=counts["files"] - counts["new"],
            outside=work.candidates.outside,
            rejected=work.candidates.rejected,
            ignored=dict(work.ignored + work.candidates.ignored),
            not_there=tuple(work.candidates.missing),
            poison=counts["poison"],
            poison_samples=tuple(work.samples),
            deleted=counts["deleted"],
            failed_deletes=len(work.undeleted),
            redelivered=work.messages.redelivered,
            receive_calls=work.messages.receives,
            approximate_size_before=size,
            approximate_size_after=after,
            seconds=round(seconds, 3),
        )
        _log.info(
            "%s: %s, %s, %d of them new, %d poison, about %s left",
            report.queue,
            counted(report.received, "message"),
            counted(report.files, "file"),
            report.new,
            report.poison,
            "? messages" if after is None else counted(after, "message"),
        )
        return report


@dataclass(slots=True)
class _QueueDrain:
    """One draining: what is gathered and what was counted."""

    queue: MessageQueue
    keep: Callable[[Sequence[AnnouncedFile]], int]
    gone: Callable[[Sequence[str]], int] | None
    candidates: Candidates
    heartbeat: Heartbeat
    messages: Drain
    pool: ThreadPoolExecutor
    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    samples: list[PoisonSample] = field(default_factory=list)
    undeleted: set[str] = field(default_factory=set)
    _held: list[Message] = field(default_factory=list)
    _events: list[tuple[FileEvent, Message]] = field(default_factory=list)

    def drain(self) -> None:
        """Handle what comes, until nothing comes any more."""
        due = float("inf")
        for messages in self.messages.batches():
            if messages:
                crash_point("after-receive")
                due = min(due, time.monotonic() + GATHERED_SECONDS)
            for message in messages:
                self._read(message)
            is_full = len(self._held) >= GATHERED_MESSAGES or time.monotonic() >= due
            if is_full or self.messages.is_held_up or (self._held and self.messages.is_ending):
                self._record_gathered()
                due = float("inf")
        self._record_gathered()

    def _read(self, message: Message) -> None:
        self.counts["received"] += 1
        result = self.queue.parse(message)
        if isinstance(result, Poison):
            self._events += ((event, message) for event in result.events)
            self._leave(message, result)
            return
        self._held.append(message)
        if isinstance(result, IgnoredMessage):
            self.ignored[result.reason] += 1
            self._events += ((event, message) for event in result.gone)
        else:
            self._events += ((event, message) for event in result)

    def _leave(self, message: Message, poison: Poison) -> None:
        """Leave a message that is not understood to the queue's own policy."""
        self.messages.leave(message)
        self.counts["poison"] += 1
        if len(self.samples) < _SAMPLES:
            found = PoisonSample(
                message.id, poison.reason, message.receive_count, sample(message.body)
            )
            self.samples.append(found)
            _log.warning(
                "Message %s of %s is not understood (%s) and stays in the queue: %s",
                found.message_id,
                self.queue.name,
                found.reason,
                found.body,
            )

    def _record_gathered(self) -> None:
        """Record the files that were gathered, then delete their messages."""
        events, self._events = self._events, []
        held, self._held = self._held, []
        found = self._inspected([event for event, _ in events])
        while some := list(islice(found, RECORDED_FILES)):
            self.counts["files"] += len(some)
            self.counts["new"] += self.keep(some)
        gone, self.candidates.gone = self.candidates.gone, []
        if self.gone is not None:
            self.gone(gone)
        crash_point("after-notification-record")
        late = self._leave_late(events)
        held = [message for message in held if message.id not in late]
        self._delete(held + self.messages.undeleted_again())

    def _leave_late(self, events: list[tuple[FileEvent, Message]]) -> set[str]:
        """Leave the messages of files that a mount may show later; gives their ids."""
        late = {id(event) for event in self.candidates.late}
        self.candidates.late.clear()
        left = {message.id: message for event, message in events if id(event) in late}
        for message in left.values():
            self.messages.leave(message)
        self.heartbeat.release([*left.values()])
        return set(left)

    def _inspected(self, events: list[FileEvent]) -> Iterator[AnnouncedFile]:
        try:
            yield from self.candidates.found(events, self.pool)
        except OSError as failure:
            name = printable_path(self.candidates.source_name)
            kind = ListingError if is_transient(failure) else SourceAccessError
            raise kind(
                f"The files that notifications announced in {name} could not be inspected: "
                f"{failure} The messages stay in the queue. Run again."
            ) from failure

    def _delete(self, messages: list[Message]) -> None:
        self.heartbeat.release(messages)
        left = messages
        for attempt in range(DELETE_TRIES):
            if attempt and left:
                time.sleep(_PAUSE_SECONDS * attempt)
            batches = batched(left, self.queue.batch_size)
            left = [
                each for failed in self.pool.map(self._delete_batch, batches) for each in failed
            ]
        for message in left:
            self.messages.leave_undeleted(message)
        self.messages.end(messages)
        self.counts["deleted"] += len(messages) - len(left)
        self.undeleted.difference_update(message.id for message in messages)
        self.undeleted.update(message.id for message in left)

    def _delete_batch(self, messages: Sequence[Message]) -> Sequence[Message]:
        crash_point("before-delete")
        try:
            return self.queue.delete(messages)
        except (FileNotFoundError, PermissionError) as failure:
            raise as_queue_error(failure) from failure
        except OSError as failure:
            _log.info("Messages could not be deleted yet: %s", failure)
            return messages
