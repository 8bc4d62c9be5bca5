"""What is the value of a partition column?

It is in the log, as a string that Delta's protocol has a form for, and not in the data file. An
empty string is null in every type.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

_DATE: Final = re.compile(r"[+]?(-?\d{4,})-(\d\d)-(\d\d)")
_TIME: Final = re.compile(
    r"[+]?(-?\d{4,}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
_TRUTH: Final = {"true": True, "false": False}


def parse_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column, typed.

    A timestamp without an offset is in UTC.

    Args:
        text: As the log has it.
        kind: The type of the column in Arrow.

    Raises:
        ValueError: It is no value of that type.
    """
    if text is None or not text:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_date(kind):
            return _date(text, kind)
        if pa.types.is_timestamp(kind):
            return _timestamp(text, kind)
        return pa.scalar(_plain(text, kind), kind)
    except (KeyError, InvalidOperation, pa.ArrowException, OverflowError) as error:
        raise ValueError(str(error)) from error


def _plain(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    if pa.types.is_boolean(kind):
        return _TRUTH[text.lower()]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    raise ValueError(f"the type {kind} is not one of partition columns")


def _date(text: str, kind: pa.DataType) -> pa.Scalar:
    """A date of any year, of which Python's own have four digits."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("it is not written yyyy-MM-dd")
    days = np.datetime64("-".join(found.groups()), "D").astype(np.int64)
    return pa.scalar(int(days), pa.int32()).cast(kind)


def _timestamp(text: str, kind: pa.DataType) -> pa.Scalar:
    found = _TIME.fullmatch(text)
    if found is None:
        date = _date(text, pa.date32())
        return date.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    day, time, fraction, offset = found.groups()
    moment = np.datetime64(f"{day}T{time}", "s").astype(np.int64) - _offset_seconds(offset)
    micros = int(moment) * 10**6 + int((fraction or "0")[:6].ljust(6, "0"))
    return pa.scalar(micros, pa.int64()).cast(kind)


def _offset_seconds(offset: str | None) -> int:
    if offset is None or offset == "Z":
        return 0
    moment = datetime.strptime(f"1970-01-02 {offset}", "%Y-%m-%d %z")
    return 86400 - int(moment.astimezone(UTC).timestamp())
