r"""Find the lines of JSON Lines, and tell what the bytes of one record say that is not quite JSON.

Spark's reader also takes single quotes, the escape `\'` and the words `NaN`, `Infinity` and their
kind; with options it takes comments, names without quotes and more. A `Grammar` reads records with
the same tolerance, finds every member of an object (also one whose key comes twice), and rewrites
any value as strict JSON with the same text where the text is strict already.

Nothing here recurses: nesting is counted, and refused beyond `MAX_DEPTH` (Jackson's limit).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.base import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_DEPTH: Final = 1000

_WHITE: Final = rb"[ \t\r\n]"
_COMMENT: Final = rb"/\*(?:[^*]|\*(?!/))*+\*/|//[^\r\n]*+"
_WHOLE: Final = rb"(?:0|[1-9][0-9]*+)"
_ZEROS: Final = rb"0[0-9]++"
_FRACTION: Final = rb"(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_WORD: Final = rb"true|false|null"
_NOT_FINITE: Final = rb"NaN|Infinity|[+-]Infinity|[+-]INF"
_NAME: Final = re.compile(rb"[A-Za-z0-9_$@#*+\-\x80-\xff]++")
"""A name without quotes, as Jackson takes it."""
_NEVER: Final = rb"(?!)"
_NO_MORE: Final = rb"(?![0-9A-Za-z_.+-])"
_QUOTES: Final = b"\"'"
_CLOSING: Final = {b"}", b"]"}
_KEPT_ESCAPES: Final = b'"\\/bfnrtu'
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_ESCAPE_OR_CONTROL: Final = re.compile(rb"\\(.)|[\x00-\x1f]", re.DOTALL)
_REWRITTEN: Final = re.compile(rb'\\(.)|["\x00-\x1f]', re.DOTALL)
_STRING: Final = msgspec.json.Decoder(str)

_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _AFTER = range(6)
"""What may come next: a value, a key, the colon after it; after a value, a comma or the end."""
_MAY_CLOSE: Final = {_FIRST_VALUE, _FIRST_KEY, _AFTER}


class NotJsonError(ValueError):
    """The bytes are no record, not even by Spark's tolerant rules."""


