"""What does a command give back?

A value for programs, and a text for people. A text is made of what the value holds, so the two
cannot tell different stories.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.messages import printable

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.colors import Toned

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - has no other name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did.

    Attributes:
        value: What `--json` writes.
        text: What is written else.
        code: The exit code of the program.
        lines: What is written instead, line by line as it is read; its command sees to `--json`.
    """

    value: object
    text: str
    code: int = 0
    lines: Iterable[str | Toned] | None = None


def as_text(value: Mapping[str, Any]) -> str:
    """Write a value as lines of `name: value`, what is in it indented."""
    return "\n".join(_lines(value, ""))


def pair(text: str) -> tuple[str, str]:
    """Read `key=value` of the command line."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        msg = f"{text!r} is not written key=value"
        raise argparse.ArgumentTypeError(msg)
    return key, value


def add_options(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add `--option KEY=VALUE`, which may be repeated."""
    parser.add_argument(
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{help_text}; may be repeated",
    )


def add_checkpoint_location(parser: argparse.ArgumentParser) -> None:
    """Add `--checkpoint-location`, which must be given."""
    parser.add_argument(
        "--checkpoint-location", required=True, metavar="URI", help="the state of the stream"
    )


def add_schema_location(parser: argparse.ArgumentParser) -> None:
    """Add `--schema-location`."""
    parser.add_argument(
        "--schema-location", metavar="URI", help="the folder that has _schemas/, if it is another"
    )


def add_txn_app_id(parser: argparse.ArgumentParser) -> None:
    """Add `--txn-app-id`."""
    parser.add_argument(
        "--txn-app-id", metavar="NAME", help="for a query of your own: its txnAppId, if it has one"
    )


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], Outcome],
    *,
    help: str,  # noqa: A002 - argparse's word
    parents: list[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add a command that runs a function."""
    found = commands.add_parser(name, help=help, description=help, parents=parents)
    found.set_defaults(run=run)
    return found


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
