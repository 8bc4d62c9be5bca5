"""Read the events of Cloud Storage from a Pub/Sub subscription, and count what waits in it.

By pulling: a run takes what is there and ends, so nothing streams. A pull waits for messages; one
that has waited a while is taken for empty. Messages are then hidden for longer than the
subscription sets, so that any subscription will do. Only Cloud Monitoring knows how many
messages there are.

The identity needs the role *Pub/Sub Subscriber* on the subscription. A look, as triggers make it,
is a pull whose messages are shown again at once. That is a delivery, which is counted where the
subscription has a dead-letter policy: then Cloud Monitoring is asked. To see which of the two it
is takes `pubsub.subscriptions.get` (the role *Pub/Sub Viewer*).

What happened, and to which object, is in the attributes of the message, where names are written as
they are. The body is the object's resource as JSON, or nothing when the notification was configured
without a payload.

References:
    "Pub/Sub notifications for Cloud Storage": attributes, event types, payload.

Pub/Sub has neither a count nor a look that is no delivery. Monitoring is some minutes behind.

The identity needs the permission `monitoring.timeSeries.list` on the project (the role *Monitoring
Viewer*).

References:
    "Google Cloud metrics", `pubsub.googleapis.com/subscription/num_undelivered_messages`;
    "Method: projects.timeSeries.list".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
from google.api_core import exceptions as google
from google.api_core.retry import Retry, if_exception_type
from google.auth import default as default_credentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from google.cloud.pubsub_v1 import SubscriberClient
from google.pubsub_v1.services.subscriber.transports.grpc import SubscriberGrpcTransport

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import (
    SCOPE,
    google_credentials,
    is_identity_outage,
    key_file,
)
from airflow_cloudfiles.engine.discovery import events
from airflow_cloudfiles.engine.discovery.queues.base import Message, WaitingMessages, as_queue_error
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.flat_store import ClientPerProcess
from airflow_cloudfiles.engine.storage.outage import DENIED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions


ENDPOINT = "https://monitoring.googleapis.com"
_METRIC = "pubsub.googleapis.com/subscription/num_undelivered_messages"
_LOOK_BACK = timedelta(minutes=10)
"""A value is there for each minute, two minutes later."""
_TIMEOUT_SECONDS = 30


class MessageCounter:
    """Asks Cloud Monitoring how many messages a subscription has.

    Args:
        access: Credentials; `None` leaves them to the environment.
        endpoint: Address of Cloud Monitoring.
    """

    def __init__(self, access: GcpAccess | None, *, endpoint: str = ENDPOINT) -> None:
        self._access = access
        self._endpoint = endpoint
        self._sessions = ClientPerProcess(self._open, lambda: key_file(access))

    def count(self, subscription: str) -> int:
        """Give the newest count of undelivered messages; 0 where there is none.

        Args:
            subscription: `projects/<project>/subscriptions/<name>`.

        Raises:
            PermissionError: The identity may not read metrics of the project.
            ConnectionError: Monitoring did not answer.
        """
        project, _, name = subscription.removeprefix("projects/").partition("/subscriptions/")
        now = datetime.now(UTC)
        query = {
            "filter": f'metric.type="{_METRIC}" AND resource.labels.subscription_id="{name}"',
            "interval.startTime": (now - _LOOK_BACK).isoformat(),
            "interval.endTime": now.isoformat(),
        }
        where = f"{self._endpoint}/v3/projects/{project}/timeSeries"
        status, counts = HTTPStatus.UNAUTHORIZED, []
        try:
            answer = self._sessions.get().get(where, params=query, timeout=_TIMEOUT_SECONDS)
            status = answer.status_code
            if status == HTTPStatus.OK:
                series = answer.json().get("timeSeries", ())
                newest = [each["points"][0]["value"] for each in series if each.get("points")]
                counts = [int(value["int64Value"]) for value in newest]
        except (GoogleAuthError, OSError, KeyError, ValueError) as failure:  # of `requests`, too
            if isinstance(failure, GoogleAuthError) and not is_identity_outage(failure):
                raise _refused(status, subscription, project) from failure
            raise ConnectionError(
                f"Cloud Monitoring did not say how many messages {subscription} has "
                f"({type(failure).__name__}). Check the network, and try again."
            ) from failure
        if status != HTTPStatus.OK:
            raise _refused(status, subscription, project)
        return sum(counts)

    def _open(self) -> Any:
        credentials = google_credentials(self._access)
        if credentials is None:
            credentials, _ = default_credentials(scopes=[SCOPE])
        return AuthorizedSession(credentials)  # type: ignore[no-untyped-call]


def _refused(status: int, subscription: str, project: str) -> OSError:
    """Explain the status of an answer."""
    if status in DENIED:
        return PermissionError(
            f"Not allowed to count the messages of {subscription} (status {status}). A look by a "
            f"pull would count as a delivery, after some of which its dead-letter policy takes the "
            f"messages away. Grant the identity the permission monitoring.timeSeries.list on "
            f"project {project} (the role Monitoring Viewer); or, where the subscription has no "
            f"dead-letter policy, pubsub.subscriptions.get on it (the role Pub/Sub Viewer)."
        )
    text = f"Cloud Monitoring could not count the messages of {subscription} (status {status})."
    is_passing = (
        status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
    return ConnectionError(text) if is_passing else OSError(text)


_REMOVED = "OBJECT_DELETE"
_OTHERS = {"OBJECT_ARCHIVE", "OBJECT_METADATA_UPDATE"}
_MAX_DIGITS = 20


class _Resource(msgspec.Struct, rename="camel"):
    size: str | int | None = None
    generation: str | int | None = None
    updated: str | None = None
    time_created: str | None = None


def parse(message: Message) -> events.Parsed:
    """Read a message of a Pub/Sub subscription."""
    return events.guarded(partial(_parse, message.attributes), message.body)


def _parse(attributes: Mapping[str, str], body: bytes) -> events.Parsed:
    kind = attributes.get("eventType")
    if kind is None:
        raise events.NotUnderstoodError("no attribute eventType: not an event of Cloud Storage")
    if kind == _REMOVED:
        return events.removed(kind, partial(_file, attributes, body))
    if kind != "OBJECT_FINALIZE":
        return events.known_kind(kind, _OTHERS)
    return [_file(attributes, body)]


def _file(attributes: Mapping[str, str], body: bytes) -> events.FileEvent:
    bucket = events.checked_name(attributes.get("bucketId", ""), "a bucket")
    place = f"{bucket}/{events.checked_key(attributes.get('objectId', ''))}"
    resource = events.fields_of(_Resource, body) if body else _Resource()
    time = resource.time_created or resource.updated or attributes.get("eventTime", "")
    generation = _number(resource.generation or attributes.get("objectGeneration"))
    return events.FileEvent(
        location=f"gs://{place}",
        spellings=(place,),
        size=events.checked_size(_number(resource.size)),
        time_us=events.time_us(time),
        etag="" if generation is None else str(generation),
        sequencer="" if generation is None else str(generation),
    )


def _number(value: str | int | None) -> int | None:
    """Read a number that JSON has as text, because it has 64 bits."""
    if value is None or isinstance(value, int):
        return value
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
        raise events.NotUnderstoodError(f"not a number: {value[:50]!r}")
    return int(value)


_MOST = 1000
_GLANCE_SECONDS = 10
_PASSING = (google.TooManyRequests, google.Aborted, google.Cancelled)
"""Errors that put the blame on the client, and still pass."""
_RETRY = Retry(
    predicate=if_exception_type(
        google.ServiceUnavailable, google.InternalServerError, google.Aborted, google.Unknown
    ),
    initial=0.2,
    maximum=5.0,
    timeout=30.0,
)
"""Of a pull; the client's own goes on for a minute."""


