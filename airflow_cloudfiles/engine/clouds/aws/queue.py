"""Read the events of S3 from an SQS queue.

Long polling, if only for a second, asks all servers that hold the queue; short polling asks a few
and comes back empty although there are messages. A batch request can succeed in part: what failed
is in its answer and is given back, never taken for done.

The identity needs `sqs:ReceiveMessage`, `sqs:DeleteMessage` (which covers batches) and
`sqs:ChangeMessageVisibility`; and `sqs:GetQueueAttributes`, for a look that delivers nothing and
for the size in the report.

It comes in three coats: straight from S3, wrapped by SNS (unless raw delivery is on), or as an
EventBridge event; and EventBridge may send through SNS too. S3 writes keys as forms do (`+` for a
space, `%2B` for a plus); EventBridge writes them as they are.

EventBridge also tells of calls that CloudTrail has logged: which call it was, with neither the size
nor the version of the object.

References:
    "Event message structure" and "EventBridge event message structure" in the S3 user guide;
    "Bucket notifications" in Ceph's documentation, for `ObjectSynced`; "Bucket notifications" in
    MinIO's, for `ObjectAccessed`, `ObjectTransition` and what has no colon.
"""

from __future__ import annotations

import dataclasses
import random
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.errors import (
    error_code,
    error_status,
    is_about_key,
    missing_permission,
    readable,
)
from airflow_cloudfiles.engine.clouds.aws.session import aws_client
from airflow_cloudfiles.engine.discovery import events
from airflow_cloudfiles.engine.discovery.queues.base import Message, WaitingMessages
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions


_MAX_COATS = 3
_CREATED = ("ObjectCreated:", "ObjectSynced:Create")
_REMOVED = ("ObjectRemoved:", "ObjectSynced:Delete", "LifecycleExpiration:")
_OTHERS = {
    "ObjectRestore", "ObjectTagging", "ObjectAcl", "Replication",
    "ReducedRedundancyLostObject", "LifecycleTransition",
    "IntelligentTiering", "ObjectLifecycle", "ObjectAccessed", "ObjectTransition",
    "BucketCreated", "BucketRemoved", "Scanner",
}  # fmt: skip
_OTHER_DETAILS = {
    "Object Tags Added", "Object Tags Deleted",
    "Object ACL Updated", "Object Restore Initiated", "Object Restore Completed",
    "Object Restore Expired", "Object Storage Class Changed", "Object Access Tier Changed",
}  # fmt: skip
_LOGGED_CALL = "AWS API Call via CloudTrail"
_SERVICES = {"s3.amazonaws.com", "s3express.amazonaws.com"}
_CREATING_CALLS = {
    "PutObject", "CompleteMultipartUpload", "CopyObject", "PostObject", "RenameObject",
}  # fmt: skip
_OTHER_CALL = re.compile(
    r"(Get|Head|List|Delete|Select|Describe)[A-Za-z0-9]+|[A-Za-z]+Bucket[A-Za-z0-9]*|"
    r"PutObject(Acl|LegalHold|LockConfiguration|Retention|Tagging)|RestoreObject|CreateSession|"
    r"(Create|Abort)MultipartUpload|UploadPart(Copy)?"
)
"""Calls that read, remove or describe, those of buckets, and those before an object is made."""


