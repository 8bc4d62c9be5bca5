"""What a row of a sheet becomes: its row, its rescued data, or its error."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xlsxwriter

from airflow_cloudfiles.engine.errors import CorruptRecordError, FileUnreadableError, OptionError
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.formats.excel.cells import CellKind, moment, number_text, shown_by
from airflow_cloudfiles.engine.formats.excel.reader import ExcelReader
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_reader
from tests.support.formats.csv_files import written
from tests.support.formats.excel_files import (
    WRITERS,
    book,
    changed,
    inferred,
    options,
    reader,
    rows_of,
    xlsx,
)


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows, with rescued data parsed and without its path."""
    found = []
    for row in rows:
        *cells, rescued = row.values()
        parsed = None if rescued is None else json.loads(rescued)
        if parsed is not None:
            assert list(parsed)[-1] == "_file_path"  # B80: it comes last
            del parsed["_file_path"]
        found.append((*cells, parsed))
    return found


def test_a_value_that_does_not_fit_is_null_and_rescued_as_it_stands(tmp_path: Path) -> None:
    file = book(tmp_path, [["n", "d"], ["x", 45000], [7, "y"], ["8", None], ["007", True]])
    assert values(rows_of(file, reader("n INT, d DATE"))) == [  # B69, B70
        (None, None, {"n": "x", "d": "45000"}),
        (7, None, {"d": "y"}),
        (8, None, None),
        (None, None, {"n": "007", "d": "true"}),  # zeros before a number stay
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (42.0, "42"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1 / 7, "0.14285714285714285"),
        (0.1 + 0.2, "0.30000000000000004"),
        (2.0**53, "9007199254740992"),
        (12345678901234567890.0, "12345678901234600000"),
        (-1e300, "-1E300"),
        (5e-324, "5E-324"),
    ],
)
def test_a_number_has_the_shortest_text_that_gives_it_back(number: float, text: str) -> None:
    assert number_text(number) == text
    if abs(number) <= 2**53:
        assert float(text) == number


def test_computed_numbers_fit_decimals_with_the_digits_that_excel_keeps(tmp_path: Path) -> None:
    file = book(tmp_path, [["d"], [0.1 + 0.2], [1234.5], [0.125]])
    rows = rows_of(file, reader("d DECIMAL(6,2)"))
    assert [str(row["d"]) for row in rows] == ["0.30", "1234.50", "None"]
    assert json.loads(rows[2]["_rescued_data"])["d"] == "0.125"


@pytest.mark.parametrize(
    ("serial", "is_1904", "text"),
    [
        (1, False, "1900-01-01"),
        (59, False, "1900-02-28"),
        (60, False, "1900-02-29"),  # as Excel shows it; it fits no DATE column
        (61, False, "1900-03-01"),
        (2958465, False, "9999-12-31"),
        (0, True, "1904-01-01"),
        (60, True, "1904-03-01"),
    ],
)
def test_days_are_counted_as_excel_counts_them(serial: int, is_1904: bool, text: str) -> None:
    assert moment(serial, CellKind.DATE, is_1904=is_1904) == (CellKind.DATE, text)


