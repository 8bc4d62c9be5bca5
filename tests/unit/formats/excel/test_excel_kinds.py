"""Each kind of workbook gives the same values, which are those that other programs read."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import python_calamine
import xlrd

from tests.support.formats.csv_files import written
from tests.support.formats.excel_files import (
    WRITERS,
    book,
    inferred,
    local,
    reader,
    rows_of,
    xls,
    xlsx,
)

ROWS: list[list[Any]] = [
    ["name", "whole", "part", "day", "moment", "clock", "flag", "code", "bad"],
    [
        "é😀",
        42,
        0.1,
        dt.date(2024, 2, 29),
        local(2024, 1, 31, 12, 30, 59),
        None,
        True,
        "007",
        1,
    ],
    [None] * 9,
    [
        "b\nc",
        -7,
        1e-7,
        dt.date(1999, 12, 31),
        local(2024, 1, 31),
        dt.time(6),
        False,
        "x",
        "#N/A",
    ],
]
TYPED = {
    "name": "string",
    "whole": "int",
    "part": "double",
    "day": "date",
    "moment": "timestamp",
    "clock": "string",
    "flag": "boolean",
    "code": "string",
    "bad": "int",
}
UTC = dt.UTC


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_workbook_gives_the_same_types_and_values(kind: str, tmp_path: Path) -> None:
    file = book(tmp_path, ROWS, kind=kind)
    types = inferred(file, typed="true")
    assert types == TYPED
    found = reader(", ".join(f"{name} {each}" for name, each in types.items()))
    rows = rows_of(file, found)
    assert [list(row.values())[:-1] for row in rows] == [
        ["é😀", 42, 0.1, dt.date(2024, 2, 29), dt.datetime(2024, 1, 31, 12, 30, 59, tzinfo=UTC),
         None, True, "007", 1],
        [None] * 9,
        ["b\nc", -7, 1e-7, dt.date(1999, 12, 31), dt.datetime(2024, 1, 31, tzinfo=UTC), "06:00:00",
         False, "x", None],
    ]  # fmt: skip
    assert [row["_rescued_data"] for row in rows] == [None] * 3
    assert found.counts.error_cells == 1


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_workbook_gives_the_same_texts(kind: str, tmp_path: Path) -> None:
    file = book(tmp_path, ROWS, kind=kind)
    assert set(inferred(file).values()) == {"string"}
    ddl = ", ".join(f"{name} STRING" for name in TYPED)
    first, _, last = rows_of(file, reader(ddl))
    assert [*first.values()][:-1] == [
        "é😀", "42", "0.1", "2024-02-29", "2024-01-31 12:30:59", None, "true", "007", "1"
    ]  # fmt: skip
    assert [*last.values()][:-1] == [
        "b\nc", "-7", "1E-7", "1999-12-31", "2024-01-31 00:00:00", "06:00:00", "false", "x", None
    ]  # fmt: skip


def _of_openpyxl(content: bytes) -> list[list[Any]]:
    sheet = openpyxl.load_workbook(io.BytesIO(content), data_only=True).worksheets[0]
    return [list(row) for row in sheet.iter_rows(values_only=True)]


def _of_xlrd(content: bytes) -> list[list[Any]]:
    sheet = xlrd.open_workbook(file_contents=content).sheet_by_index(0)
    return [sheet.row_values(row) for row in range(sheet.nrows)]


def _of_calamine(content: bytes) -> list[list[Any]]:
    found = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
    return found.get_sheet_by_index(0).to_python()


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [
        ("xlsx", _of_openpyxl),
        ("xls", _of_xlrd),
        *((each, _of_calamine) for each in WRITERS),
    ],
)
def test_texts_and_numbers_are_those_that_others_read(
    kind: str, oracle: Any, tmp_path: Path
) -> None:
    rows = [["t", "n"], *([f"t{each}", each / 7 * 10.0 ** (each - 5)] for each in range(12))]
    content = WRITERS[kind]({"Sheet1": rows})
    file = written(tmp_path, content)
    found = rows_of(file, reader("t STRING, n DOUBLE"))
    assert [[row["t"], row["n"]] for row in found] == oracle(content)[1:]


def test_dates_are_those_that_other_programs_read(tmp_path: Path) -> None:
    days = [dt.date(1900, 3, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
    content = xlsx({"S": [["d"], *([each] for each in days)]})
    file = written(tmp_path, content)
    assert [row["d"] for row in rows_of(file, reader("d DATE"))] == days
    assert [row[0].date() for row in _of_openpyxl(content)[1:]] == days


def test_both_epochs_give_the_same_dates(tmp_path: Path) -> None:
    days = [dt.date(1904, 1, 2), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
    content = xlsx({"S": [["d"], *([each] for each in days)]}, date_1904=True)
    assert [row["d"] for row in rows_of(written(tmp_path, content), reader("d DATE"))] == days


def test_no_name_is_needed_to_know_the_kind(tmp_path: Path) -> None:
    file = written(tmp_path, xls({"S": [["a"], [1]]}), "report.xlsx")
    assert rows_of(file, reader("a INT")) == [{"a": 1, "_rescued_data": None}]
