"""How are the value of a partition column, and the folder of its files, written?

The value is a string in the table's log, in the form that Delta's protocol has for its type; an
empty string is null. The folder is only a name, which no reader takes apart: Hive's `column=value`,
as Delta and Spark have it, in a length that file systems take.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
    Spark's `ExternalCatalogUtils.escapePathName`
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
)

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.shortened import cut

NULL_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in the name of a folder."""
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_LONGEST: Final = 120
"""Bytes of a value in the name of a folder; names end at 255 on most file systems."""
_NOT_PARTITIONS: Final = (ArrayType, MapType, StructType, VariantType, NullType)
_MICROS: Final = 10**6
_DAY: Final = 86400
_LAST_YEAR: Final = 9999


def can_partition(kind: DataType) -> bool:
    """Whether a table can be partitioned by columns of a type."""
    return not isinstance(kind, _NOT_PARTITIONS)


def value_text(value: pa.Scalar, column: str, target: str) -> str | None:
    """A value as the log has it; `None` is null.

    Args:
        value: In the table's type.
        column: Its column, for errors.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: Binary data that is no text, which the log cannot hold.
    """
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_date(kind):
        return _date(value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).as_py()
        return _timestamp(micros, is_local=kind.tz is None)
    if pa.types.is_binary(kind):
        try:
            return value.as_py().decode() or None
        except UnicodeDecodeError as error:
            raise SchemaMismatchError(
                f"{target} is partitioned by {column}, whose value {cut(repr(value.as_py()))} is "
                "no UTF-8 text, and Delta's log has partition values as text. Partition by another "
                "column."
            ) from error
    return _plain(value.as_py()) or None


def folder_name(names: Iterable[str], values: Iterable[str | None]) -> str:
    """The folder of the files of one partition, below the table's; with a slash at its end."""
    parts = (
        f"{_escaped(name)}={NULL_NAME if value is None else _escaped(value)}/"
        for name, value in zip(names, values, strict=True)
    )
    return "".join(parts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _date(days: int) -> str:
    """A date of any year; those beyond 9999 have a sign, as in Java."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    number = int(year)
    sign = "-" if number < 0 else "+" if number > _LAST_YEAR else ""
    return f"{sign}{abs(number):04}-{month}-{day}"


def _timestamp(micros: int, *, is_local: bool) -> str:
    """A point in time in UTC, or a local one without a zone, to the microsecond."""
    seconds, fraction = divmod(micros, _MICROS)
    days, second = divmod(seconds, _DAY)
    time = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{fraction:06}"
    return f"{_date(days)} {time}" if is_local else f"{_date(days)}T{time}Z"


def _escaped(text: str) -> str:
    """A text as Hive has it in the name of a folder; a long one is cut, and ends in its hash."""
    found = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)
    encoded = found.encode()
    if len(encoded) <= _LONGEST:
        return found
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 20].decode(errors='ignore').rstrip('%')}-{digest}"
