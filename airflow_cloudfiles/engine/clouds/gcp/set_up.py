"""Set up what announces the files of a Cloud Storage bucket.

The bucket publishes to a Pub/Sub topic, which fills a subscription. Notifications of a bucket add
up (others keep theirs), so nothing has to be merged. The storage service publishes as an identity
of its own, the service agent of the bucket's project, which needs a role on the topic.

Labels record whose a topic or subscription is. They are short and in lower case, so the source is
spread over several.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import grpc
from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud.storage import Client
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import google_credentials
from airflow_cloudfiles.engine.discovery.services import (
    DEFAULT_SCOPE,
    HIDDEN_SECONDS,
    MISSING,
    OURS,
    PREFIX,
    RETENTION_DAYS,
    VENDOR,
    CloudResource,
    CloudScope,
    Inspection,
    NotificationRequest,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind

_log = logging.getLogger(__name__)

FINALIZED = "OBJECT_FINALIZE"
DELETED = "OBJECT_DELETE"
PUBLISHER = "roles/pubsub.publisher"
MAX_NOTIFICATIONS = 100
"""Of a bucket, as Cloud Storage allows."""
MAX_FOR_EVENT = 10
"""Of them for one kind of event."""

_MAX_DELIVERIES = 100
"""Before a message is a dead letter, as many as Pub/Sub allows: a sensor receives messages, too."""
_LABEL = 63
_MAX_LABELS = 16
_USER_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_USER_VALUE = re.compile(r"[a-z0-9_-]{0,63}")

Labels = Mapping[str, str]


def path_labels(source: str) -> dict[str, str]:
    """Write a source as the labels `path`, `path-1` and so on.

    All but lower-case letters, digits and hyphens become `_` and two hexadecimal digits for each
    byte. Of what needs too many labels, the end becomes a hash.
    """
    encoded = re.sub(
        r"[^a-z0-9-]",
        lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass")),
        source,
    )
    if len(encoded) > _MAX_LABELS * _LABEL:
        digest = hashlib.sha256(encoded.encode()).hexdigest()
        encoded = f"{encoded[: _MAX_LABELS * _LABEL - len(digest) - 1]}-{digest}"
    chunks = [encoded[at : at + _LABEL] for at in range(0, len(encoded), _LABEL)]
    return {f"path-{n}" if n else "path": chunk for n, chunk in enumerate(chunks)}


def path_of_labels(labels: Labels) -> str:
    """Read what `path_labels` wrote."""
    names = ["path", *(f"path-{n}" for n in range(1, _MAX_LABELS))]
    encoded = "".join(labels.get(name, "") for name in names)
    plain = re.sub(
        rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), encoded.encode()
    )
    return plain.decode("utf-8", "surrogatepass")


def _whose(labels: Labels, wanted: NotificationRequest) -> Inspection:
    """Find out by its labels whether something was made by this set-up."""
    if labels.get("vendor") != VENDOR:
        return Inspection("foreign", "it does not have the labels of this package")
    paths = {key: value for key, value in labels.items() if key.startswith("path")}
    if paths != path_labels(wanted.source) or labels.get("name") != wanted.name:
        return Inspection("foreign", f"it serves {path_of_labels(labels)}")
    return OURS


def _labels(wanted: NotificationRequest) -> dict[str, str]:
    """Build the labels to make something with."""
    ours = {"vendor": VENDOR, "name": wanted.name, **path_labels(wanted.source)}
    for key, value in wanted.tags.items():
        if not (_USER_KEY.fullmatch(key) and _USER_VALUE.fullmatch(value)) or key.startswith(
            "path"
        ):
            raise OptionError(
                f"{key}={value} is not a label of Google Cloud. Use lower-case letters, digits, "
                "hyphens and underscores; a key begins with a letter, and not with path."
            )
    return {**wanted.tags, **ours}


class GcpServices:
    """Notifications of Cloud Storage buckets.

    Args:
        access: The identity that may set things up.
        scope: The project of topic and subscription.
    """

    def __init__(self, access: Access | None = None, scope: CloudScope = DEFAULT_SCOPE) -> None:
        if scope.subscription_id or scope.resource_group:
            raise OptionError(
                "Cloud Storage has no subscription_id or resource_group. Leave them out."
            )
        self._access: GcpAccess = of_kind(GcpAccess, access) or GcpAccess()
        self._scope = scope

    def resources(self, wanted: NotificationRequest, *, to_remove: bool) -> Sequence[CloudResource]:
        """Give the parts, in the order they are made."""
        if wanted.via or wanted.same_account:
            raise OptionError("Cloud Storage has no via or same_account. Leave them out.")
        bucket = self.storage.lookup_bucket(wanted.bucket)
        if bucket is None and not to_remove:
            raise NotificationServicesError(
                f"There is no bucket {wanted.bucket}, or this identity may not see it. Correct the "
                "source. Nothing was changed."
            )
        labels = _labels(wanted)
        topic = PubSubTopic(self, wanted, labels, to_remove=to_remove)
        subscription = PubSubSubscription(self, wanted, labels, topic.path)
        resources: list[CloudResource] = [topic]
        if not to_remove:  # the role goes with the topic
            resources.append(PublisherRole(self, topic.path, bucket))
        resources.append(subscription)
        if bucket is not None and topic.inspect().state != "foreign":
            resources.append(BucketNotification(bucket, self.project, wanted))
        return resources

    def options(self, wanted: NotificationRequest) -> dict[str, str]:
        """Give the options for the stream."""
        return {
            "cloudFiles.useNotifications": "true",
            "cloudFiles.subscription": wanted.full_name,
            "cloudFiles.projectId": self.project,
        }

    def existing(self, source: str | None) -> Iterator[NotificationRequest]:
        """Find subscriptions by their names and labels."""
        for each in self.subscriber.list_subscriptions(project=f"projects/{self.project}"):
            labels = dict(each.labels)
            name = each.name.rpartition("/")[2]
            if not name.startswith(PREFIX) or labels.get("vendor") != VENDOR:
                continue
            path = path_of_labels(labels)
            stored = {key: value for key, value in labels.items() if key.startswith("path")}
            if source is not None and path_labels(source) == stored:
                yield NotificationRequest(source=source, name=labels["name"])
            elif path_labels(path) != stored:
                _log.warning(
                    "The source that %s serves is too long for its labels. List it by that source.",
                    each.name,
                )
            elif source is None or path.startswith(f"{source}/"):
                yield NotificationRequest(source=path, name=labels["name"])

    def explain(self, failure: Exception) -> str | None:
        """Explain a failure of Google's clients."""
        first = (str(failure).splitlines() or [type(failure).__name__])[0].rstrip(".")
        if isinstance(failure, google.Forbidden | google.Unauthorized):
            return f"the identity lacks a permission: {first}."
        if isinstance(failure, google.GoogleAPIError | GoogleAuthError):
            return f"{first}."
        return None

    @cached_property
    def project(self) -> str:
        """The project of topic and subscription."""
        found = self._scope.project_id or self._access.project or self.storage.project
        if not found:
            raise OptionError(
                "The project of topic and subscription is not known. Give its id (project_id)."
            )
        return str(found)

    @cached_property
    def storage(self) -> Any:
        """Client of Cloud Storage."""
        endpoint = self._access.storage_endpoint
        client = Client(
            project=self._scope.project_id or self._access.project,
            credentials=google_credentials(self._access),
            client_options={"api_endpoint": endpoint} if endpoint else None,
        )
        client._http.max_redirects = 0  # noqa: SLF001 - as in the store
        return client

    @cached_property
    def publisher(self) -> Any:
        """Client that administers topics."""
        return PublisherClient(**self._pubsub(PublisherGrpcTransport))

    @cached_property
    def subscriber(self) -> Any:
        """Client that administers subscriptions."""
        return SubscriberClient(**self._pubsub(SubscriberGrpcTransport))

    def _pubsub(self, transport: Any) -> dict[str, Any]:
        """Arguments of a client: an emulator is reached without encryption."""
        emulator = self._access.pubsub_endpoint or os.environ.get("PUBSUB_EMULATOR_HOST")
        if not emulator:
            return {"credentials": google_credentials(self._access)}
        return {"transport": transport(channel=grpc.insecure_channel(emulator))}


