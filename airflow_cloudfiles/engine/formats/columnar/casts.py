"""Cast the values of an Arrow array that fit a column of another type, and dates of old calendars.

One rule for each pair of types that have values in common; a pair without a rule has none. A rule
takes a whole array. It gives the values that are the same in the other type, exactly, and says
which are not: overflow, lost digits, bytes that are no text. Where two types differ in what they
mean (a number in a string column, B11), nothing fits.

Parquet counts days in the calendar we use today, extended into the past. Spark before 3.0 and Hive
counted in the calendar that was in use then: Julian before 1582-10-15. Spark 3 and later write
down what they did. So, as in Spark (`DataSourceUtils.datetimeRebaseSpec`):

1. A file that names a Spark before 3.0 (3.1 for INT96), or says that it was written in `LEGACY`
   mode, follows the old calendar: its dates are converted, so that they read as they were written.
2. A file of a later Spark follows today's.
3. For any other file `datetimeRebaseMode` and `int96RebaseMode` decide.

ORC has its own rule (`formats.orc`).

In zones other than UTC the old calendar went with other offsets, too, until 1900. Timestamps of
such files before 1900 are refused, rather than read some minutes off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.base import Bools, is_utf8
from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.types import is_bytes, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_cloudfiles.engine.formats.base import Int64s
    from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions, RebaseMode


_VERSION: Final = b"org.apache.spark.version"
_LEGACY_DATES: Final = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96: Final = b"org.apache.spark.legacyINT96"
_ZONE: Final = b"org.apache.spark.timeZone"
_UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "Etc/GMT", "UCT", "Zulu", "Etc/UCT"})
_FIRST_DAY: Final = -141427
"""1582-10-15, the first day of the calendar we use, as days since 1970."""
_DAY_MICROS: Final = 86_400_000_000
_MICROS_1900: Final = -2_208_988_800_000_000
_MICROS: Final = {"s": 10**6, "ms": 10**3, "us": 1}


@dataclass(frozen=True, slots=True)
class Calendar:
    """What a file says of its dates.

    Attributes:
        dates: What becomes of dates and timestamps from before.
        int96: What becomes of timestamps stored as INT96.
        zone: The time zone of the writer.
    """

    dates: RebaseMode
    int96: RebaseMode
    zone: str

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None, options: ParquetOptions) -> Calendar:
        """Read it from the metadata of a file."""
        found = metadata or {}
        return cls(
            _mode(found, b"3.0.0", _LEGACY_DATES, options.datetime_rebase_mode),
            _mode(found, b"3.1.0", _LEGACY_INT96, options.int96_rebase_mode),
            found.get(_ZONE, b"UTC").decode("utf-8", "replace"),
        )

    @property
    def is_ours(self) -> bool:
        """Whether every date can be taken as it is."""
        return self.dates == self.int96 == "CORRECTED"

    def convert(self, array: pa.Array, leaves: Iterator[bool]) -> pa.Array:
        """Convert the dates of a column, at any depth.

        Args:
            array: The column.
            leaves: For each leaf of its type, whether it is INT96; consumed.

        Raises:
            OSError: There are dates that cannot be distinguished, or not be converted.
        """

        def change(leaf: pa.Array) -> pa.Array:
            mode = self.int96 if next(leaves) else self.dates
            return leaf if mode == "CORRECTED" else self._leaf(leaf, mode)

        return changed(array, change)

    def _leaf(self, array: pa.Array, mode: RebaseMode) -> pa.Array:
        kind = array.type
        if pa.types.is_date32(kind):
            days = _numbers(array.view(pa.int32()))
            if not (days < _FIRST_DAY).any():
                return array
            _refuse(mode)
            return _as(_converted_days(days).astype(np.int32), array)
        if not pa.types.is_timestamp(kind) or kind.tz is None or kind.unit not in _MICROS:
            return array
        factor = _MICROS[kind.unit]
        numbers = _numbers(array.view(pa.int64()))
        is_utc = self.zone in _UTC_NAMES
        limit = _FIRST_DAY * _DAY_MICROS if is_utc and mode == "LEGACY" else _MICROS_1900
        if not (numbers < limit // factor).any():
            return array
        _refuse(mode)
        if not is_utc:
            raise OSError(
                "it was written in the old calendar of Spark 2 (LEGACY), in time zone "
                f"{self.zone}, with timestamps before 1900, which are converted for UTC only; "
                "write it again with Spark 3 or later"
            )
        day = _DAY_MICROS // factor
        days = numbers // day
        return _as(_converted_days(days) * day + (numbers - days * day), array)


HYBRID: Final = Calendar("LEGACY", "LEGACY", "UTC")
"""The calendar that is Julian before 1582-10-15, in UTC."""


def _mode(
    metadata: Mapping[bytes, bytes], since: bytes, legacy: bytes, otherwise: RebaseMode
) -> RebaseMode:
    version = metadata.get(_VERSION)
    if version is None:
        return otherwise
    return "LEGACY" if version < since or legacy in metadata else "CORRECTED"


def _refuse(mode: RebaseMode) -> None:
    if mode == "EXCEPTION":
        raise OSError(
            "it has dates before 1582-10-15 or timestamps before 1900 and does not tell their "
            "calendar; set datetimeRebaseMode and int96RebaseMode to CORRECTED, or to LEGACY if "
            "Hive or Spark 2 wrote it"
        )


def _converted_days(days: Int64s) -> Int64s:
    """Days that are counted in the Julian calendar before `_FIRST_DAY`, in today's.

    The date stays: year, month and day of the one become those of the other. The arithmetic is
    that of Richards (Explanatory Supplement to the Astronomical Almanac, 3rd edition, 15.11).
    """
    shifted = days + (2440588 + 1401)
    quarters = 4 * shifted + 3
    hundreds = 5 * ((quarters % 1461) // 4) + 2
    day = (hundreds % 153) // 5
    month = (hundreds // 153 + 2) % 12
    year = quarters // 1461 - 4716 + (13 - month) // 12
    firsts = ((year - 1970) * 12 + month).astype("datetime64[M]").astype("datetime64[D]")
    return np.where(days < _FIRST_DAY, firsts.astype(np.int64) + day, days)


def _numbers(array: pa.Array) -> Int64s:
    found: Int64s = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _as(numbers: np.ndarray[Any, Any], like: pa.Array) -> pa.Array:
    """Numbers as an array of another's type, with its nulls."""
    nulls = like.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers, mask=nulls).view(like.type)