class PubSubQueue:
    """A subscription of Pub/Sub.

    Args:
        subscription: `projects/<project>/subscriptions/<name>`.
        clients: Give Google's own client.
        counter: Cloud Monitoring; `None` for an emulator, which has none.

    Attributes:
        name: The full name of the subscription.
        wait_seconds: How long a pull waits for messages; the service does not document how long
            it would wait by itself.
        connect_seconds: How long the first pull waits for a connection. Without one, a pull would
            run out of time as it does when there are no messages.
    """

    batch_size = _MOST
    wait_seconds = 5.0
    connect_seconds = 30.0

    def __init__(
        self, subscription: str, clients: ClientPerProcess, counter: MessageCounter | None = None
    ) -> None:
        self.name = subscription
        self._clients = clients
        self._counter = counter
        self._connected: SubscriberClient | None = None

    @property
    def _client(self) -> SubscriberClient:
        return self._clients.get()

    def receive(self, seconds: int) -> list[Message]:
        """Pull up to 1000 messages."""
        self._connect()
        try:
            answer = self._client.pull(
                subscription=self.name, max_messages=_MOST, timeout=self.wait_seconds, retry=_RETRY
            )
        except google.DeadlineExceeded:  # nothing came
            return []
        except (google.GoogleAPIError, GoogleAuthError) as failure:
            raise _as_os_error(failure, "pull from", self.name) from failure
        messages = [_message(each) for each in type(answer).pb(answer).received_messages]
        if messages:
            self.hide(messages, seconds)
        return messages

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        """Move the deadlines for acknowledging."""
        return self._each_half(
            "hide messages of",
            messages,
            lambda ids: self._client.modify_ack_deadline(
                subscription=self.name, ack_ids=ids, ack_deadline_seconds=seconds
            ),
        )

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Acknowledge the messages.

        The service does not report when an acknowledgement came too late: the message comes again.
        """
        return self._each_half(
            "acknowledge messages of",
            messages,
            lambda ids: self._client.acknowledge(subscription=self.name, ack_ids=ids),
        )

    def approximate_size(self) -> int | None:
        """Return `None`: Pub/Sub itself does not know it."""
        return None

    def look(self) -> WaitingMessages:
        """Look at the next messages if nobody counts that; else ask Cloud Monitoring."""
        if self._counts_deliveries():
            if self._counter is None:
                raise PermissionError(
                    f"{self.name} has a dead-letter policy, which counts each look, or "
                    "may have one, without the right pubsub.subscriptions.get; and an emulator has "
                    "no Cloud Monitoring to ask instead. Remove the policy, or grant the right."
                )
            return WaitingMessages(self._counter.count(self.name))
        seen = self.receive(_GLANCE_SECONDS)
        if seen:
            self.hide(seen, 0)
        sent = (message.sent_us or 0 for message in seen)
        return WaitingMessages(min(1, len(seen)), max(sent, default=0))

    def _counts_deliveries(self) -> bool:
        """Tell whether the subscription has, or may have, a dead-letter policy."""
        self._connect()
        try:
            found = self._client.get_subscription(subscription=self.name)
        except (google.Forbidden, google.Unauthorized):
            return True
        except (google.GoogleAPIError, GoogleAuthError) as failure:
            raise _as_os_error(failure, "inspect", self.name) from failure
        return bool(found.dead_letter_policy.dead_letter_topic)

    def parse(self, message: Message) -> events.Parsed:
        """Read an event of Cloud Storage."""
        return parse(message)

    def _each_half(
        self, what: str, messages: Sequence[Message], call: Callable[[list[str]], Any]
    ) -> list[Message]:
        """Do something to messages at once; one bad receipt fails a request, so find it."""
        if not messages:
            return []
        try:
            call([message.receipt for message in messages])
        except (google.InvalidArgument, google.FailedPrecondition):
            if len(messages) == 1:
                return list(messages)
            middle = len(messages) // 2
            halves = (messages[:middle], messages[middle:])
            return [bad for half in halves for bad in self._each_half(what, half, call)]
        except (google.GoogleAPIError, GoogleAuthError) as failure:
            raise _as_os_error(failure, what, self.name) from failure
        return []

    def _connect(self) -> None:
        client = self._client
        if self._connected is client:
            return
        ready = grpc.channel_ready_future(client.transport.grpc_channel)
        try:
            ready.result(timeout=self.connect_seconds)
        except grpc.FutureTimeoutError as failure:
            ready.cancel()
            raise TimeoutError(
                f"No connection to Pub/Sub for {self.name} in {self.connect_seconds} "
                f"seconds. Check the network, and the endpoint of the connection."
            ) from failure
        self._connected = client


def open_queue(
    subscription: str,
    source_uri: str,  # noqa: ARG001 - the subscription says all
    options: DiscoveryOptions,
    access: Access | None,
) -> PubSubQueue:
    """Open a subscription; nothing is contacted yet.

    Args:
        subscription: Its name, or `projects/<project>/subscriptions/<name>`.
        source_uri: Whose files are announced.
        options: Name the project when only the name is given; else it is the connection's.
        access: Credentials and addresses.

    Raises:
        OptionError: The project is not known, or there are no credentials.
    """
    given: GcpAccess | None = of_kind(GcpAccess, access)
    has_monitoring = given is None or not given.pubsub_endpoint
    counter = MessageCounter(given) if has_monitoring else None
    clients = ClientPerProcess(lambda: _client(given), lambda: key_file(given))
    name = _full_name(subscription, options.project_id, given)
    clients.get()  # what is wrong with the access shows here
    return PubSubQueue(name, clients, counter)


def _full_name(subscription: str, project: str | None, access: GcpAccess | None) -> str:
    if "/" in subscription:
        return subscription
    project = project or (access.project if access else None)
    if not project:
        raise OptionError(
            f"The project of the subscription {subscription!r} is unknown. Set "
            f"cloudFiles.projectId, or give the subscription as "
            f"projects/<project>/subscriptions/{subscription}."
        )
    return f"projects/{project}/subscriptions/{subscription}"


def _client(access: GcpAccess | None) -> SubscriberClient:
    """Make the client: for an emulator without encryption, else with the access's credentials."""
    if access is not None and access.pubsub_endpoint:
        channel = grpc.insecure_channel(access.pubsub_endpoint)
        return SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
    try:
        return SubscriberClient(credentials=google_credentials(access))
    except GoogleAuthError as failure:
        if is_identity_outage(failure):
            raise as_queue_error(_as_os_error(failure, "open", "the subscription")) from failure
        raise OptionError(
            f"There are no Google credentials to read notifications with: "
            f"{_first_line(failure)} Give the connection a key, or set up application default "
            f"credentials."
        ) from failure