def test_a_date_with_a_time_of_day_is_a_timestamp_and_midnight_stays_one() -> None:
    assert moment(45000.5, CellKind.DATE, is_1904=False) == (
        CellKind.TIMESTAMP,
        "2023-03-15 12:00:00",
    )
    assert moment(45000.0, CellKind.TIMESTAMP, is_1904=False)[1] == "2023-03-15 00:00:00"
    assert moment(0.0, CellKind.TIME, is_1904=False) == (CellKind.TIME, "00:00:00")
    assert moment(1.5, CellKind.DURATION, is_1904=False) == (CellKind.TIME, "36:00:00")
    assert moment(-1.0, CellKind.DATE, is_1904=False) == (CellKind.NUMBER, "-1")
    assert moment(0.123456789, CellKind.TIME, is_1904=False) == (CellKind.TIME, "02:57:46.667")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("General", CellKind.NUMBER),
        ("0.00E+00", CellKind.NUMBER),
        ('#,##0 "days"', CellKind.NUMBER),
        ("[Red]0.00;[Blue]-0.00", CellKind.NUMBER),
        ("0\\d", CellKind.NUMBER),
        ("@", CellKind.NUMBER),
        ("dd/mm/yyyy", CellKind.DATE),
        ("mmm-yy", CellKind.DATE),
        ("[$-409]d-mmm-yy;@", CellKind.DATE),
        ('yyyy"年"m"月"', CellKind.DATE),
        ("m/d/yy h:mm", CellKind.TIMESTAMP),
        ("yyyy-mm-dd hh:mm:ss.000", CellKind.TIMESTAMP),
        ("h:mm AM/PM", CellKind.TIME),
        ("mm:ss.0", CellKind.TIME),
        ("[h]:mm:ss", CellKind.DURATION),
        ("[mm]:ss", CellKind.DURATION),
    ],
)
def test_the_number_format_says_what_a_number_is(code: str, shown: CellKind) -> None:
    assert shown_by(code) is shown


def test_empty_rows_are_rows_in_the_middle_and_none_around(tmp_path: Path) -> None:
    rows = [[None, None], [None, None], ["a", "b"], [1, None], [None, None], [None, 2], ["", ""]]
    file = book(tmp_path, rows)
    assert values(rows_of(file, reader("a INT, b INT"))) == [
        (1, None, None),
        (None, None, None),
        (None, 2, None),
    ]


def test_names_are_made_of_headers_as_of_csv(tmp_path: Path) -> None:
    file = book(tmp_path, [["a", None, "A", 2024, " x y ", True], [1, 2, 3, 4, 5, 6]])
    assert [*inferred(file)] == ["a1", "_c2", "A3", "2024", " x y ", "true"]


def test_values_beside_the_header_make_a_row_that_is_not_valid(tmp_path: Path) -> None:
    rows = [[None, "a", "b"], [None, 1, 2], ["left", 3, 4, "right"]]
    file = book(tmp_path, rows)
    found = reader("a INT, b INT, _corrupt_record STRING")
    assert values(rows_of(file, found)) == [
        (1, 2, None, None),
        (3, 4, '["left", "3", "4", "right"]', {"_c1": "left", "_c4": "right"}),
    ]
    assert found.counts.corrupt_records == 1
    dropped = reader("a INT, b INT", mode="DROPMALFORMED")
    assert values(rows_of(file, dropped)) == [(1, 2, None)]
    assert (dropped.counts.dropped_records, dropped.counts.rescued_rows) == (1, 0)
    with pytest.raises(CorruptRecordError, match="beside the 2 columns"):
        rows_of(file, reader("a INT, b INT", mode="FAILFAST"))
    apart = reader("a INT, b INT", badRecordsPath="/bad")
    assert len(rows_of(file, apart)) == 1
    assert [each.record for each in apart.bad_records] == ['["left", "3", "4", "right"]']


def test_without_a_header_columns_are_counted_from_one(tmp_path: Path) -> None:
    file = book(tmp_path, [["x", 1], ["y", 2, True]])
    assert inferred(file, headerRows="0", typed="true") == {
        "_c1": "string",
        "_c2": "int",
        "_c3": "boolean",
    }
    found = reader("_c1 STRING, _c2 INT", headerRows="0")
    assert values(rows_of(file, found)) == [("x", 1, None), ("y", 2, {"_c3": "true"})]
    by_position = reader("t STRING, n INT, b BOOLEAN", headerRows="0", given=True)
    assert [tuple(row.values()) for row in rows_of(file, by_position)] == [
        ("x", 1, None),
        ("y", 2, True),
    ]


@pytest.mark.parametrize("header", ["0", "1"])
def test_a_new_column_is_told_with_a_value_of_it(header: str, tmp_path: Path) -> None:
    file = book(tmp_path, [["_c1", "_c2"], ["1", "new"]])
    found = reader("_c1 STRING", headerRows=header, evolution="addNewColumns")
    with pytest.raises(UnknownFields) as caught:  # B45
        rows_of(file, found)
    assert caught.value.fields == {"_c2": "_c2" if header == "0" else "new"}


