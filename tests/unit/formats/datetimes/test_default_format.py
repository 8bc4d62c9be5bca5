"""Texts of dates and timestamps; Spark itself is asked in `spark/oracle/test_json_oracle.py`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    date_days,
    local_micros,
    timestamp_micros,
)

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YEAR = (datetime(2024, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2024", 0), ("2024-1", 0), (" 2024-01-01\t", 0), ("2024-01-01 1", 1),
        ("2024-1-1T1:0", 1), ("2024-01-01 01:00:00", 1), ("2024-01-01T00:00:00Z", 0),
        ("2024-01-01T01:00:00+01:00", 0), ("2024-01-01T01:00:00+1:0", 0),
        ("2024-01-01T01:00:00+0100", 0), ("2024-01-01T01:00:00 UTC+1", 0),
        ("2024-01-01T01:00:00 Europe/Paris", 0), ("2024-01-01T00:00:00PST", 8),
        ("2024-01-01T00:00:00.000GMT-02:00", 2),
    ],
)  # fmt: skip
def test_a_timestamp_is_a_moment(text, hours):
    assert timestamp_micros(text) == NEW_YEAR + hours * HOUR


@pytest.mark.parametrize(
    "text",
    ["", "x", "24", "2024-13", "2024-02-30", "2024-01-01T", "2024-01-01T24", "2024-01-01T1:60",
     "2024-01-01T01:00Z", "2024-01-01T00:00:00+19:00", "2024-01-01T00:00:00 Mars/Olympus",
     "2024-01-01t00:00:00", "999999-01-01", "12:30:00", "T12:30", "2024-01-01T00:00:00+00:00:99",
     "٢٠٢٤-01-01"],
)  # fmt: skip
def test_what_is_no_moment_fits_no_timestamp(text):
    assert timestamp_micros(text) is None


def test_a_fraction_finer_than_a_microsecond_fits_no_timestamp():
    assert timestamp_micros("2024-01-01T00:00:00.5Z") == NEW_YEAR + 500_000
    assert timestamp_micros("2024-01-01T00:00:00.0000010000Z") == NEW_YEAR + 1
    assert local_micros("2024-01-01T00:00:00.000000000000") == NEW_YEAR
    assert timestamp_micros("2024-01-01T00:00:00.0000019Z") is None
    assert timestamp_micros("2024-01-01T00:00:00.123456789GMT+1") is None
    assert local_micros("2024-01-01T00:00:00.0000000000001") is None


def test_a_local_timestamp_has_no_zone():
    assert local_micros("2024-01-01T01:00:00") == NEW_YEAR + HOUR
    assert local_micros("2024-01-01T01:00:00Z") is None


@pytest.mark.parametrize("text", ["2024-1-1", "2024", "2024-01-01T00:00:00.000Z", "2024-01-01 "])
def test_a_date_is_a_day(text):
    assert date_days(text) == (date(2024, 1, 1) - date(1970, 1, 1)).days


@pytest.mark.parametrize("text", ["2024-01-01T12:30:00", "2024-01-01 x", "19723456", "5", "", "x"])
def test_a_date_is_not_cut_out_of_something_else(text):
    assert date_days(text) is None


@pytest.mark.parametrize(("text", "days"), [("0001-01-01", -719_162), ("-0001-01-01", -719_893),
                                            ("12345-06-07", 3_789_548)])  # fmt: skip
def test_years_beyond_python_s_own_are_counted(text, days):
    assert date_days(text) == days