@dataclass(kw_only=True, eq=False)
class Grammar:
    """What is taken for JSON; the defaults are those of Spark's reader.

    Attributes:
        comments: Whether `/* */` and `//` comments are white space.
        single_quotes: Whether strings may stand in single quotes.
        unquoted_names: Whether names may go without quotes.
        leading_zeros: Whether numbers may begin with zeros.
        any_escape: Whether a backslash may stand before any character.
        control_characters: Whether strings may hold control characters as they are.
        not_finite: Whether `NaN`, `Infinity` and their kind are numbers.
    """

    comments: bool = False
    single_quotes: bool = True
    unquoted_names: bool = False
    leading_zeros: bool = False
    any_escape: bool = False
    control_characters: bool = False
    not_finite: bool = True

    def __post_init__(self) -> None:
        white = rb"(?:" + _WHITE + (rb"|" + _COMMENT if self.comments else b"") + rb")"
        # Files that were joined have the marks of all of them between their records.
        self._blank = re.compile(rb"(?:" + white + rb"|" + BOM_UTF8 + rb")*+", re.DOTALL)
        self._tail = re.compile(rb"(?:" + white + rb"|,|" + BOM_UTF8 + rb")*+", re.DOTALL)
        escaped = rb"[\"'\\/bfnrt]" if self.single_quotes else rb"[\"\\/bfnrt]"
        escape = rb"\\(?:" + (rb"[^u]" if self.any_escape else escaped) + rb"|u[0-9a-fA-F]{4})"
        control = b"" if self.control_characters else rb"\x00-\x1f"
        number = rb"-?" + _WHOLE + _FRACTION
        tokens = {
            b"mark": rb"[{}\[\],:]",
            b"strict": _quoted(b'"', escape, control) + b"|" + _one_of(number, _WORD),
            b"single": _quoted(b"'", escape, control) if self.single_quotes else _NEVER,
            b"zeros": rb"-?" + _ZEROS + _FRACTION + _NO_MORE if self.leading_zeros else _NEVER,
            b"not_finite": _one_of(_NOT_FINITE) if self.not_finite else _NEVER,
            b"name": _NAME.pattern if self.unquoted_names else _NEVER,
        }
        any_token = b"|".join(b"(?P<%b>%b)" % each for each in tokens.items())
        self._token = re.compile(white + rb"*+(?:" + any_token + rb")", re.DOTALL)

    def begin(self, text: bytes, start: int = 0) -> int:
        """Find the first thing that is not white space."""
        found = self._blank.match(text, start)
        return start if found is None else found.end()

    def has_more(self, text: bytes, start: int) -> bool:
        """Tell whether there is more behind a value than white space and commas."""
        return self.after(text, start) < len(text)

    def after(self, text: bytes, start: int) -> int:
        """Find where the next thing begins behind a value, its comma and white space."""
        found = self._tail.match(text, start)
        return start if found is None else found.end()

    def value_end(self, text: bytes, start: int = 0) -> int:
        """Check one value, whole with everything in it, and return where it ends.

        Raises:
            NotJsonError: It is not valid, not closed, or nested deeper than `MAX_DEPTH`.
        """
        closers = bytearray()
        expected, position = _VALUE, start
        match = self._token.match
        while True:
            token = match(text, position)
            if token is None:
                raise NotJsonError(f"invalid at byte {position}")
            position = token.end()
            mark = token["mark"]
            if mark is None:
                expected = self._after_scalar(token, expected)
            elif mark in b"{[":
                expected = _after_opening(mark, expected, closers)
            elif mark in b"}]":
                expected = _after_closing(mark, expected, closers)
            else:
                expected = _after_separator(mark, expected, closers)
            if expected == _AFTER and not closers:
                return position

    def _after_scalar(self, token: re.Match[bytes], expected: int) -> int:
        """Return what follows a string, number or word."""
        if expected in {_VALUE, _FIRST_VALUE} and token["name"] is None:
            return _AFTER
        if expected in {_KEY, _FIRST_KEY}:
            text = _text(token)
            if text[0] in _QUOTES or (self.unquoted_names and _NAME.fullmatch(text)):
                return _COLON
        raise NotJsonError(f"unexpected value before byte {token.end()}")

    def members(self, value: bytes) -> list[tuple[bytes, bytes]]:
        """Key and value strings of a valid object, in order, repeated keys included."""
        return self._parts(value, b"{")

    def elements(self, value: bytes) -> list[bytes]:
        """Texts of the elements of a valid array."""
        return [text for _, text in self._parts(value, b"[")]

    def _parts(self, value: bytes, opening: bytes) -> list[tuple[bytes, bytes]]:
        """Split a valid object, or a valid array, whose elements have no keys."""
        found: list[tuple[bytes, bytes]] = []
        position = value.index(opening) + 1
        while (token := self._token.match(value, position)) and token["mark"] not in _CLOSING:
            if token["mark"] == b",":
                position = token.end()
                continue
            key = b""
            if opening == b"{":
                key = _text(token)
                colon = self._token.match(value, token.end())
                position = token.end() if colon is None else colon.end()
            begin = self.begin(value, position)
            position = self.value_end(value, begin)
            found.append((key, value[begin:position]))
        return found

    def strict(self, value: bytes, *, words: bool = False) -> bytes:
        """Convert a valid value to strict JSON; other texts stay as they are.

        Args:
            value: The value.
            words: Whether numbers that are not finite are `NaN`, `Infinity` and `-Infinity`, as
                Python has them; otherwise they are strings, for want of anything in JSON.
        """
        parts: list[bytes] = []
        copied = 0
        for before, token in self._tokens(value):
            begin, end = token.span(token.lastgroup or 0)
            rewritten = self._strict_token(token, value)
            if words and rewritten is not None and token["not_finite"] is not None:
                rewritten = rewritten[1:-1].replace(b"INF", b"Infinity").lstrip(b"+")
            if b"/" in before:
                parts += (value[copied : begin - len(before)], b" ")
                copied = begin
            if rewritten is not None:
                parts += (value[copied:begin], rewritten)
                copied = end
        return b"".join((*parts, value[copied:])) if parts else value

    def strict_key(self, key: bytes) -> bytes:
        """Convert a key to strict JSON."""
        return self.strict(key) if key[0] in _QUOTES else b'"' + key + b'"'

    def one_line(self, value: bytes) -> bytes:
        """Remove line breaks and comments from a valid value; strings keep their form."""
        parts: list[bytes] = []
        for before, token in self._tokens(value):
            text = _text(token)
            parts.append(b" " if before.strip(b" \t") else before)
            parts.append(_ESCAPE_OR_CONTROL.sub(_one_line, text) if text[0] in _QUOTES else text)
        return b"".join(parts)

    def _tokens(self, value: bytes) -> Iterator[tuple[bytes, re.Match[bytes]]]:
        """Yield the tokens of a valid value, each with the white space before it."""
        position = 0
        while (token := self._token.match(value, position)) is not None:
            yield value[position : token.start(token.lastgroup or 0)], token
            position = token.end()

    def _strict_token(self, token: re.Match[bytes], value: bytes) -> bytes | None:
        """Convert a token to strict JSON; `None` when it is strict already."""
        if token["mark"] is not None:
            return None
        text = _text(token)
        if text[0] in _QUOTES:
            return self._strict_string(text)
        after = self._token.match(value, token.end()) if self.unquoted_names else None
        is_key = after is not None and after["mark"] == b":"
        if is_key or token["not_finite"] is not None:
            return b'"' + text + b'"'
        if token["zeros"] is None:
            return None
        sign, digits = (b"-", text[1:]) if text[:1] == b"-" else (b"", text)
        stripped = digits.lstrip(b"0")
        return sign + (stripped if stripped[:1].isdigit() else b"0" + stripped)

    def _strict_string(self, text: bytes) -> bytes | None:
        if text[0] == ord('"'):
            strange = b"\\'" in text or (self.any_escape and b"\\" in text)
            if not strange and not (self.control_characters and _CONTROL.search(text)):
                return None
        return b'"' + _REWRITTEN.sub(_rewritten, text[1:-1]) + b'"'


