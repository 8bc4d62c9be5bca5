"""Read dates and times by the patterns of the options, one by one and many at once.

`dateFormat`, `timestampFormat` and `timestampNTZFormat` with `timeZone` and `locale`, for every
format whose values are strings. Without a pattern, what Spark's CAST takes (`default_format`).

Spark's meaning, except where it would lose something that can be rescued: a date whose pattern has
a time of day or a zone fits only at midnight UTC; a fraction finer than a microsecond does not fit.

Strings of a common shape are read all at once. A pattern is laid out: each section there or not,
each field as wide as it can be, so that every character has its place. Texts of one length are a
table of characters; those that match exactly one layout of that length are read with arithmetic on
its columns. All others are left to be parsed one by one, as are patterns that do not lay out well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.base import Bools, Bytes, Int64s
from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    ENGLISH,
    Locale,
    find_locale,
    find_zone,
    offset_of,
)
from airflow_cloudfiles.engine.formats.datetimes.java import (
    Letters,
    Literal,
    Pattern,
    PatternError,
    Section,
    day_of,
    moment_of,
    offset_of_text,
    split_pattern,
)
from airflow_cloudfiles.engine.options.formats.base import StringValueOptions

# ruff: noqa: PLR2004 - the calendar, the clock, and the widths of their fields


_MOST_LAYOUTS: Final = 60
_MOST_TEXTS: Final = 1 << 16
"""Texts read at a time: their tables fit the processor's cache."""
_ZERO: Final = ord("0")
_UTC: Final = "Z"
_BORDER: Final = Literal("")
"""Between the parts of different sections: numbers do not share their digits across it."""
_DAY_MICROS: Final = 86_400_000_000
_QUARTER_MICROS: Final = 900_000_000
_OFFSETS: Final = {("X", 2): "hhmm", ("X", 3): "hh:mm", ("x", 2): "hhmm", ("x", 3): "hh:mm",
    ("Z", 1): "hhmm", ("Z", 2): "hhmm", ("Z", 3): "hhmm"}  # fmt: skip


@dataclass(slots=True)
class _Layout:
    """One way to write a text: what stands at which place."""

    length: int = 0
    literals: list[tuple[int, str]] = field(default_factory=list)
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    months: int | None = None
    halves: int | None = None
    sign: int | None = None
    has_zone: bool = False

    def literal(self, text: str) -> bool:
        self.literals += [(self.length + index, each) for index, each in enumerate(text)]
        self.length += len(text)
        return text.isascii()

    def number(self, name: str, width: int) -> bool:
        is_new = name not in self.numbers
        self.numbers[name] = (self.length, width)
        self.length += width
        return is_new


