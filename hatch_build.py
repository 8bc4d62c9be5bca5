"""What does a wheel need besides the package: where does its README link to, what comes along?

hatchling, the build back-end, calls these hooks (`[tool.hatch]` in pyproject.toml).

1. A README on a package index has no neighbors: its links into the repository become absolute, or,
   where nobody has said at which address the repository is, their text. Pictures likewise, or none.
2. The same address gives the `Project-URL`s.
3. The pages of the documentation and the constraints are in the wheel, so that whoever has only
   the wheel has them (`cloudfiles docs`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ADDRESS: Final = "CLOUDFILES_REPOSITORY"
"""Environment variable: address of the repository; else `repository` in pyproject.toml."""

_FENCES: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_PAGES: Final = {
    "Source": "",
    "Documentation": "/blob/HEAD/docs/index.md",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
_INTERNAL: Final = "decisions"
"""Pages for those who change this package."""


class ReadmeAndUrls(MetadataHookInterface):
    """Gives `readme` and `urls` (1, 2)."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic; an unpacked source archive has it already."""
        address = (os.environ.get(ADDRESS) or self.config.get("repository", "")).rstrip("/")
        if address and not address.startswith("https://"):
            msg = f"{ADDRESS} must be an https address, got {address!r}."
            raise ValueError(msg)
        if "readme" not in metadata:
            text = Path(self.root, "README.md").read_text(encoding="utf-8")
            metadata["readme"] = {
                "content-type": "text/markdown",
                "text": with_absolute_links(text, address, Path(self.root)),
            }
        if "urls" not in metadata:
            pages = _PAGES.items() if address else ()
            metadata["urls"] = {name: address + page for name, page in pages}


class PagesAndConstraints(BuildHookInterface[Any]):
    """Puts files beside the package's own into the wheel (3)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them; an editable installation has them in the checkout."""
        if self.target_name != "wheel" or version != "standard":
            return
        docs = Path(self.root, "docs")
        pages = (path.relative_to(docs) for path in sorted(docs.rglob("*.md")))
        build_data["force_include"].update(
            {
                str(docs / page): f"airflow_cloudfiles/docs/{page.as_posix()}"
                for page in pages
                if page.parts[0] != _INTERNAL
            }
        )
        constraints = str(Path(self.root, "requirements", "constraints.txt"))
        build_data["force_include"][constraints] = "airflow_cloudfiles/constraints.txt"


def with_absolute_links(text: str, address: str, root: Path) -> str:
    """Make links of a page at the root of the repository absolute.

    Args:
        text: Of the page.
        address: Of the repository; empty: links become their text, and pictures are left out.
        root: Where the repository is here, to tell files from folders.
    """

    def relinked(found: re.Match[str]) -> str:
        mark, name, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        if not address:
            return "" if mark else name
        kind = "raw" if mark else "tree" if (root / target).is_dir() else "blob"
        return f"{mark}[{name}]({address}/{kind}/HEAD/{target})"

    parts = _FENCES.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)
