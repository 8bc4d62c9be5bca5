"""Tell which calendar the dates of a Parquet, Avro or ORC file follow.

Parquet counts days in the calendar we use today, extended into the past. Spark before 3.0 and Hive
counted in the calendar that was in use then: Julian before 1582-10-15. Spark 3 and later write
down what they did. So, as in Spark (`DataSourceUtils.datetimeRebaseSpec`):

1. A file that names a Spark before 3.0 (3.1 for INT96), or says that it was written in `LEGACY`
   mode, follows the old calendar: its dates are converted, so that they read as they were written.
2. A file of a later Spark follows today's.
3. For any other file `datetimeRebaseMode` and `int96RebaseMode` decide.

ORC has its own rule (`orc.writer`).

In zones other than UTC the old calendar went with other offsets, too, until 1900. Timestamps of
such files before 1900 are refused, rather than read some minutes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.types import is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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

    @classmethod
    def hybrid(cls) -> Calendar:
        """Build the calendar that is Julian before 1582-10-15, in UTC."""
        return cls("LEGACY", "LEGACY", "UTC")

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
