"""Which value does one line of JSON hold, by the tolerant rules of the reader?"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from airflow_cloudfiles.engine.formats.json.leaf_types import PLAIN
from airflow_cloudfiles.engine.formats.json.tokens import DEFAULT, Grammar, NotJsonError, key_text

MAX_DEPTH: Final = 100
"""Objects and arrays nested deeper are kept as text in a string column."""
UNPARSABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for what is no strict JSON."""
_NOT_FINITE: Final = (b"NaN", b"Infinity", b"INF")
_SOME_STRING: Final = "?"


def parse_line(
    line: bytes, grammar: Grammar = DEFAULT, decoder: msgspec.json.Decoder[Any] = PLAIN
) -> object:
    """Parse one line with the tolerance of the reader (see `tokens`).

    Returns:
        The value; `None` when the line is blank, not UTF-8 or not JSON. What is nested too deep is
        a string.
    """
    try:
        return decoder.decode(line)
    except UNPARSABLE:
        text = line.rstrip()
    try:
        text.decode()
        begin = grammar.begin(text)
        end = grammar.value_end(text, begin)
    except (UnicodeDecodeError, NotJsonError):
        return None
    return None if grammar.has_more(text, end) else _tolerant(text[begin:end], 0, grammar, decoder)


def _tolerant(
    text: bytes, depth: int, grammar: Grammar, decoder: msgspec.json.Decoder[Any]
) -> object:
    """A value that is valid by the tolerant rules."""
    if depth > MAX_DEPTH:
        return _SOME_STRING
    if text.startswith(b"{"):
        found = {}
        for key, value in grammar.members(text):
            name = key_text(grammar.strict_key(key))
            if name is not None:
                found[name] = _tolerant(value, depth + 1, grammar, decoder)
        return found
    if text.startswith(b"["):
        return [_tolerant(each, depth + 1, grammar, decoder) for each in grammar.elements(text)]
    if text.lstrip(b"+-") in _NOT_FINITE:
        return math.nan
    try:
        return decoder.decode(grammar.strict(text))
    except msgspec.DecodeError:  # a lone surrogate, or a number beyond every type but double
        return math.inf if text[:1] in b"-0123456789" else _SOME_STRING
