"""One cell that holds no value of its kind is NULL, counted and rescued; the others are read."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.reading.opened import StoreFile
from tests.support.formats.csv_files import written
from tests.support.formats.excel_files import (
    book,
    changed,
    inferred,
    reader,
    rows_of,
    xlsx,
)

SHEET = "xl/worksheets/sheet1.xml"


def with_cell(folder: Path, old: bytes, new: bytes, value: Any) -> StoreFile:
    """A workbook with a column `a` of 1 and a value, of which the XML is another."""
    content = xlsx({"Sheet1": [["a", "b"], [1, "x"], [value, "y"]]})
    return written(folder, changed(content, SHEET, lambda part: part.replace(old, new)), "f.xlsx")


@pytest.mark.parametrize("raw", ["NaN", "INF", "-inf", "1e999", "1_000", "abc", " "])
@pytest.mark.parametrize("ddl", ["a BIGINT", "a DOUBLE", "a DECIMAL(5,2)", "a STRING", "a DATE"])
def test_a_number_that_is_none_is_rescued(tmp_path: Path, raw: str, ddl: str) -> None:
    file = with_cell(tmp_path, b"<v>7</v>", f"<v>{raw}</v>".encode(), 7)
    found = reader(f"{ddl}, b STRING")
    rows = rows_of(file, found)
    assert [row["b"] for row in rows] == ["x", "y"]
    assert rows[1]["a"] is None
    assert json.loads(rows[1]["_rescued_data"])["a"] == raw
    assert (found.counts.error_cells, rows[0]["a"] is None) == (1, ddl == "a DATE")


def test_what_is_no_number_says_nothing_of_the_type(tmp_path: Path) -> None:
    file = with_cell(tmp_path, b"<v>7</v>", b"<v>NaN</v>", 7)
    assert inferred(file, **{"cloudFiles.inferColumnTypes": "true"})["a"] == "int"


def test_a_shown_date_that_is_no_number_is_rescued(tmp_path: Path) -> None:
    content = xlsx({"Sheet1": [["d"], [dt.date(2024, 1, 2)]]})
    file = written(
        tmp_path,
        changed(content, SHEET, lambda part: part.replace(b"<v>45293</v>", b"<v>NaN</v>")),
        "f.xlsx",
    )
    [row] = rows_of(file, reader("d DATE"))
    assert (row["d"], json.loads(row["_rescued_data"])["d"]) == (None, "NaN")


@pytest.mark.parametrize(
    ("raw", "value"),
    [("0", False), ("TRUE", True), ("False", False), ("true", True), ("2", None)],
)
def test_a_boolean_is_read_in_any_case(tmp_path: Path, raw: str, *, value: bool | None) -> None:
    file = with_cell(tmp_path, b't="b"><v>1</v>', f't="b"><v>{raw}</v>'.encode(), True)
    rows = rows_of(file, reader("a BOOLEAN, b STRING"))
    assert rows[1]["a"] is value
    assert (rows[1]["_rescued_data"] is None) == (value is not None)


def test_without_a_rescued_data_column_the_row_is_a_bad_record(tmp_path: Path) -> None:
    file = with_cell(tmp_path, b"<v>7</v>", b"<v>NaN</v>", 7)
    found = reader("a BIGINT, b STRING, _corrupt_record STRING", given=True)
    rows = rows_of(file, found)
    assert [row["a"] for row in rows] == [1, None]
    assert "NaN" in rows[1]["_corrupt_record"]
    assert found.counts.corrupt_records == 1


def test_a_number_of_an_old_workbook_that_is_none_is_rescued(tmp_path: Path) -> None:
    file = book(tmp_path, [["a"], [1.5], [math.nan]], "f.xls", "xls")
    rows = rows_of(file, reader("a DOUBLE"))
    assert [row["a"] for row in rows] == [1.5, None]
    assert json.loads(rows[1]["_rescued_data"])["a"] == "nan"
