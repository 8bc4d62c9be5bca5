"""Dates and times are what the writer of an ORC file meant, as its footers say."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from tests.support.formats.columnar_files import MemoryFile, infer, options, orc_file, rows

_BY_CPP, _BY_JAVA = b"\x48\x01", b"\x48\x00"
"""The writer in the footer: field 9."""
DAYS = {-719164: date(1, 1, 1), -171655: date(1500, 1, 1), -141428: date(1582, 10, 4)}
"""How many days since 1970 the writers in Java count, of dates in the Julian calendar."""


def written(table: pa.Table, *changes: tuple[bytes, bytes]) -> MemoryFile:
    """A file with some of its bytes replaced, which are as many as before."""
    data = orc_file(table, compression="uncompressed").data
    for old, new in changes:
        assert data.count(old) == 1
        data = data.replace(old, new)
    return MemoryFile(data)


def read(file: MemoryFile) -> list[object]:
    """The values of its only column."""
    given = options("orc")
    return [next(iter(row.values())) for row in rows(file, infer([file], given), given)]


def days(*numbers: int | None) -> pa.Table:
    """A column of dates by their numbers."""
    return pa.table({"d": pa.array(numbers, pa.int32()).cast(pa.date32())})


def test_dates_of_java_are_read_as_they_were_written() -> None:
    file = written(days(*DAYS, -141427, 0, None), (_BY_CPP, _BY_JAVA))
    assert read(file) == [*DAYS.values(), date(1582, 10, 15), date(1970, 1, 1), None]


def test_dates_within_other_values_are_corrected_too() -> None:
    inner = pa.array([-719164, 0], pa.int32()).cast(pa.date32())
    lists = pa.ListArray.from_arrays([0, 2], inner)
    found = read(written(pa.table({"l": lists}), (_BY_CPP, _BY_JAVA)))
    assert found == [[date(1, 1, 1), date(1970, 1, 1)]]


def test_dates_of_other_libraries_are_in_today_s_calendar() -> None:
    assert read(written(days(-719162))) == [date(1, 1, 1)]


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [
        # Half seconds of the clock; the instants of CET are an hour earlier.
        (b"CET", [(0.5, -0.5), (3599.5, 3598.5), (3600.5, 3600.5), (-1.5, -1.5)]),
        (b"GMT", [(0.5, 0.5), (3600.5, 3600.5), (-1.5, -1.5)]),
        # An hour or more later.
        (b"EST", [(-1.5, -0.5), (-18001.5, -18001.5), (0.5, 0.5)]),
    ],
)
def test_fractions_near_1970_are_read_as_java_reads_them(
    zone: bytes, seconds: list[tuple[float, float]]
) -> None:
    table = pa.table(
        {"t": pa.array([round(each * 10**9) for each, _ in seconds], pa.timestamp("ns"))}
    )
    found = read(written(table, (_BY_CPP, _BY_JAVA), (b"GMT", zone)))
    assert [each.timestamp() for each in found] == [right for _, right in seconds]  # type: ignore[attr-defined]


def test_whole_seconds_near_1970_stay_what_they_are() -> None:
    table = pa.table({"t": pa.array([0, 10**9, 500_000, None], pa.timestamp("ns"))})
    found = read(written(table, (_BY_CPP, _BY_JAVA), (b"GMT", b"CET")))
    assert [each and each.timestamp() for each in found] == [0, 1, 0.0005, None]  # type: ignore[attr-defined]
