"""Declare what a queue of notifications must be able to do.

One protocol for SQS, Azure Queue Storage and Pub/Sub. All three lend a message: whoever receives it
holds a receipt, and nobody else sees the message for some seconds. Then it is deleted, or it is
there again. So a message is deleted only after its file is in the file log, and a discoverer that
dies before costs nothing but these seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from airflow_cloudfiles.engine.errors import (
    OptionError,
    QueueAccessError,
    QueueError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.storage.outage import is_transient
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME, VENDORS, QueueService, Vendor

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.events import Parsed
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage.access import Access


@dataclass(slots=True, eq=False)
class Message:
    """One message that is in our hands for a while. Its content is whatever somebody sent.

    Attributes:
        id: Names the message; the same each time it is received.
        receipt: Proves that we hold it. A service may give another one when the message is hidden
            longer, or received again; the newest counts.
        body: What was sent.
        attributes: What was sent besides the body.
        receive_count: How often it was received, this time included; 0 when the service is silent.
        sent_us: When it was sent, by the clock of the service, in microseconds since 1970.
        group: Of messages that come in order: while some of a group are in somebody's hands, nobody
            is given further ones of it. Empty for none.
    """

    id: str
    receipt: str = field(repr=False)
    body: bytes = field(repr=False)
    attributes: Mapping[str, str] = field(default_factory=dict, repr=False)
    receive_count: int = 0
    sent_us: int | None = None
    group: str = ""


class WaitingMessages(NamedTuple):
    """What waits in a queue.

    Attributes:
        messages: About how many.
        newest_us: Where they are not counted: when the newest that was seen was sent, in
            microseconds since 1970.
    """

    messages: int
    newest_us: int = 0


class MessageQueue(Protocol):
    """A queue that notifications arrive in. Safe to use from several threads.

    Raises:
        FileNotFoundError: From every call: there is no such queue.
        PermissionError: From every call: the identity may not do this.
        OSError: From every call: the service did not answer, or refused.
    """

    @property
    def name(self) -> str:
        """What people know the queue by; no secrets."""

    @property
    def batch_size(self) -> int:
        """How many messages one call of `hide` or `delete` takes."""

    def receive(self, seconds: int) -> list[Message]:
        """Take the next messages.

        Waits a moment when there are none, so that an empty answer means an empty queue; but it may
        be empty by chance, so ask twice.

        Args:
            seconds: How long nobody else sees them.
        """

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        """Keep messages hidden for some seconds from now; 0 shows them again at once.

        Returns:
            Those for which it failed, for instance because somebody else received them since.
        """

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete messages for good.

        Returns:
            Those that may still be there.
        """

    def approximate_size(self) -> int | None:
        """Give about how many messages there are, hidden ones included.

        `None` when the service does not report it, or not to us.
        """

    def look(self) -> WaitingMessages:
        """Look at what waits, and deliver none of it: a delivery counts for a dead-letter policy.

        Raises:
            PermissionError: The identity may not see it; the text says which right it lacks.
        """

    def parse(self, message: Message) -> Parsed:
        """Read a message as the service's events; never raises."""


def waiting(queue: MessageQueue) -> WaitingMessages:
    """Give about how many messages wait; none of them is delivered.

    Raises:
        QueueError: The queue cannot be read.
        QueueAccessError: The identity may not see what waits.
    """
    try:
        return queue.look()
    except OSError as failure:
        raise as_queue_error(failure) from failure


def open_queue(
    source_uri: str, options: DiscoveryOptions, access: Access | None = None
) -> MessageQueue:
    """Open the queue that the notifications of a source arrive in; nothing is contacted yet.

    Args:
        source_uri: Canonical URI of the source.
        options: Name the queue.
        access: Credentials and addresses; `None` leaves them to the environment.

    Raises:
        OptionError: The option that names the queue is missing, or an extra is not installed.
        UnsupportedOptionError: The source is of a kind that sends no notifications.
        QueueError: What gives credentials does not answer.
        QueueAccessError: It refuses.
    """
    try:
        return _open(source_uri, options, access)
    except OSError as failure:
        raise as_queue_error(failure) from failure


def _open(source_uri: str, options: DiscoveryOptions, access: Access | None) -> MessageQueue:
    vendor, service = _service(source_uri, options)
    queue = getattr(options, service.field)
    if not queue:
        raise OptionError(
            f"cloudFiles.useNotifications needs {service.option}: {service.what} that the "
            f"notifications of {source_uri} arrive in. If there is none yet, `cloudfiles "
            "notifications set-up` or CloudFilesHook.set_up_notifications makes one and prints the "
            "option."
        )
    leaf = vendor.load("queue", needed_for=f"{service.option}={queue}")
    return cast("MessageQueue", leaf.open_queue(queue, source_uri, options, access))


def as_queue_error(failure: OSError) -> QueueError | QueueAccessError:
    """Give the error of a failing queue, and what to do."""
    if not is_transient(failure):
        return QueueAccessError(
            f"The notifications cannot be read: {failure} Correct the queue, the region or the "
            f"permissions. Files that arrive meanwhile wait in the queue."
        )
    return QueueError(
        f"The notifications cannot be read now: {failure} Nothing is lost: what is not recorded "
        f"stays in the queue. Run again."
    )


def _service(source_uri: str, options: DiscoveryOptions) -> tuple[Vendor, QueueService]:
    """Find whose queue it is: that of the source's scheme, or the one that an option names."""
    own = BY_SCHEME.get(source_uri.partition("://")[0])
    if own is not None and own.queue is not None:
        return own, own.queue
    for vendor in VENDORS if options.path_rewrites else ():
        # A mounted bucket: its events name the bucket, not the mount.
        service = vendor.queue
        if service is not None and service.is_enough and getattr(options, service.field):
            return vendor, service
    msg = (
        f"cloudFiles.useNotifications: {source_uri} sends no notifications to a queue. Leave the "
        f"option out to find files by listing. For a mounted bucket, set cloudFiles.queueUrl (or "
        f"cloudFiles.subscription) and map the bucket to the mount with cloudFiles.pathRewrites."
    )
    raise UnsupportedOptionError(msg)
