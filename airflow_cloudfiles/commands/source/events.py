"""`cloudfiles events`: drain the queue of a bucket into its event log, and look at the log."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    as_text,
)
from airflow_cloudfiles.engine.extensions.event_log.collector import EventCollector, collect_on
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationReport

_COUNTED = ("received", "files", "poison", "deleted", "outside", "redelivered")

_SHOWN = "show what an event log is of, and how far it is"


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command and its verbs."""
    help_text = "drain the queue of a bucket into its event log, or look at the log"
    verbs = add_group(commands, "events", help_text, title="what to do", metavar="verb")
    where = Parser(add_help=False)
    where.add_location("--events-location", "cloudFiles.fileEventsLocation", required=True)
    parents = [where, shared]
    collect = add_command(
        verbs,
        "collect",
        _collect,
        help="drain the queue again and again, until stopped; streams then only read the log",
        parents=parents,
    )
    collect.add_flag("--once", "drain it once, and end")
    collect.add_argument(
        "--poll-seconds",
        type=_seconds,
        default=5.0,
        metavar="N",
        help="the pause between two rounds (5)",
    )
    add_command(verbs, "show", _show, help=_SHOWN, parents=parents)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 3600:  # noqa: PLR2004 - an hour
        msg = f"{text!r} is not a number of seconds up to an hour"
        raise argparse.ArgumentTypeError(msg)
    return found


def _collect(given: argparse.Namespace) -> Outcome:
    collector = EventCollector(EventLog.open(given.events_location))
    total: Counter[str] = Counter()
    stop = threading.Event()

    def note(report: NotificationReport | None) -> None:
        if given.once:
            stop.set()
        if report is None:
            total["standing_by"] += 1
            return
        total["rounds"] += 1
        total.update({name: getattr(report, name) for name in _COUNTED})

    with _until_stopped(stop):
        collect_on(collector, note, stop, poll_seconds=0 if given.once else given.poll_seconds)
    value = {name: total[name] for name in ("rounds", "standing_by", *_COUNTED)}
    if given.once and not total["rounds"]:
        return Outcome(value, "Another collector is draining the queue.", code=1)
    rounds = counted(total["rounds"], "round")
    text = (
        f"{counted(total['received'], 'message')} in {rounds}: {counted(total['files'], 'event')}"
    )
    return Outcome(value, f"{text} logged, {total['poison']} not understood.")


@contextmanager
def _until_stopped(stop: threading.Event) -> Iterator[None]:
    """End between two rounds where the process is asked to end."""
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
        if threading.current_thread() is threading.main_thread()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(given: argparse.Namespace) -> Outcome:
    log = EventLog.open(given.events_location)
    seen = log.look(0)
    collected = datetime.fromtimestamp(seen.collected_us / 1_000_000, UTC)
    value: dict[str, Any] = {
        **log.description.to_json(),
        "location": log.store.uri,
        "first_entry": seen.first if seen.first < seen.end else None,
        "next_entry": seen.end,
        "collected": collected.isoformat(timespec="seconds") if seen.collected_us else None,
    }
    return Outcome(json.loads(json.dumps(value)), as_text(value))
