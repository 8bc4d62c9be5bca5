"""Set up what announces the files of an S3 bucket.

The bucket sends events of created objects to an SQS queue: by itself (`via="sqs"`), through an SNS
topic (`"sns"`), or through EventBridge (`"eventbridge"`). A bucket names one destination for an
event, so a second reader of the same files takes one of the other two. Where another topic
receives the events already, `"sns"` adds a queue to it and leaves the bucket alone.

The queue is in the region of the bucket, as S3 wants it. Its tags record how it was set up.

A bucket has one notification configuration. `PutBucketNotificationConfiguration` replaces it whole
and takes no condition, so a change is: read, change our own entry, write, read again. If our entry
is not there then, somebody else wrote at the same time, and it is done again. What S3 offers cannot
protect a change that another program makes between our reading and our writing, one request apart;
that program has the same difficulty with ours.

S3 refuses two entries that could both match one event. That is checked before anything is made.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_client
from airflow_cloudfiles.engine.clouds.aws.set_up_parts import (
    AwsQueue,
    EventBridgeRule,
    EventBridgeTarget,
    SnsSubscription,
    SnsTopic,
    allow,
    tag_value,
    text_of_tag,
    whose,
)
from airflow_cloudfiles.engine.discovery.services import (
    DEFAULT_SCOPE,
    MISSING,
    OURS,
    PREFIX,
    VENDOR,
    VIAS,
    CloudResource,
    CloudScope,
    Inspection,
    NotificationRequest,
    Via,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.uri import bucket_and_path

CREATED = "s3:ObjectCreated:*"
REMOVED = ("s3:ObjectRemoved:*", "s3:LifecycleExpiration:*")
MAX_ENTRIES = 100
"""Of a bucket, as S3 allows."""

_LISTS = {
    "QueueConfigurations": "QueueArn",
    "TopicConfigurations": "TopicArn",
    "LambdaFunctionConfigurations": "LambdaFunctionArn",
}
_TRIES = 5
_PROPAGATION_SECONDS = 60.0
_SPECIAL = re.compile(r"[^A-Za-z0-9/!_.'()-]")

Configuration = dict[str, Any]


class BucketNotifications:
    """The notification configuration of a bucket.

    Args:
        s3: Client of S3.
        bucket: Its name.
        owner: Account that it must belong to; `None` for any.
    """

    def __init__(self, s3: Any, bucket: str, owner: str | None) -> None:
        self._s3 = s3
        self._bucket = {"Bucket": bucket, **({"ExpectedBucketOwner": owner} if owner else {})}

    def read(self) -> Configuration:
        """Read it whole; empty for a bucket that is gone."""
        try:
            found = self._s3.get_bucket_notification_configuration(**self._bucket)
        except self._s3.exceptions.ClientError as failure:
            if failure.response["Error"]["Code"] == "NoSuchBucket":
                return {}
            raise
        return {key: value for key, value in found.items() if key != "ResponseMetadata"}

    def change(self, edit: Callable[[Configuration], None]) -> None:
        """Change it, keeping all that `edit` leaves alone, until the change is seen in it."""
        for attempt in range(_TRIES):
            wanted = self.read()
            before = deepcopy(wanted)
            edit(wanted)
            if wanted == before:
                return
            self._write(wanted)
            seen = self.read()
            again = deepcopy(seen)
            edit(again)
            if again == seen:
                return
            _log.warning(
                "Another program changed the notifications of the bucket %s at the same time "
                "(attempt %d of %d)",
                self._bucket["Bucket"],
                attempt + 1,
                _TRIES,
            )
        raise NotificationServicesError(
            f"Another program keeps changing the notifications of the bucket "
            f"{self._bucket['Bucket']}. Find out which one, and run this again."
        )

    def _write(self, configuration: Configuration) -> None:
        """Write it; a policy that was just made may take a minute to be seen by S3."""
        deadline = time.monotonic() + _PROPAGATION_SECONDS
        pause = 1.0
        while True:
            try:
                self._s3.put_bucket_notification_configuration(
                    **self._bucket, NotificationConfiguration=configuration
                )
            except self._s3.exceptions.ClientError as failure:
                is_late = "validate the following destination" in str(failure)
                if not is_late or time.monotonic() + pause > deadline:
                    raise
            else:
                return
            time.sleep(pause)
            pause *= 2


class BucketEntry(CloudResource):
    """Our entry in the configuration: created files below a prefix go to a queue or topic.

    Args:
        notifications: Of the bucket.
        entry_id: Its Id, by which it is recognized.
        arn: Where the events go.
        prefix: What the keys begin with.
        events: Which are announced.
        other_user: Asked before it is removed: who else gets the events.
    """

    kind = "bucket notification"

    def __init__(  # noqa: PLR0913 - what an entry of a bucket's configuration has
        self,
        notifications: BucketNotifications,
        entry_id: str,
        arn: str,
        prefix: str,
        other_user: Callable[[], str | None] | None = None,
        *,
        events: Sequence[str] = (CREATED,),
    ) -> None:
        self._other_user = other_user
        self.name = entry_id
        self._notifications = notifications
        self._list = "QueueConfigurations" if ":sqs:" in arn else "TopicConfigurations"
        to = _LISTS[self._list]
        self._entry: Configuration = {"Id": entry_id, to: arn, "Events": [*events]}
        if filtered := filter_prefix(prefix):
            rules = [{"Name": "prefix", "Value": filtered}]
            self._entry["Filter"] = {"Key": {"FilterRules": rules}}
        self._prefix = filtered

    def inspect(self) -> Inspection:
        """Inspection for our entry."""
        for key, entry in entries(self._notifications.read()):
            if entry.get("Id") == self.name:
                if not entry[_LISTS[key]].endswith(f":{self.name}"):
                    return Inspection("foreign", f"it announces files to {entry[_LISTS[key]]}")
                if (found := filters(entry)) != (self._prefix, ""):
                    return Inspection("foreign", f"it announces files below {found[0]!r}")
                if self._other_user and (user := self._other_user()):
                    return Inspection("foreign", f"{user} gets its events too")
                has_all = set(entry["Events"]) >= set(self._entry["Events"])
                if key == self._list and has_all and _normal(entry) == _normal(self._entry):
                    return OURS
                return Inspection("incomplete", "it announced other events, or to another queue")
        return MISSING

    def refusal(self) -> str | None:
        """Explain which entry of others excludes ours."""
        others = [
            (key, entry)
            for key, entry in entries(self._notifications.read())
            if entry.get("Id") != self.name
        ]
        if len(others) >= MAX_ENTRIES:
            return f"The bucket has {MAX_ENTRIES} notifications already, the most that S3 allows."
        for key, entry in others:
            prefix, suffix = filters(entry)
            if _creates(entry) and (
                prefix.startswith(self._prefix) or self._prefix.startswith(prefix)
            ):
                ends = f" and end with {suffix!r}" if suffix else ""
                return (
                    f"The bucket announces created files that begin with {prefix!r}{ends} to "
                    f"{entry[_LISTS[key]]} already (entry {entry.get('Id')!r}), and S3 allows one "
                    "destination for an event. That entry is not of this set-up and stays. Use "
                    "via='eventbridge', which works beside it, or have it announce to an SNS topic "
                    "and use via='sns', which adds a queue to that topic."
                )
        return None

    def make(self) -> None:
        """Add our entry, beside those of others."""
        self._notifications.change(lambda found: self._put(found, self._entry))

    def remove(self) -> None:
        """Take our entry out, and nothing else."""
        self._notifications.change(lambda found: self._put(found, None))

    def _put(self, found: Configuration, ours: Configuration | None) -> None:
        for key in _LISTS:
            kept = [entry for entry in found.get(key, []) if entry.get("Id") != self.name]
            old = [entry for entry in found.get(key, []) if entry.get("Id") == self.name]
            if ours is not None and key == self._list:
                same = old[:1] if old and _normal(old[0]) == _normal(ours) else [ours]
                if len(old) == 1 and same == old:
                    continue
                kept += same
            if kept:
                found[key] = kept
            else:
                found.pop(key, None)


class EventBridgeSwitch(CloudResource):
    """That a bucket sends its events to EventBridge. It is one setting for all rules.

    Args:
        notifications: Of the bucket.
        bucket: Its name.
        to_remove: Whether this is to tear down: then it belongs to nobody.
    """

    kind = "EventBridge setting of the bucket"

    def __init__(self, notifications: BucketNotifications, bucket: str, *, to_remove: bool) -> None:
        self.name = bucket
        self._notifications = notifications
        self._to_remove = to_remove

    def inspect(self) -> Inspection:
        """Find out whether it is on."""
        if "EventBridgeConfiguration" not in self._notifications.read():
            return MISSING
        return Inspection("foreign", "other rules may use it too") if self._to_remove else OURS

    def make(self) -> None:
        """Switch it on."""
        self._notifications.change(lambda found: found.update(EventBridgeConfiguration={}))

    def remove(self) -> str:
        """Leave it on."""
        return "other rules may use it too"


def shared_topic(configuration: Configuration, prefix: str) -> str | None:
    """Find a topic of somebody else's that gets all created files below a prefix."""
    for entry in configuration.get("TopicConfigurations", []):
        begins, ends = filters(entry)
        if CREATED in entry["Events"] and not ends and prefix.startswith(begins):
            return str(entry["TopicArn"])
    return None