def changed(array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Change the leaves of an array, in the order of its type."""
    kind = array.type
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind) and kind.num_fields:
        children = [changed(child, change) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        keys, items = (changed(child, change) for child in types.entries(array))
        offsets = pa.array(types.offsets_of(array))
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
    if is_list(kind):
        array = types.listed(array)
        elements = changed(types.elements(array), change)
        return pa.ListArray.from_arrays(
            pa.array(types.offsets_of(array)), elements, type=array.type, mask=nulls
        )
    return change(array)


Cast = tuple[pa.Array, Bools | None]
"""An array of the column's type, and which values do not fit (they are null); `None`: all fit."""
Rule = Callable[[pa.Array], Cast]

_PER_MICRO: Final = {"s": 10**6, "ms": 10**3, "us": 1}


def find_rule(source: pa.DataType, target: pa.DataType) -> Rule | None:
    """Find the rule for values of one leaf type in a column of another; `None` when none fits.

    Args:
        source: Of the file, without wrapping (`types.plain_type`).
        target: Of the column, as `types.to_arrow` makes it.
    """
    if pa.types.is_null(source):
        return lambda array: (pa.nulls(len(array), target), None)
    find = next((find for applies, find in _TARGETS if applies(target)), None)
    return None if find is None else find(source, target)


def without(array: pa.Array, bad: Bools | None) -> pa.Array:
    """Replace the elements where `bad` is by null."""
    if bad is None:
        return array
    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array)


def _bad(condition: pa.BooleanArray) -> Bools | None:
    """Find where a condition holds; null is not a misfit."""
    found: Bools = condition.fill_null(False).to_numpy(zero_copy_only=False)
    return found if found.any() else None


def _outside(array: pa.Array, low: object, high: object) -> Bools | None:
    """Find which values are beyond two bounds, given in the type of the array."""
    ends = pc.min_max(array)
    least, most = ends["min"], ends["max"]
    if not least.is_valid or (least.as_py() >= low and most.as_py() <= high):
        return None
    bounds = pa.scalar(low, array.type), pa.scalar(high, array.type)
    return _bad(pc.or_(pc.less(array, bounds[0]), pc.greater(array, bounds[1])))


