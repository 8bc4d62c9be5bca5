"""What becomes of values that do not fit exactly, where no rescued data column takes them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.formats.base import BadRecord, LinePiece
from airflow_cloudfiles.engine.formats.datetimes.default_format import numbered_days
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.formats import csv_files, xml_files

FORMATS = ("json", "csv", "xml")
RESCUE = {"rescuedDataColumn": "_rescued_data"}
INFINITE = float("inf")


class Lines:
    """One file of one column `a`, a value a record."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._path = folder / f"f.{name}"
        self.bad_records: list[BadRecord] = []

    def record(self, text: str) -> str:
        """The record of a value."""
        if self.name == "json":
            return json.dumps({"a": text}, ensure_ascii=False)
        return text if self.name == "csv" else f"<row><a>{escape(text)}</a></row>"

    def read(self, texts: list[str], ddl: str, **options: Any) -> list[dict[str, Any]]:
        """The rows of a file with these values."""
        records = "\n".join(map(self.record, texts))
        data = f"<r>{records}</r>" if self.name == "xml" else records
        self._path.write_text(data, encoding="utf-8")
        schema = parse_schema(ddl)
        if self.name == "json":
            given = CloudFilesOptions.parse(
                {"cloudFiles.format": "json", **options}, path="/landing", has_schema=True
            )
            reader: Any = JsonReader(schema, given)
            batches = [reader.read([LinePiece("f", data.encode())])]
        elif self.name == "csv":
            reader = csv_files.CsvReader(schema, csv_files.options(given=True, **options))
            batches = list(reader.read_file(csv_files.opened(self._path)))
        else:
            reader = xml_files.XmlReader(schema, xml_files.options(given=True, **options))
            batches = list(reader.read_file(xml_files.opened(self._path)))
        self.counts = reader.counts
        self.bad_records = reader.bad_records
        return pa.Table.from_batches(batches, reader.arrow_schema).to_pylist()


@pytest.fixture(params=FORMATS)
def lines(request: pytest.FixtureRequest, tmp_path: Path) -> Lines:
    """A file in one of the formats."""
    return Lines(request.param, tmp_path)


def _utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


NOON = (2024, 2, 29, 12, 0, 0)
CHANGED: list[tuple[str, str, object]] = [
    ("TIMESTAMP", "2024-02-29T12:00:00.123456789Z", _utc(*NOON, 123456)),
    ("TIMESTAMP", "2024-02-29 12:00:00.9999999", _utc(*NOON, 999999)),
    ("TIMESTAMP_NTZ", "2024-02-29T12:00:00.1234567", datetime(*NOON, 123456)),  # noqa: DTZ001
    ("DECIMAL(10,2)", "1.005", Decimal("1.01")),
    ("DECIMAL(10,2)", "-1.005", Decimal("-1.01")),
    ("DECIMAL(3,2)", "9.994", Decimal("9.99")),
    ("DECIMAL(38,0)", "1e-400", Decimal(0)),
]
CHANGED_BY_SOME: list[tuple[str, str, str, object]] = [
    ("json csv", "DATE", "2024-02-29T10:00:00Z", date(2024, 2, 29)),
    ("json csv", "DATE", "2024-02-29 x", date(2024, 2, 29)),
    ("json", "DATE", "123", date(1970, 5, 4)),
    ("csv xml", "DOUBLE", "1e400", INFINITE),
    ("csv xml", "FLOAT", "-1e39", -INFINITE),
    ("xml", "DOUBLE", "12abc", 12.0),
    ("xml", "DOUBLE", "-1,234.5 EUR", -1234.5),
    ("xml", "FLOAT", "2024-01-31", 2024.0),
    ("xml", "BIGINT", "--5", 5),
    ("xml", "INT", "+-5", -5),
]


@pytest.mark.parametrize(("kind", "text", "value"), CHANGED)
def test_a_value_that_spark_changes_is_sparks_or_rescued(
    lines: Lines, kind: str, text: str, value: object
) -> None:
    assert lines.read([text], f"a {kind}") == [{"a": value}]
    assert lines.read([text], f"a {kind}", mode="DROPMALFORMED") == [{"a": value}]
    assert lines.read([text], f"a {kind}", mode="FAILFAST") == [{"a": value}]
    kept = lines.read([text], f"a {kind}, _corrupt_record STRING")
    assert kept == [{"a": value, "_corrupt_record": None}]
    [row] = lines.read([text], f"a {kind}", **RESCUE)
    assert (row["a"], json.loads(row["_rescued_data"])["a"]) == (None, text)


