"""What is in one row, element by element?

Expat reads the source of one row by itself. It knows no entities but the five of XML, because a row
brings no document type along: whatever needs one makes a corrupt record, so nothing is fetched and
nothing grows.

An element has fields: its attributes, elements and text.

The one place that knows how XML becomes fields, for reading and for inferring alike: an attribute
is a field under its prefixed name, an element one under its own, a text beside either one under
`valueTag`. White space between elements is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.parsers import expat
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

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


Item = str | XmlNode
"""What a field holds: the text of an attribute, a text among elements, or an element."""

SPACE: Final = " \t\n\r"


class Fields:
    """Takes elements apart as the options say."""

    def __init__(self, options: XmlOptions) -> None:
        self._prefix = options.attribute_prefix
        self._value_tag = options.value_tag
        self._has_attributes = not options.exclude_attribute
        self._has_prefixes = not options.ignore_namespace
        self._trims = options.ignore_surrounding_spaces
        self._null = options.null_value

    def of(self, node: XmlNode) -> Iterator[tuple[str, Item]]:
        """All fields: attributes, then content in order."""
        yield from self.attributes(node)
        for each in node.content:
            if isinstance(each, XmlNode):
                yield self.name(each.name), each
            elif each.strip(SPACE):
                yield self._value_tag, each

    def attributes(self, node: XmlNode) -> Iterator[tuple[str, Item]]:
        """The attributes, unless they are excluded."""
        if self._has_attributes:
            for name, value in node.attributes:
                yield self.attribute_name(name), value

    def name(self, name: str) -> str:
        """A name, without its prefix if that is ignored."""
        return name if self._has_prefixes else name.rpartition(":")[2] or name

    def attribute_name(self, name: str) -> str:
        """The field of an attribute."""
        return self._prefix + self.name(name)

    def text(self, text: str) -> str | None:
        """A value's text; `None` when it stands for null."""
        if self._trims:
            text = text.strip(SPACE)
        return None if text == self._null else text

    def leaf(self, node: XmlNode) -> str | None:
        """The text of an element without elements."""
        return self.text(node.text)

    def is_leaf(self, node: XmlNode) -> bool:
        """Whether an element has nothing but text."""
        return node.is_plain and not (self._has_attributes and node.attributes)

    def plain(self, item: Item) -> object:
        """A value for JSON: text, null, or an object whose repeated fields are arrays."""
        if isinstance(item, str):
            return self.text(item)
        if self.is_leaf(item):
            return self.leaf(item)
        return self.merged(self.of(item))

    def merged(self, fields: Iterator[tuple[str, Item]]) -> dict[str, object]:
        """An object of fields."""
        found: dict[str, list[object]] = {}
        for name, item in fields:
            found.setdefault(name, []).append(self.plain(item))
        return {name: items[0] if len(items) == 1 else items for name, items in found.items()}