def any_of(bads: Iterable[Bools | None]) -> Bools | None:
    """Find where any of these is true."""
    found: Bools | None = None
    for bad in bads:
        if bad is not None:
            found = bad if found is None else found | bad
    return found


def _simple(target: pa.DataType) -> Rule:
    """Build a cast that loses nothing, whatever the value."""
    return lambda array: (array.cast(target), None)


def _same(array: pa.Array) -> Cast:
    return array, None


# Numbers -----------------------------------------------------------------------------------


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _to_integer(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if pa.types.is_decimal(source):
        return lambda array: _decimal_to_integer(array, target)
    if not pa.types.is_integer(source):
        return None
    if source == target:
        return _same
    (least, most), (low, high) = _bounds(source), _bounds(target)
    if low <= least and most <= high:
        return _simple(target)

    def rule(array: pa.Array) -> Cast:
        bad = _outside(array, max(low, least), min(high, most))
        return without(array, bad).cast(target), bad

    return rule


def _decimal_to_integer(array: pa.Array, target: pa.DataType) -> Cast:
    """Whole numbers in range."""
    low, high = _bounds(target)
    kind = array.type
    most = 10 ** (kind.precision - kind.scale) - 1
    bad = _outside(array, Decimal(max(low, -most)), Decimal(min(high, most)))
    rest = without(array, bad)
    bad = any_of((bad, _with_more_digits(rest, 0)))
    return without(rest, bad).cast(target), bad


def _with_more_digits(array: pa.Array, scale: int) -> Bools | None:
    """Find which decimals have more digits behind the point."""
    kind = array.type
    if scale >= kind.scale:
        return None
    if kind.precision <= kind.scale - scale:  # no digit is left, and Arrow refuses to round
        return _bad(pc.not_equal(array, pa.scalar(Decimal(0), kind)))
    short = pc.round(array, ndigits=scale, round_mode="towards_zero")
    return _bad(pc.not_equal(short, array))


def _to_float(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if source == target:
        return _same
    if pa.types.is_floating(source):
        return _simple(target) if source.bit_width < target.bit_width else _narrow_float
    if pa.types.is_integer(source):
        digits = 53 if pa.types.is_float64(target) else 24
        return lambda array: _integer_to_float(array, target, 2**digits)
    if pa.types.is_decimal(source) and pa.types.is_float64(target):
        return _decimal_to_double
    return None


def _narrow_float(array: pa.Array) -> Cast:
    """Doubles that are 32-bit floats too."""
    numbers = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = numbers.astype(np.float32).astype(np.float64)
    bad: Bools = (wide != numbers) & ~np.isnan(numbers)
    found = bad if bad.any() else None
    return without(array, found).cast(pa.float32(), safe=False), found


def _integer_to_float(array: pa.Array, target: pa.DataType, exact: int) -> Cast:
    """Whole numbers that the floating type has; up to `exact` it has all."""
    low, high = _bounds(array.type)
    bad = _outside(array, max(low, -exact), min(high, exact))
    if bad is not None:
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        floats = numbers.astype(target.to_pandas_dtype()).astype(np.float64)
        within = floats < float(high)
        back = np.where(within, floats, 0).astype(numbers.dtype)
        bad &= ~(within & (back == numbers))
        bad = bad if bad.any() else None
    return without(array, bad).cast(target, safe=False), bad


def _decimal_to_double(array: pa.Array) -> Cast:
    """Decimals that their nearest double, written as short as can be, gives back."""
    values = array.to_pylist()
    numbers = [None if value is None else float(value) for value in values]
    wrong = [
        number is not None and Decimal(repr(number)) != value
        for number, value in zip(numbers, values, strict=True)
    ]
    bad = np.array(wrong, np.bool_) if any(wrong) else None
    return without(pa.array(numbers, pa.float64()), bad), bad


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if pa.types.is_integer(source):
        return lambda array: _integer_to_decimal(array, target)
    if not pa.types.is_decimal(source):
        return None
    # A damaged file can hold numbers of more digits than its own type has.
    whole = min(target.precision - target.scale, source.precision - source.scale)
    # From its digits: arithmetic with decimals, even a minus, rounds to 28 digits.
    limits = [Decimal((sign, (9,) * (whole + source.scale), -source.scale)) for sign in (1, 0)]

    def rule(array: pa.Array) -> Cast:
        bad = _outside(array, *limits)
        rest = without(array, bad)
        longer = _with_more_digits(rest, target.scale)
        bad, rest = any_of((bad, longer)), without(rest, longer)
        return (rest if source == target else rest.cast(target)), bad

    return rule


def _integer_to_decimal(array: pa.Array, target: pa.DataType) -> Cast:
    low, high = _bounds(array.type)
    most = 10 ** (target.precision - target.scale) - 1
    bad = _outside(array, max(low, -most), min(high, most))
    whole = without(array, bad).cast(pa.decimal128(20, 0))
    return whole.cast(target), bad


# Texts and bytes ---------------------------------------------------------------------------


def _to_string(source: pa.DataType, target: pa.DataType) -> Rule | None:
    """Strings, and bytes that are UTF-8: old writers do not mark their strings (as in Spark)."""
    if not (is_text(source) or is_bytes(source)) or pa.types.is_fixed_size_binary(source):
        return None

    def rule(array: pa.Array) -> Cast:
        raw = array.cast(pa.binary())
        try:
            return raw.cast(target), None  # checks the encoding
        except pa.ArrowInvalid:
            bad = np.array(
                [each is not None and not is_utf8(each) for each in raw.to_pylist()], np.bool_
            )
            return without(raw, bad).cast(target), bad

    return rule


def _to_binary(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if source == target:
        return _same
    if is_text(source) or is_bytes(source):
        return _simple(target)
    return None


# Dates and times ---------------------------------------------------------------------------


def _to_date(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if source == target:
        return _same
    return _whole_days if pa.types.is_date64(source) else None


def _whole_days(array: pa.Array) -> Cast:
    numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days = numbers // (_DAY_MICROS // 1000)
    bad: Bools = (days * (_DAY_MICROS // 1000) != numbers) | (np.abs(days) >= 2**31)
    found = bad if bad.any() else None
    whole = pa.array(np.where(bad, 0, days).astype(np.int32), mask=_nulls(array, found))
    return whole.view(pa.date32()), found


def _to_timestamp(source: pa.DataType, target: pa.DataType) -> Rule | None:
    """Timestamps; a date is its midnight. What has no zone is UTC where the column has one."""
    if pa.types.is_date(source):
        return lambda array: _date_to_timestamp(array, target)
    if not pa.types.is_timestamp(source) or (source.tz is not None and target.tz is None):
        return None
    if source.unit == "us":
        return lambda array: (array.view(target), None)
    if source.unit == "ns":
        return lambda array: _whole_micros(array, target)
    factor = _PER_MICRO[source.unit]
    return lambda array: _times(array.view(pa.int64()), factor, target)


def _times(numbers: pa.Array, factor: int, target: pa.DataType) -> Cast:
    """Whole numbers of a larger unit."""
    limit = (2**63 - 1) // factor
    bad = _outside(numbers, -limit, limit)
    return pc.multiply(without(numbers, bad), pa.scalar(factor, pa.int64())).view(target), bad


def _date_to_timestamp(array: pa.Array, target: pa.DataType) -> Cast:
    days, bad = (array, None) if pa.types.is_date32(array.type) else _whole_days(array)
    found, beyond = _times(days.view(pa.int32()).cast(pa.int64()), _DAY_MICROS, target)
    return found, any_of((bad, beyond))


def _whole_micros(array: pa.Array, target: pa.DataType) -> Cast:
    """Nanoseconds without a fraction of a microsecond."""
    numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    micros = numbers // 1000
    bad: Bools = micros * 1000 != numbers
    found = bad if bad.any() else None
    return pa.array(micros, mask=_nulls(array, found)).view(target), found


def _nulls(array: pa.Array, bad: Bools | None) -> Bools | None:
    """Find where the result is null."""
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return any_of((null, bad))


_TARGETS: Final[
    tuple[
        tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Rule | None]],
        ...,
    ]
] = (
    (pa.types.is_string, _to_string),
    (pa.types.is_integer, _to_integer),
    (pa.types.is_floating, _to_float),
    (pa.types.is_decimal, _to_decimal),
    (pa.types.is_boolean, lambda source, _: _same if pa.types.is_boolean(source) else None),
    (pa.types.is_date, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (pa.types.is_binary, _to_binary),
)
