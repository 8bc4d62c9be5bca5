"""Hold one row element by element, and the texts of its values.

Expat reads the source of one row by itself. It knows no entities but the five of XML, because a row
brings no document type along: whatever needs one makes a corrupt record, so nothing is fetched and
nothing grows.

An element has fields: its attributes, elements and text.

The one place that knows how XML becomes fields, for reading and for inferring alike: an attribute
is a field under its prefixed name, an element one under its own, a text beside either one under
`valueTag`. White space between elements is nothing.

Entities are resolved and white space is taken away, only where there is any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.parsers import expat
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.formats.base import Bools, Bytes, Positions
    from airflow_cloudfiles.engine.options.formats.nested import XmlOptions

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
        """Format its content as XML."""
        return "".join(
            escape(each) if isinstance(each, str) else each.outer() for each in self.content
        )

    def outer(self) -> str:
        """Format the whole element as XML."""
        attributes = "".join(
            f' {name}="{escape(value, _IN_ATTRIBUTES)}"' for name, value in self.attributes
        )
        return f"<{self.name}{attributes}>{self.inner()}</{self.name}>"


def parse(text: bytes) -> XmlNode:
    """Read one row.

    Raises:
        NotXmlError: It is not well-formed, not UTF-8, or nested deeper than `MAX_DEPTH`.
    """
    root = XmlNode("", [])
    opened = [root]

    def start(name: str, attributes: list[str]) -> None:
        if len(opened) > MAX_DEPTH:
            raise NotXmlError(f"nested deeper than {MAX_DEPTH}")
        pairs = list(zip(attributes[::2], attributes[1::2], strict=True)) if attributes else []
        node = XmlNode(name, pairs)
        opened[-1].content.append(node)
        opened.append(node)

    def characters(text: str) -> None:
        content = opened[-1].content
        if content and isinstance(content[-1], str):
            content[-1] += text
        else:
            content.append(text)

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: opened.pop()
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise NotXmlError(str(error)) from error
    return next(root.elements)


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
        """Yield all fields: attributes, then content in order."""
        yield from self.attributes(node)
        for each in node.content:
            if isinstance(each, XmlNode):
                yield self.name(each.name), each
            elif each.strip(SPACE):
                yield self._value_tag, each

    def attributes(self, node: XmlNode) -> Iterator[tuple[str, Item]]:
        """Yield the attributes, unless they are excluded."""
        if self._has_attributes:
            for name, value in node.attributes:
                yield self.attribute_name(name), value

    def name(self, name: str) -> str:
        """Return a name, without its prefix if that is ignored."""
        return name if self._has_prefixes else name.rpartition(":")[2] or name

    def attribute_name(self, name: str) -> str:
        """Name the field of an attribute."""
        return self._prefix + self.name(name)

    def text(self, text: str) -> str | None:
        """Return a value's text; `None` when it stands for null."""
        if self._trims:
            text = text.strip(SPACE)
        return None if text == self._null else text

    def is_leaf(self, node: XmlNode) -> bool:
        """Tell whether an element has nothing but text."""
        return node.is_plain and not (self._has_attributes and node.attributes)

    def plain(self, item: Item) -> object:
        """Convert a value for JSON: text, null, or an object whose repeated fields are arrays."""
        if isinstance(item, str):
            return self.text(item)
        if self.is_leaf(item):
            return self.text(item.text)
        return self.merged(self.of(item))

    def merged(self, fields: Iterator[tuple[str, Item]]) -> dict[str, object]:
        """Merge fields into an object."""
        found: dict[str, list[object]] = {}
        for name, item in fields:
            found.setdefault(name, []).append(self.plain(item))
        return {name: items[0] if len(items) == 1 else items for name, items in found.items()}


_REFERENCE: Final = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));")
_AMPERSAND: Final = re.compile(b"&")
_LONGEST_REFERENCE: Final = 10
_CHARACTERS: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_REMEMBERED: Final = 10_000
_LONGEST_INDENT: Final = 40
"""White space between elements is rarely longer."""


def slices(text: bytes, begins: Positions, ends: Positions) -> pa.StringArray:
    """Parts of a text, ascending, as strings."""
    offsets = np.empty(2 * len(begins) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = begins, ends, len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    # Every second one is what is between two parts.
    both = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(both), 2, dtype=np.int32)))


