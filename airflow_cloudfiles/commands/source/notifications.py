"""`cloudfiles notifications`: what a source needs for notifications, made, shown and removed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    pair,
)
from airflow_cloudfiles.engine.discovery.services import (
    VIAS,
    CloudScope,
    NotificationServices,
    Part,
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.extensions.event_log.description import (
    KEEP_SECONDS,
    list_event_log,
    set_up_event_log,
    tear_down_event_log,
)
from airflow_cloudfiles.engine.storage.access import of_kind
from airflow_cloudfiles.engine.storage.vendors import BY_NAME, VENDORS

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

_DAY_SECONDS = 86400.0
_SET_UP = "make what a source needs for notifications, as far as it is missing"
_LISTED = "show what was set up for notifications, and what is missing of it"


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command and its three verbs."""
    help_text = "set up, list and tear down what a source needs for notifications"
    verbs = add_group(commands, "notifications", help_text, title="what to do", metavar="verb")
    parents = [_place_arguments(), shared]

    made = add_command(verbs, "set-up", _set_up, help=_SET_UP, parents=parents)
    _one_set_up(made)
    made.add_argument(
        "--tag",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Auto Loader's cloudFiles.resourceTag.KEY, but for vendor, path, name, via, topic, "
        "checkpointLocation and streamId; may be repeated",
    )
    made.add_argument("--via", choices=VIAS, help="AWS: how events get to the queue (sqs)")
    made.add_flag("--same-account", "AWS: refuse a bucket of another account")
    topics = [
        f"{vendor.cloud}: {vendor.queue.dead_letter}"
        for vendor in VENDORS
        if vendor.queue and vendor.queue.dead_letter
    ]
    made.add_argument("--dead-letter-topic", metavar="TOPIC", help=". ".join(topics))
    made.add_flag("--deletes", "announce deleted files, too, for cloudFiles.onDelete=delete")
    made.add_location(
        "--events-location",
        "make the event log there, which many streams read, and whose queue this is",
    )
    made.add_argument(
        "--keep-days",
        type=int,
        default=int(KEEP_SECONDS / _DAY_SECONDS),
        metavar="N",
        help="how long the log keeps events (7)",
    )

    listed = add_command(verbs, "list", _list, help=_LISTED, parents=parents)
    what = listed.add_mutually_exclusive_group(required=True)
    for flag, text in (
        ("--source", "for this source and what is below it"),
        ("--events-location", "for an event log: what it is of, and its one queue"),
    ):
        what.add_argument(flag, metavar="URI", help=text)
    clouds = [vendor.name for vendor in VENDORS if vendor.lists_all]
    what.add_argument("--cloud", choices=clouds, help="for all sources of a cloud")

    removed = add_command(
        verbs,
        "tear-down",
        _tear_down,
        help="remove what was set up for notifications",
        parents=parents,
    )
    _one_set_up(removed)
    removed.add_location(
        "--events-location",
        "the event log of the queue: its streams end with an error from then on",
    )


def _one_set_up(parser: Parser) -> None:
    parser.add_location("--source", "as the stream has it", required=True)
    parser.add_argument(
        "--name",
        required=True,
        help="orders-prod: two to forty lower-case letters, digits and single hyphens",
    )
    parser.add_flag("--dry-run", "only tell what would be done")


def _place_arguments() -> Parser:
    found = Parser(add_help=False)
    for vendor in VENDORS:
        for name, text in vendor.place:
            found.add_argument(f"--{name.replace('_', '-')}", help=f"{vendor.cloud}: {text}")
    return found


def _scope(given: argparse.Namespace) -> CloudScope:
    named = {name: getattr(given, name) for vendor in VENDORS for name, _ in vendor.place}
    return CloudScope(**named)


def _set_up(given: argparse.Namespace) -> Outcome:
    details: dict[str, Any] = {
        "tags": dict(given.tag),
        "via": given.via,
        "same_account": given.same_account,
        "scope": _scope(given),
        "dead_letter_topic": given.dead_letter_topic,
        "deletes": given.deletes,
        "dry_run": given.dry_run,
    }
    if given.events_location:
        made = set_up_event_log(
            given.events_location,
            given.source,
            given.name,
            keep_seconds=given.keep_days * _DAY_SECONDS,
            **details,
        )
    else:
        made = set_up_notifications(given.source, given.name, **details)
    return Outcome(made.to_json(), "\n".join(_text(made)))


def _list(given: argparse.Namespace) -> Outcome:
    if given.events_location:
        log, services = list_event_log(given.events_location, scope=_scope(given))
        parts = "\n\n".join("\n".join(_text(each)) for each in services)
        value = {**log.to_json(), "services": [each.to_json() for each in services]}
        return Outcome(value, f"Event log of {log.source}\n\n{parts or 'Its queue is gone.'}")
    access: Access | None = None
    if given.cloud:
        kind = BY_NAME[given.cloud].access_class()
        access = of_kind(kind, None) or kind()
    found = list_notifications(given.source, access=access, scope=_scope(given))
    text = "\n\n".join("\n".join(_text(each)) for each in found)
    return Outcome([each.to_json() for each in found], text or "Nothing was set up.")


def _tear_down(given: argparse.Namespace) -> Outcome:
    details: dict[str, Any] = {"scope": _scope(given), "dry_run": given.dry_run}
    if given.events_location:
        gone = tear_down_event_log(given.events_location, given.source, given.name, **details)
    else:
        gone = tear_down_notifications(given.source, given.name, **details)
    return Outcome(gone.to_json(), "\n".join(_text(gone)))


def _text(services: NotificationServices) -> Iterable[str]:
    yield f"{services.source}, {services.name}"
    for part in services.parts:
        yield f"  {_done(part, services.is_plan):<15} {part.kind} {part.name}"
        if part.note:
            yield f"  {'':<15} ({part.note})"
    if services.options:
        yield "Options for the stream:"
        yield from (f"  {key}={value}" for key, value in services.options.items())


def _done(part: Part, is_plan: bool) -> str:  # noqa: FBT001 - private
    words = {"created": "create", "changed": "change", "removed": "remove"}
    return f"would {words[part.done]}" if is_plan and part.done in words else part.done
