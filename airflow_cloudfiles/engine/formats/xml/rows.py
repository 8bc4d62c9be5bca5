"""Read the text of an XML file, and find where each row of it begins and ends.

The encoding is, in this order: what a byte order mark tells, what the user named, what the XML
declaration names, UTF-8. Line ends become a line feed each, as XML has it. A byte that its encoding
does not know is no reason to give up a file: it comes out as something that no XML may hold, so the
record it is in is a corrupt one.

Rows are cut out by their tags before anybody parses them, so that an error in one row costs that
row and none behind it. Comments, CDATA sections, processing instructions and the document type
are stepped over: a tag in them is none.

Tags are matched from the inside: an end tag belongs to the last row that is open. What then has no
partner is a part of a file that was damaged, and is handed on as a broken row:

- a row without an end, up to where the next row begins;
- an end without a row, with all that stands between it and the row before.

What stands between rows is not read, as in Spark.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.recognize import BYTE_ORDER_MARKS, refuse_binary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from airflow_cloudfiles.engine.formats.base import Bytes, OpenedFile, Positions

    Words = npt.NDArray[np.uint64]


CHUNK_BYTES: Final = 2**21
"""Read at a time: enough rows to convert whole columns, little enough for memory."""

_WIDE: Final = (
    (b"<\x00\x00\x00", "utf-32-le"),
    (b"\x00\x00\x00<", "utf-32-be"),
    (b"<\x00", "utf-16-le"),
    (b"\x00<", "utf-16-be"),
)
_LITTLE_ENDIAN: Final = {"utf-16": b"<\x00", "utf-32": b"<\x00\x00\x00"}
"""How a file begins in an encoding of two orders when the lower byte comes first."""
_ENCODING_DECLARATION: Final = re.compile(
    rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"'][^>]*?\?>"
)
_LONGEST_DECLARATION: Final = 1024
_UNKNOWN_BYTE: Final = "\ufffe"
"""No character, so no XML holds it: what comes before the text of bytes that are none."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return _UNKNOWN_BYTE + "".join(f"\\x{each:02x}" for each in wrong), error.end


codecs.register_error("airflow-cloudfiles-xml", _escape)


def printable(text: bytes) -> str:
    """Format a part of a file for people: bytes that are not UTF-8 are escaped."""
    return base.printable(text).replace(_UNKNOWN_BYTE, "")


