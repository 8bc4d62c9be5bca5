"""What is in one row, element by element?

Expat reads the source of one row by itself. It knows no entities but the five of XML, because a row
brings no document type along: whatever needs one makes a corrupt record, so nothing is fetched and
nothing grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.parsers import expat
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 200
"""A row that is nested deeper is a corrupt record."""


_IN_ATTRIBUTES: Final = {'"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}


class NotXmlError(ValueError):
    """The source of a row is not well-formed."""


class XmlNode:
    """An element.

    Attributes:
        name: As it stands there, prefix included.
        attributes: Names and values, in order.
        content: Texts and elements, in order. Comments and processing instructions are gone, and
            do not part a text.
    """

    __slots__ = ("attributes", "content", "name")

    def __init__(self, name: str, attributes: list[tuple[str, str]]) -> None:
        self.name = name
        self.attributes = attributes
        self.content: list[str | XmlNode] = []

    @property
    def elements(self) -> Iterator[XmlNode]:
        """The elements in it."""
        return (each for each in self.content if isinstance(each, XmlNode))

    @property
    def is_plain(self) -> bool:
        """Whether it holds nothing but text."""
        return not self.content or (len(self.content) == 1 and isinstance(self.content[0], str))

    @property
    def text(self) -> str:
        """Its own texts."""
        return "".join(each for each in self.content if isinstance(each, str))

    def inner(self) -> str:
        """Its content as XML."""
        return "".join(
            escape(each) if isinstance(each, str) else each.outer() for each in self.content
        )

    def outer(self) -> str:
        """The whole element as XML."""
        attributes = "".join(
            f' {name}="{escape(value, _IN_ATTRIBUTES)}"' for name, value in self.attributes
        )
        return f"<{self.name}{attributes}>{self.inner()}</{self.name}>"


def parse(text: bytes) -> XmlNode:
    """Read one row.

    Raises:
        NotXmlError: It is not well-formed, not UTF-8, or nested deeper than `MAX_DEPTH`.
    """
    return _Builder().build(text)


class _Builder:
    """Turns what expat tells into nodes."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.ordered_attributes = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._root = XmlNode("", [])
        self._open = [self._root]

    def build(self, text: bytes) -> XmlNode:
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            raise NotXmlError(str(error)) from error
        finally:
            # The parser and this object hold each other.
            self._parser.StartElementHandler = None
            self._parser.EndElementHandler = None
            self._parser.CharacterDataHandler = None
        return next(self._root.elements)

    def _start(self, name: str, attributes: list[str]) -> None:
        if len(self._open) > MAX_DEPTH:
            raise NotXmlError(f"nested deeper than {MAX_DEPTH}")
        pairs = list(zip(attributes[::2], attributes[1::2], strict=True)) if attributes else []
        node = XmlNode(name, pairs)
        self._open[-1].content.append(node)
        self._open.append(node)

    def _end(self, _name: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        content = self._open[-1].content
        if content and isinstance(content[-1], str):
            content[-1] += text
        else:
            content.append(text)
