"""What does an event of S3 hold?

It comes in three coats: straight from S3, wrapped by SNS (unless raw delivery is on), or as an
EventBridge event; and EventBridge may send through SNS too. S3 writes keys as forms do (`+` for a
space, `%2B` for a plus); EventBridge writes them as they are.

References:
    "Event message structure" and "EventBridge event message structure" in the S3 user guide.
"""

from __future__ import annotations

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
    time_us,
    unquoted,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.queues.base import Message

_MAX_COATS = 3
_CREATED = "ObjectCreated:"


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
    s3: msgspec.Raw = msgspec.Raw(b"{}")


class _Body(msgspec.Struct):
    """The outermost object, whichever coat it is."""

    records: list[_Record] | None = msgspec.field(default=None, name="Records")
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
        return _s3_records(outer.records)
    if outer.event == "s3:TestEvent":  # sent when the notification of a bucket is configured
        return Ignored("test event")
    if outer.kind == "Notification" and outer.message is not None:
        if coats == _MAX_COATS:
            raise NotUnderstoodError("a notification within a notification within another")
        return _parse(outer.message.encode(), coats + 1)
    if outer.kind in {"SubscriptionConfirmation", "UnsubscribeConfirmation"}:
        return Ignored("subscription of a topic")
    if outer.detail_type is not None and outer.source == "aws.s3":
        return _event_bridge(outer)
    raise NotUnderstoodError("not an event of S3, straight, through SNS or through EventBridge")


def _s3_records(records: list[_Record]) -> Parsed:
    found: list[FileEvent] = []
    ignored: list[str] = []
    for record in records:
        name = record.event_name.removeprefix("s3:")
        if not name.startswith(_CREATED):
            ignored.append(_kind(name.partition(":")[0]))
            continue
        s3 = fields_of(_S3, record.s3)
        key = unquote_plus(s3.object.key, errors="strict")
        found.append(_created(s3.bucket.name, key, s3.object, record.event_time))
    return folded(found, ignored, "no event in it")


def _event_bridge(outer: _Body) -> Parsed:
    if outer.detail_type != "Object Created":
        return Ignored(_kind(outer.detail_type or ""))
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


def _kind(name: str) -> str:
    """Name a kind of event that is left out; unknown ones share one name, so counts stay few."""
    known = {
        "ObjectRemoved", "ObjectRestore", "ObjectTagging", "ObjectAcl", "Replication",
        "ReducedRedundancyLostObject", "LifecycleExpiration", "LifecycleTransition",
        "IntelligentTiering", "Object Deleted", "Object Tags Added", "Object Tags Deleted",
        "Object ACL Updated", "Object Restore Initiated", "Object Restore Completed",
        "Object Restore Expired", "Object Storage Class Changed", "Object Access Tier Changed",
    }  # fmt: skip
    return name if name in known else "another kind of event"