class DateLayouts:
    """The layouts of patterns, any of which a text may have."""

    def __init__(self, patterns: tuple[str, ...], locale: Locale) -> None:
        self._by_length: dict[int, list[_Layout]] = {}
        self._short_months = _packed(locale.short_months)
        self._halves = [half.upper().encode() for half in locale.halves]
        found = [each for pattern in patterns for each in self._of(pattern)]
        if len(found) <= _MOST_LAYOUTS:
            for each in found:
                self._by_length.setdefault(each.length, []).append(each)

    def days(self, array: pa.StringArray) -> tuple[Int64s, Bools]:
        """Days since 1970-01-01 of the strings that have a layout, and which these are."""
        is_timed = any(
            each.has_zone or each.numbers.keys() - {"y", "M", "d"} or each.halves is not None
            for layouts in self._by_length.values()
            for each in layouts
        )
        return self._read(array, None, dates=True, skip=is_timed)

    def micros(self, array: pa.StringArray, zone: tzinfo | None) -> tuple[Int64s, Bools]:
        """Microseconds since 1970-01-01 of the strings that have a layout, and which these are.

        Args:
            array: Texts and nulls.
            zone: Of strings that name none; `None` when none must be named.
        """
        return self._read(array, zone, dates=False, skip=False)

    def _read(
        self, array: pa.StringArray, zone: tzinfo | None, *, dates: bool, skip: bool
    ) -> tuple[Int64s, Bools]:
        numbers = np.zeros(len(array), np.int64)
        known = np.zeros(len(array), np.bool_)
        if skip or not self._by_length or not len(array):
            return numbers, known
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        lengths = np.diff(offsets)
        there = array.is_valid().to_numpy(zero_copy_only=False)
        for length, layouts in self._by_length.items():
            rows = np.flatnonzero((lengths == length) & there)
            for begin in range(0, len(rows), _MOST_TEXTS):
                some = rows[begin : begin + _MOST_TEXTS]
                table = data[offsets[some][:, None] + np.arange(length)]
                numbers[some], known[some] = self._read_table(layouts, table, zone, dates=dates)
        return numbers, known

    def _read_table(
        self, layouts: list[_Layout], table: Bytes, zone: tzinfo | None, *, dates: bool
    ) -> tuple[Int64s, Bools]:
        """Read strings of one length; one that two layouts match is left alone."""
        numbers = np.zeros(len(table), np.int64)
        matches = np.zeros(len(table), np.int8)
        for layout in layouts:
            if layout.has_zone and zone is None:
                continue
            taken, values = self._match(layout, table, zone, dates=dates)
            numbers[taken] = values[taken]
            matches += taken
        return numbers, matches == 1

    def _match(
        self, layout: _Layout, table: Bytes, zone: tzinfo | None, *, dates: bool
    ) -> tuple[Bools, Int64s]:
        """Find which strings have a layout, and what they say."""
        fits = np.ones(len(table), np.bool_)
        for place, character in layout.literals:
            fits &= table[:, place] == ord(character)
        parts = {"M": np.ones(1, np.int64), "d": np.ones(1, np.int64)}
        for name, (place, width) in layout.numbers.items():
            parts[name], digits = _number(table[:, place : place + width])
            fits &= digits
        if layout.months is not None:
            place = layout.months
            text = table[:, place : place + 3] | 0x20
            parts["M"] = self._month(text)
        if layout.halves is not None:
            place = layout.halves
            text = table[:, place : place + 2] & 0xDF
            is_pm = (text == list(self._halves[1])).all(axis=1)
            fits &= is_pm | (text == list(self._halves[0])).all(axis=1)
            parts["a"] = is_pm.astype(np.int64)
        days, is_day = _days(parts)
        if dates:
            return fits & is_day, days
        clock, is_clock = _clock(layout, parts)
        micros, is_whole = _fraction(layout, parts)
        local = days * _DAY_MICROS + clock * 1_000_000 + micros
        fits &= is_day & is_clock & is_whole
        away, is_zone = _offsets(layout, parts, table, local, fits, zone)
        return fits & is_zone, local - away

    def _month(self, text: np.ndarray[Any, Any]) -> Int64s:
        codes = text[:, 0].astype(np.int64) << 16 | text[:, 1].astype(np.int64) << 8 | text[:, 2]
        names = np.array(sorted(self._short_months), np.int64)
        order = np.array([self._short_months[code] for code in sorted(self._short_months)])
        places = np.minimum(np.searchsorted(names, codes), len(names) - 1)
        found: Int64s = np.where(names[places] == codes, order[places], 0)
        return found

    # Laying out --------------------------------------------------------------------------

    def _of(self, pattern: str) -> list[_Layout]:
        try:
            flat = _flat(split_pattern(pattern))
        except PatternError:
            return []
        laid_out = []
        for parts in flat:
            choices = list(map(self._choices, parts))
            if not all(choices) or not _stand_apart(parts):
                return []
            for chosen in product(*choices):
                layout = _Layout()
                if not all(
                    self._lay(layout, part, width)
                    for part, width in zip(parts, chosen, strict=True)
                ):
                    return []
                laid_out.append(layout)
                if len(laid_out) > _MOST_LAYOUTS:
                    return []
        return laid_out

    def _choices(self, part: Letters | Literal) -> list[object]:
        """List the widths, or forms, that a part may have; none when it cannot be laid out."""
        if isinstance(part, Literal):
            return [len(part.text)]
        letter, count = part.letter, part.count
        if letter in "XxZ":
            form = _OFFSETS.get((letter, count))
            forms: list[object] = [_UTC, form]
            choices = [] if form is None else forms[letter != "X" :]
        elif letter == "S":
            choices = list(range(1, count + 1))
        elif letter == "a":
            choices = [2] if {2} == {len(half) for half in self._halves} else []
        elif letter in "ML" and count > 2:
            choices = [3] if count == 3 and self._short_months else []
        elif letter == "y":
            choices = [4] if count == 4 else []
        else:
            choices = ([1, 2] if count == 1 else [2]) if letter in "MdHhms" else []
        return choices

    @staticmethod
    def _lay(layout: _Layout, part: Letters | Literal, width: object) -> bool:
        """Append a part; whether that goes."""
        if isinstance(part, Literal):
            return layout.literal(part.text)
        if part.letter in "XxZ":
            layout.has_zone = True
            if width == _UTC:
                return layout.literal("Z")
            layout.sign = layout.length
            layout.length += 1
            return (
                layout.number("zh", 2)
                and (width == "hhmm" or layout.literal(":"))
                and layout.number("zm", 2)
            )
        if part.letter == "a":
            layout.halves, layout.length = layout.length, layout.length + 2
            return True
        if part.letter in "ML" and part.count == 3:
            layout.months, layout.length = layout.length, layout.length + 3
            return "M" not in layout.numbers
        return layout.number(part.letter, int(str(width)))


