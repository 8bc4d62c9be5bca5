"""Run `cloudfiles docs`, which shows the documentation of this version.

The pages are in the wheel, below `docs` of the package (`hatch_build.py` puts them there), so that
a worker without the network has them. In a checkout they are beside the package.
"""

from __future__ import annotations

import argparse
import difflib
import re
from pathlib import Path
from typing import Final

from airflow_cloudfiles.commands.running.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import PAGE, OptionError

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_INTERNAL: Final = "decisions"
"""Pages for those who change this package; they are not in the wheel."""
_CODE: Final = re.compile(r"\[?(CF\d{3})\]?", re.IGNORECASE)
"""The code of an error, as a message ends with it."""


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "show a page of the documentation or the section of an error, or list the pages"
    found = add_command(commands, "docs", _run, help=text, parents=[shared])
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


def _run(given: argparse.Namespace) -> Outcome:
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
