"""Read dates and times by the patterns of the options.

`dateFormat`, `timestampFormat` and `timestampNTZFormat` with `timeZone` and `locale`, for every
format whose values are strings. Without a pattern, what Spark's CAST takes (`default_format`).

Spark's meaning, except where it would lose something that can be rescued: a date whose pattern has
a time of day or a zone fits only at midnight UTC; a fraction finer than a microsecond does not fit.
"""

from __future__ import annotations

from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    ENGLISH,
    Locale,
    find_locale,
    find_zone,
    offset_of,
)
from airflow_cloudfiles.engine.formats.datetimes.java import (
    Pattern,
    PatternError,
    day_of,
    moment_of,
    offset_of_text,
)
from airflow_cloudfiles.engine.formats.datetimes.layouts import DateLayouts

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bools
    from airflow_cloudfiles.engine.options.formats.base import StringValueOptions

_DATE: Final = "yyyy-MM-dd"
_TIMESTAMP: Final = (
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS][XXX]",
    "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS][XXX]",
)
_LOCAL: Final = ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]")
"""What is cast at once of what Spark's CAST takes."""
_MICROS: Final = 1_000_000
_DAY_MICROS: Final = 86_400 * _MICROS
_layouts: Final = lru_cache(maxsize=64)(DateLayouts)
"""Made when they are needed: many readers meet no dates."""


class TimePatterns:
    """The date and time patterns of one reader; immutable.

    Args:
        date: `dateFormat`; `None` for Spark's default.
        timestamp: `timestampFormat`, likewise.
        timestamp_ntz: `timestampNTZFormat`, likewise; its names are always English, as in Spark.
        time_zone: `timeZone`: of timestamps that name none; `None` is UTC.
        locale: `locale`: language of names; `None` is `en-US`.
        exact: Whether a text of which Spark would drop something does not fit.

    Raises:
        OptionError: A pattern Spark refuses, or an unknown zone or locale; names the option.
    """

    def __init__(  # noqa: PLR0913 - an option each
        self,
        *,
        date: str | None = None,
        timestamp: str | None = None,
        timestamp_ntz: str | None = None,
        time_zone: str | None = None,
        locale: str | None = None,
        exact: bool = True,
    ) -> None:
        self._exact = exact
        language = ENGLISH if locale is None else find_locale(locale)
        zone = UTC if time_zone is None else find_zone(time_zone.strip())
        if zone is None:
            raise OptionError(
                f"timeZone={time_zone!r} is no time zone. Give a name such as Europe/Paris, or an "
                "offset such as +05:30."
            )
        self._zone = zone
        self.locale = language
        self._date = _compiled("dateFormat", date, language)
        self._timestamp = _compiled("timestampFormat", timestamp, language)
        self._local = _compiled("timestampNTZFormat", timestamp_ntz, ENGLISH)
        self._of_dates = (_DATE,) if date is None else (date,)
        self._of_timestamps = _TIMESTAMP if timestamp is None else (timestamp,)
        self._of_local = _LOCAL if timestamp_ntz is None else (timestamp_ntz,)

    @classmethod
    def of(
        cls, options: StringValueOptions, *, default_date: str | None = None, exact: bool = True
    ) -> Self:
        """Collect the patterns that options name.

        Args:
            options: Of the format.
            default_date: The pattern of dates without `dateFormat`; `None` for Spark's default.
            exact: Whether a text of which Spark would drop something does not fit.

        Raises:
            OptionError: As of the class.
        """
        date = options.date_format
        if default_date is not None:
            date = date or default_date
        return cls(
            date=date,
            timestamp=options.timestamp_format,
            timestamp_ntz=options.timestamp_ntz_format,
            time_zone=options.time_zone,
            locale=options.locale,
            exact=exact,
        )

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
