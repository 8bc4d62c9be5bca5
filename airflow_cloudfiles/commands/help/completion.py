"""Run `cloudfiles completion`, which tells a shell what it completes after `cloudfiles`.

The script is written once by shtab, from the parser itself, so completing starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from airflow_cloudfiles.commands.help.docs import pages
from airflow_cloudfiles.commands.running.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.options.cloud_files import GROUPS, usable

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_PATHS: Final = {"URI": "DIRECTORY", "FOLDER": "DIRECTORY", "FILE": "FILE"}
"""What an argument with this placeholder takes: of shtab's kinds. Locations may be local."""


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "write a script for a shell that completes commands, arguments and names of options"
    found = add_command(commands, "completion", _run, help=text, parents=[shared])
    found.add_argument("shell", choices=SHELLS, help="the shell that is to complete")


def _run(given: argparse.Namespace) -> Outcome:
    try:
        import shtab  # noqa: PLC0415 - of an extra
    except ImportError as missing:
        raise CloudFilesError(
            f"Completion needs shtab, which is not installed. {install('completion')}"
        ) from missing
    program: Parser = given.program
    for action in _actions(program):
        _describe(action, shtab)
    script = shtab.complete(program, given.shell)
    return Outcome({"shell": given.shell, "script": script}, script)


def _describe(action: argparse.Action, shtab: Any) -> None:
    """Say what values an argument can have."""
    if action.dest == "option":
        action.choices = [f"{name}=" for name in usable(GROUPS)]
    elif action.dest == "page":
        action.choices = sorted(pages())
    elif kind := _PATHS.get(str(action.metavar)):
        action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]  # shtab's way


def _actions(parser: Parser) -> Iterator[argparse.Action]:
    """Yield all arguments of a parser and of the commands in it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for each in action.choices.values():
                yield from _actions(each)
