"""What does an event of Cloud Storage hold?

What happened, and to which object, is in the attributes of the message, where names are written as
they are. The body is the object's resource as JSON, or nothing when the notification was configured
without a payload.

References:
    "Pub/Sub notifications for Cloud Storage": attributes, event types, payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airflow_cloudfiles.engine.discovery.events.base import (
    FileEvent,
    NotUnderstoodError,
    Parsed,
    checked_key,
    checked_name,
    checked_size,
    fields_of,
    guarded,
    known_kind,
    time_us,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.discovery.queues.base import Message

_OTHERS = {"OBJECT_DELETE", "OBJECT_ARCHIVE", "OBJECT_METADATA_UPDATE"}
_MAX_DIGITS = 20


class _Resource(msgspec.Struct, rename="camel"):
    size: str | int | None = None
    generation: str | int | None = None
    updated: str | None = None
    time_created: str | None = None


def parse(message: Message) -> Parsed:
    """Read a message of a Pub/Sub subscription."""
    attributes = message.attributes

    def read(body: bytes) -> Parsed:
        return _parse(attributes, body)

    return guarded(read, message.body)


def _parse(attributes: Mapping[str, str], body: bytes) -> Parsed:
    kind = attributes.get("eventType")
    if kind is None:
        raise NotUnderstoodError("no attribute eventType: not an event of Cloud Storage")
    if kind != "OBJECT_FINALIZE":
        return known_kind(kind, _OTHERS)
    bucket = checked_name(attributes.get("bucketId", ""), "a bucket")
    place = f"{bucket}/{checked_key(attributes.get('objectId', ''))}"
    resource = fields_of(_Resource, body) if body else _Resource()
    time = resource.time_created or resource.updated or attributes.get("eventTime", "")
    generation = _number(resource.generation or attributes.get("objectGeneration"))
    return [
        FileEvent(
            location=f"gs://{place}",
            spellings=(place,),
            size=checked_size(_number(resource.size)),
            time_us=time_us(time),
            etag="" if generation is None else str(generation),
            sequencer="" if generation is None else str(generation),
        )
    ]


def _number(value: str | int | None) -> int | None:
    """Read a number that JSON has as text, because it has 64 bits."""
    if value is None or isinstance(value, int):
        return value
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
        raise NotUnderstoodError(f"not a number: {value[:50]!r}")
    return int(value)
