r"""What do the bytes of one record say, when they are not quite JSON?

Spark's reader also takes single quotes, the escape `\'` and the words `NaN`, `Infinity` and their
kind. This module reads such records with the same tolerance, finds every member of an object
(also one whose key comes twice), and rewrites any value as strict JSON with the same text where
the text is strict already.

Nothing here recurses: nesting is counted, and refused beyond `MAX_DEPTH` (Jackson's limit).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_DEPTH: Final = 1000

_ESCAPE: Final = rb"\\(?:[\"'\\/bfnrt]|u[0-9a-fA-F]{4})"
_DOUBLE_QUOTED: Final = rb'"[^"\\\x00-\x1f]*+(?:' + _ESCAPE + rb'[^"\\\x00-\x1f]*+)*+"'
_SINGLE_QUOTED: Final = rb"'[^'\\\x00-\x1f]*+(?:" + _ESCAPE + rb"[^'\\\x00-\x1f]*+)*+'"
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_WORD: Final = rb"true|false|null"
_NOT_FINITE: Final = rb"NaN|Infinity|[+-]Infinity|[+-]INF"
_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*+(?:"
    rb"(?P<mark>[{}\[\],:])"
    rb"|(?P<strict>"
    + _DOUBLE_QUOTED
    + rb"|(?:"
    + _NUMBER
    + rb"|"
    + _WORD
    + rb")(?![0-9A-Za-z_.+-]))"
    rb"|(?P<single>" + _SINGLE_QUOTED + rb")"
    rb"|(?P<not_finite>" + _NOT_FINITE + rb")(?![0-9A-Za-z_.+-])"
    rb")"
)
_BLANK: Final = b" \t\r\n"
_QUOTES: Final = b"\"'"
_STRING: Final = msgspec.json.Decoder(str)

_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _AFTER = range(6)
"""What may come next: a value, a key, the colon after it; after a value, a comma or the end."""
_MAY_CLOSE: Final = {_FIRST_VALUE, _FIRST_KEY, _AFTER}


class NotJsonError(ValueError):
    """The bytes are no record, not even by Spark's tolerant rules."""


def value_end(text: bytes, start: int = 0) -> int:
    """Check one value, whole with everything in it, and return where it ends.

    Raises:
        NotJsonError: It is not valid, not closed, or nested deeper than `MAX_DEPTH`.
    """
    closers = bytearray()
    expected, position = _VALUE, start
    match = _TOKEN.match
    while True:
        token = match(text, position)
        if token is None:
            raise NotJsonError(f"invalid at byte {position}")
        position = token.end()
        mark = token["mark"]
        if mark is None:
            expected = _after_scalar(token, expected)
        elif mark in b"{[":
            expected = _after_opening(mark, expected, closers)
        elif mark in b"}]":
            expected = _after_closing(mark, expected, closers)
        else:
            expected = _after_separator(mark, expected, closers)
        if expected == _AFTER and not closers:
            return position


def _after_opening(mark: bytes, expected: int, closers: bytearray) -> int:
    """What follows the beginning of an object or array."""
    if expected not in {_VALUE, _FIRST_VALUE} or len(closers) >= MAX_DEPTH:
        raise NotJsonError(f"unexpected {mark!r}, or nested too deeply")
    closers.append(b"}]"[b"{[".index(mark)])
    return _FIRST_KEY if mark == b"{" else _FIRST_VALUE


def _after_closing(mark: bytes, expected: int, closers: bytearray) -> int:
    """What follows the end of an object or array."""
    if expected not in _MAY_CLOSE or not closers or closers.pop() != mark[0]:
        raise NotJsonError(f"unexpected {mark!r}")
    return _AFTER


def _after_scalar(token: re.Match[bytes], expected: int) -> int:
    """What follows a string, number or word."""
    if expected in {_VALUE, _FIRST_VALUE}:
        return _AFTER
    if expected in {_KEY, _FIRST_KEY} and token[0].lstrip(_BLANK)[0] in _QUOTES:
        return _COLON
    raise NotJsonError(f"unexpected value before byte {token.end()}")


def _after_separator(mark: bytes, expected: int, closers: bytearray) -> int:
    """What follows a colon or a comma."""
    if mark == b":" and expected == _COLON:
        return _VALUE
    if mark == b"," and expected == _AFTER and closers:
        return _KEY if closers[-1] == b"}"[0] else _VALUE
    raise NotJsonError(f"unexpected {mark!r}")


def members(value: bytes) -> list[tuple[bytes, bytes]]:
    """Key and value texts of a valid object, in the order of the text, repeated keys included."""
    found: list[tuple[bytes, bytes]] = []
    position = value.index(b"{") + 1
    while True:
        token = _TOKEN.match(value, position)
        if token is None or token["mark"] == b"}":
            return found
        if token["mark"] == b",":
            position = token.end()
            continue
        colon = _TOKEN.match(value, token.end())
        begin = token.end() if colon is None else colon.end()
        position = value_end(value, begin)
        found.append((token[0].strip(_BLANK), value[begin:position].strip(_BLANK)))


def elements(value: bytes) -> list[bytes]:
    """Texts of the elements of a valid array."""
    found: list[bytes] = []
    position = value.index(b"[") + 1
    while True:
        token = _TOKEN.match(value, position)
        if token is None or token["mark"] == b"]":
            return found
        if token["mark"] == b",":
            position = token.end()
            continue
        end = value_end(value, position)
        found.append(value[position:end].strip(_BLANK))
        position = end


def strict(value: bytes) -> bytes:
    """The same valid value as strict JSON: double quotes, no `NaN`; otherwise the text as it is."""
    parts: list[bytes] = []
    position = copied = 0
    while (token := _TOKEN.match(value, position)) is not None:
        position = token.end()
        rewritten = _strict_token(token)
        if rewritten is not None:
            begin, end = token.span(token.lastgroup or 0)
            parts += (value[copied:begin], rewritten)
            copied = end
    return b"".join((*parts, value[copied:])) if parts else value


def _strict_token(token: re.Match[bytes]) -> bytes | None:
    """A token as strict JSON; `None` when it is strict already."""
    if (quoted := token["single"]) is not None:
        inner = re.sub(
            rb"\\.|\"",
            lambda found: {b"\\'": b"'", b'"': b'\\"'}.get(found[0], found[0]),
            quoted[1:-1],
        )
        return b'"' + inner + b'"'
    if (word := token["not_finite"]) is not None:
        return b'"' + word + b'"'
    text = token["strict"]
    if text is not None and b"\\'" in text:
        return re.sub(rb"\\.", lambda found: b"'" if found[0] == b"\\'" else found[0], text)
    return None


def key_text(key: bytes) -> str | None:
    """The name a strict key text stands for; `None` when it has no UTF-8 (a lone surrogate)."""
    if b"\\" not in key:
        return key[1:-1].decode()
    try:
        return _STRING.decode(key)
    except msgspec.DecodeError:
        return None