class PubSubTopic(CloudResource):
    """The topic that the bucket publishes to; it is left to other subscribers."""

    kind = "topic"

    def __init__(
        self, gcp: GcpServices, wanted: NotificationRequest, labels: Labels, *, to_remove: bool
    ) -> None:
        self._to_remove = to_remove
        self.name = wanted.full_name
        self.path = f"projects/{gcp.project}/topics/{self.name}"
        self._publisher = gcp.publisher
        self._wanted = wanted
        self._labels = labels

    def inspect(self) -> Inspection:
        """Inspect its labels."""
        try:
            found = self._publisher.get_topic(topic=self.path)
        except google.NotFound:
            return MISSING
        whose = _whose(dict(found.labels), self._wanted)
        if whose is OURS and self._to_remove and (other := self._other_subscriber()):
            return Inspection(
                "foreign", f"{other} is attached to it too, so the bucket goes on publishing"
            )
        return whose

    def make(self) -> None:
        """Make it."""
        self._publisher.create_topic(request={"name": self.path, "labels": dict(self._labels)})

    def remove(self) -> None:
        """Delete it; `inspect` has seen that nothing else is attached."""
        self._publisher.delete_topic(topic=self.path)

    def _other_subscriber(self) -> str | None:
        """Find a subscription that is not ours."""
        for each in self._publisher.list_topic_subscriptions(topic=self.path):
            name = str(each).rpartition("/")[2]
            if name != self._wanted.full_name:
                return f"the subscription {name}"
        return None