def _flat(section: Section) -> list[list[Letters | Literal]]:
    """List the sequences of parts that a section stands for, with and without its inner ones."""
    found: list[list[Letters | Literal]] = [[]]
    for part in section.parts:
        if isinstance(part, Section):
            inner = [[_BORDER, *each, _BORDER] for each in _flat(part)]
            found = [[*before, *after] for before in found for after in [[], *inner]]
        else:
            found = [[*before, part] for before in found]
        if len(found) > _MOST_LAYOUTS:
            raise PatternError("too many sections")
    return found


def _stand_apart(parts: list[Letters | Literal]) -> bool:
    """Tell whether every field of varying width is followed by something that is not a digit.

    A number with a fraction right after it does vary: it would take the digits of the fraction.
    """
    for index, part in enumerate(parts):
        if isinstance(part, Literal) or _is_word(part):
            continue
        rest = [each for each in parts[index + 1 :] if each != _BORDER]
        after = rest[0] if rest else Literal(" ")
        at_border = parts[index + 1 : index + 2] == [_BORDER]
        before_fraction = isinstance(after, Letters) and after.letter == "S"
        varies = part.letter == "S" or part.count == 1 or (part.letter == "y" and at_border)
        if not varies and not before_fraction:
            continue
        if after.text[:1].isdigit() if isinstance(after, Literal) else not _is_word(after):
            return False
    return True


def _is_word(letters: Letters) -> bool:
    """Tell whether a field does not begin with a digit."""
    return letters.letter in "XxZa" or (letters.letter in "ML" and letters.count > 2)


def _packed(months: dict[str, int]) -> dict[int, int]:
    """Three-letter names as numbers; none when they are of any other kind."""
    if not all(len(name) == 3 and name.isascii() and name.isalpha() for name in months):
        return {}
    return {int.from_bytes(name.encode(), "big"): number for name, number in months.items()}


def _number(digits: Bytes) -> tuple[Int64s, Bools]:
    """Read the number in some columns, and find where these are digits."""
    values = digits - np.uint8(_ZERO)
    total = np.zeros(len(digits), np.int64)
    for column in range(digits.shape[1]):
        total = total * 10 + values[:, column]
    digits_only: Bools = np.asarray((values <= 9).all(axis=1), np.bool_)
    return total, digits_only


