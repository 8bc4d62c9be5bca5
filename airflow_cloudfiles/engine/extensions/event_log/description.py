"""Describe an event log, set it up and tear it down.

One JSON object in the log's location, `event-log.json`: the id of the log, the bucket or the part
of it whose events arrive, the options of the one queue, and for how long events are kept. It holds
no credentials: whoever drains the queue brings them.

A log whose queue is another one than before has missed what happened in between. So it gets another
id, by which each stream sees that it has to list its source.

Before events arrive, a log needs what a stream needs that has a queue of its own: a queue, and a
bucket that tells it (`discovery.services`), but once for all streams; and the log that says which
queue that is.

The log is made last and goes first. So a log that is there has a subscription; and a log that is
made again, after a time without one, has another id, by which its streams see that they missed
something.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.services import (
    CloudScope,
    NotificationServices,
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError, StateConflictError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same, seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, as_record, require_version

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

KEY = "event-log.json"
FORMAT_VERSION = 1
KEEP_SECONDS = 7 * 24 * 3600.0
"""How long events are kept, unless the log says otherwise: as Auto Loader keeps them."""
LEAST_KEEP_SECONDS = 24 * 3600.0
"""The least that can be asked for: a log drops nothing that a reader may just be reading."""
KEEP_BYTES = 64 * 2**30
"""How large a log may grow, unless it says otherwise; older events go first."""
_UPGRADE = "Upgrade the package here."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogDescription:
    """What an event log is of.

    Attributes:
        id: Of the log; another one after its queue was another one.
        source: URI of the bucket, or of the part of it whose events arrive.
        queue: The options that name the queue, as a stream would be given them.
        keep_seconds: For how long events are kept at least, up to `keep_bytes`.
        keep_bytes: How large the log may grow.
    """

    id: str
    source: str
    queue: Mapping[str, str]
    keep_seconds: float = KEEP_SECONDS
    keep_bytes: int = KEEP_BYTES

    @property
    def queue_options(self) -> DiscoveryOptions:
        """The queue, as its reader wants it."""
        given = {name.lower(): value for name, value in self.queue.items()}
        return DiscoveryOptions.read({**given, "cloudfiles.usenotifications": "true"})

    def to_json(self) -> dict[str, Any]:
        """Give it as values that JSON has."""
        return asdict(self)


def read_description(store: ObjectStore) -> EventLogDescription | None:
    """Read what a log is of; `None` where there is no log.

    Raises:
        CorruptedStateError: It was damaged or changed.
        IncompatibleStateError: A newer version of this package wrote it.
        StateError: The store cannot be read.
    """
    content = read_if_there(store, KEY)
    return None if content is None else _decode(content, store)


def create_log(
    store: ObjectStore,
    source: str,
    queue: Mapping[str, str],
    *,
    keep_seconds: float = KEEP_SECONDS,
    keep_bytes: int = KEEP_BYTES,
) -> EventLogDescription:
    """Make an event log; doing so again changes what is another one, and nothing else.

    Args:
        store: Where the log lives.
        source: URI of the bucket, or of the part of it whose events arrive.
        queue: The options that name the queue.
        keep_seconds: For how long events are kept.
        keep_bytes: How large the log may grow.

    Raises:
        OptionError: The queue is not one, or the events would be kept too briefly.
        StateConflictError: The log is of another source.
        StateError: The store cannot be read or written.
    """
    if keep_seconds < LEAST_KEEP_SECONDS:
        raise OptionError("Keep events for one day at least: a stream may be that far behind.")
    wanted = EventLogDescription(
        id=uuid.uuid4().hex,
        source=normalize_uri(source).rstrip("/"),
        queue=dict(queue),
        keep_seconds=keep_seconds,
        keep_bytes=keep_bytes,
    )
    wanted.queue_options  # noqa: B018 - raises where it is none
    while True:
        with reaching_state(store):
            if store.put_if_absent(KEY, _encode(wanted)):
                return wanted
            content = store.get(KEY)
        found = _decode(content, store)
        _require_same(found, wanted.source, store, "Choose another location for the log.")
        # It keeps its id as long as its queue is the same.
        changed = replace(wanted, id=found.id) if found.queue == wanted.queue else wanted
        if changed == found:
            return found
        with reaching_state(store):
            if replace_if_same(store, KEY, content, _encode(changed)):
                return changed


def renew_log(store: ObjectStore, described: EventLogDescription) -> EventLogDescription:
    """Give a log another id, so that each of its streams lists its source once.

    Args:
        store: Where the log lives.
        described: What its caller knows; another id that it has got since stays.

    Raises:
        CorruptedStateError: The description was damaged.
        StateError: The store cannot be read or written.
    """
    while True:
        with reaching_state(store):
            content = store.get(KEY)
        found = _decode(content, store)
        if found.id != described.id:
            return found
        renewed = replace(found, id=uuid.uuid4().hex)
        with reaching_state(store):
            if replace_if_same(store, KEY, content, _encode(renewed)):
                return renewed


def _encode(described: EventLogDescription) -> bytes:
    return seal({FIELD: FORMAT_VERSION, **described.to_json()})


def _decode(content: bytes, store: ObjectStore) -> EventLogDescription:
    name = store.child_uri(KEY)
    try:
        value = unseal(content)
        require_version(value.get(FIELD), name=name, understood=FORMAT_VERSION, what_to_do=_UPGRADE)
        return as_record(value, EventLogDescription)
    except ValueError as failure:
        raise CorruptedStateError(
            f"{name} cannot be read: {failure}. Remove it, and set the event log up again: each of "
            f"its streams lists its source once then."
        ) from failure


_DECLARED = options_of(DiscoveryOptions)
_OF_STREAM = _DECLARED["use_notifications"].name


def set_up_event_log(  # noqa: PLR0913 - what a log and its queue are made of
    location: str,
    source: str,
    name: str,
    *,
    access: Access | None = None,
    keep_seconds: float = KEEP_SECONDS,
    keep_bytes: int = KEEP_BYTES,
    dry_run: bool = False,
    **details: Any,
) -> NotificationServices:
    """Make the queue of a bucket, tell the bucket of it, and make the event log.

    Running it again changes nothing, or completes what was begun.

    Args:
        location: Where the log is to be: a path or URI that nothing else is in.
        source: URI of the bucket, or of the part of it whose streams read the log.
        name: A name for this set-up, as for `set_up_notifications`.
        access: The identity that may set things up; without one, the environment's own chain.
        keep_seconds: For how long events are kept: a day at least.
        keep_bytes: How large the log may grow; older events go first.
        dry_run: Only report what would be done.
        details: As of `set_up_notifications`: `tags`, `via`, `scope`, ...

    Returns:
        What there is now; its `options` are those of each stream.

    Raises:
        OptionError: An argument is not valid.
        StateConflictError: There is an event log of another bucket.
        NotificationServicesError: It cannot be set up.
    """
    store = open_store(location, access)
    _require_same(read_description(store), source, store)
    made = set_up_notifications(source, name, access=access, dry_run=dry_run, **details)
    if dry_run:
        return made
    queue = {key: value for key, value in made.options.items() if key != _OF_STREAM}
    create_log(store, source, queue, keep_seconds=keep_seconds, keep_bytes=keep_bytes)
    return replace(made, options=options_of_log(store))


def options_of_log(store: ObjectStore) -> dict[str, str]:
    """Give the options of each stream that reads the log in a location."""
    return {
        _DECLARED["use_managed_file_events"].name: "true",
        _DECLARED["file_events_location"].name: store.uri,
    }


def list_event_log(
    location: str, *, access: Access | None = None, scope: CloudScope | None = None
) -> tuple[EventLogDescription, Sequence[NotificationServices]]:
    """Find what an event log is of, and what was set up for it.

    Raises:
        OptionError: There is no event log.
        NotificationServicesError: What was set up cannot be listed.
    """
    store = open_store(location, access)
    found = read_description(store)
    if found is None:
        raise OptionError(f"There is no event log in {printable_path(store.uri)}.")
    given = {} if scope is None else {"scope": scope}
    listed = list_notifications(found.source, access=access, **given)
    mine = [
        replace(each, options=options_of_log(store))
        for each in listed
        if dict(found.queue).items() <= dict(each.options).items()
    ]
    return found, mine


def tear_down_event_log(
    location: str,
    source: str,
    name: str,
    *,
    access: Access | None = None,
    dry_run: bool = False,
    **details: Any,
) -> NotificationServices:
    """Remove what `set_up_event_log` made, but for the events, which no stream reads any more.

    Running it again does no harm.

    Args:
        location: Of the log.
        source: As it was set up.
        name: The name it was set up under.
        access: As for `set_up_event_log`.
        dry_run: Only report what would be removed.
        details: As of `tear_down_notifications`.

    Raises:
        StateConflictError: The event log is of another bucket.
        NotificationServicesError: Something could not be removed.
    """
    store = open_store(location, access)
    _require_same(read_description(store), source, store)
    if not dry_run:
        with reaching_state(store):
            store.delete(KEY)
    return tear_down_notifications(source, name, access=access, dry_run=dry_run, **details)


def _require_same(
    found: EventLogDescription | None,
    source: str,
    store: ObjectStore,
    what_to_do: str = "Nothing was changed.",
) -> None:
    wanted = normalize_uri(source).rstrip("/")
    if found is not None and found.source != wanted:
        raise StateConflictError(
            f"The event log in {printable_path(store.uri)} is of {found.source}, not of {wanted}. "
            f"{what_to_do}"
        )
