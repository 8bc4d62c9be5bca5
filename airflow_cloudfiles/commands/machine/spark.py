"""`cloudfiles spark`: which warm Sparks are there on this machine, and how are they ended?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.running.outcome import Outcome, add_command, as_text

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command and what it can do."""
    text = "look at the warm Sparks of this user on this machine (ingest --keep-warm), or end them"
    found = commands.add_parser("spark", help=text, description=text)
    actions = found.add_subparsers(title="actions", required=True, metavar="action")
    for name, run, help_text in (
        ("status", _status, "each with its process, age, idle time, runs and memory"),
        ("stop", _stop, "end them all; a run in progress fails and can be tried again"),
    ):
        add_command(actions, name, run, help=help_text, parents=[shared])


def _status(_given: argparse.Namespace) -> Outcome:
    # Imported here: other commands need none of it.
    from airflow_cloudfiles.engine.job.warm import listing  # noqa: PLC0415

    found = listing.found()
    return Outcome(found, _text(found) or "No warm Spark of this user is on this machine.")


def _stop(_given: argparse.Namespace) -> Outcome:
    from airflow_cloudfiles.engine.job.warm import listing  # noqa: PLC0415

    stopped = listing.stop_all()
    is_done = all(each["ended"] for each in stopped)
    text = _text(stopped) or "No warm Spark of this user is on this machine."
    return Outcome(stopped, text, 0 if is_done else 1)


def _text(found: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(map(as_text, found))
