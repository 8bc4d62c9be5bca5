"""Patterns: what is refused, what fits, and that casting at once gives what parsing gives.

What texts mean is compared with Spark in `tests/spark/oracle/test_json_options_oracle.py`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.options.formats.base import StringValueOptions

KINDS = [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")]
SHAPES = [
    "yyyy-MM-dd", "dd.MM.yyyy", "M/d/yyyy", "yyyyMMdd", "dd-MMM-yyyy", "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]", "MM/dd/yyyy hh:mm:ss a", "yyyyMMddHHmmssSSS",
    "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]", "dd/MMM/yyyy:HH:mm:ss Z", "H:m d.M.yyyy",
    "[yyyy-MM-dd][dd.MM.yyyy]", "[MM/dd/yyyy]HH",
]  # fmt: skip


def patterns(pattern: str | None = None, **others: str | None) -> TimePatterns:
    given = dict.fromkeys(("date_format", "timestamp_format", "timestamp_ntz_format"), pattern)
    return TimePatterns(StringValueOptions(**{**given, **others}))  # type: ignore[arg-type]


def micros(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("YYYY-ww", "weeks"), ("EEE dd", "cannot be parsed"), ("yyyy Q", "cannot be parsed"),
        ("yyyyyyy", "wrong number"), ("MMMMM", "wrong number"), ("ddd", "wrong number"),
        ("HHH", "wrong number"), ("V", "wrong number"), ("OO", "wrong number"),
        ("SSSSSSSSSS", "wrong number"), ("XXXXXX", "wrong number"), ("aa", "wrong number"),
        ("yyyy-MM-ddTHH", "has no meaning"), ("jj", "has no meaning"), ("yyyy{", "reserved"),
        ("yyyy#", "reserved"), ("yyyy]", "not open"), ("yyyy 'T", "quote is not closed"),
        ("zzzz", "full names"), ("u", "weeks"),
    ],
)  # fmt: skip
def test_what_spark_refuses_is_refused_with_the_option_and_the_reason(pattern, reason):
    for name, option in (
        ("dateFormat", {"date_format": pattern}),
        ("timestampFormat", {"timestamp_format": pattern}),
        ("timestampNTZFormat", {"timestamp_ntz_format": pattern}),
    ):
        with pytest.raises(OptionError, match=f"^{name}=.*{reason}"):
            patterns(**option)


def test_a_zone_or_locale_that_is_none_is_refused_by_name():
    with pytest.raises(OptionError, match="timeZone='Mars/X' is no time zone"):
        patterns(time_zone="Mars/X")
    with pytest.raises(OptionError, match=r"locale='tlh' is not known here\. Give one of en-US"):
        patterns(locale="tlh")


def test_a_date_that_would_lose_a_time_of_day_does_not_fit():
    found = patterns("yyyy-MM-dd HH:mm[XXX]")
    days = (date(2024, 1, 31) - date(1970, 1, 1)).days
    assert found.date_days("2024-01-31 00:00") == days
    assert found.date_days("2024-01-31 00:00Z") == days
    assert found.date_days("2024-01-31 12:30") is None
    assert found.date_days("2024-01-31 00:00+01:00") is None


def test_the_zone_of_a_text_wins_over_the_option():
    found = patterns("yyyy-MM-dd HH:mm[ VV]", time_zone="Europe/Paris")
    assert found.timestamp_micros("2024-07-01 12:00") == micros(2024, 7, 1, 10)
    assert found.timestamp_micros("2024-07-01 12:00 Asia/Tokyo") == micros(2024, 7, 1, 3)
    assert found.local_micros("2024-07-01 12:00") == micros(2024, 7, 1, 12)
    assert found.local_micros("2024-07-01 12:00 Asia/Tokyo") is None


def test_without_a_pattern_the_zone_holds_for_texts_that_name_none():
    found = patterns(time_zone="America/New_York")
    assert found.timestamp_micros("2024-01-31T12:00") == micros(2024, 1, 31, 17)
    assert found.timestamp_micros("2024-01-31T12:00:00Z") == micros(2024, 1, 31, 12)
    assert not found.are_default
    assert patterns().are_default


@pytest.mark.parametrize(("tag", "text"), [("de", "3. März 2024"), ("fr_FR", "3. mars 2024")])
def test_months_have_the_names_of_the_locale_in_any_case(tag, text):
    found = patterns("d. MMMM yyyy", locale=tag)
    days = (date(2024, 3, 3) - date(1970, 1, 1)).days
    assert found.date_days(text) == found.date_days(text.upper()) == days
    assert found.date_days("3. March 2024") is None


def test_fields_that_contradict_each_other_do_not_fit():
    assert patterns("yyyy-MM-dd D").date_days("2024-02-01 32") is not None
    assert patterns("yyyy-MM-dd D").date_days("2024-02-01 33") is None
    assert patterns("HH:mm a").timestamp_micros("13:00 AM") is None
    assert patterns("yyyy yyyy").date_days("2024 2025") is None


@pytest.mark.parametrize("pattern", [None, "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"])
def test_a_fraction_finer_than_a_microsecond_does_not_fit(pattern):
    found = patterns(pattern)
    texts = [
        f"2024-01-31 12:30:59.{fraction}"
        for fraction in ("1234560", "123456000", "1234567", "123456789", "123456001")
    ]
    fits = micros(2024, 1, 31, 12, 30, 59, 123456)
    for kind in KINDS[1:]:
        values, misfits = found.cast(pa.array(texts), kind)
        assert values.cast(pa.int64()).to_pylist() == [fits, fits, None, None, None]
        assert misfits.to_pylist() == [False, False, True, True, True]


def test_a_date_that_would_lose_nanoseconds_does_not_fit():
    found = patterns("yyyy-MM-dd SSSSSSSSS")
    assert found.date_days("2024-01-31 000000000") is not None
    assert found.date_days("2024-01-31 000000001") is None


SPELLED = [
    "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%Y", "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f+05:30", "%Y-%m-%dT%H:%M:%SZ",
    "%m/%d/%Y %I:%M:%S pm", "%Y%m%d%H%M%S%f", "%d/%b/%Y:%H:%M:%S -0800", "%m/%d/%Y%H",
    "%Y-%m-%d 1:2", "%m-%d", "%Y-%m-%d %H:%M:%S.%f7", "%Y-%m-%dT%H:%M:%S.%f000Z",
]  # fmt: skip
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 - local
TEXTS = st.one_of(
    st.builds(datetime.strftime, MOMENTS, st.sampled_from(SPELLED)),
    st.text("0123456789-/:. TZ+apmJn", max_size=24),
    st.none(),
)


@pytest.mark.law
@pytest.mark.parametrize("pattern", [None, *SHAPES])
@settings(max_examples=40)
@given(texts=st.lists(TEXTS, max_size=30), cut=st.integers(0, 3))
def test_casting_at_once_gives_what_parsing_one_by_one_gives(pattern, texts, cut):
    found = patterns(pattern, time_zone="Europe/Paris")
    array = pa.array(texts, pa.string())[cut:]
    for kind, parse in zip(
        KINDS, (found.date_days, found.timestamp_micros, found.local_micros), strict=True
    ):
        values, misfits = found.cast(array, kind)
        values.validate(full=True)
        assert values.type == kind
        alone = [None if text is None else parse(text) for text in array.to_pylist()]
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
        assert values.cast(whole).to_pylist() == alone
        assert misfits.to_pylist() == [
            text is not None and value is None
            for text, value in zip(array.to_pylist(), alone, strict=True)
        ]