class _BucketName(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    size: int | None = None
    sequencer: str | None = None
    etag: str | None = None
    e_tag: str | None = msgspec.field(default=None, name="eTag")


class _S3(msgspec.Struct):
    """Bucket and object: S3 and EventBridge nest them alike."""

    bucket: _BucketName
    object: _Object


class _Record(msgspec.Struct, rename="camel"):
    event_name: str
    event_time: str
    event_source: str | None = None
    s3: msgspec.Raw = msgspec.Raw(b"{}")


class _CallTarget(msgspec.Struct, rename="camel"):
    bucket_name: str
    key: str


class _CloudTrailCall(msgspec.Struct, rename="camel"):
    """A call as CloudTrail logs it."""

    event_source: str
    event_name: str
    event_time: str
    error_code: str | None = None
    request_parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _Body(msgspec.Struct):
    """The outermost object, whichever coat it is."""

    records: list[msgspec.Raw] | None = msgspec.field(default=None, name="Records")
    event: str | None = msgspec.field(default=None, name="Event")
    kind: str | None = msgspec.field(default=None, name="Type")
    message: str | None = msgspec.field(default=None, name="Message")
    detail_type: str | None = msgspec.field(default=None, name="detail-type")
    source: str | None = None
    time: str | None = None
    detail: msgspec.Raw = msgspec.Raw(b"{}")


def parse(message: Message) -> events.Parsed:
    """Read a message of an SQS queue."""
    return events.guarded(_parse, message.body)


def _parse(body: bytes, coats: int = 0) -> events.Parsed:
    outer = events.fields_of(_Body, body)
    if outer.records is not None:
        return events.folded(outer.records, _s3_record)
    if outer.event == "s3:TestEvent":  # sent when the notification of a bucket is configured
        return events.IgnoredMessage("test event")
    if outer.kind == "Notification" and outer.message is not None:
        if coats == _MAX_COATS:
            raise events.NotUnderstoodError("a notification within a notification within another")
        return _parse(outer.message.encode(), coats + 1)
    if outer.kind in {"SubscriptionConfirmation", "UnsubscribeConfirmation"}:
        return events.IgnoredMessage("subscription of a topic")
    if outer.detail_type == _LOGGED_CALL:
        return events.folded([outer.detail], _logged_call)
    if outer.detail_type is not None and outer.source == "aws.s3":
        return _event_bridge(outer)
    reason = "not an event of S3, straight, through SNS or through EventBridge"
    raise events.NotUnderstoodError(reason)


def _s3_record(text: msgspec.Raw) -> events.FileEvent | events.IgnoredMessage:
    record = events.fields_of(_Record, text)
    if record.event_source in _SERVICES:
        return _logged_call(text)
    name = record.event_name.removeprefix("s3:")

    def read() -> events.FileEvent:
        s3 = events.fields_of(_S3, record.s3)
        key = unquote_plus(s3.object.key, errors="strict")
        return _created(s3.bucket.name, key, s3.object, record.event_time)

    if name.startswith(_REMOVED):
        return events.removed(name.partition(":")[0], read)
    if not name.startswith(_CREATED):
        kind = name.partition(":")[0]
        return events.known_kind(kind if kind in _OTHERS else name, _OTHERS)
    return read()


def _logged_call(text: msgspec.Raw) -> events.FileEvent | events.IgnoredMessage:
    """Read a call that CloudTrail has logged: the store is asked for the size of its object."""
    call = events.fields_of(_CloudTrailCall, text)
    if call.event_source not in _SERVICES:
        raise events.NotUnderstoodError(f"a call of another service: {call.event_source[:50]!r}")
    if call.error_code:
        return events.IgnoredMessage("call that failed")
    if call.event_name not in _CREATING_CALLS:
        if _OTHER_CALL.fullmatch(call.event_name):
            return events.IgnoredMessage("call that makes no object")
        return events.known_kind(call.event_name, ())
    target = events.fields_of(_CallTarget, call.request_parameters)
    created = _created(target.bucket_name, target.key, _Object(target.key), call.event_time)
    return replace(created, doubtful=True)


def _event_bridge(outer: _Body) -> events.Parsed:
    def read() -> events.FileEvent:
        detail = events.fields_of(_S3, outer.detail)
        return _created(detail.bucket.name, detail.object.key, detail.object, outer.time or "")

    if outer.detail_type == "Object Deleted":
        return events.removed(outer.detail_type, read)
    if outer.detail_type != "Object Created":
        return events.known_kind(outer.detail_type or "", _OTHER_DETAILS)
    return [read()]


def _created(bucket: str, key: str, thing: _Object, time: str) -> events.FileEvent:
    place = f"{events.checked_name(bucket, 'a bucket')}/{events.checked_key(key)}"
    return events.FileEvent(
        location=f"s3://{place}",
        spellings=(place, f"s3a://{place}"),
        size=events.checked_size(thing.size),
        time_us=events.time_us(time),
        etag=events.unquoted(thing.e_tag or thing.etag),
        sequencer=events.checked_sequencer(thing.sequencer),
    )


_JITTER = random.Random()  # noqa: S311 - spreads tries; the global one is the caller's
_MOST = 10
_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.2
_FORBIDDEN = re.compile(
    "AccessDenied|Unauthorized|InvalidClientTokenId|ExpiredToken|SignatureDoesNotMatch|"
    "UnrecognizedClient|InvalidSecurity|OptInRequired|MissingAuthenticationToken|InvalidAddress"
)
_PERMISSIONS = {
    "receive from": "sqs:ReceiveMessage",
    "delete from": "sqs:DeleteMessage",
    "change messages of": "sqs:ChangeMessageVisibility",
    "inspect": "sqs:GetQueueAttributes",
}
"""By what is done: the permission that it takes."""
_MISSING = re.compile("NonExistentQueue|QueueDoesNotExist|QueueDeletedRecently")
_BUSY = re.compile("Throttl|SlowDown|ServiceUnavailable|InternalError|InternalFailure|OverLimit")
_FAILING = frozenset({429, *range(500, 600)})
_URL = re.compile(r"https?://[^/\s]+(/\S+)?/[A-Za-z0-9_-]+(\.fifo)?")
_REGION = re.compile(r"(?://|\.)(?:sqs|sqs-fips)\.([a-z]+(?:-[a-z]+)+-[0-9]+)\.", re.IGNORECASE)
_OLD_REGION = re.compile(r"//(?:([a-z0-9-]+)\.)?queue\.amazonaws\.", re.IGNORECASE)
_OLD_DEFAULT = "us-east-1"
"""The region of `queue.amazonaws.com`."""


class SqsQueue:
    """A queue of Amazon SQS.

    Args:
        url: Of the queue.
        open_client: Gives the client of `boto3`, which is another one when its keys have changed.

    Attributes:
        name: The URL of the queue.
        wait_seconds: How long a receive waits for messages: at least a second, for all servers.
    """

    batch_size = _MOST
    wait_seconds = 1

    def __init__(self, url: str, open_client: Callable[[], Any]) -> None:
        self.name = url
        self._open_client = open_client

    @property
    def _client(self) -> Any:
        return self._open_client()

    def receive(self, seconds: int) -> list[Message]:
        """Take up to ten messages."""
        answer = self._call(
            "receive from",
            self._client.receive_message,
            MaxNumberOfMessages=_MOST,
            WaitTimeSeconds=self.wait_seconds,
            VisibilityTimeout=seconds,
            MessageSystemAttributeNames=[
                "ApproximateReceiveCount",
                "MessageGroupId",
                "SentTimestamp",
            ],
        )
        is_fifo = self.name.endswith(".fifo")
        return [_message(each, is_fifo=is_fifo) for each in answer.get("Messages", ())]

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        """Change the visibility time-out of up to ten messages."""
        entries = _entries(messages)
        for entry in entries:
            entry["VisibilityTimeout"] = seconds
        return self._batch(
            "change messages of", self._client.change_message_visibility_batch, messages, entries
        )

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete up to ten messages."""
        return self._batch(
            "delete from", self._client.delete_message_batch, messages, _entries(messages)
        )

    def approximate_size(self) -> int | None:
        """Visible, hidden and delayed ones together."""
        try:
            return self.look().messages
        except PermissionError:
            return None

    def look(self) -> WaitingMessages:
        """Ask for the attributes of the queue; SQS has no other look that is no delivery."""
        kinds = ("", "NotVisible", "Delayed")
        names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
        answer = self._call("inspect", self._client.get_queue_attributes, AttributeNames=names)
        return WaitingMessages(
            sum(int(answer.get("Attributes", {}).get(name, 0)) for name in names)
        )

    def parse(self, message: Message) -> events.Parsed:
        """Read an event of S3."""
        return parse(message)

    def _batch(
        self,
        what: str,
        call: Callable[..., Any],
        messages: Sequence[Message],
        entries: list[dict[str, Any]],
    ) -> list[Message]:
        """Do something to messages; give back those that failed by the answer."""
        answer = self._call(what, call, Entries=entries)
        done = {each["Id"] for each in answer.get("Successful", ())}
        return [message for i, message in enumerate(messages) if str(i) not in done]

    def _call(self, what: str, call: Callable[..., Any], **arguments: Any) -> Any:
        """Call the service; a busy one is asked again, which the client does for some errors only.

        Throttling of SQS comes with status 403, which the client takes for final.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return call(QueueUrl=self.name, **arguments)
            except ClientError as failure:
                code = error_code(failure)
                is_busy = bool(_BUSY.search(code)) or error_status(failure) in _FAILING
                if is_busy and attempt == _TRIES:
                    raise ConnectionError(
                        f"SQS was too busy to {what} {self.name} ({code}). Try again later."
                    ) from failure
                if not is_busy:
                    raise _refused(failure, what, self.name) from failure
            except BotoCoreError as failure:
                raise readable(failure, f"Could not {what} {self.name}", what) from failure
            pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(pause * _JITTER.uniform(0.5, 1.0))
        raise AssertionError


def open_queue(
    url: str,
    source_uri: str,  # noqa: ARG001 - the URL says all
    options: DiscoveryOptions,
    access: Access | None,
) -> SqsQueue:
    """Open a queue; nothing is contacted yet.

    Args:
        url: Of the queue; it names its region.
        source_uri: Whose files are announced.
        options: Name the region where the URL does not.
        access: Credentials and addresses.

    Raises:
        OptionError: Not the URL of a queue.
    """
    if not _URL.fullmatch(url):
        raise OptionError(
            f"cloudFiles.queueUrl: {url!r} is not the URL of a queue, as in "
            f"https://sqs.eu-central-1.amazonaws.com/123456789012/new-files."
        )
    given: AwsAccess = of_kind(AwsAccess, access) or AwsAccess()
    region = options.region or _region_of(url) or given.region
    there = dataclasses.replace(given, region=region)
    aws_client("sqs", there)  # what is wrong with the access shows here
    return SqsQueue(url, lambda: aws_client("sqs", there))


def _region_of(url: str) -> str | None:
    """Give the region that the URL of a queue names, whichever address of SQS it has.

    These are its own (`sqs.R.amazonaws.com`, `sqs-fips.`, `.api.aws`, those of other partitions),
    that of an endpoint in one's network (`vpce-….sqs.R.vpce.amazonaws.com`), and the oldest
    (`R.queue.amazonaws.com`, and without a region).
    """
    if found := _REGION.search(url):
        return found[1].lower()
    if found := _OLD_REGION.search(url):
        return found[1] or _OLD_DEFAULT
    return None


def _entries(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"Id": str(i), "ReceiptHandle": message.receipt} for i, message in enumerate(messages)]