class PublisherRole(CloudResource):
    """That the storage service may publish to the topic."""

    kind = "role of the storage service on the topic"
    name = PUBLISHER

    def __init__(self, gcp: GcpServices, topic: str, bucket: Any) -> None:
        self._gcp = gcp
        self._topic = topic
        self._bucket = bucket

    def inspect(self) -> Inspection:
        """Find out whether the service agent has it; an emulator may know no roles."""
        try:
            policy = self._policy()
        except google.NotFound:
            return MISSING
        except google.MethodNotImplemented:
            return Inspection("ours", "this Pub/Sub has no roles")
        member = self._member
        has = any(each.role == PUBLISHER and member in each.members for each in policy.bindings)
        return OURS if has else MISSING

    def make(self) -> str:
        """Give it beside the roles of others; the etag keeps changes at the same time apart."""
        try:
            policy = self._policy()
        except google.MethodNotImplemented:
            return "this Pub/Sub has no roles"
        policy.bindings.add(role=PUBLISHER, members=[self._member])
        self._gcp.publisher.set_iam_policy(request={"resource": self._topic, "policy": policy})
        return ""

    def remove(self) -> None:
        """Do nothing: it goes with the topic."""

    def _policy(self) -> Any:
        return self._gcp.publisher.get_iam_policy(request={"resource": self._topic})

    @cached_property
    def _member(self) -> str:
        number = self._bucket.project_number
        email = self._gcp.storage.get_service_account_email(project=str(number) if number else None)
        return f"serviceAccount:{email}"


