"""The conversion of the text of a partition value to the type of its column.

What Spark makes of the text after `key=` in a path (`PartitioningUtils.castPartValueToDesiredType`,
Spark 4.3): dates and timestamps as its CAST takes them, decimals rounded half up, numbers as Java
parses them. A value that Spark would turn into another one (an overflow that wraps round in a
`TINYINT`, or is NULL in a `DECIMAL`) does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import DecimalType

from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars.strings import (
    MISFIT,
    Convert,
    or_misfit,
    to_boolean,
    to_decimal,
    to_floating,
    to_integer,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class PartitionConverters:
    """The conversions of the values of paths.

    Args:
        time_zone: `timeZone`: of timestamps that name none; `None` is UTC.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text of which Spark would drop something does not fit.

    Raises:
        OptionError: There is no such time zone.
    """

    def __init__(
        self, time_zone: str | None = None, numbers: NumberRule = SPARK, *, exact: bool = False
    ) -> None:
        self._numbers, self._exact = numbers, exact
        self._times = TimePatterns(time_zone=time_zone, exact=exact)

    def scalar(self, text: str, kind: pa.DataType) -> pa.Scalar | None:
        """Give the value of a text in the type of a column; `None` where it does not fit."""
        found = self._to(kind)(text)
        return None if found is MISFIT else pa.array([found], kind)[0]

    def _to(self, kind: pa.DataType) -> Convert:
        if pa.types.is_integer(kind):
            return to_integer(kind.bit_width)
        if pa.types.is_decimal(kind):
            return to_decimal(DecimalType(kind.precision, kind.scale), exact=self._exact)
        if pa.types.is_floating(kind):
            return to_floating(self._numbers, is_float=kind == pa.float32(), exact=self._exact)
        if pa.types.is_date(kind):
            return or_misfit(self._times.date_days)
        if pa.types.is_timestamp(kind):
            return or_misfit(self._moment(kind))
        return _OTHERS.get(kind, _to_nothing)

    def _moment(self, kind: pa.DataType) -> Callable[[str], int | None]:
        if kind.tz is not None:
            return self._times.timestamp_micros
        # Spark's CAST passes over a zone here.
        exact = self._exact
        return lambda text: default_format.local_micros(text, exact=exact, drops_zone=not exact)


def _to_nothing(_text: str) -> object:
    return MISFIT


_OTHERS: Final[dict[pa.DataType, Convert]] = {
    pa.bool_(): to_boolean,
    pa.binary(): str.encode,
    pa.string(): str,
}