def _message(received: dict[str, Any], *, is_fifo: bool) -> Message:
    system = received.get("Attributes", {})
    sent = system.get("SentTimestamp")
    return Message(
        id=received["MessageId"],
        receipt=received["ReceiptHandle"],
        body=received.get("Body", "").encode("utf-8", "surrogatepass"),
        receive_count=int(system.get("ApproximateReceiveCount", 0)),
        sent_us=int(sent) * 1000 if sent else None,
        group=system.get("MessageGroupId", "") if is_fifo else "",
    )


def _refused(failure: ClientError, what: str, url: str) -> OSError:
    """Explain an answer that is an error."""
    code = error_code(failure)
    if is_about_key(failure):
        return PermissionError(
            f"The key of KMS that {url} is encrypted with cannot be used ({code}). Grant the "
            f"identity the permission {missing_permission(failure, 'kms:Decrypt')} on the key; it "
            f"has to be there and enabled."
        )
    if _MISSING.search(code):
        return FileNotFoundError(f"There is no queue {url} in this account and region ({code}).")
    if _FORBIDDEN.search(code):
        return PermissionError(
            f"Not allowed to {what} {url} ({code}). Grant the identity the permission "
            f"{missing_permission(failure, _PERMISSIONS[what])} there. A stream needs "
            f"{', '.join(_PERMISSIONS.values())}."
        )
    return OSError(f"SQS refused to {what} {url} ({code}).")
