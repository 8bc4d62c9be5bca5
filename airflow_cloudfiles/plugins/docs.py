"""Render pages of the documentation of this version, which the package carries, as HTML."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt

from airflow_cloudfiles.commands.docs import pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_CELL: Final = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"(?<=<code>).*?(?=</code>)", re.DOTALL)
_BREAK: Final = re.compile(r"(?<=[.,/=])(?=\S)")
_NO_SLUG: Final = re.compile(r"[^\w\- ]")


def rendered(text: str, name: str, root: str) -> str:
    """Render a page, or a part of one.

    Comments are left out, other HTML is shown as text. A link to another page leads to that page
    here; one that leads elsewhere is only its text, since Airflow shows the page in a frame.

    Args:
        text: In Markdown.
        name: Of the page, such as `how-to/recover`.
        root: The address of all pages of this package.

    Returns:
        HTML, in which what is not the renderer's own is escaped.
    """
    parser = _parser()
    tokens = parser.parse(_COMMENT.sub("", text))
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            title = tokens[number + 1].content
            token.attrSet("id", _NO_SLUG.sub("", title.lower()).replace(" ", "-"))
        if token.children:
            token.children = _led_here(token.children, posixpath.dirname(name), root)
    return breakable(str(parser.renderer.render(tokens, parser.options, {})))


def breakable(html: str) -> str:
    """Allow a line to break between the parts of code in tables, such as names of options."""

    def in_cell(cell: re.Match[str]) -> str:
        return _CODE.sub(lambda code: _BREAK.sub("<wbr>", code[0]), cell[0])

    return _CELL.sub(in_cell, html)


def _led_here(tokens: Sequence[Token], folder: str, root: str) -> list[Token]:
    """Have links lead to pages that are here, and leave the others out."""
    found: list[Token] = []
    path = ""
    for token in tokens:
        if token.type == "link_open":
            path = _path(str(token.attrGet("href")), folder, root)
            token.attrSet("href", path)
        is_left_out = token.type in {"link_open", "link_close"} and not path  # no link has another
        if not is_left_out and token.type != "image":
            found.append(token)
    return found


def _path(href: str, folder: str, root: str) -> str:
    """Build where a link leads here; empty where it leads elsewhere."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return ""
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if not parts.path:
        return anchor
    name = posixpath.normpath(posixpath.join(folder, parts.path.removesuffix(".md")))
    return f"{root}/docs/{name}{anchor}" if name in pages() else ""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
