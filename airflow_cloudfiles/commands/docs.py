"""Run `cloudfiles docs` and `cloudfiles completion`, which help with this version at a shell.

The pages of the documentation are in the wheel, below `docs` of the package (`hatch_build.py` puts
them there), so that a worker without the network has them. In a checkout they are beside the
package. What a shell completes is a script that is written once by shtab, from the parser itself,
so completing starts no Python.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from airflow_cloudfiles.commands.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import PAGE, CloudFilesError, OptionError
from airflow_cloudfiles.engine.messages import install

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_INTERNAL: Final = "decisions"
"""Pages for those who change this package; they are not in the wheel."""
_CODE: Final = re.compile(r"\[?(CF\d{3})\]?", re.IGNORECASE)
"""The code of an error, as a message ends with it."""


def add_docs(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "show a page of the documentation or the section of an error, or list the pages"
    found = add_command(commands, "docs", _show, help=text, parents=[shared])
    found.add_argument(
        "page",
        nargs="?",
        help="its name, such as options or how-to/recover, or CF302; none: list all",
    )


def pages() -> dict[str, Path]:
    """Find the pages of this version, each by its name."""
    inside = _PACKAGE / "docs"
    root = inside if inside.is_dir() else _PACKAGE.parent / "docs"
    files = (path.relative_to(root) for path in sorted(root.rglob("*.md")))
    return {
        path.with_suffix("").as_posix(): root / path for path in files if path.parts[0] != _INTERNAL
    }


def _show(given: argparse.Namespace) -> Outcome:
    known = pages()
    if not given.page:
        return Outcome(sorted(known), "\n".join(sorted(known)))
    if code := _CODE.fullmatch(given.page):
        name, text = PAGE, section(code[1])
        return Outcome({"page": name, "text": text}, text)
    name = _name(given.page, known)
    text = known[name].read_text(encoding="utf-8")
    return Outcome({"page": name, "text": text}, text)


def section(code: str) -> str:
    """Return what the page about errors says under a code.

    Raises:
        OptionError: No error has this code.
    """
    page = pages()[PAGE].read_text(encoding="utf-8")
    title = re.escape(code.upper())
    found = re.search(rf"^### {title}\n.*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise OptionError(
            f"No error has the code {code}. `cloudfiles docs reference/errors` lists them."
        )
    return found[0].rstrip() + "\n"


def _name(asked: str, known: dict[str, Path]) -> str:
    """Find the page that is meant by a name, by the last part of one, or by a path.

    Raises:
        OptionError: There is no such page, or several.
    """
    asked = asked.removeprefix("docs/").removesuffix(".md")
    found = [name for name in known if asked in (name, name.rpartition("/")[2])]
    if asked in found:
        return asked
    if len(found) == 1:
        return found[0]
    names = {name.rpartition("/")[2]: name for name in known}
    near = found or [names[each] for each in difflib.get_close_matches(asked, names, n=3)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise OptionError(f"There is no page {asked!r}.{hint} `cloudfiles docs` lists the pages.")


SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_PATHS: Final = {"URI": "DIRECTORY", "FOLDER": "DIRECTORY", "FILE": "FILE"}
"""What an argument with this placeholder takes: of shtab's kinds. Locations may be local."""


def add_completion(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "write a script for a shell that completes commands, arguments and names of options"
    found = add_command(commands, "completion", _complete, help=text, parents=[shared])
    found.add_argument("shell", choices=SHELLS, help="the shell that is to complete")


def _complete(given: argparse.Namespace) -> Outcome:
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
        from airflow_cloudfiles.engine.options.cloud_files import (  # noqa: PLC0415 - pages need none
            GROUPS,
            usable,
        )

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
