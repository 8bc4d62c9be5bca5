"""How are the strings of a column converted all at once?

Each type has a rule which strings are *easy*: Arrow's own cast takes them and gives what Spark
gives. The hard rest goes through the format's own conversion of one text, each distinct string
once. What is null is neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.datetimes.names import ENGLISH
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars.strings import MISFIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.formats.base import Positions
    from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
    from airflow_cloudfiles.engine.formats.scalars.strings import Convert

NONE: Final[Positions] = np.empty(0, np.int64)

_MAX_DIGITS: Final = 38
_DATE_LENGTH: Final = len("2024-01-31")
_MOMENT_LENGTH: Final = len("2024-01-31T12:30:59")
_SAFE_DIGITS: Final = {8: 2, 16: 4, 32: 9, 64: 18}
"""Numbers of so many digits fit so many bits."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The conversion of one column.

    Attributes:
        kind: What its strings become.
        convert: The conversion of one text, which is the reference.
        times: Converts dates and times.
        numbers: Which numbers a floating column holds.
    """

    kind: pa.DataType
    convert: Convert
    times: TimePatterns
    numbers: NumberRule = SPARK

    def __call__(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        """Convert a column.

        Returns:
            The array, and the positions of the strings that do not fit, which are null in it.
        """
        if pa.types.is_string(self.kind) or pa.types.is_binary(self.kind):
            return strings.cast(self.kind), NONE
        if pa.types.is_temporal(self.kind):
            return self._times(strings)
        if pa.types.is_decimal(self.kind) and self.times.locale is not ENGLISH:
            return self.one_by_one(strings)
        array = _easily(strings, self.kind)
        if pa.types.is_floating(self.kind):
            doubtful = self.numbers.doubtful(strings, array)
            if doubtful is not None:
                array = pc.if_else(pa.array(doubtful), pa.scalar(None, self.kind), array)
        if array.null_count == strings.null_count:
            return array, NONE
        hard = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        there = strings.is_valid().to_numpy(zero_copy_only=False)
        return self._one_by_one(strings, array, hard[there[hard]])

    def _times(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        array = _usual_times(strings, self.kind) if self.times.are_default else None
        if array is not None:
            return array, NONE
        array, misfits = self.times.cast(strings, self.kind)
        return array, np.flatnonzero(misfits.to_numpy(zero_copy_only=False))

    def one_by_one(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        """Convert a column by the reference alone."""
        there = np.flatnonzero(strings.is_valid().to_numpy(zero_copy_only=False))
        return self._one_by_one(strings, pa.nulls(len(strings), self.kind), there)

    def _one_by_one(
        self, strings: pa.StringArray, array: pa.Array, hard: Positions
    ) -> tuple[pa.Array, Positions]:
        coded = strings.take(pa.array(hard)).dictionary_encode()
        values = [self.convert(text) for text in coded.dictionary.to_pylist()]
        fitting = pa.array([None if value is MISFIT else value for value in values], self.kind)
        lost = np.array([value is MISFIT for value in values], np.bool_)
        mask = np.zeros(len(strings), np.bool_)
        mask[hard] = True
        found = pc.replace_with_mask(array, pa.array(mask), fitting.take(coded.indices))
        return found, hard[lost[coded.indices.to_numpy(zero_copy_only=False)]]


def _easily(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """The values that Arrow converts as Spark does; the others are null."""
    for applies, rule in _RULES:
        if applies(kind):
            return rule(strings, kind)
    return pa.nulls(len(strings), kind)


def _booleans(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    true = pc.equal(strings, "true")
    easy = pc.or_(true, pc.equal(strings, "false"))
    return pc.if_else(easy, true, pa.scalar(None, kind))


def _integers(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    if only_has(strings, b"-0123456789"):
        array = _cast(strings, kind)
        if array is not None:
            return array
    return _where(strings, rf"^-?[0-9]{{1,{_SAFE_DIGITS[kind.bit_width]}}}$", kind)


def _floats(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    array = _cast(strings, kind) if only_has(strings, b"-.0123456789eE+") else None
    if array is None:
        array = _where(strings, r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$", kind)
    infinite = pc.is_inf(array)
    if pc.any(infinite).as_py():
        return pc.if_else(infinite, pa.scalar(None, kind), array)
    return array


def _decimals(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    # Arrow's cast does not see an overflow between the digits it reads and the scale it makes.
    longest = pc.max(pc.binary_length(strings)).as_py() or 0
    if longest + kind.scale <= _MAX_DIGITS and only_has(strings, b"-.0123456789"):
        array = _cast(strings, kind)
        if array is not None:
            return array
    whole, scale = kind.precision - kind.scale, kind.scale
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    return _where(strings, rf"^-?[0-9]{{1,{whole}}}{fraction}$" if whole else r"^$", kind)


def _usual_times(strings: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """Dates or timestamps to the second and beyond, if all are written in one of the usual ways."""
    lengths = pc.min_max(pc.binary_length(strings)).as_py()
    shortest = lengths["min"] or 0
    if pa.types.is_date(kind):
        usual = shortest == lengths["max"] == _DATE_LENGTH and only_has(strings, b"-0123456789")
        return _cast(strings, kind) if usual else None
    if shortest > _MOMENT_LENGTH and kind.tz is not None:
        usual = (
            only_has(strings, b"-0123456789:T .Z") and pc.all(pc.ends_with(strings, "Z")).as_py()
        )
        if usual:
            return _cast(strings, kind)
    if shortest < _MOMENT_LENGTH or not only_has(strings, b"-0123456789:T ."):
        return None
    local = _cast(strings, pa.timestamp("us"))
    return None if local is None else local.cast(pa.int64()).cast(kind)


def only_has(strings: pa.StringArray, characters: bytes) -> bool:
    """Whether all strings together have no other byte than these."""
    return not data_of(strings).translate(None, characters)


def data_of(strings: pa.StringArray) -> bytes:
    """The bytes of all strings, one after the other."""
    offsets, data = strings.buffers()[1:]
    if data is None or not len(strings):
        return b""
    ends = np.frombuffer(offsets, np.int32, len(strings) + 1, strings.offset * 4)
    found: bytes = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return found


def _where(strings: pa.StringArray, pattern: str, kind: pa.DataType) -> pa.Array:
    """Cast the strings of a pattern; the others are null."""
    easy = pc.match_substring_regex(strings, pattern)
    array = _cast(pc.if_else(easy, strings, pa.scalar(None, pa.string())), kind)
    return pa.nulls(len(strings), kind) if array is None else array


def _cast(strings: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    try:
        return strings.cast(kind)
    except pa.ArrowInvalid:
        return None


_RULES: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.StringArray, Any], pa.Array]], ...]
] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
)