def _one_of(*words: bytes) -> bytes:
    """Build the expression of a number or word, behind which no other begins."""
    return rb"(?:" + b"|".join(words) + rb")" + _NO_MORE


def _quoted(quote: bytes, escape: bytes, control: bytes) -> bytes:
    """Build the expression of a string."""
    plain = rb"[^" + quote + rb"\\" + control + rb"]*+"
    return quote + plain + rb"(?:" + escape + plain + rb")*+" + quote


def _text(token: re.Match[bytes]) -> bytes:
    return token[token.lastgroup or 0]


def _rewritten(found: re.Match[bytes]) -> bytes:
    """Rewrite a part of a string that strict JSON has not, or has otherwise."""
    escaped = found[1]
    if escaped is None:
        return b'\\"' if found[0] == b'"' else b"\\u%04x" % ord(found[0])
    if escaped in _KEPT_ESCAPES:
        return found[0]
    return b"\\u%04x" % ord(escaped) if escaped < b" " else escaped


def _one_line(found: re.Match[bytes]) -> bytes:
    """Escape a control character, unless it is; other escapes stay as they are."""
    return b"\\u%04x" % found[0][-1] if found[0][-1] < ord(" ") else found[0]


def _after_opening(mark: bytes, expected: int, closers: bytearray) -> int:
    """Return what follows the beginning of an object or array."""
    if expected not in {_VALUE, _FIRST_VALUE} or len(closers) >= MAX_DEPTH:
        raise NotJsonError(f"unexpected {mark.decode()}, or nested too deeply")
    closers.append(b"}]"[b"{[".index(mark)])
    return _FIRST_KEY if mark == b"{" else _FIRST_VALUE


def _after_closing(mark: bytes, expected: int, closers: bytearray) -> int:
    """Return what follows the end of an object or array."""
    if expected in {_KEY, _VALUE} and closers and closers[-1] == mark[0]:
        what = "colon" if expected == _VALUE and mark == b"}" else "comma"
        raise NotJsonError(f"a {what} right before {mark.decode()}")
    if expected not in _MAY_CLOSE or not closers or closers.pop() != mark[0]:
        raise NotJsonError(f"unexpected {mark.decode()}")
    return _AFTER


def _after_separator(mark: bytes, expected: int, closers: bytearray) -> int:
    """Return what follows a colon or a comma."""
    if mark == b":" and expected == _COLON:
        return _VALUE
    if mark == b"," and expected == _AFTER and closers:
        return _KEY if closers[-1] == b"}"[0] else _VALUE
    raise NotJsonError(f"unexpected {mark.decode()}")


