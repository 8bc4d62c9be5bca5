"""Run `cloudfiles cost`, which estimates the requests of a stream and what they come to."""

from __future__ import annotations

import argparse
import math
from collections import Counter

from airflow_cloudfiles.commands.running.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.cost import KINDS, Load, estimated
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.values import choice

_DAYS = 30


def add_to(commands: Commands, shared: Parser) -> None:
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
            name, type=number, default=default, metavar="N", help=f"{text} ({default})"
        )
    text = f"what a thousand requests of a kind cost: {', '.join(KINDS)}"
    found.add_pairs("--price", text, metavar="KIND=PRICE")
    found.add_options("an option of the stream")


def number(text: str) -> int:
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
