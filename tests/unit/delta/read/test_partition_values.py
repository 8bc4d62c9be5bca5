"""Values of partition columns are what Delta's protocol says of their strings."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.tables.delta.read.files import parse_value
from tests.support.delta_tables import HandMadeTable, column, read

ZONED, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")
VALUES = [
    (pa.string(), " x %/", " x %/"),
    (pa.string(), "", None),
    (pa.string(), None, None),
    (pa.int64(), "", None),
    (pa.int8(), "-128", -128),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.float64(), "1.5E-10", 1.5e-10),
    (pa.float32(), "-Infinity", float("-inf")),
    (pa.bool_(), "true", True),
    (pa.bool_(), "false", False),
    (pa.decimal128(10, 2), "12.30", Decimal("12.30")),
    (pa.decimal128(10, 2), "-3", Decimal("-3.00")),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)),
    (pa.date32(), "0001-01-01", date(1, 1, 1)),
    (pa.binary(), "\x01ab", b"\x01ab"),
    (PLAIN, "2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3, 0, UTC).replace(tzinfo=None)),
    (
        PLAIN,
        "2024-02-29 01:02:03.5",
        datetime(2024, 2, 29, 1, 2, 3, 500000, UTC).replace(tzinfo=None),
    ),
    (ZONED, "2024-02-29 01:02:03.000001", datetime(2024, 2, 29, 1, 2, 3, 1, UTC)),
    (ZONED, "1969-12-31T23:59:59.999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    (ZONED, "2024-02-29T01:02:03+02:00", datetime(2024, 2, 28, 23, 2, 3, 0, UTC)),
    (ZONED, "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
]


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_a_string_becomes_its_value(kind: pa.DataType, text: str | None, value: Any) -> None:
    found = parse_value(text, kind)
    assert (found.type, found.as_py()) == (kind, value)


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (pa.date32(), "12345-01-01", 3789391),
        (pa.date32(), "+12345-01-01", 3789391),
        (pa.date32(), "-0001-01-01", -719893),
        (ZONED, "12345-01-01 00:00:00", 3789391 * 86400 * 10**6),
    ],
)
def test_years_that_python_has_not_are_read(kind: pa.DataType, text: str, number: int) -> None:
    stored = pa.int32() if pa.types.is_date(kind) else pa.int64()
    assert parse_value(text, kind).cast(stored).as_py() == number


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "128"),
        (pa.int64(), "x"),
        (pa.int64(), "1.0"),
        (pa.bool_(), "1"),
        (pa.date32(), "today"),
        (pa.date32(), "2024-13-01"),
        (ZONED, "now"),
        (ZONED, "NaT"),
        (pa.decimal128(3, 2), "123.45"),
        (pa.decimal128(3, 2), "x"),
        (pa.float64(), "one"),
        (pa.list_(pa.int64()), "[1]"),
    ],
)
def test_what_is_no_value_is_refused(kind: pa.DataType, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_value(text, kind)


def test_a_wrong_value_names_the_column_and_the_file(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("p=x/part-0.parquet", {"a": [1]}, partition={"p": "x"})
    made.create(file, columns=[column("p", "long"), column("a", "long")], partitions=("p",))
    with pytest.raises(TargetCorruptedError, match=r"p=x/part-0.*'x' is no value.*column p "):
        read(tmp_path / "t")


def test_partition_columns_stand_where_the_schema_has_them(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    columns = [column("p", "date"), column("a", "long"), column("q", "string")]
    files = [
        made.file("1.parquet", {"a": [1, 2]}, partition={"p": "2024-02-29", "q": "é"}),
        made.file("2.parquet", {"a": [3]}, partition={"p": None, "q": ""}),
        made.file("3.parquet", {"a": [4], "q": ["of the file"]}, partition={"p": "", "q": "log"}),
    ]
    made.create(*files, columns=columns, partitions=("p", "q"))
    found = read(tmp_path / "t")
    assert found.column_names == ["p", "a", "q"]
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (date(2024, 2, 29), 1, "é"),
        (date(2024, 2, 29), 2, "é"),
        (None, 3, None),
        (None, 4, "log"),
    ]
