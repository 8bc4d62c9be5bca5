"""How are the values of CSV's options written?"""

from __future__ import annotations

import re
from typing import Final, Literal

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.formats.charsets import UTF8, codec_of
from airflow_cloudfiles.engine.options.values import Kind, choice, positive

UnescapedQuotes = Literal["STOP_AT_DELIMITER", "STOP_AT_CLOSING_QUOTE", "RAISE_ERROR"]
_QUOTE_HANDLINGS: Final[tuple[UnescapedQuotes, ...]] = (
    "STOP_AT_DELIMITER",
    "STOP_AT_CLOSING_QUOTE",
    "RAISE_ERROR",
)
_ESCAPED: Final = {"t": "\t", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MOST_LINE_END: Final = 2


def _character(name: str, text: str) -> str:
    if text in {"\\0", "\0", "\\u0000"}:
        return ""
    if len(text) > 1:
        raise OptionError(f"{name} must be one character, got {text!r}.")
    if text and text in "\r\n":
        raise OptionError(f"{name} must not be a line break, got {text!r}.")
    return text


def _column_separator(name: str, text: str) -> str:
    if not text:
        raise OptionError(
            f"{name} must not be empty. Give what stands between two values, or leave it out for a "
            "comma."
        )
    if text == "\\":
        raise OptionError(
            rf"{name} must not be a single backslash, which begins an escape. Write \\ for a "
            "backslash."
        )

    def plain(found: re.Match[str]) -> str:
        if found[1].startswith("u"):
            return chr(int(found[1][1:], 16))
        if found[1] not in _ESCAPED:
            raise OptionError(f"{name} has an unknown escape {found[0]!r}, in {text!r}.")
        return _ESCAPED[found[1]]

    separator = _ESCAPE.sub(plain, text)
    if any(each in separator for each in "\r\n"):
        raise OptionError(f"{name} must not hold a line break, got {text!r}.")
    return separator


def _encoding(name: str, text: str) -> str:
    found = codec_of(name, text)
    return UTF8 if found in {"ascii", UTF8} else found


def _record_separator(name: str, text: str) -> str:
    if not 1 <= len(text) <= _MOST_LINE_END:
        raise OptionError(f"{name} must be one or two characters, got {text!r}.")
    return text


def _longest_value(name: str, text: str) -> int | None:
    return None if text.strip() == "-1" else positive.read(name, text)


def _unescaped_quotes(name: str, text: str) -> UnescapedQuotes:
    if text.upper() in {"SKIP_VALUE", "BACK_TO_DELIMITER"}:
        raise UnsupportedOptionError(
            f"{name}={text.upper()} is not in this version: it drops what the file holds. Choose "
            f"{', '.join(_QUOTE_HANDLINGS[:-1])} or {_QUOTE_HANDLINGS[-1]}."
        )
    return _QUOTES.read(name, text)


_QUOTES: Final = choice(_QUOTE_HANDLINGS)
character: Final = Kind("character", _character)
"""One character, or none."""
column_separator: Final = Kind("text", _column_separator)
r"""One character or several, with escapes such as `\t` as Spark reads them."""
encoding_of_csv: Final = Kind("encoding", _encoding, ignores_empty=True)
"""Python's name of the codec; ASCII is read as the UTF-8 that it is."""
record_separator: Final = Kind("text", _record_separator)
"""One or two characters."""
longest_value: Final = Kind("number", _longest_value)
"""A whole number of at least 1; `None`, written -1: any length."""
unescaped_quotes: Final = Kind(_QUOTES.label, _unescaped_quotes)
"""What is done with a quote that is not escaped."""