class Values:
    """The values between pieces of markup.

    Args:
        text: The text they are in.
        begins: Where each value begins.
        ends: Where each value ends.
        options: How white space and nulls are meant.
    """

    def __init__(
        self, text: bytes, begins: Positions, ends: Positions, options: XmlOptions
    ) -> None:
        self._text = text
        self._begins = begins
        self._ends = ends
        self._characters = np.frombuffer(text, np.uint8)
        self._has_references = b"&" in text
        self._trims = options.ignore_surrounding_spaces
        self._null = options.null_value
        self._resolved: dict[str, str | None] = {}

    def take(self, places: Positions, *, are_attributes: bool) -> tuple[pa.Array, Bools]:
        """Take the values behind some pieces.

        Args:
            places: Pieces; -1 for a value that is empty because there is none.
            are_attributes: Whether they are values of attributes.

        Returns:
            Strings, null for what stands for null, and which of them are not well-formed.
        """
        begins, ends = self._begins[places], self._ends[places]
        missing = places < 0
        has_missing = bool(missing.any())
        if has_missing:
            begins[missing] = ends[missing] = 0
        texts = slices(self._text, begins, ends)
        if are_attributes:
            texts = _with_spaces(texts)
        texts, wrong = self._resolve(texts)
        if has_missing:
            begins, ends = begins[~missing], ends[~missing]
        if self._trims and self._have_spaces(begins, ends):
            texts = pc.ascii_trim(texts, characters=SPACE)
        if self._null is not None:
            texts = pc.if_else(pc.equal(texts, self._null), pa.scalar(None, pa.string()), texts)
        return texts, wrong

    def are_empty(self, texts: pa.Array) -> pa.BooleanArray | None:
        """Find which strings of `take` are white space or nothing; `None` for none of them."""
        bare = texts if self._trims else pc.ascii_trim(texts, characters=SPACE)
        is_some = texts.null_count < len(texts) and pc.min(pc.binary_length(bare)).as_py() == 0
        return pc.equal(bare, "") if is_some else None

    def _have_spaces(self, begins: Positions, ends: Positions) -> bool:
        """Tell whether a value may begin or end with white space: trimming copies everything."""
        if self._has_references:
            return True  # a reference may stand for a space
        # A value that is empty has the markup around it at its ends, which is no space.
        # There is nothing behind the last piece.
        firsts = self._characters.take(begins, mode="clip")
        lasts = self._characters.take(ends - 1, mode="clip")
        return bool(min(firsts.min(initial=255), lasts.min(initial=255)) <= ord(" "))

    def are_blank(self, places: Positions) -> Bools:
        """Tell whether the values behind some pieces are white space, or nothing."""
        return are_blank(self._characters, self._begins[places], self._ends[places])

    def _resolve(self, texts: pa.Array) -> tuple[pa.Array, Bools]:
        """Put characters in the place of references."""
        wrong = np.zeros(len(texts), np.bool_)
        if not self._has_references:
            return texts, wrong
        has_one = pc.match_substring(texts, "&")
        places = np.flatnonzero(has_one.to_numpy(zero_copy_only=False))
        if not len(places):
            return texts, wrong
        resolved = [self._resolve_one(text) for text in texts.filter(has_one).to_pylist()]
        wrong[places] = [each is None for each in resolved]
        plain = pa.array([each or "" for each in resolved], pa.string())
        return pc.replace_with_mask(texts, has_one, plain), wrong

    def _resolve_one(self, text: str) -> str | None:
        """Resolve the references of a text; `None` when one of them is not one."""
        if text not in self._resolved:
            if len(self._resolved) > _REMEMBERED:
                self._resolved.clear()
            self._resolved[text] = _without_references(text)
        return self._resolved[text]


def are_blank(characters: Bytes, begins: Positions, ends: Positions) -> Bools:
    """Tell whether parts of a text are white space, or nothing."""
    blank: Bools = begins == ends
    if blank.all():
        return blank
    lengths = ends - begins
    for length in np.unique(lengths[~blank]).tolist():
        if length > _LONGEST_INDENT:
            break
        some = np.flatnonzero(lengths == length)
        inside = characters[begins[some, None] + np.arange(length)]
        blank[some] = (inside <= ord(" ")).all(axis=1)
    longer = np.flatnonzero(lengths > _LONGEST_INDENT)
    if len(longer):
        seen = np.cumsum(characters > ord(" "), dtype=np.int32)
        blank[longer] = seen[ends[longer] - 1] == seen[begins[longer] - 1]
    return blank


def _with_spaces(texts: pa.Array) -> pa.Array:
    """Line breaks and tabs in attributes are blanks, unless they are written as references."""
    for character in "\n\t":
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, " ")
    return texts


def not_references(text: bytes, begin: int, end: int) -> list[int]:
    """Find where an `&` begins no reference: what is around it is not XML."""
    return [
        found.start()
        for found in _AMPERSAND.finditer(text, begin, end)
        if _without_references(_first_reference(text, found.start())) is None
    ]


def _first_reference(text: bytes, begin: int) -> str:
    """Return an `&` with what is behind it, as far as it may be a reference."""
    longest = text[begin : begin + _LONGEST_REFERENCE]
    return longest[: longest.find(b";") + 1 or 1].decode("utf-8", "replace")


def _without_references(text: str) -> str | None:
    if text.count("&") != len(_REFERENCE.findall(text)):
        return None
    try:
        return _REFERENCE.sub(_character, text)
    except ValueError:
        return None


def _character(reference: re.Match[str]) -> str:
    """Decode the character of a reference.

    Raises:
        ValueError: There is no such character in XML.
    """
    name, decimal, hexadecimal = reference.groups()
    if name:
        return _CHARACTERS[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    allowed = (
        code in {0x9, 0xA, 0xD}
        or 0x20 <= code <= 0xD7FF  # noqa: PLR2004 - XML's own ranges
        or 0xE000 <= code <= 0xFFFD  # noqa: PLR2004
        or 0x10000 <= code <= 0x10FFFF  # noqa: PLR2004
    )
    if not allowed:
        raise ValueError(code)
    return chr(code)
