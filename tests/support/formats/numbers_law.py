"""When does a DOUBLE or FLOAT column give back the number that a file has?

The law, in fractions: written without a thought of how the readers decide.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np

NUMBERS = [
    "9007199254740992", "9007199254740993", "-9007199254740993", "12345678901234567",
    "1234567890123456789", "9223372036854775807", "18446744073709551616",
    "100000000000000000000000", "1e23", "9007199254740993.0", "16777216", "16777217", "-33554433",
    "0.1", "1.10", "0.12345678901234567890", "123456789.5", "3.4028235e38", "3.4028236e38",
    "1e-45", "1e-46", "-1e-46", "5e-324", "1.2e-323", "1e-400", "-1e-400", "0e-400", "0.0000000",
    "-0.0", "0." + "0" * 330 + "1", "9" * 300, "9" * 400, "1e400", "1e-20000000",
    "1e99999999999999999999", "-1e-99999999999999999999", "1e999999999",
]  # fmt: skip
"""Numbers at the edges of what floating columns and decimals hold."""
RULES = ["none", "wholeNumbers", "all"]
OPTION = "cloudFiles.rescueInexactNumbers"
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]([+-]?)([0-9]+))?", re.ASCII)


def gives_back(text: str, value: float, rule: str, *, is_float: bool) -> bool:
    """Whether a value that is in the column may be there, for a number in decimal."""
    said, kept = _said(text), Fraction(value)
    if not _is_nearest(said, value, is_float=is_float):
        return False
    if rule == "none":
        return True
    if re.fullmatch("[+-]?[0-9]+", text):
        return said == kept
    if bool(said) != bool(kept):
        return False
    shown = Decimal(str(np.float32(value)) if is_float else repr(value))
    return rule == "wholeNumbers" or Fraction(shown) == said


def is_number(text: str) -> bool:
    """Whether it is one in decimal."""
    return _DECIMAL.fullmatch(text) is not None


def _said(text: str) -> Fraction:
    """The number, or one as far beyond all others where its digits cannot be written down."""
    found = _DECIMAL.fullmatch(text)
    assert found is not None
    if len(found[4] or "") > 4:
        return Fraction(f"{found[1]}e{found[3]}9999") * (-1 if text[0] == "-" else 1)
    return Fraction(text)


def is_rescued(text: str, rule: str, *, is_float: bool) -> bool:
    """Whether a column does not hold a number, so that it is rescued."""
    value = _nearest(text, is_float=is_float)
    return math.isinf(value) or not gives_back(text, value, rule, is_float=is_float)


def _nearest(text: str, *, is_float: bool) -> float:
    """What a column makes of it; infinity where it is beyond the column."""
    if not is_float:
        return float(text)
    with np.errstate(over="ignore", under="ignore"):
        value = float(np.float32(text))  # by way of a double, so maybe one beside
    if math.isinf(value):
        return value
    said = _said(text)
    return min([value, *_beside(value, is_float=True)], key=lambda x: abs(said - Fraction(x)))


def _beside(value: float, *, is_float: bool) -> list[float]:
    kind = np.float32 if is_float else np.float64
    around = (kind(math.inf), kind(-math.inf))
    with np.errstate(over="ignore"):
        found = [float(np.nextafter(kind(value), each)) for each in around]
    return [each for each in found if math.isfinite(each)]


def _is_nearest(said: Fraction, value: float, *, is_float: bool) -> bool:
    distance = abs(said - Fraction(value))
    return all(distance <= abs(said - Fraction(b)) for b in _beside(value, is_float=is_float))