def entries(configuration: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Give the entries with the name of the list that each is in."""
    for key in _LISTS:
        for entry in configuration.get(key, []):
            yield key, entry


def filters(entry: Configuration) -> tuple[str, str]:
    """Give prefix and suffix of an entry; empty where it has none."""
    rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", [])
    by_name = {rule["Name"].lower(): rule.get("Value", "") for rule in rules}
    return by_name.get("prefix", ""), by_name.get("suffix", "")


def filter_prefix(prefix: str) -> str:
    """Give as much of a prefix as can stand in a filter unambiguously.

    S3 wants special characters of a filter encoded, and not every compatible server
    does. A shorter prefix lets more events through, which the reader leaves out.
    """
    special = _SPECIAL.search(prefix)
    return prefix[: special.start()] if special else prefix


def _creates(entry: Configuration) -> bool:
    return any(event.startswith("s3:ObjectCreated:") for event in entry["Events"])


def _normal(entry: Configuration) -> tuple[object, ...]:
    """Normalize an entry; S3 writes the names of filter rules with a capital letter."""
    arn = next(entry[key] for key in _LISTS.values() if key in entry)
    return arn, *filters(entry)


_log = logging.getLogger(__name__)

_OPERATIONS = {
    "sqs": (
        "ListQueues", "GetQueueUrl", "GetQueueAttributes", "SetQueueAttributes", "ListQueueTags",
        "TagQueue", "CreateQueue", "DeleteQueue",
    ),
    "sns": (
        "GetTopicAttributes", "SetTopicAttributes", "CreateTopic", "TagResource", "DeleteTopic",
        "ListSubscriptionsByTopic", "Subscribe", "Unsubscribe",
    ),
    "events": (
        "DescribeRule", "PutRule", "DeleteRule", "ListTargetsByRule", "PutTargets", "RemoveTargets",
    ),
}  # fmt: skip
ACTIONS = {
    "HeadBucket": "s3:ListBucket",
    "GetBucketNotificationConfiguration": "s3:GetBucketNotification",
    "PutBucketNotificationConfiguration": "s3:PutBucketNotification",
    "ListTagsForResource": "sns:ListTagsForResource or events:ListTagsForResource",
    **{name: f"{service}:{name}" for service, names in _OPERATIONS.items() for name in names},
}
"""The permission that each request needs; most have its name."""

_DENIED = {"403", "AccessDenied", "AccessDeniedException", "AuthorizationError"}
_NO_BUCKET = {"404", "NoSuchBucket", "NotFound"}


@dataclass(frozen=True, slots=True)
class _WatchedBucket:
    """What has to be known of a bucket."""

    region: str
    owner: str | None
    """Its account, when it is that of the identity."""
    is_there: bool = True


class AwsServices:
    """Notifications of S3 buckets.

    Args:
        access: The identity that may set things up.
    """

    def __init__(self, access: Access | None = None, scope: CloudScope = DEFAULT_SCOPE) -> None:
        if scope != DEFAULT_SCOPE:
            raise OptionError("S3 has no subscription, resource group or project. Leave them out.")
        self._access: AwsAccess = of_kind(AwsAccess, access) or AwsAccess()
        self._clients: dict[tuple[str, str | None], Any] = {}
        self._buckets: dict[str, _WatchedBucket] = {}

    def resources(self, wanted: NotificationRequest, *, to_remove: bool) -> Sequence[CloudResource]:
        """Give the parts, in the order they are made."""
        self._check(wanted)
        bucket = self._bucket(wanted.bucket, same_account=wanted.same_account)
        if not (bucket.is_there or to_remove):
            raise NotificationServicesError(
                f"There is no bucket {wanted.bucket}, or this identity may not see it. Correct the "
                "source. Nothing was changed."
            )
        return _Resources(self, wanted, bucket, to_remove=to_remove).resources()

    def options(self, wanted: NotificationRequest) -> dict[str, str]:
        """Give the options for the stream."""
        region = self._bucket(wanted.bucket).region
        found = self.client("sqs", region).get_queue_url(QueueName=wanted.full_name)
        return {
            "cloudFiles.useNotifications": "true",
            "cloudFiles.queueUrl": found["QueueUrl"],
            "cloudFiles.region": region,
        }

    def existing(self, source: str | None) -> Iterator[NotificationRequest]:
        """Find queues by their names and tags."""
        region = self._bucket(bucket_and_path(source)[0]).region if source else None
        sqs = self.client("sqs", region)
        pages = sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=PREFIX, PaginationConfig={"PageSize": 1000}
        )
        for url in [url for page in pages for url in page.get("QueueUrls", [])]:
            tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
            path = tags.get("path", "")
            if tags.get("vendor") != VENDOR or tags.get("via") not in VIAS:
                continue
            if source is not None and path == tag_value(source):
                yield NotificationRequest(source=source, name=tags["name"])
            elif tag_value(text_of_tag(path)) != path:
                _log.warning(
                    "The source of %s is too long for its tags. List it by that source.", url
                )
            elif source is None or path.startswith(f"{tag_value(source)}/"):
                yield NotificationRequest(source=text_of_tag(path), name=tags["name"])

    def explain(self, failure: Exception) -> str | None:
        """Explain a failure of boto3."""
        response = getattr(failure, "response", None)
        if isinstance(response, dict):
            error = response.get("Error", {})
            operation = str(getattr(failure, "operation_name", ""))
            if str(error.get("Code")) in _DENIED:
                return f"the identity lacks the permission {ACTIONS.get(operation, operation)}."
            return f"{error.get('Message', 'no reason was given').rstrip('.')} ({operation})."
        if type(failure).__module__.startswith("botocore"):
            return f"{failure}".rstrip(".") + "."
        return None

    def client(self, service: str, region: str | None = None) -> Any:
        """Give the client of a service in a region; made once."""
        key = (service, region)
        if key not in self._clients:
            access = dataclasses.replace(self._access, region=region or self._access.region)
            self._clients[key] = aws_client(service, access)
        return self._clients[key]

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Partition and account of the identity."""
        found = self.client("sts").get_caller_identity()
        return found["Arn"].split(":")[1], found["Account"]

    def _check(self, wanted: NotificationRequest) -> None:
        if wanted.dead_letter_topic:
            raise OptionError("On AWS a dead-letter queue is created. Leave the topic out.")
        if wanted.via not in {None, *VIAS}:
            raise OptionError(f"via must be one of {', '.join(VIAS)}, not {wanted.via!r}.")

    def _bucket(self, name: str, *, same_account: bool = False) -> _WatchedBucket:
        """Inspection where a bucket is, and whether it is of our account."""
        if name not in self._buckets:
            self._buckets[name] = self._inspect_bucket(name, same_account=same_account)
        return self._buckets[name]

    def _inspect_bucket(self, name: str, *, same_account: bool) -> _WatchedBucket:
        s3 = self.client("s3")
        account = self.identity[1]
        owner: str | None = account
        try:
            try:
                found = s3.head_bucket(Bucket=name, ExpectedBucketOwner=account)
            except s3.exceptions.ClientError as failure:
                if failure.response["Error"]["Code"] not in _DENIED:
                    raise
                if same_account:
                    raise NotificationServicesError(
                        f"The bucket {name} is not of the account {account}, or this identity may "
                        "not see it (s3:ListBucket). Nothing was changed."
                    ) from failure
                owner, found = None, s3.head_bucket(Bucket=name)
        except s3.exceptions.ClientError as failure:
            if failure.response["Error"]["Code"] not in _NO_BUCKET:
                raise
            return _WatchedBucket(self.client("sqs").meta.region_name, None, is_there=False)
        headers = found["ResponseMetadata"].get("HTTPHeaders", {})
        region = found.get("BucketRegion") or headers.get("x-amz-bucket-region")
        return _WatchedBucket(region or self.client("sqs").meta.region_name, owner)


class _Resources:
    """The parts for one source."""

    def __init__(
        self,
        aws: AwsServices,
        wanted: NotificationRequest,
        bucket: _WatchedBucket,
        *,
        to_remove: bool,
    ) -> None:
        partition, account = aws.identity
        self._aws = aws
        self._wanted = wanted
        self._bucket = bucket
        self._to_remove = to_remove
        region_and_account = f"{bucket.region}:{account}"
        self._queue_arn = f"arn:{partition}:sqs:{region_and_account}:{wanted.full_name}"
        self._topic_arn = f"arn:{partition}:sns:{region_and_account}:{wanted.full_name}"
        self._rule_arn = f"arn:{partition}:events:{region_and_account}:rule/{wanted.full_name}"
        self._bucket_arn = f"arn:{partition}:s3:::{wanted.bucket}"
        self._sqs = aws.client("sqs", bucket.region)
        self._notifications = BucketNotifications(
            aws.client("s3", bucket.region), wanted.bucket, bucket.owner
        )
        self._tags = {
            **wanted.tags,
            "vendor": VENDOR,
            "path": tag_value(wanted.source),
            "name": wanted.name,
        }

    def resources(self) -> Sequence[CloudResource]:
        """Give them in order."""
        has = AwsQueue(self._sqs, self._queue_arn, self._tags).tags()
        is_ours = has is not None and whose(has, self._tags).state == "ours"
        found = next((via for via in VIAS if is_ours and has and has.get("via") == via), None)
        if found and self._wanted.via not in {None, found}:
            raise NotificationServicesError(
                f"{self._wanted.full_name} is set up with via={found!r}. Tear it down first, or "
                "choose another name. Nothing was changed."
            )
        dead = AwsQueue(self._sqs, f"{self._queue_arn}-dead", self._tags)
        if self._to_remove and found is None:
            return self._without_queue(dead, is_foreign=has is not None and not is_ours)
        via = found or self._wanted.via or "sqs"
        topic = has.get("topic") if has and found else self._shared_topic(via)
        tags = {**self._tags, "via": via, **({"topic": topic} if topic else {})}
        statement = self._sender(via, topic or self._topic_arn)
        queue = AwsQueue(self._sqs, self._queue_arn, tags, statement)
        return [dead, queue, *self._way(via, topic or self._topic_arn)]

    def _without_queue(self, dead: AwsQueue, *, is_foreign: bool) -> Sequence[CloudResource]:
        """List what is to be removed where the queue is gone, or serves another source too."""
        queue = AwsQueue(
            self._sqs, self._queue_arn, self._tags, self._sender("sqs", self._topic_arn)
        )
        if is_foreign:
            return [dead, queue]
        ways: tuple[Via, ...] = ("sns", "eventbridge")  # the entry of a bucket is one, wherever to
        return [
            dead,
            queue,
            *(resource for via in ways for resource in self._way(via, self._topic_arn)),
        ]

    def _way(self, via: Via, topic_arn: str) -> list[CloudResource]:
        """List what is between bucket and queue."""
        wanted = self._wanted
        if via == "sqs":
            return [self._entry(self._queue_arn)]
        if via == "eventbridge":
            events = self._aws.client("events", self._bucket.region)
            prefix = wanted.key_prefix
            return [
                EventBridgeRule(events, self._rule_arn, self._tags, wanted, prefix),
                EventBridgeTarget(events, wanted.full_name, self._queue_arn),
                EventBridgeSwitch(self._notifications, wanted.bucket, to_remove=self._to_remove),
            ]
        sns = self._aws.client("sns", topic_arn.split(":")[3])
        subscription = SnsSubscription(sns, topic_arn, self._queue_arn)
        if topic_arn != self._topic_arn:  # somebody else's, which the bucket publishes to already
            return [subscription]
        publisher = allow("sns:Publish", "s3", topic_arn, self._bucket_arn, self._bucket.owner)
        mine = self._queue_arn if self._to_remove else None
        topic = SnsTopic(sns, topic_arn, self._tags, publisher, mine)
        return [topic, subscription, self._entry(topic_arn, topic.other_subscriber)]

    def _entry(self, arn: str, other_user: Callable[[], str | None] | None = None) -> BucketEntry:
        wanted = self._wanted
        prefix = wanted.key_prefix
        events = [CREATED, *(REMOVED if wanted.deletes else ())]
        name = wanted.full_name
        return BucketEntry(self._notifications, name, arn, prefix, other_user, events=events)

    def _sender(self, via: Via, topic_arn: str) -> dict[str, Any]:
        """Build the statement that lets events into the queue."""
        service, source, account = {
            "sqs": ("s3", self._bucket_arn, self._bucket.owner),
            "sns": ("sns", topic_arn, None),
            "eventbridge": ("events", self._rule_arn, None),
        }[via]
        return allow("sqs:SendMessage", service, self._queue_arn, str(source), account)

    def _shared_topic(self, via: Via) -> str | None:
        """Find a topic of others that the events go to already."""
        if via != "sns":
            return None
        found = shared_topic(self._notifications.read(), self._wanted.key_prefix)
        return None if found == self._topic_arn else found
