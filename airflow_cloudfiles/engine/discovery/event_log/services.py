"""What does an event log need before events arrive in it?

What a stream needs that has a queue of its own: a queue, and a bucket that tells it
(`discovery.services`), but once for all streams; and the log that says which queue that is.

The log is made last and goes first. So a log that is there has a subscription; and a log that is
made again, after a time without one, has another id, by which its streams see that they missed
something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.event_log import description
from airflow_cloudfiles.engine.discovery.event_log.description import (
    KEEP_BYTES,
    KEEP_SECONDS,
    EventLogDescription,
    create_log,
    read_description,
)
from airflow_cloudfiles.engine.discovery.services.base import (
    CloudScope,
    NotificationServices,
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.errors import OptionError, StateConflictError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

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
            store.delete(description.KEY)
    return tear_down_notifications(source, name, access=access, dry_run=dry_run, **details)


def _require_same(found: EventLogDescription | None, source: str, store: ObjectStore) -> None:
    wanted = normalize_uri(source).rstrip("/")
    if found is not None and found.source != wanted:
        raise StateConflictError(
            f"The event log in {printable_path(store.uri)} is of {found.source}, not of {wanted}. "
            f"Nothing was changed."
        )