def text_of(file: OpenedFile, encoding: str | None, sizes: Iterator[int]) -> Iterator[bytes]:
    """Yield the text of one file, in pieces, which may be cut anywhere.

    Args:
        file: The file.
        encoding: What the user named, if anything.
        sizes: Tells before each piece but the first how many bytes to read for it.

    Raises:
        FileUnreadableError: The file is damaged, or names an encoding that nobody knows.
    """
    raw = _read(file, sizes)
    head = next(raw, b"")
    name, skipped = _find_encoding(head, encoding, file.uri)
    refuse_binary(head, file.uri, is_utf8=name == "utf-8")
    decoder = codecs.getincrementaldecoder(name)("airflow-cloudfiles-xml")
    is_first, after_return = True, False
    for chunk in chain((head[skipped:],), raw, (b"",)):
        text = chunk
        if name != "utf-8":
            text = decoder.decode(chunk, not chunk).encode("utf-8", "backslashreplace")
        if text:
            text = text.removeprefix(b"\n") if after_return else text
            after_return = text.endswith(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while is_first and text.startswith(codecs.BOM_UTF8):
            text = text.removeprefix(codecs.BOM_UTF8)  # a second mark is no text either
        is_first = False
        yield text


def _read(file: OpenedFile, sizes: Iterator[int]) -> Iterator[bytes]:
    """Yield the bytes of the file."""
    stream, size = file.stream(), CHUNK_BYTES
    while chunk := stream.read(size):
        yield chunk
        size = next(sizes)


def _find_encoding(head: bytes, given: str | None, uri: str) -> tuple[str, int]:
    """Find the encoding, and how many bytes its mark has."""
    for mark, name in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return name, len(mark)
    if given is not None:
        first = _LITTLE_ENDIAN.get(given)
        order = "" if first is None else "-le" if head.startswith(first) else "-be"
        return given + order, 0
    for begin, name in _WIDE:
        if head.startswith(begin):
            return name, 0
    found = _ENCODING_DECLARATION.match(head[:_LONGEST_DECLARATION])
    return (_declared(found[1].decode(), uri) if found else "utf-8"), 0


def _declared(given: str, uri: str) -> str:
    """Read the codec that a declaration names."""
    try:
        found = codecs.lookup(given)
    except LookupError:
        found = None
    if found is None or not getattr(found, "_is_text_encoding", True):
        raise FileUnreadableError(
            f"{uri} says that its encoding is {given!r}, which is not known here. "
            "Name the right one with the option encoding."
        )
    if found.name in {"utf-16", "utf-32"} or found.name.startswith(("utf-16-", "utf-32-")):
        return "utf-8"  # the declaration itself could be read in bytes: it is wrong
    return found.name


MAX_ROW_BYTES: Final = 128 * 2**20
"""A larger row is refused. So far an end tag is looked for before a row counts as cut."""

WORD_BYTES: Final = 8
_LARGEST_CHUNK: Final = 16 * 2**20
_STARTS, _ENDS, _WHOLE = range(3)
_PART_ENDS: Final = {b"!--": b"-->", b"![CDATA[": b"]]>", b"?": b"?>"}
_LESS, _GREATER, _SLASH = b"<>/"
_ENDS_NAME: Final = np.isin(np.arange(256), list(b" \t\n\r\f\v/>"))
"""Which characters may stand behind the name of a row in a tag."""
_BLANK: Final = b" \t\n"
_NONE: Final = np.empty(0, np.int64)
_NO_END: Final = "the row has no end"
_NO_BEGIN: Final = "an end tag without a row"
_NO_XML: Final = "text where XML should begin"
_NAMESPACE: Final = re.compile(rb"\s(xmlns(?::[^\s=<>/]+)?\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'))")
_DECLARATION: Final = re.compile(rb"<\?xml\s[^?]*\?>")
_DOCUMENT_TYPE: Final = (
    rb"<!DOCTYPE(?:[^\[\]\"'<>]++|\"[^\"]*\"|'[^']*'|"
    rb"\[(?:[^\]\"'<]++|\"[^\"]*\"|'[^']*'|<!--.*?-->|<)*+\])*+>"
)


class RowTags:
    """The tags in a text.

    Args:
        text: The text.

    Attributes:
        begins: Where each `<` is.
        heads: The first eight bytes of each, the first of them lowest; zeros behind the end.
    """

    def __init__(self, text: bytes) -> None:
        self.begins = np.flatnonzero(np.frombuffer(text, np.uint8) == _LESS)
        self.heads: Words = np.empty(len(self.begins), np.uint64)
        words = words_of(text)
        whole = int(np.searchsorted(self.begins, len(words)))
        self.heads[:whole] = words[self.begins[:whole]]
        self.heads[whole:] = [
            int.from_bytes(text[begin : begin + WORD_BYTES], "little")
            for begin in self.begins[whole:].tolist()
        ]

    def named(self, name: bytes) -> Positions:
        """Find which of them a name follows, if not as a whole."""
        mask, head = head_of(b"<" + name)
        found: Positions = self.begins[(self.heads & mask) == head]
        return found


def words_of(text: bytes) -> Words:
    """Eight bytes of a text as a number, from each place on where there are so many."""
    count = max(0, len(text) - WORD_BYTES + 1)
    return np.ndarray((count,), "<u8", buffer=text, strides=(1,))


def head_of(text: bytes) -> tuple[np.uint64, np.uint64]:
    """Return the first eight bytes of a text as a number, and a mask of as many as there are."""
    head = text[:WORD_BYTES]
    return np.uint64(2 ** (8 * len(head)) - 1), np.uint64(int.from_bytes(head, "little"))


class CutRows:
    """The sources of rows that are cut out of a text when they are asked for.

    Args:
        text: The text.
        begins: Where each row begins, ascending.
        ends: Where each ends, before the next begins.
        tags: The tags of the text; found when they are asked for, unless they are known.

    Attributes:
        text: The text.
        begins: Where each row begins.
        ends: Where each ends.
    """

    def __init__(
        self, text: bytes, begins: Positions, ends: Positions, tags: RowTags | None = None
    ) -> None:
        self.text = text
        self.begins = begins
        self.ends = ends
        self._tags = tags

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[bytes]:
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield self.text[begin:end]

    def __getitem__(self, index: int) -> bytes:
        return self.text[int(self.begins[index]) : int(self.ends[index])]

    @property
    def tags(self) -> RowTags:
        """The tags of the text."""
        if self._tags is None:
            self._tags = RowTags(self.text)
        return self._tags

    def some(self, positions: Positions | slice) -> CutRows:
        """Select some of the rows, in the order in which they are."""
        return CutRows(self.text, self.begins[positions], self.ends[positions], self._tags)


@dataclass(slots=True)
class XmlRows:
    """Consecutive rows of a file.

    Attributes:
        texts: The source of each, from `<` to `>`.
        broken: Why some of them are no rows, by position.
        namespaces: The declarations (`xmlns:x="..."`) of the elements around the first row.
        line: How many lines of the file come before the text that they are cut out of.
    """

    texts: CutRows = field(default_factory=lambda: CutRows(b"", _NONE, _NONE))
    broken: dict[int, str] = field(default_factory=dict)
    namespaces: list[bytes] = field(default_factory=list)
    line: int = 0

    def line_of(self, position: int) -> int:
        """Find the line of the file that a row begins with, from 1."""
        return self.line + base.count_lines(self.texts.text[: self.texts.begins[position]]) + 1

    def parts(self, size: int) -> Iterator[XmlRows]:
        """Yield the same rows, at most that many at a time."""
        for begin in range(0, len(self.texts), size):
            end = begin + size
            broken = {
                row - begin: reason for row, reason in self.broken.items() if begin <= row < end
            }
            texts = self.texts.some(slice(begin, end))
            yield XmlRows(texts, broken, self.namespaces, self.line)


@dataclass(frozen=True, slots=True)
class _Tag:
    begin: int
    end: int
    kind: int


class RowScanner:
    """Finds the rows of files.

    Args:
        row_tag: The name of the elements that are rows.
        ignore_namespace: Whether `x:row` is a row, too.
    """

    def __init__(self, row_tag: str, *, ignore_namespace: bool) -> None:
        self._name = row_tag.encode()
        self._prefixed = b":" + self._name if ignore_namespace else None
        name = re.escape(self._name)
        if ignore_namespace:
            name = rb"(?:[^\s<>/\"'=&]*:)?" + name
        self._start = re.compile(rb"<" + name + rb"(?=[\s/>])")
        self._end = re.compile(rb"</" + name + rb"\s*>")
        self._empty = re.compile(rb"<" + name + rb"(?:\s[^<>]*)?/>")
        self._token = re.compile(
            rb"<(?:(?P<part>!--|!\[CDATA\[|\?|!DOCTYPE)"
            rb"|(?P<tag>/?" + name + rb"(?=[\s/>])(?:[^<>\"']++|\"[^\"<]*\"|'[^'<]*')*+>)"
            rb"|(?P<open>/?" + name + rb"(?=[\s/>])))"
        )
        self._document = re.compile(_DOCUMENT_TYPE, re.DOTALL)

    def rows(self, file: OpenedFile, encoding: str | None) -> Iterator[XmlRows]:
        """Yield all rows of a file, some at a time, now and then none.

        Raises:
            FileUnreadableError: The file is damaged, or has a row larger than `MAX_ROW_BYTES`.
        """
        held = b""
        line = 0
        has_begun = False
        namespaces: list[bytes] = []
        sizes = iter(lambda: min(max(CHUNK_BYTES, len(held)), _LARGEST_CHUNK), 0)
        for chunk in text_of(file, encoding, sizes):
            held = held + chunk if held else chunk
            if not has_begun and (has_begun := b"<" in held):
                rest, found = _without_garbage(held)
                line += base.count_lines(held[: len(held) - len(rest)])
                held = rest
                yield found
            found, used = self._scan(held, final=False)
            found.line = line
            if found.texts and not namespaces:
                namespaces += _NAMESPACE.findall(held, 0, held.find(found.texts[0]))
            found.namespaces = namespaces
            yield found
            line += base.count_lines(held[:used])
            held = held[used:]
            if len(held) > MAX_ROW_BYTES:
                found, used = self._give_up(held, file.uri)
                found.line = line
                yield found
                line += base.count_lines(held[:used])
                held = held[used:]
        if not has_begun:
            rest, found = _without_garbage(held)
            line += base.count_lines(held[: len(held) - len(rest)])
            held = rest
            yield found
        found, _ = self._scan(held, final=True)
        found.line = line
        found.namespaces = namespaces
        yield found

    def _scan(self, text: bytes, *, final: bool) -> tuple[XmlRows, int]:
        """Rows of a text, and how much of it is done with."""
        if not _has(text, b"!") and not _has(text, b"?"):
            plain = self._scan_plain(text)
            if plain is not None and not (final and self._start.search(text, plain[1])):
                return plain
        tags = list(self._tags(text, final=final))
        return _match(text, tags, cut_before=len(text) if final else 0)

    def _scan_plain(self, text: bytes) -> tuple[XmlRows, int] | None:
        """Scan the usual case: rows in sequence, none in another, none without content."""
        any_prefix = self._prefixed is not None and self._prefixed in text
        found = self._find_prefixed(text) if any_prefix else self._find_tags(text)
        if found is None:
            return None
        begins, stops, tags = found
        if not len(stops) <= len(begins) <= len(stops) + 1 or not len(stops):
            return None
        in_turn = (begins[: len(stops)] < stops).all() and (
            stops[: len(begins) - 1] <= begins[1:]
        ).all()
        if not in_turn:
            return None
        return XmlRows(CutRows(text, begins[: len(stops)], stops, tags)), int(stops[-1])

    def _find_tags(self, text: bytes) -> tuple[Positions, Positions, RowTags] | None:
        """Find where start tags of rows begin, end tags end, and all tags; `None`: unusual ones."""
        characters = np.frombuffer(text, np.uint8)
        tags = RowTags(text)
        starts, behind = _named(self._name, characters, tags)
        starts, behind = starts[_ENDS_NAME[behind]], behind[_ENDS_NAME[behind]]
        # In a start tag with attributes the slash of an empty element is far from the name.
        longer = starts[behind != _GREATER]
        limits = np.append(tags.begins, len(text))[np.searchsorted(tags.begins, longer) + 1]
        for start, limit in zip(longer.tolist(), limits.tolist(), strict=True):
            if text[text.find(b">", start, limit) - 1] == _SLASH:
                return None
        ends, behind = _named(b"/" + self._name, characters, tags)
        if (_ENDS_NAME[behind] & (behind != _GREATER)).any():
            return None
        return starts, ends[behind == _GREATER] + len(self._name) + len("</>"), tags

    def _find_prefixed(self, text: bytes) -> tuple[Positions, Positions, None] | None:
        """Find the same where names may have any prefix."""
        if self._empty.search(text):
            return None
        starts = [found.start() for found in self._start.finditer(text)]
        ends = [found.end() for found in self._end.finditer(text)]
        return np.array(starts, np.int64), np.array(ends, np.int64), None

    def _tags(self, text: bytes, *, final: bool) -> Iterator[_Tag]:
        """Yield the tags of rows; as far as they are complete, unless this is all."""
        position = 0
        endless: set[bytes] = set()
        while (found := self._token.search(text, position)) is not None:
            position = found.end()
            if (part := found["part"]) is not None:
                end = -1 if part in endless else self._end_of(part, text, position)
                if end < 0 and not final:
                    return
                if end < 0:
                    endless.add(part)  # a comment without an end, for instance, is text
                position = max(position, end)
                continue
            # A tag that is not closed before the next one is one all the same.
            if not (final or found["tag"] or text.find(b"<", position) >= 0):
                return
            yield _Tag(found.start(), position, _kind(found["tag"] or found["open"]))

    def _end_of(self, part: bytes, text: bytes, position: int) -> int:
        """Find where a comment, section, instruction or document type ends; -1: nowhere."""
        if part == b"!DOCTYPE":
            whole = self._document.match(text, position - len(b"<!DOCTYPE"))
            return -1 if whole is None else whole.end()
        end = text.find(_PART_ENDS[part], position)
        return end if end < 0 else end + len(_PART_ENDS[part])

    def _give_up(self, text: bytes, uri: str) -> tuple[XmlRows, int]:
        """Decide about rows whose end is not in sight."""
        tags = list(self._tags(text, final=False))
        if not tags:
            return XmlRows(), text.rindex(b"<") if self._start.search(text) is None else 0
        found, used = _match(text, tags, cut_before=len(text) - MAX_ROW_BYTES // 2)
        if not used:
            raise FileUnreadableError(
                f"{uri} has a row of more than {MAX_ROW_BYTES // 2**20} MB, or one without an end. "
                "Name a smaller element with rowTag, or replace the file."
            )
        return found, used


def _named(name: bytes, characters: Bytes, tags: RowTags) -> tuple[Positions, Bytes]:
    """Find the tags that a name follows, if not as a whole, and the character behind it."""
    found = tags.named(name)
    found = found[: np.searchsorted(found, len(characters) - len(name) - 1)]
    for offset in range(WORD_BYTES, len(name) + 1):
        found = found[characters[found + offset] == name[offset - 1]]
    return found, characters[found + len(name) + 1]


def _has(text: bytes, mark: bytes) -> bool:
    """Tell whether some markup begins with a mark; the mark alone is found much faster."""
    return mark in text and b"<" + mark in text


def _kind(tag: bytes) -> int:
    if tag.startswith(b"/"):
        return _ENDS
    return _WHOLE if tag.endswith(b"/>") else _STARTS


def _match(text: bytes, tags: list[_Tag], *, cut_before: int) -> tuple[XmlRows, int]:
    """Pair the tags of rows.

    Args:
        text: Where they are.
        tags: All of them.
        cut_before: A row without an end that begins before has none; one behind may get one.

    Returns:
        The rows, and how much of the text is done with.
    """
    partners = _partners(tags)
    spans: list[tuple[int, int, str]] = []
    done = index = 0
    while index < len(tags):
        tag = tags[index]
        if tag.kind == _STARTS and index not in partners:
            is_last = index + 1 == len(tags)
            if tag.begin >= cut_before or (is_last and cut_before < len(text)):
                break
            stop = len(text) if is_last else tags[index + 1].begin
            spans.append((tag.begin, stop, _NO_END))
            done = stop
        elif tag.kind == _ENDS:
            spans.append((done, tag.end, _NO_BEGIN))
            done = tag.end
        else:
            index = partners.get(index, index)
            done = tags[index].end
            spans.append((tag.begin, done, ""))
        index += 1
    return _rows_at(text, spans), done


def _rows_at(text: bytes, spans: Iterable[tuple[int, int, str]]) -> XmlRows:
    """Build rows of where they begin and end, and why they are none; blank parts are left out."""
    begins: list[int] = []
    ends: list[int] = []
    broken: dict[int, str] = {}
    for begin, end, reason in spans:
        first, last = begin, end
        if reason:
            part = text[begin:end]
            first, last = end - len(part.lstrip(_BLANK)), begin + len(part.rstrip(_BLANK))
            if first >= last:
                continue
            broken[len(begins)] = reason
        begins.append(first)
        ends.append(last)
    return XmlRows(CutRows(text, np.array(begins, np.int64), np.array(ends, np.int64)), broken)


def _partners(tags: list[_Tag]) -> dict[int, int]:
    """Find the end of each row that has one."""
    open_rows: list[int] = []
    partners: dict[int, int] = {}
    for index, tag in enumerate(tags):
        if tag.kind == _STARTS:
            open_rows.append(index)
        elif tag.kind == _ENDS and open_rows:
            partners[open_rows.pop()] = index
    return partners


def _without_garbage(text: bytes) -> tuple[bytes, XmlRows]:
    """Take off what stands before the first tag of a file, which is nothing if it is XML.

    The XML declaration goes, too: most files have no other processing instruction.
    """
    begin = text.find(b"<")
    begin = len(text) if begin < 0 else begin
    found = _rows_at(text, [(0, begin, _NO_XML)])
    declaration = _DECLARATION.match(text, begin)
    return text[begin if declaration is None else declaration.end() :], found
