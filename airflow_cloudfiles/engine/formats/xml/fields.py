"""Which fields does an element have?

The one place that knows how XML becomes fields, for reading and for inferring alike: an attribute
is a field under its prefixed name, an element one under its own, a text beside either one under
`valueTag`. White space between elements is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.formats.xml.tree import XmlNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

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
