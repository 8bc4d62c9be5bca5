"""What does the site need besides the pages of `docs/`?

`make docs` calls these hooks of MkDocs. The pages can be read in the repository, too, so they link
to files that are not part of the site.

1. README.md and its neighbors become pages below `project/`.
2. Links between those and the pages of `docs/` lead to the page in the site.
3. A link to any other file of the repository (a test, a module, an example) becomes its text: the
   site stands alone. That such files exist is tested in tests/docs/test_docs.py.
4. Search shows what a reader acts on before why it is so.
5. Code in a table, such as the name of an option, breaks behind a dot or the like, in no word.
"""  # noqa: INP001 - a script

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

from airflow_cloudfiles.plugins.docs import breakable

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PROJECT: Final = {
    ROOT / f"{name}.md": f"project/{name.lower()}.md"
    for name in ("README", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT", "CHANGELOG")
}

_EVIDENCE: Final = (
    "how-to/benchmark",
    "protocol",
    "reference/api/",
    "reference/behaviors",
    "reference/delta-situations",
    "reference/proven-against",
    "reference/tested-versions",
    "reference/torture",
)
_BOOSTS: Final = {
    **dict.fromkeys(("concepts/architecture", "decisions/", "project/"), 0.001),
    **dict.fromkeys(_EVIDENCE, 0.1),
    "reference/options": 50,
    **dict.fromkeys(("concepts/", "how-to/", "quickstart"), 10),
    "reference/": 5,
}
"""How much more a page counts in a search than others, by how its place begins.

Material counts a word in a title a thousand times, and a record's title is its decision: as small
a factor puts it behind pages that have the word in their text. Evidence is in between. The page
of options has long sections, where a word counts little."""

_FENCES: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside `docs/` (1)."""
    for path, uri in PROJECT.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make links lead to pages of the site, or nowhere (2, 3), and rank the page (4)."""
    uri = page.file.src_uri
    boost = next((value for start, value in _BOOSTS.items() if uri.startswith(start)), 1)
    page.meta["search"] = {"boost": boost}
    of_project = {place: path for path, place in PROJECT.items()}
    folder = of_project.get(uri, DOCS / uri).parent

    def relinked(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        place = _place(folder / path)
        if place is None:
            return text
        return f"[{text}]({os.path.relpath(place, Path(uri).parent)}{hash_}{anchor})"

    parts = _FENCES.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Allow a line to break between the parts of code in tables (5)."""
    return breakable(html)


def _place(target: Path) -> str | None:
    """Where a file of the repository is in the site; None if it is not.

    A page that does not exist keeps its place, so that MkDocs warns about it.
    """
    path = target.resolve()
    if path.is_dir():
        path /= "index.md"
    if path in PROJECT:
        return PROJECT[path]
    if path.suffix in {".md", ".png", ".svg"} and path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return None if path.exists() else str(target)
