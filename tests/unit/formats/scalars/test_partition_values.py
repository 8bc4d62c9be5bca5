"""Values of paths are what Spark 4.3 makes of them, as `test_paths_oracle` asks it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.reading.file_columns import PartitionConverters
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.types import to_arrow

NEW_YORK = "America/New_York"


def _moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def _local(*parts: int) -> datetime:
    return _moment(*parts).replace(tzinfo=None)


def value(text: str, ddl: str, *, exact: bool = False, zone: str | None = NEW_YORK) -> Any:
    """The value of a text in a column; `None` where it does not fit."""
    kind = to_arrow(parse_schema(f"k {ddl}"))[0].type
    found = PartitionConverters(zone, exact=exact).scalar(text, kind)
    assert found is None or found.type == kind
    return None if found is None else found.as_py()


READ = [
    ("BOOLEAN", "true", True),
    ("BOOLEAN", "false", False),
    ("BOOLEAN", "FALSE", False),
    ("INT", "007", 7),
    ("INT", "+5", 5),
    ("INT", "0", 0),
    ("TINYINT", "-128", -128),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("DOUBLE", " 1.5 ", 1.5),
    ("DOUBLE", "1.5d", 1.5),
    ("DOUBLE", "0", 0.0),
    ("DOUBLE", "0x1p3", 8.0),
    ("DOUBLE", "-Infinity", -math.inf),
    ("DECIMAL(10,2)", "1e2", Decimal("100.00")),
    ("DECIMAL(10,2)", "+1", Decimal("1.00")),
    ("DECIMAL(10,2)", "0", Decimal("0.00")),
    ("DATE", "2024-1-5", date(2024, 1, 5)),
    ("DATE", "2024", date(2024, 1, 1)),
    ("DATE", " 2024-01-05 ", date(2024, 1, 5)),
    ("DATE", "0001-01-01", date(1, 1, 1)),
    ("TIMESTAMP", "2024-07-05 10:00:00", _moment(2024, 7, 5, 14)),
    ("TIMESTAMP", "2024-07-05", _moment(2024, 7, 5, 4)),
    ("TIMESTAMP", "2024-7-5", _moment(2024, 7, 5, 4)),
    ("TIMESTAMP", "2024-07-05T10:00:00Z", _moment(2024, 7, 5, 10)),
    ("TIMESTAMP", "2024-07-05T10:00:00+02:00", _moment(2024, 7, 5, 8)),
    ("TIMESTAMP", "2024-07-05 10:00:00 Europe/Berlin", _moment(2024, 7, 5, 8)),
    ("TIMESTAMP_NTZ", "2024-07-05 10:00:00", _local(2024, 7, 5, 10)),
    ("STRING", "", ""),
    ("STRING", "a b", "a b"),
    ("BINARY", "abc", b"abc"),
]
CHANGED = [
    ("DECIMAL(10,2)", "1.005", Decimal("1.01")),
    ("DECIMAL(10,2)", "-0.005", Decimal("-0.01")),
    ("DOUBLE", "1e400", math.inf),
    ("FLOAT", "1e40", math.inf),
    ("DATE", "2024-01-05T10:00:00", date(2024, 1, 5)),
    ("TIMESTAMP", "2024-07-05 10:00:00.1234567", _moment(2024, 7, 5, 14, 0, 0, 123456)),
    ("TIMESTAMP_NTZ", "2024-07-05T10:00:00Z", _local(2024, 7, 5, 10)),
]
REFUSED = [
    ("BOOLEAN", "1"),
    ("BOOLEAN", "t"),
    ("BOOLEAN", " true "),
    ("INT", " 5"),
    ("INT", "1.0"),
    ("INT", "3000000000"),
    ("INT", "_1"),
    ("INT", ""),
    ("DECIMAL(10,2)", " 1.5 "),
    ("DECIMAL(10,2)", "1,5"),
    ("DOUBLE", "inf"),
    ("DOUBLE", "x"),
    ("DATE", "20240105"),
    ("DATE", "2024-02-30"),
    ("TIMESTAMP", "1720173600"),
    ("TIMESTAMP", "2024-07-05T10-00-00"),
    ("TIMESTAMP_NTZ", "x"),
]
BEYOND = [("TINYINT", "200"), ("SMALLINT", "40000"), ("DECIMAL(10,2)", "123456789012")]
"""Spark lets them wrap round, or makes them NULL without a word."""


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("ddl", "text", "expected"), READ)
def test_a_text_is_read_as_spark_reads_it(
    ddl: str, text: str, expected: Any, *, exact: bool
) -> None:
    found = value(text, ddl, exact=exact)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(("ddl", "text", "expected"), CHANGED)
def test_what_spark_changes_is_its_value_where_nothing_rescues_it(
    ddl: str, text: str, expected: Any
) -> None:
    given = PartitionConverters(NEW_YORK, NumberRule(infinite=True))
    kind = to_arrow(parse_schema(f"k {ddl}"))[0].type
    found = given.scalar(text, kind)
    assert found is not None
    assert found.as_py() == expected
    assert value(text, ddl, exact=True) is None


@pytest.mark.parametrize(("ddl", "text"), REFUSED + BEYOND)
@pytest.mark.parametrize("exact", [False, True])
def test_what_is_no_value_of_the_type_does_not_fit(ddl: str, text: str, *, exact: bool) -> None:
    assert value(text, ddl, exact=exact) is None


def test_a_timestamp_without_a_zone_is_in_utc_where_no_option_names_one() -> None:
    assert value("2024-07-05 10:00:00", "TIMESTAMP", zone=None) == _moment(2024, 7, 5, 10)


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OptionError, match="timeZone='Mars' is no time zone"):
        PartitionConverters("Mars")
