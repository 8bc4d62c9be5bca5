"""Which decisions are there? Writes `decisions/index.md` from the records.

`make generate` after a new record or a new title; a test fails while the page
is not what this script makes. The outcome of a decision is written in the page, and kept.
"""  # noqa: INP001 - a script

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent / "decisions"
PAGE: Final = FOLDER / "index.md"
MISSING: Final = "**say what was decided**"

_HEAD: Final = """\
# Decisions

Why things are as they are: one record for each choice that a reader could argue about. Records are
not rewritten; a later one says which it changes. [By area](areas.md), they stand beside what holds
today. `docs/generate_decisions.py` makes this table from the records; the outcomes are written
here.

| | decision | outcome |
| --- | --- | --- |
"""
_TITLE: Final = re.compile(r"# (\d+)\. (.+)")
_ROW: Final = re.compile(r"\| (\d+) \| .+ \| (.+) \|$", re.MULTILINE)


def page() -> str:
    """The whole page."""
    outcomes = dict(_ROW.findall(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else {}
    return _HEAD + "".join(
        f"| {number} | [{title}]({name}) | {outcomes.get(number, MISSING)} |\n"
        for number, title, name in records()
    )


def records() -> list[tuple[str, str, str]]:
    """Number, title and file of every record, in their order."""
    found = []
    for path in sorted(FOLDER.glob("0*.md")):
        heading = _TITLE.match(path.read_text(encoding="utf-8"))
        if heading is None or int(heading[1]) != int(path.name[:4]):
            raise ValueError(f"{path.name} does not begin with '# {int(path.name[:4])}. <title>'")
        found.append((heading[1], heading[2], path.name))
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