class PubSubSubscription(CloudResource):
    """The subscription that the stream reads."""

    kind = "subscription"

    def __init__(
        self, gcp: GcpServices, wanted: NotificationRequest, labels: Labels, topic: str
    ) -> None:
        self.name = wanted.full_name
        self._subscriber = gcp.subscriber
        self._path = f"projects/{gcp.project}/subscriptions/{self.name}"
        self._wanted = wanted
        self._labels = labels
        self._topic = topic

    def inspect(self) -> Inspection:
        """Inspect its labels, and whether its topic is still there."""
        found = self._found()
        if found is None:
            return MISSING
        whose = _whose(dict(found.labels), self._wanted)
        if whose is OURS and found.topic != self._topic:
            note = (
                "its topic had been deleted, and its messages are lost: run the stream once with "
                "cloudFiles.listOnStart=true"
            )
            return Inspection("incomplete", note)
        return whose

    def make(self) -> None:
        """Make it, to stay for ever: without that it goes after 31 days without a reader."""
        if self._found() is not None:  # of a deleted topic: it can never get a message again
            self._subscriber.delete_subscription(subscription=self._path)
        request: dict[str, Any] = {
            "name": self._path,
            "topic": self._topic,
            "ack_deadline_seconds": HIDDEN_SECONDS,
            "message_retention_duration": {"seconds": RETENTION_DAYS * 86400},
            "expiration_policy": {},
            "labels": dict(self._labels),
        }
        if self._wanted.dead_letter_topic:
            request["dead_letter_policy"] = {
                "dead_letter_topic": self._wanted.dead_letter_topic,
                "max_delivery_attempts": _MAX_DELIVERIES,
            }
        self._subscriber.create_subscription(request=request)

    def remove(self) -> None:
        """Delete it, with the messages that are in it."""
        self._subscriber.delete_subscription(subscription=self._path)

    def _found(self) -> Any:
        try:
            return self._subscriber.get_subscription(subscription=self._path)
        except google.NotFound:
            return None


class BucketNotification(CloudResource):
    """That the bucket publishes to our topic. It is recognized by the topic."""

    kind = "bucket notification"

    def __init__(self, bucket: Any, project: str, wanted: NotificationRequest) -> None:
        self.name = f"{bucket.name} to {wanted.full_name}"
        self._bucket = bucket
        self._topic = (project, wanted.full_name)
        self._prefix = wanted.key_prefix
        self._events = [FINALIZED, *([DELETED] if wanted.deletes else [])]

    def inspect(self) -> Inspection:
        """Inspection for notifications to our topic."""
        ours = self._ours()
        if not ours:
            return MISSING
        if any(self._is_right(each) for each in ours):
            return OURS
        return Inspection("incomplete", "it announced other files")

    def refusal(self) -> str | None:
        """Explain when the bucket can have no more."""
        found = list(self._bucket.list_notifications())
        same = [each for each in found if FINALIZED in (each.event_types or [FINALIZED])]
        if len(found) >= MAX_NOTIFICATIONS or len(same) >= MAX_FOR_EVENT:
            return (
                f"The bucket {self._bucket.name} has {len(found)} notifications already, "
                f"{len(same)} of them for new objects, and no more than {MAX_NOTIFICATIONS} and "
                f"{MAX_FOR_EVENT} are allowed. Share a topic: give it one more subscription, and "
                "name that in cloudFiles.subscription."
            )
        return None

    def make(self) -> None:
        """Add it, and take out one of ours that announced other files."""
        wrong = [each for each in self._ours() if not self._is_right(each)]
        project, topic = self._topic
        self._bucket.notification(
            topic_name=topic,
            topic_project=project,
            event_types=self._events,
            blob_name_prefix=self._prefix or None,
            payload_format="JSON_API_V1",
        ).create()
        for each in wrong:
            each.delete()

    def remove(self) -> None:
        """Take it out, and nothing else."""
        for each in self._ours():
            each.delete()

    def _ours(self) -> list[Any]:
        found = self._bucket.list_notifications()
        return [each for each in found if (each.topic_project, each.topic_name) == self._topic]

    def _is_right(self, notification: Any) -> bool:
        prefix = notification.blob_name_prefix or ""
        return prefix == self._prefix and set(notification.event_types or ()) >= set(self._events)