def key_text(key: bytes) -> str | None:
    """Decode the name of a strict key text; `None` when it has no UTF-8 (a lone surrogate)."""
    if b"\\" not in key:
        return key[1:-1].decode()
    try:
        return _STRING.decode(key)
    except msgspec.DecodeError:
        return None


DEFAULT: Final = Grammar()
"""What Spark takes without options."""


_STRICT: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(msgspec.Raw)
CHUNK_BYTES: Final = 128 * 1024
"""Lines decoded at a time: their objects fit the processor's cache, which halves the cost."""

BLANK: Final = b" \t\r\n"
_SUSPECT_BYTES: Final = 2 * MAX_DEPTH
"""A line must be longer than this to be nested deeper than `MAX_DEPTH`."""


_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""The escape of half a character without the other half."""

_ASIDE: Final = b"\0"
"""Begins a line that stands for a record which cannot be one: the number of the record follows."""


def as_lines(records: Iterable[bytes], grammar: Grammar, aside: list[bytes]) -> bytes:
    """Yield records as lines, whatever separated them.

    Args:
        records: Texts that may hold line breaks.
        grammar: What is taken for JSON.
        aside: Gets the records that cannot be lines, because line breaks are within something that
            is no JSON; lines of their own stand for them (see `original`).
    """
    lines: list[bytes] = []
    for record in records:
        if b"\n" in record or b"\r" in record or record[:1] == _ASIDE:
            line = _on_one_line(record, grammar)
            if line is None:
                lines.append(_ASIDE + b"%d" % len(aside))
                aside.append(record)
                continue
            lines.append(line)
        else:
            lines.append(record)
    return b"".join(line + b"\n" for line in lines)


def original(line: bytes, aside: list[bytes]) -> bytes:
    """Return the record that a line of `as_lines` stands for."""
    return aside[int(line[1:])] if aside and line[:1] == _ASIDE else line


def printable(record: bytes) -> str:
    """Format it as `base.printable` does, without the line break."""
    return base.printable(record.rstrip(b"\n"))


def _on_one_line(record: bytes, grammar: Grammar) -> bytes | None:
    """Put a record on one line; `None` when it is not a valid one."""
    try:
        _STRICT.decode(record)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:  # line breaks are nowhere but between tokens
        return record.replace(b"\n", b" ").replace(b"\r", b" ")
    begin = grammar.begin(record)
    if begin == len(record):
        return b""
    try:
        end = grammar.value_end(record, begin)
    except NotJsonError:
        return None
    return None if grammar.has_more(record, end) else grammar.one_line(record[begin:end])


def chunks(text: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Cut into whole lines, about `size` bytes at a time; a longer line stays whole."""
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + size) + 1
        end = end or text.find(b"\n", begin + size) + 1 or len(text)
        yield begin, end
        begin = end


def clean_lines(chunk: bytes) -> int:
    """Count the lines if each of them can only be one object on its own; otherwise return 0.

    The decoder takes white space as JSON does: it would also read an object that spans lines, or
    two on one line. A line break between `}` and `{` always ends an object, so if every line
    break is such, and there are as many objects as lines, each line is one.
    """
    text = np.frombuffer(chunk, np.uint8)
    breaks = np.flatnonzero(text < ord(" "))
    clean = (
        bool((text[breaks] == ord("\n")).all())
        and text[0] == ord("{")
        and bool((text[breaks - 1] == ord("}")).all())
        and bool((text[breaks[:-1] + 1] == ord("{")).all())
        and is_utf8(chunk)
    )
    if not clean:
        return 0
    longest = max(int(breaks[0]), int((breaks[1:] - breaks[:-1]).max(initial=0)))
    if longest > _SUSPECT_BYTES and any(map(may_be_too_deep, chunk.split(b"\n"))):
        return 0
    return len(breaks)


def may_be_too_deep(line: bytes) -> bool:
    """Tell whether a line may be too deep for the decoder's own limit to be relied on."""
    return len(line) > _SUSPECT_BYTES and line.count(b"{") + line.count(b"[") > MAX_DEPTH


def count_quotes(text: bytes, begin: int, end: int) -> int:
    """Count the quotation marks in a part of a text."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, end - begin, begin) == ord('"')))


def may_have_lone_surrogate(text: bytes) -> bool:
    """Tell whether there may be half a character, which is no text; fast where there is none."""
    return b"\\u" in text and _LONE_SURROGATE.search(text) is not None
