"""Which arguments has each command? Writes the tables of `reference/cli.md` from the parsers.

`make generate` after a change to `commands/`; a test fails while the page is not what
this script makes. What stands between the tables is written by hand.
"""  # noqa: INP001 - a script

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from airflow_cloudfiles import cli

PAGE: Final = Path(__file__).parent / "reference" / "cli.md"
_BLOCK: Final = re.compile(
    r"<!-- ([a-z]+): (.*?) -->\n(?:.*?\n)??<!-- generated until here -->\n", re.DOTALL
)
_OF_ALL: Final = {"help", "json", "quiet", "verbose", "stream", "streams_file", "conn_id"}
"""Arguments that the page describes once."""


def page() -> str:
    """The page, with what is generated made again."""
    return _BLOCK.sub(_again, PAGE.read_text(encoding="utf-8"))


def described() -> set[str]:
    """The commands whose arguments are on the page."""
    found = _BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    lists = [each[2].split(", ") for each in found if each[1] == "arguments"]
    return {name for names in lists for name in names}


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command and action, by its words."""
    return {each.prog.partition(" ")[2]: each for each in _runnable(cli.parser())}


def _runnable(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    if parser.get_default("run"):
        yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in action.choices.values():
                yield from _runnable(each)


def _again(block: re.Match[str]) -> str:
    kind, names = block[1], block[2]
    every = commands()
    if kind == "commands":
        rows = [
            f"| `cloudfiles {name}` | {_text(each.description)} |" for name, each in every.items()
        ]
        table = ["| command | what it does |", "| --- | --- |", *rows]
    else:
        table = _table({name: every[name] for name in names.split(", ")})
    lines = "\n".join(table)
    return f"<!-- {kind}: {names} -->\n\n{lines}\n\n<!-- generated until here -->\n"


def _table(parsers: Mapping[str, argparse.ArgumentParser]) -> list[str]:
    """The arguments of some commands; which have one, where there are several."""
    of: dict[tuple[str, str], list[str]] = {}
    for name, parser in parsers.items():
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way
            is_own = action.dest not in _OF_ALL and not isinstance(
                action,
                argparse._SubParsersAction,  # noqa: SLF001
            )
            if is_own:
                of.setdefault((_name(action), _text(action.help)), []).append(name)
    if len(parsers) == 1:
        return [
            "| argument | meaning |",
            "| --- | --- |",
            *(f"| {argument} | {text} |" for argument, text in of),
        ]
    rows = [
        f"| {argument} | {_which(names, parsers)} | {text} |"
        for (argument, text), names in of.items()
    ]
    return ["| argument | of | meaning |", "| --- | --- | --- |", *rows]


def _which(names: list[str], parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    if len(names) == len(parsers):
        return "all"
    return ", ".join(f"`{name.rpartition(' ')[2]}`" for name in names)


def _name(action: argparse.Action) -> str:
    flag = action.option_strings[-1] if action.option_strings else ""
    if action.nargs == 0:
        return f"`{flag}`"
    choices = "|".join(map(str, action.choices or ()))
    value = str(action.metavar or "") or choices or action.dest.upper()
    shown = f"{flag} {value}".strip().replace("|", "\\|")
    needed = " (needed)" if action.required and flag else ""
    return f"`{shown}`{needed}"


def _text(text: str | None) -> str:
    return (text or "").replace("%%", "%").replace("|", "\\|").replace("_", "\\_")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
