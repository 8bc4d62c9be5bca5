"""What are the texts of many values, as the options say?

Entities are resolved and white space is taken away, only where there is any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.xml.fields import SPACE

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.arrays import Bools, Positions
    from airflow_cloudfiles.engine.formats.xml.pieces import MarkupPieces
    from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

_REFERENCE: Final = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));")
_CHARACTERS: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_REMEMBERED: Final = 10_000
_LONGEST_INDENT: Final = 40
"""White space between elements is rarely longer."""


class Values:
    """The values between pieces of markup.

    Args:
        both: Pieces and values in turn, as strings.
        pieces: The pieces.
        options: How white space and nulls are meant.
    """

    def __init__(self, both: pa.Array, pieces: MarkupPieces, options: XmlOptions) -> None:
        self._both = both
        self._begins = pieces.ends
        self._ends = np.append(pieces.begins[1:], len(pieces.text))
        self._text = pieces.text
        self._characters = np.frombuffer(pieces.text, np.uint8)
        self._has_references = b"&" in pieces.text
        self._trims = options.ignore_surrounding_spaces
        self._null = options.null_value
        self._resolved: dict[str, str | None] = {}

    def take(self, places: Positions, *, are_attributes: bool) -> tuple[pa.Array, Bools]:
        """The values behind some pieces.

        Args:
            places: Pieces; -1 for a value that is empty because there is none.
            are_attributes: Whether they are values of attributes.

        Returns:
            Strings, null for what stands for null, and which of them are not well-formed.
        """
        missing = places < 0
        odd = np.where(missing, 0, 2 * places + 1).astype(np.int32)
        texts = self._both.take(pa.array(odd))
        if missing.any():
            texts = pc.if_else(pa.array(missing), pa.scalar(""), texts)
        if are_attributes:
            texts = _with_spaces(texts)
        texts, wrong = self._resolve(texts)
        if self._trims:
            texts = pc.ascii_trim(texts, characters=SPACE)
        if self._null is not None:
            texts = pc.if_else(pc.equal(texts, self._null), pa.scalar(None, pa.string()), texts)
        return texts, wrong

    def are_blank(self, places: Positions) -> Bools:
        """Whether the values behind some pieces are white space, or nothing."""
        begins, ends = self._begins[places], self._ends[places]
        blank: Bools = begins == ends
        lengths = ends - begins
        for length in np.unique(lengths[~blank]).tolist():
            if length > _LONGEST_INDENT:
                break
            some = np.flatnonzero(lengths == length)
            inside = self._characters[begins[some, None] + np.arange(length)]
            blank[some] = (inside <= ord(" ")).all(axis=1)
        longer = np.flatnonzero(lengths > _LONGEST_INDENT)
        if len(longer):
            seen = np.cumsum(self._characters > ord(" "), dtype=np.int32)
            blank[longer] = seen[ends[longer] - 1] == seen[begins[longer] - 1]
        return blank

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
        """A text without references; `None` when one of them is none."""
        if text not in self._resolved:
            if len(self._resolved) > _REMEMBERED:
                self._resolved.clear()
            self._resolved[text] = _without_references(text)
        return self._resolved[text]


def _with_spaces(texts: pa.Array) -> pa.Array:
    """Line breaks and tabs in attributes are blanks, unless they are written as references."""
    for character in "\n\t":
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, " ")
    return texts


def _without_references(text: str) -> str | None:
    if text.count("&") != len(_REFERENCE.findall(text)):
        return None
    try:
        return _REFERENCE.sub(_character, text)
    except ValueError:
        return None


def _character(reference: re.Match[str]) -> str:
    """The character of a reference.

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