ADDRESSES = [
    ("C2:D3", "1", [("h1", "h2"), ("1", "2")]),
    ("C2:D4", "0", [("_c1", "_c2"), ("h1", "h2"), ("1", "2"), ("3", None)]),
    ("B:C", "1", [("_c1", "h1"), (None, "1"), (None, "3")]),
    ("2:3", "1", [("h1", "h2"), ("1", "2")]),
    ("C3:D", "0", [("_c1", "_c2"), ("1", "2"), ("3", None)]),
    ("$C$3:$C$3", "0", [("_c1",), ("1",)]),
    ("'Data 1'!C3", "0", [("_c1",), ("1",)]),
]


@pytest.mark.parametrize(("address", "header", "expected"), ADDRESSES)
def test_a_range_bounds_what_is_read(
    address: str, header: str, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    rows = [[], [None, None, "h1", "h2"], [None, None, 1, 2], [None, None, 3]]
    file = written(tmp_path, xlsx({"Data 1": rows}))
    given = {"headerRows": header, "dataAddress": address}
    names = [*inferred(file, **given)]
    found = reader(", ".join(f"{each} STRING" for each in names), **given)
    assert [tuple(names), *(row[:-1] for row in values(rows_of(file, found)))] == expected


SHEETS = {"Jan 24": [["a"], [1]], "Feb 24": [["a", "b"], [2, 3]], "Notes": [["text"], ["x"]]}


@pytest.mark.parametrize(
    ("address", "rows"),
    [
        ("", [1]),
        ("Feb 24", [2]),
        ("feb 24", [2]),
        ("* 24", [1, 2]),
        ("'???[ ]24'!A1:A9", [1, 2]),
        ("Dec*", []),
    ],
)
@pytest.mark.parametrize("kind", WRITERS)
def test_sheets_are_chosen_by_name_or_pattern(
    kind: str, address: str, rows: list[int], tmp_path: Path
) -> None:
    file = written(tmp_path, WRITERS[kind](SHEETS))
    found = rows_of(file, reader("a INT, b INT", dataAddress=address))
    assert [row["a"] for row in found] == rows


def test_a_sheet_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path) -> None:
    file = written(tmp_path, xlsx(SHEETS))
    with pytest.raises(FileUnreadableError, match=r"f\.csv.*no sheet 'Mar'.*Jan 24, Feb 24, Notes"):
        rows_of(file, reader("a INT", dataAddress="Mar"))


@pytest.mark.parametrize("kind", WRITERS)
def test_the_sheets_of_a_file_can_be_listed(kind: str, tmp_path: Path) -> None:
    file = written(tmp_path, WRITERS[kind](SHEETS))
    given = options(operation="listSheets")
    schema = fixed_schema(given)
    assert schema is not None
    found = open_reader(schema, given)
    rows = pa.Table.from_batches(found.read_file(file)).to_pylist()
    assert [(row["sheetIndex"], row["sheetName"]) for row in rows] == [*enumerate(SHEETS)]


def test_formulas_give_their_values_and_merged_cells_the_one_at_the_top_left(
    tmp_path: Path,
) -> None:
    sink = io.BytesIO()
    with xlsxwriter.Workbook(sink) as made:
        sheet = made.add_worksheet()
        sheet.write_row(0, 0, ["a", "b"])
        sheet.write_formula(1, 0, "=1+1", None, 2)
        sheet.write_formula(1, 1, '="x"&"y"', None, "xy")
        sheet.merge_range(2, 0, 3, 1, "merged")
        sheet.write_formula(4, 0, "=NA()", None, "#N/A")
        sheet.write_rich_string(4, 1, "plain ", made.add_format({"bold": True}), "bold")
        sheet.write_formula(5, 0, '=""', None, "")
    found = reader("a STRING, b STRING")
    rows = rows_of(written(tmp_path, sink.getvalue()), found)
    assert [tuple(row.values())[:2] for row in rows] == [
        ("2", "xy"),
        ("merged", None),
        (None, None),
        (None, "plain bold"),
    ]
    assert found.counts.error_cells == 1


