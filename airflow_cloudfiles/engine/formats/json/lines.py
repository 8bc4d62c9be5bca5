"""Where do lines begin and end, and which of them need a closer look?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.json.tokens import MAX_DEPTH, Grammar, NotJsonError
from airflow_cloudfiles.engine.formats.line_blocks import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def with_line_breaks(data: bytes) -> bytes:
    r"""The lines with `\n` after each (Spark's default `lineSep` is `\n`, `\r\n` or `\r`)."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if not data or data.endswith(b"\n") else data + b"\n"


def as_lines(records: Iterable[bytes], grammar: Grammar, aside: list[bytes]) -> bytes:
    """Records as lines, whatever separated them.

    Args:
        records: Texts that may hold line breaks.
        grammar: What is taken for JSON.
        aside: Gets the records that cannot be lines, because line breaks are within something that
            is no JSON; lines of their own stand for them (see `original`).
    """
    lines: list[bytes] = []
    for record in records:
        if b"\n" in record or b"\r" in record or record[:1] == _ASIDE:
            line = _one_line(record, grammar)
            if line is None:
                lines.append(_ASIDE + b"%d" % len(aside))
                aside.append(record)
                continue
            lines.append(line)
        else:
            lines.append(record)
    return b"".join(line + b"\n" for line in lines)


def original(line: bytes, aside: list[bytes]) -> bytes:
    """The record that a line of `as_lines` stands for."""
    return aside[int(line[1:])] if aside and line[:1] == _ASIDE else line


def printable(record: bytes) -> str:
    """`rescued_json.printable` without the line break."""
    return base.printable(record.rstrip(b"\n"))


def _one_line(record: bytes, grammar: Grammar) -> bytes | None:
    """A record without line breaks; `None` when it is no valid one."""
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
        end = end or text.find(b"\n", begin + size) + 1
        yield begin, end
        begin = end


def clean_lines(chunk: bytes) -> int:
    """The number of lines if each of them can only be one object on its own; otherwise 0.

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
    """Whether a line may be nested too deeply for the decoder's own limit to be relied on."""
    return len(line) > _SUSPECT_BYTES and line.count(b"{") + line.count(b"[") > MAX_DEPTH


def count_quotes(text: bytes, begin: int, end: int) -> int:
    """How many quotation marks there are in a part of a text."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, end - begin, begin) == ord('"')))


def may_have_lone_surrogate(text: bytes) -> bool:
    """Whether there may be half a character, which is no text; quick where there is none."""
    return b"\\u" in text and _LONE_SURROGATE.search(text) is not None
