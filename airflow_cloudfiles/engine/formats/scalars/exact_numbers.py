"""Does a floating column hold the number that a text says?

A double is the nearest one to its text, which Spark takes for the value whatever it differs by.
`cloudFiles.rescueInexactNumbers` says which differences count. Each rule rescues what the one
before it rescues, too:

- `none`: no difference, as with Spark. It is the rule where there is no rescued data column.
- `wholeNumbers`: whole numbers without a fraction and an exponent, such as ids, that are another
  number in the column; and numbers other than 0 that are 0 in it.
- `all`: numbers with more digits than the column gives back. A column gives back a number when that
  is what it is written as, in as few digits as tell it from its neighbors: `0.1` is, although no
  double is a tenth.

One number at a time (`holds`) and whole columns (`doubtful`), which agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.line_blocks import Bools
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions, InexactNumbers

_WHOLE: Final = re.compile(r"[+-]?([0-9]+)", re.ASCII)
_WHOLE_TEXT: Final = r"^[+-]?[0-9]+$"
_NO_ZERO: Final = r"^[^eE]*[1-9]"
_DIGIT_BUT_ZERO: Final = re.compile(_NO_ZERO, re.ASCII)
_LONG_DIGITS: Final = 18
"""A number of so many characters fits 64 bits."""
_SHORTEST_LOST: Final = len("1e-46")
"""The shortest number other than 0 that is 0 in a float."""
_ALL_WHOLE: Final = {pa.float64(): 2**53, pa.float32(): 2**24}
"""Up to which number a type has all whole numbers."""
_ALL_DIGITS: Final = {pa.float64(): 15, pa.float32(): 6}
"""How many digits a type always gives back, from `_ALL_BITS` on."""
_ALL_BITS: Final = {
    pa.float64(): float(np.finfo(np.float64).smallest_normal),
    pa.float32(): float(np.finfo(np.float32).smallest_normal),
}
"""Nearer to 0, numbers have ever fewer digits."""


@dataclass(frozen=True, slots=True)
class NumberRule:
    """Which numbers a floating column holds.

    Attributes:
        rescues: What is rescued for being inexact.
        infinite: Whether what is beyond the largest number is infinity, as with Spark, rather than
            a number that does not fit.
    """

    rescues: InexactNumbers = "none"
    infinite: bool = False

    @classmethod
    def of(cls, options: CloudFilesOptions) -> NumberRule:
        """The rule of a source; without a rescued data column it is Spark's."""
        rescues = options.rescued_data_column is not None
        return cls(options.rescue_inexact_numbers if rescues else "none", infinite=not rescues)

    def holds(self, text: str, number: float, *, is_float: bool = False) -> bool:
        """Whether a column holds a number, which is finite.

        Args:
            text: The number in decimal, as a file has it.
            number: What the column makes of it.
            is_float: Whether the column is a FLOAT, rather than a DOUBLE.
        """
        if self.rescues == "none":
            return True
        if not number:
            return _DIGIT_BUT_ZERO.match(text) is None
        whole = _WHOLE.fullmatch(text)
        if whole is not None:
            return int(whole[1].lstrip("0") or "0") == abs(number)
        if self.rescues == "wholeNumbers":
            return True
        written = str(np.float32(number)) if is_float else repr(number)
        return Decimal(text) == Decimal(written)

    def doubtful(self, strings: pa.StringArray, numbers: pa.Array) -> Bools | None:
        """Find the few numbers that a column may not hold; `holds` decides about each.

        Args:
            strings: The numbers as a file has them.
            numbers: The same as the column has them, floats or doubles; null where there is none.

        Returns:
            Which are doubtful; `None` for no one.
        """
        if self.rescues == "none" or not len(strings):
            return None
        kind = numbers.type
        values = numbers.fill_null(1).to_numpy(zero_copy_only=False)
        lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
        found = np.zeros(len(strings), np.bool_)
        zeros = np.flatnonzero((values == 0) & (lengths >= _SHORTEST_LOST))
        if len(zeros):
            lost = pc.match_substring_regex(strings.take(pa.array(zeros)), _NO_ZERO)
            found[zeros] = lost.to_numpy(zero_copy_only=False)
        large = np.abs(values) >= _ALL_WHOLE[kind]
        if self.rescues == "all":
            small = (np.abs(values) < _ALL_BITS[kind]) & (values != 0)
            found |= large | small | (lengths > _ALL_DIGITS[kind])
        elif large.any():
            found[_inexact(strings, values, np.flatnonzero(large))] = True
        return found if found.any() else None


def _inexact(
    strings: pa.StringArray, values: np.ndarray[Any, Any], places: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Of large numbers, those that are whole in their text and maybe others in the column."""
    some = strings.take(pa.array(places))
    whole = pc.match_substring_regex(some, _WHOLE_TEXT).fill_null(False)
    is_whole: Bools = whole.to_numpy(zero_copy_only=False)
    places, some = places[is_whole], pc.utf8_ltrim(some.filter(whole), characters="+")
    short: Bools = (pc.binary_length(some).to_numpy(zero_copy_only=False)) <= _LONG_DIGITS
    exact = np.zeros(len(places), np.bool_)
    longs = some.filter(pa.array(short)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    exact[short] = values[places[short]].astype(np.int64) == longs
    return places[~exact]


SPARK: Final = NumberRule()
"""Numbers as Spark reads them."""