@pytest.mark.parametrize(("formats", "kind", "text", "value"), CHANGED_BY_SOME)
def test_what_one_format_changes_in_spark_it_changes_here(
    tmp_path: Path, formats: str, kind: str, text: str, value: object
) -> None:
    for name in formats.split():
        lines = Lines(name, tmp_path)
        assert lines.read([text], f"a {kind}") == [{"a": value}], name
        assert lines.read([text], f"a {kind}", **RESCUE)[0]["a"] is None, name


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("TINYINT", "200", -56),
        ("TINYINT", "256", None),
        ("DOUBLE", "1e400", INFINITE),
        ("FLOAT", "-1e39", -INFINITE),
        ("DECIMAL(4,2)", "99.995", None),
        ("DECIMAL(4,2)", "99.994", Decimal("99.99")),
        ("TIMESTAMP", "18446744073710", _utc(1970, 1, 1, 0, 0, 0, 448384)),
        ("ARRAY<INT>", '[1,"x"]', None),
        ("MAP<STRING,INT>", '{"k":1,"l":"x"}', None),
        ("STRUCT<x:INT,y:INT>", '{"x":1,"y":"x"}', {"x": 1, "y": None}),
        ("ARRAY<STRUCT<x:INT>>", '[{"x":"x"},{"x":2}]', [{"x": None}, {"x": 2}]),
        ("ARRAY<ARRAY<INT>>", '[[1],["x"]]', None),
    ],
)
def test_numbers_and_nested_values_of_json_are_sparks(
    kind: str, value: str, expected: object
) -> None:
    given = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in", has_schema=True)
    reader = JsonReader(parse_schema(f"n INT, a {kind}"), given)
    data = f'{{"n":1,"a":null}}\n{{"n":2,"a":{value}}}\n{{"n":3,"a":{value},"unknown":1}}\n'
    found = reader.read([LinePiece("f", data.encode())]).to_pylist()
    assert found == [{"n": 1, "a": None}, {"n": 2, "a": expected}, {"n": 3, "a": expected}]


@pytest.mark.parametrize(
    ("record", "value"),
    [
        ('{"a":1,"a":"x"}', 1),
        ('{"a":"x","a":2}', 2),
        ('{"a":1,"a":null}', None),
        ('{"a":1} {"a":2}', 1),
        ('{"a":1}x', 1),
    ],
)
def test_what_spark_reads_of_an_odd_record_is_read(record: str, value: int | None) -> None:
    given = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in", has_schema=True)
    reader = JsonReader(parse_schema("a INT"), given)
    assert reader.read([LinePiece("f", record.encode())]).to_pylist() == [{"a": value}]


def test_bytes_that_are_no_text_do_not_cost_the_record() -> None:
    given = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in", has_schema=True)
    reader = JsonReader(parse_schema("a INT, b STRING, _corrupt_record STRING"), given)
    batch = reader.read([LinePiece("f", b'{"a":1,"b":"x\xff"}\n')])
    assert batch.to_pylist() == [{"a": 1, "b": "x�", "_corrupt_record": '{"a":1,"b":"x\\xff"}'}]


def test_bytes_that_are_no_text_do_not_cost_the_record_of_csv(tmp_path: Path) -> None:
    file = csv_files.written(tmp_path, b"1,x\xff,2\n")
    reader = csv_files.reader("a INT, b STRING, c INT, _corrupt_record STRING", given=True)
    [row] = csv_files.rows_of(file, reader)
    assert row == {"a": 1, "b": "x\ufffd", "c": 2, "_corrupt_record": "1,x\\xff,2"}


def test_rows_of_one_line_are_one_record() -> None:
    given = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in", has_schema=True)
    reader = JsonReader(parse_schema("a INT, _corrupt_record STRING"), given)
    line = '[{"a":1},{"a":"x"}]'
    found = reader.read([LinePiece("f", line.encode())]).to_pylist()
    assert found == [{"a": value, "_corrupt_record": line} for value in (1, None)]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_misfit_goes_to_the_place_of_bad_records(lines: Lines, mode: str) -> None:  # B76
    options = {"badRecordsPath": "/bad", "mode": mode}
    for ddl in ("a INT", "a INT, _corrupt_record STRING"):
        found = lines.read(["1", "x", "2"] if lines.name != "json" else ["x"], ddl, **options)
        assert [row["a"] for row in found] == ([1, 2] if lines.name != "json" else [])
        [bad] = lines.bad_records
        assert bad.record == lines.record("x")
        assert "does not fit its column" in bad.reason
        assert lines.counts.corrupt_records == lines.counts.dropped_records == 1
    lines.read(["x"], "a INT", **options, **RESCUE)
    assert lines.bad_records == []


def test_a_column_that_finds_a_misfit_late_puts_its_line_apart() -> None:  # B76
    options = {"cloudFiles.format": "json", "badRecordsPath": "/bad"}
    given = CloudFilesOptions.parse(options, path="/in", has_schema=True)
    reader = JsonReader(parse_schema("a INT, b ARRAY<INT>"), given)
    texts = [
        '{"a":1}',
        '{"a":"x"}',
        '{"a":2,"b":[1,"y"]}',
        "{bad",
        '[{"a":3},{"a":"z"}]',
        '{"a":4}',
    ]
    batch = reader.read([LinePiece("f", "\n".join(texts).encode())])
    assert batch.column("a").to_pylist() == [1, 4]
    assert sorted(each.record for each in reader.bad_records) == sorted(texts[1:5])
    assert reader.counts.corrupt_records == 4


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("0", date(1970, 1, 1)), ("+5", date(1970, 1, 6)), ("-141427", date(1582, 10, 15)),
        ("-141428", date(1582, 10, 4)), ("-719164", date(1, 1, 1)), ("x", None),
        ("12345678901", None),
    ],
)  # fmt: skip
def test_a_day_number_is_counted_in_the_calendar_of_its_time(text: str, day: date | None) -> None:
    days = numbered_days(text)
    assert (None if days is None else date.fromordinal(days + 719_163)) == day
