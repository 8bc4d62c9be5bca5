"""Run `cloudfiles explain` and `cloudfiles cost`, which say what the options of a stream come to.

The one says what follows from them, the other estimates the requests of a stream.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from airflow_cloudfiles.commands.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.cost import KINDS, Load, estimated
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.explained import StreamExplanation, explain
from airflow_cloudfiles.engine.options.values import choice
from airflow_cloudfiles.engine.state.run_history import newest_ingest
from airflow_cloudfiles.engine.storage import open_store


def add_explain(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "say what the options of a stream amount to; no file is read, nothing written"
    found = add_command(commands, "explain", _explain, help=help_text, parents=[shared])
    found.add_location("--source", "where the files land")
    found.add_argument("--format", metavar="NAME", help="cloudFiles.format")
    found.add_argument(
        "--file",
        metavar="YAML",
        help="check a file of streams (streams_from_file) instead, as a test of a repository",
    )
    found.add_checkpoint_location(required=False, help_text="of a stream: what its newest run has")
    found.add_flag("--all", "list the options not given, too")
    found.add_options("an option of the stream")


def _explain(given: argparse.Namespace) -> Outcome:
    if given.file:
        return _checked(given)
    known: Mapping[str, Any] = {}
    source, name = given.source, given.format
    if given.checkpoint_location and not (source and name):
        known = _newest(given.checkpoint_location)
        source, name = source or known["source"], name or known["format"]
    if not source or not name:
        raise OptionError(
            "Give --source and --format of a stream, the --checkpoint-location of one that has "
            "run, or --file of many."
        )
    options = {**known.get("options", {}), "cloudFiles.format": name, **dict(given.option)}
    found = explain(source, options)
    return Outcome(asdict(found), "\n".join(_lines(found, has_all=given.all)))


def _newest(checkpoint_location: str) -> Mapping[str, Any]:
    """Read the specification of the newest ingestion of a stream."""
    found = newest_ingest(open_store(checkpoint_location))
    if found is None:
        raise OptionError(
            f"No run of {printable_path(checkpoint_location)} is known. Give --source, --format "
            "and the options."
        )
    return found[1]


def _checked(given: argparse.Namespace) -> Outcome:
    """Check a file of streams, and describe the streams of one without mistakes."""
    if given.source or given.format or given.option:
        raise OptionError("--file has the streams: leave out --source, --format and --option.")
    streams = read_streams(given.file)
    width = max((len(name) for name in streams), default=0)
    lines = [
        f"{name.ljust(width)}  {printable(str(stream['source']))} -> "
        f"{printable(str(stream['target']))}"
        for name, stream in streams.items()
    ]
    return Outcome({"streams": streams}, "\n".join([*lines, counted(len(streams), "stream")]))


def _lines(found: StreamExplanation, *, has_all: bool) -> list[str]:
    shown = [each for each in found.options if each.is_given or has_all]
    width = max(len(each.name) for each in shown)
    lines = [
        f"{each.name.ljust(width)}  {'given  ' if each.is_given else 'default'}  "
        f"{'-' if each.value is None else printable(each.value)}"
        for each in shown
    ]
    return [*lines, "", *map(printable, found.follows)]


_DAYS = 30


def add_cost(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "estimate the requests of a stream and what they come to; nothing is read"
    found = add_command(commands, "cost", _cost, help=help_text, parents=[shared])
    found.add_location("--source", "where the files land", required=True)
    found.add_argument("--format", default="json", help="cloudFiles.format (json)")
    numbers = {
        "--files": (1_000_000, "how many files there are"),
        "--new": (1000, "how many files are new to a run that finds some"),
        "--file-bytes": (2**20, "how large a file is"),
        "--runs": (24, "how many runs a day find new files"),
        "--idle-runs": (0, "how many runs a day find none"),
    }
    for name, (default, text) in numbers.items():
        found.add_argument(
            name, type=_number, default=default, metavar="N", help=f"{text} ({default})"
        )
    text = f"what a thousand requests of a kind cost: {', '.join(KINDS)}"
    found.add_pairs("--price", text, metavar="KIND=PRICE")
    found.add_options("an option of the stream")


def _number(text: str) -> int:
    """Read a number that is not negative, such as 1,000,000."""
    found = int(text.replace(",", ""))
    if found < 0:
        raise ValueError(text)
    return found


def _cost(given: argparse.Namespace) -> Outcome:
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": given.format, **dict(given.option)}, path=given.source
    )
    prices = _prices(given.price)
    runs = estimated(given.source, options, Load(given.files, given.new, given.file_bytes))
    month = Counter[str]()
    for kind in KINDS:
        a_day = given.runs * runs["new"][kind] + given.idle_runs * runs["nothing"][kind]
        month[kind] = _DAYS * a_day
    named = {
        f"first run, {counted(given.files, 'file')}": runs["first"],
        f"run with {counted(given.new, 'new file')}": runs["new"],
        "run with nothing new": runs["nothing"],
        f"{_DAYS} days": month,
    }
    value = {
        name: {**{kind: found[kind] for kind in KINDS}, "price": _price(found, prices)}
        for name, found in zip(("first", "new", "nothing", "month"), named.values(), strict=True)
    }
    width = max(map(len, named))
    columns = [*KINDS, *(["price"] if prices else [])]
    lines = [" " * width + "".join(f"{kind:>14}" for kind in columns)]
    for name, found in zip(named, value.values(), strict=True):
        cells = [f"{found[kind]:>14,}" for kind in KINDS]
        cells += [f"{found['price']:>14,.4f}"] if prices else []
        lines.append(name.ljust(width) + "".join(cells))
    return Outcome(value, "\n".join(lines))


def _prices(given: list[tuple[str, str]]) -> dict[str, float]:
    found = {}
    for name, text in given:
        kind = choice(KINDS).read("The kind of --price", name)
        try:
            found[kind] = float(text)
        except ValueError:
            found[kind] = math.nan
        if not 0 <= found[kind] < math.inf:
            raise OptionError(
                f"--price {name}={text}: {text!r} is no price. Give what a thousand requests cost."
            )
    return found


def _price(found: Counter[str], prices: dict[str, float]) -> float | None:
    if not prices:
        return None
    return round(sum(found[kind] * price / 1000 for kind, price in prices.items()), 4)