def _days(parts: dict[str, Int64s]) -> tuple[Int64s, Bools]:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, and where there is such a day."""
    year = parts.get("y", np.full(1, 1970, np.int64))
    month, day = parts["M"], parts["d"]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
    is_month: Bools = (month >= 1) & (month <= 12)
    safe = np.where(is_month, month, 1)
    longest = lengths[safe] + (leap & (safe == 2))
    # Years that begin in March, so that a leap day comes last.
    shifted = year - (safe <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (safe + np.where(safe > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: Int64s = era * 146_097 + day_of_era - 719_468
    is_day: Bools = np.logical_and(is_month, (day >= 1) & (day <= longest))
    return days, is_day


def _clock(layout: _Layout, parts: dict[str, Int64s]) -> tuple[Int64s, Bools]:
    """Seconds of the day, and where there is such a time."""
    none = np.zeros(1, np.int64)
    minute, second = parts.get("m", none), parts.get("s", none)
    fits: Bools = (minute <= 59) & (second <= 59)
    if "H" in parts:
        hour = parts["H"]
        fits = fits & (hour <= 23)
        if "h" in parts or layout.halves is not None:
            fits = np.zeros(1, np.bool_)  # two clocks: whether they agree is found one by one
    else:
        twelve = parts.get("h", np.full(1, 12, np.int64))
        fits = fits & (twelve >= 1) & (twelve <= 12)
        hour = twelve % 12 + 12 * parts.get("a", none)
    return (hour * 60 + minute) * 60 + second, fits


def _fraction(layout: _Layout, parts: dict[str, Int64s]) -> tuple[Int64s, Bools]:
    """Microseconds, and where nothing finer is left."""
    if "S" not in parts:
        return np.zeros(1, np.int64), np.ones(1, np.bool_)
    width = layout.numbers["S"][1]
    nanos = parts["S"] * 10 ** (9 - width)
    micros: Int64s = nanos // 1000
    return micros, micros * 1000 == nanos


def _offsets(  # noqa: PLR0913, PLR0917 - the parts of one moment
    layout: _Layout,
    parts: dict[str, Int64s],
    table: Bytes,
    local: Int64s,
    fits: Bools,
    zone: tzinfo | None,
) -> tuple[Int64s, Bools]:
    """Microseconds that local times are ahead of UTC, and where that is known."""
    if layout.sign is not None:
        sign = table[:, layout.sign]
        seconds = parts["zh"] * 3600 + parts["zm"] * 60
        is_zone = ((sign == ord("+")) | (sign == ord("-"))) & (seconds <= 18 * 3600)
        away = np.where(sign == ord("-"), -seconds, seconds) * 1_000_000
        return away, is_zone & (parts["zm"] <= 59)
    if layout.has_zone or zone is None or zone is UTC:
        return np.zeros(1, np.int64), np.ones(1, np.bool_)
    ahead = _seconds_ahead(zone, np.broadcast_to(np.where(fits, local, 0), fits.shape))
    return ahead * 1_000_000, np.ones(1, np.bool_)


def _seconds_ahead(zone: tzinfo, local: Int64s) -> Int64s:
    """Find how far local times are ahead of UTC; clocks change at quarters of an hour only."""
    ahead = np.zeros(len(local), np.int64)
    days, places = np.unique(local // _DAY_MICROS, return_inverse=True)
    begins = [offset_of(zone, int(day) * _DAY_MICROS) for day in days.tolist()]
    ends = [offset_of(zone, (int(day) + 1) * _DAY_MICROS - 1) for day in days.tolist()]
    ahead[:] = np.array(begins, np.int64)[places]
    changing = np.flatnonzero((np.array(begins) != np.array(ends))[places])
    quarters, places = np.unique(local[changing] // _QUARTER_MICROS, return_inverse=True)
    found = [offset_of(zone, int(quarter) * _QUARTER_MICROS) for quarter in quarters.tolist()]
    ahead[changing] = np.array(found, np.int64)[places]
    return ahead


_DATE: Final = "yyyy-MM-dd"
_TIMESTAMP: Final = (
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS][XXX]",
    "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS][XXX]",
)
_LOCAL: Final = ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]")
"""What is cast at once of what Spark's CAST takes."""
_MICROS: Final = 1_000_000
_layouts: Final = lru_cache(maxsize=64)(DateLayouts)
"""Made when they are needed: many readers meet no dates."""


