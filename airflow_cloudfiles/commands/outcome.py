"""Give back what a command has found, and write its lines in colors on a terminal.

A value for programs, and a text for people. A text is made of what the value holds, so the two
cannot tell different stories.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Final, Literal, TextIO, TypeAlias

from airflow_cloudfiles.engine.messages import printable

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - has no other name
"""What commands are added to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did.

    Attributes:
        value: What `--json` writes; `None` where the lines are JSON then.
        text: What is written else.
        code: The exit code of the program.
        lines: What is written instead of the text, as it is read.
    """

    value: object
    text: str
    code: int = 0
    lines: Iterable[str | ColoredLine] | None = None


def as_text(value: Mapping[str, Any]) -> str:
    """Write a value as lines of `name: value`, what is in it indented."""
    return "\n".join(_lines(value, ""))


def columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), has_heads: bool = True
) -> list[str]:
    """Write rows as lines, with the cells of a column under each other.

    On a terminal that is too narrow, the last cells of a row are below it, each with its head.

    Args:
        rows: Of as many cells each.
        right: Places of the columns that are numbers, and end at the same place.
        has_heads: Whether the first row has the names of the columns.

    Returns:
        A text for each row, which may have several lines.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    most = terminal_width()
    ends = [end + 2 * place for place, end in enumerate(accumulate(widths))]
    fitting = len(ends) if most is None else max(1, bisect_right(ends, most))
    heads = rows[0] if has_heads else [""] * len(widths)
    lines = []
    for number, row in enumerate(rows):
        cells = enumerate(zip(row[:fitting], widths, strict=False))
        padded = (cell.rjust(w) if at in right else cell.ljust(w) for at, (cell, w) in cells)
        line = "  ".join(padded).rstrip()
        if most is not None and not (has_heads and number == 0):
            below = (f"{head} {cell}".strip() for head, cell in zip(heads, row, strict=True))
            text = ", ".join(islice(below, fitting, None))
            line = "\n".join([line, *_wrapped(text, most)])
        lines.append(line)
    return lines


def _wrapped(text: str, most: int) -> list[str]:
    indent = "    "
    return textwrap.wrap(
        text, most, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def terminal_width() -> int | None:
    """Find how wide the terminal is; `None` where the output is none, so that a row is a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def pair(text: str) -> tuple[str, str]:
    """Read `key=value` of the command line."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        msg = f"{text!r} is not written key=value"
        raise argparse.ArgumentTypeError(msg)
    return key, value


class Parser(argparse.ArgumentParser):
    """The parser of a command, which knows the arguments that several have."""

    def add_flag(self, flag: str, help_text: str) -> None:
        """Add an argument without a value, which is false where it is not given."""
        self.add_argument(flag, action="store_true", help=help_text)

    def add_pairs(
        self, flag: str, help_text: str, *, metavar: str = "KEY=VALUE", dest: str | None = None
    ) -> None:
        """Add an argument that gives pairs, and may be repeated."""
        self.add_argument(
            flag,
            dest=dest,
            type=pair,
            action="append",
            default=[],
            metavar=metavar,
            help=f"{help_text}; may be repeated",
        )

    def add_options(self, help_text: str) -> None:
        """Add `--option KEY=VALUE`, which may be repeated."""
        self.add_pairs("--option", help_text)

    def add_location(self, flag: str, help_text: str, *, required: bool = False) -> None:
        """Add an argument that gives a location."""
        self.add_argument(flag, required=required, metavar="URI", help=help_text)

    def add_checkpoint_location(
        self, *, required: bool = True, help_text: str = "the state of the stream"
    ) -> None:
        """Add `--checkpoint-location`."""
        self.add_location("--checkpoint-location", help_text, required=required)

    def add_schema_location(self) -> None:
        """Add `--schema-location`."""
        self.add_location("--schema-location", "the folder that has _schemas/, if it is another")

    def add_txn_app_id(self) -> None:
        """Add `--txn-app-id`."""
        text = "for a query of your own: its txnAppId, if it has one"
        self.add_argument("--txn-app-id", metavar="NAME", help=text)


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], Outcome],
    *,
    help: str,  # noqa: A002 - argparse's word
    parents: list[Parser],
) -> Parser:
    """Add a command that runs a function."""
    found = commands.add_parser(name, help=help, description=help, parents=parents)
    found.set_defaults(run=run)
    return found


def add_group(
    commands: Commands,
    name: str,
    help_text: str,
    *,
    title: str = "actions",
    metavar: str = "action",
) -> Commands:
    """Add a command that has commands of its own; gives what these are added to."""
    found = commands.add_parser(name, help=help_text, description=help_text)
    return found.add_subparsers(title=title, required=True, metavar=metavar)


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, each in value.items():
        if isinstance(each, Mapping) and each:
            yield f"{indent}{printable(name)}:"
            yield from _lines(each, indent + "  ")
        elif isinstance(each, list | tuple) and each:
            yield f"{indent}{name}:"
            yield from (f"{indent}  {printable(str(item))}" for item in each)
        else:
            yield f"{indent}{printable(name)}: {_scalar(each)}"


def _scalar(value: object) -> str:
    """Write a single value as a person does."""
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


Tone = Literal["problem", "caution", "heading"]
_CODES: Final[Mapping[Tone, str]] = {"problem": "31", "caution": "33", "heading": "1"}
"""Red, yellow and bold: those that every terminal and every theme has."""


@dataclass(frozen=True, slots=True)
class ColoredLine:
    """A line that a terminal shows in a color.

    Attributes:
        text: The line.
        tone: What it is to the reader.
    """

    text: str
    tone: Tone


def has_colors(stream: TextIO) -> bool:
    """Tell whether colors are written to a stream.

    `NO_COLOR` and `FORCE_COLOR` decide if they are set to anything (https://no-color.org,
    https://force-color.org); otherwise a terminal that is not `dumb` gets colors.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def colored(text: str, tone: Tone | None, stream: TextIO) -> str:
    """Write a text in the color of its tone, if the stream shows colors.

    Args:
        text: Printable already: escapes in it would be obeyed.
        tone: `None` for a text like most.
        stream: Where it goes.
    """
    if tone is None or not has_colors(stream):
        return text
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"
