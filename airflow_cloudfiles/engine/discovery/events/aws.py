"""What does an event of S3 hold?

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

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

import msgspec

from airflow_cloudfiles.engine.discovery.events.base import (
    FileEvent,
    Ignored,
    NotUnderstoodError,
    Parsed,
    checked_key,
    checked_name,
    checked_sequencer,
    checked_size,
    fields_of,
    folded,
    guarded,
    known_kind,
    time_us,
    unquoted,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.queues.base import Message

_MAX_COATS = 3
_CREATED = ("ObjectCreated:", "ObjectSynced:Create")
_OTHERS = {
    "ObjectRemoved", "ObjectRestore", "ObjectTagging", "ObjectAcl", "Replication",
    "ReducedRedundancyLostObject", "LifecycleExpiration", "LifecycleTransition",
    "IntelligentTiering", "ObjectLifecycle", "ObjectAccessed", "ObjectTransition",
    "BucketCreated", "BucketRemoved", "Scanner",
}  # fmt: skip
_OTHER_DETAILS = {
    "Object Deleted", "Object Tags Added", "Object Tags Deleted",
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


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    size: int | None = None
    sequencer: str | None = None
    etag: str | None = None
    e_tag: str | None = msgspec.field(default=None, name="eTag")


class _S3(msgspec.Struct):
    """Bucket and object: S3 and EventBridge nest them alike."""

    bucket: _Bucket
    object: _Object


class _Record(msgspec.Struct, rename="camel"):
    event_name: str
    event_time: str
    event_source: str | None = None
    s3: msgspec.Raw = msgspec.Raw(b"{}")


class _CallTarget(msgspec.Struct, rename="camel"):
    bucket_name: str
    key: str


class _Call(msgspec.Struct, rename="camel"):
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


def parse(message: Message) -> Parsed:
    """Read a message of an SQS queue."""
    return guarded(_parse, message.body)


def _parse(body: bytes, coats: int = 0) -> Parsed:
    outer = fields_of(_Body, body)
    if outer.records is not None:
        return folded(outer.records, _s3_record)
    if outer.event == "s3:TestEvent":  # sent when the notification of a bucket is configured
        return Ignored("test event")
    if outer.kind == "Notification" and outer.message is not None:
        if coats == _MAX_COATS:
            raise NotUnderstoodError("a notification within a notification within another")
        return _parse(outer.message.encode(), coats + 1)
    if outer.kind in {"SubscriptionConfirmation", "UnsubscribeConfirmation"}:
        return Ignored("subscription of a topic")
    if outer.detail_type == _LOGGED_CALL:
        return folded([outer.detail], _logged_call)
    if outer.detail_type is not None and outer.source == "aws.s3":
        return _event_bridge(outer)
    raise NotUnderstoodError("not an event of S3, straight, through SNS or through EventBridge")


def _s3_record(text: msgspec.Raw) -> FileEvent | Ignored:
    record = fields_of(_Record, text)
    if record.event_source in _SERVICES:
        return _logged_call(text)
    name = record.event_name.removeprefix("s3:")
    if name == "ObjectSynced:Delete":
        return Ignored("ObjectSynced")
    if not name.startswith(_CREATED):
        kind = name.partition(":")[0]
        return known_kind(kind if kind in _OTHERS else name, _OTHERS)
    s3 = fields_of(_S3, record.s3)
    key = unquote_plus(s3.object.key, errors="strict")
    return _created(s3.bucket.name, key, s3.object, record.event_time)


def _logged_call(text: msgspec.Raw) -> FileEvent | Ignored:
    """Read a call that CloudTrail has logged: the store is asked for the size of its object."""
    call = fields_of(_Call, text)
    if call.event_source not in _SERVICES:
        raise NotUnderstoodError(f"a call of another service: {call.event_source[:50]!r}")
    if call.error_code:
        return Ignored("call that failed")
    if call.event_name not in _CREATING_CALLS:
        if _OTHER_CALL.fullmatch(call.event_name):
            return Ignored("call that makes no object")
        return known_kind(call.event_name, ())
    target = fields_of(_CallTarget, call.request_parameters)
    created = _created(target.bucket_name, target.key, _Object(target.key), call.event_time)
    return replace(created, doubtful=True)


def _event_bridge(outer: _Body) -> Parsed:
    if outer.detail_type != "Object Created":
        return known_kind(outer.detail_type or "", _OTHER_DETAILS)
    detail = fields_of(_S3, outer.detail)
    return [_created(detail.bucket.name, detail.object.key, detail.object, outer.time or "")]


def _created(bucket: str, key: str, thing: _Object, time: str) -> FileEvent:
    place = f"{checked_name(bucket, 'a bucket')}/{checked_key(key)}"
    return FileEvent(
        location=f"s3://{place}",
        spellings=(place, f"s3a://{place}"),
        size=checked_size(thing.size),
        time_us=time_us(time),
        etag=unquoted(thing.e_tag or thing.etag),
        sequencer=checked_sequencer(thing.sequencer),
    )