class TimePatterns:
    """The date and time patterns of one reader; immutable.

    Args:
        options: The patterns, the zone of timestamps that name none, and the language of names;
            default is Spark's. The names of `timestampNTZFormat` are always English, as in Spark.
        default_date: The pattern of dates without `dateFormat`; `None` for Spark's default.
        exact: Whether a text of which Spark would drop something does not fit.

    Raises:
        OptionError: A pattern Spark refuses, or an unknown zone or locale; names the option.
    """

    def __init__(
        self,
        options: StringValueOptions | None = None,
        *,
        default_date: str | None = None,
        exact: bool = True,
    ) -> None:
        own = options or StringValueOptions()
        zone = UTC if own.time_zone is None else find_zone(own.time_zone.strip())
        if zone is None:
            raise OptionError(
                f"timeZone={own.time_zone!r} is no time zone. Give a name such as Europe/Paris, or "
                "an offset such as +05:30."
            )
        self._exact, self._zone = exact, zone
        self.locale = ENGLISH if own.locale is None else find_locale(own.locale)
        date = default_date if own.date_format is None else own.date_format
        self._date = _compiled("dateFormat", date, self.locale)
        self._timestamp = _compiled("timestampFormat", own.timestamp_format, self.locale)
        self._local = _compiled("timestampNTZFormat", own.timestamp_ntz_format, ENGLISH)
        self._of_dates = (_DATE if date is None else date,)
        self._of_timestamps = (
            _TIMESTAMP if own.timestamp_format is None else (own.timestamp_format,)
        )
        self._of_local = _LOCAL if own.timestamp_ntz_format is None else (own.timestamp_ntz_format,)

    @property
    def are_default(self) -> bool:
        """Whether there is no pattern at all, and the zone is UTC."""
        return (self._date, self._timestamp, self._local, self._zone) == (None, None, None, UTC)

    def date_days(self, text: str) -> int | None:
        """Days since 1970-01-01 of a date text; `None` when it does not fit."""
        if self._date is None:
            return default_format.date_days(text, exact=self._exact)
        fields = self._date.fields(text)
        moment = None if fields is None else moment_of(fields, exact=self._exact)
        if fields is None or moment is None or (self._exact and moment % _DAY_MICROS):
            return None
        if self._exact and "zone" in fields and offset_of_text(str(fields["zone"]), moment) != 0:
            return None
        return day_of(fields)

    def timestamp_micros(self, text: str) -> int | None:
        """Microseconds since the epoch of a timestamp text; `None` when it does not fit."""
        if self._timestamp is None:
            return default_format.timestamp_micros(text, self._zone, exact=self._exact)
        fields = self._timestamp.fields(text)
        local = None if fields is None else moment_of(fields, exact=self._exact)
        if fields is None or local is None:
            return None
        if "zone" in fields:
            offset = offset_of_text(str(fields["zone"]), local)
        else:
            offset = offset_of(self._zone, local)
        return None if offset is None else default_format.in_range(local - offset * _MICROS)

    def local_micros(self, text: str) -> int | None:
        """Microseconds since the epoch of a timestamp text without a zone (`timestamp_ntz`)."""
        if self._local is None:
            return default_format.local_micros(text, exact=self._exact)
        fields = self._local.fields(text)
        if fields is None or "zone" in fields:
            return None
        return moment_of(fields, exact=self._exact)

    def cast(self, array: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray]:
        """Convert strings all at once.

        Args:
            array: Texts and nulls.
            kind: `date32`, `timestamp("us", "UTC")` or `timestamp("us")`.

        Returns:
            The values, NULL where the text is null or does not fit; and a mask, without nulls, that
            is true where it does not fit.
        """
        if pa.types.is_date(kind):
            convert = self.date_days
            numbers, known = _layouts(self._of_dates, self.locale).days(array)
        elif kind.tz is not None:
            convert = self.timestamp_micros
            numbers, known = _layouts(self._of_timestamps, self.locale).micros(array, self._zone)
        else:
            convert = self.local_micros
            numbers, known = _layouts(self._of_local, ENGLISH).micros(array, None)
        there: Bools = array.is_valid().to_numpy(zero_copy_only=False)
        misfits = np.zeros(len(array), np.bool_)
        # The strings that are not known yet are converted, each distinct one once.
        hard = np.flatnonzero(there & ~known)
        if len(hard):
            codes = pc.dictionary_encode(array.take(pa.array(hard)))
            values = [convert(text) for text in codes.dictionary.to_pylist()]
            fitting = np.array([0 if value is None else value for value in values], np.int64)
            lost = np.array([value is None for value in values], np.bool_)
            indices = codes.indices.to_numpy(zero_copy_only=False)
            numbers[hard] = fitting[indices]
            misfits[hard] = lost[indices]
        gone = misfits | ~there
        found = pa.array(numbers, pa.int64(), mask=gone if gone.any() else None)
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return found.cast(whole).cast(kind), pa.array(misfits)


def _compiled(option: str, pattern: str | None, locale: Locale) -> Pattern | None:
    if pattern is None:
        return None
    try:
        return Pattern(pattern, locale)
    except PatternError as error:
        raise OptionError(
            f"{option}={pattern!r} is no pattern that can be parsed: {error}. See "
            "docs/reference/formats/json.md."
        ) from error
