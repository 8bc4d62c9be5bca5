"""The pages a reader sees, taken apart: blocks of code with what they print, links, headings."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
_TOP = [
    ROOT / f"{name}.md"
    for name in ("README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")
]
PAGES = [*_TOP, *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_PRINTS = "prints:\n\n"


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: The file it is in.
        line: Where it begins.
        language: What stands behind the fence.
        code: Its text.
        prints: The text block that follows the words `This prints:` behind it.
    """

    page: Path
    line: int
    language: str
    code: str
    prints: str | None = None

    @property
    def is_dag(self) -> bool:
        """Whether it needs Airflow."""
        return any(word in self.code for word in ("airflow.sdk", "CloudFilesIngestOperator"))

    @property
    def name(self) -> str:
        """For the ids of tests."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        block = Block(page, line, match[1], match[2])
        if block.language == "text" and text[: match.start()].endswith(_PRINTS) and found:
            before = found.pop()
            block = Block(page, before.line, before.language, before.code, block.code)
        found.append(block)
    return found


def python_blocks() -> list[Block]:
    """Every Python block of every page."""
    return [block for page in PAGES for block in blocks(page) if block.language == "python"]


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Relative links of a page: path and anchor."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def table_rows(page: Path) -> Iterator[list[str]]:
    """The cells of every line of every table of a page."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def load_script(name: str) -> ModuleType:
    """Import a script of `docs/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