def _message(received: Any) -> Message:
    message = received.message
    sent = message.publish_time
    return Message(
        id=message.message_id,
        receipt=received.ack_id,
        body=message.data,
        attributes=dict(message.attributes),
        receive_count=received.delivery_attempt,
        sent_us=sent.ToMicroseconds() or None,
        group=message.ordering_key,
    )


def _as_os_error(failure: Exception, what: str, subscription: str) -> OSError:
    """Explain an error of the client."""
    if isinstance(failure, google.Forbidden | google.Unauthorized) or (
        isinstance(failure, GoogleAuthError) and not is_identity_outage(failure)
    ):
        return PermissionError(
            f"Not allowed to {what} {subscription}. The identity needs the role Pub/Sub Subscriber "
            f"on it ({_first_line(failure)})."
        )
    if isinstance(failure, google.NotFound):
        return FileNotFoundError(f"There is no subscription {subscription}.")
    if isinstance(failure, google.GatewayTimeout | google.RetryError):
        return TimeoutError(f"No answer in time on trying to {what} {subscription}.")
    text = f"Could not {what} {subscription}: {_first_line(failure)}"
    if isinstance(failure, google.ClientError) and not isinstance(failure, _PASSING):
        return OSError(text)
    return ConnectionError(text)


def _first_line(failure: Exception) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0]