def test_texts_are_dates_only_by_a_pattern(tmp_path: Path) -> None:
    file = book(tmp_path, [["d"], ["31/01/2024"], ["01/02/2024"]])
    assert inferred(file, typed="true") == {"d": "string"}
    assert inferred(file, typed="true", dateFormat="dd/MM/yyyy") == {"d": "date"}
    rows = rows_of(file, reader("d DATE", dateFormat="dd/MM/yyyy"))
    assert [str(row["d"]) for row in rows] == ["2024-01-31", "2024-02-01"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2.0], "int"),
        ([1, 2**31], "bigint"),
        ([1, 10.0**20], "decimal(21,0)"),
        ([1, 0.5], "double"),
        ([1, "007"], "string"),
        ([1, True], "string"),
        ([1, "#N/A"], "int"),
        (["#N/A"], "void"),
    ],
)
def test_types_are_those_of_the_cells(cells: list[Any], kind: str, tmp_path: Path) -> None:
    file = book(tmp_path, [["a"], *([each] for each in cells)])
    assert inferred(file, typed="true") == {"a": kind}


def test_fractions_are_decimals_where_types_widen(tmp_path: Path) -> None:
    file = book(tmp_path, [["a"], [0.1 + 0.2], [12.25]])
    given = {"typed": "true", "evolution": "addNewColumnsWithTypeWidening"}
    assert inferred(file, **given) == {"a": "decimal(4,2)"}


@pytest.mark.parametrize(
    "address",
    ["A1:", "!A1", "S!", "S!A", "D9:A1", "A1:XFE1", "A1:A1048577", "'x'A1", "S!A1:9", "A:3"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(OptionError, match="dataAddress"):
        options(dataAddress=address)


def test_only_one_header_row_can_be(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="headerRows must be 0 or 1"):
        options(headerRows="2")


def test_elements_may_have_a_prefix_and_cells_no_place(tmp_path: Path) -> None:
    def prefixed(part: bytes) -> bytes:
        for name in (b"worksheet", b"sheetData", b"row", b"c", b"v"):
            for end in (b" ", b">"):
                part = part.replace(b"<" + name + end, b"<x:" + name + end)
            part = part.replace(b"</" + name + b">", b"</x:" + name + b">")
        return (
            part.replace(b"xmlns=", b"xmlns:x=").replace(b' r="A1"', b"").replace(b' r="B2"', b"")
        )

    content = xlsx({"S": [["a", "b"], [1, 2]]})
    other = changed(content, "xl/worksheets/sheet1.xml", prefixed)
    found = [rows_of(written(tmp_path, each), reader("a INT, b INT")) for each in (content, other)]
    assert found[0] == found[1] == [{"a": 1, "b": 2, "_rescued_data": None}]


def test_a_text_of_a_cell_counts_more_than_a_value_beside_it(tmp_path: Path) -> None:
    cell = b'<c r="A2" t="inlineStr"><v>1.0</v><is><t>1</t><t>.</t><rPh><t>x</t></rPh></is></c>'
    content = changed(
        xlsx({"S": [["a"], [1]]}),
        "xl/worksheets/sheet1.xml",
        lambda part: part.replace(b'<c r="A2"><v>1</v></c>', cell),
    )
    assert rows_of(written(tmp_path, content), reader("a STRING"))[0]["a"] == "1."


def test_reading_without_a_rescued_data_column_makes_bad_records_of_misfits(tmp_path: Path) -> None:
    file = book(tmp_path, [["a"], ["x"], [1]])
    found = reader("a INT", given=True, mode="DROPMALFORMED")
    assert isinstance(found, ExcelReader)
    assert rows_of(file, found) == [{"a": 1}]
    assert found.counts.dropped_records == 1
