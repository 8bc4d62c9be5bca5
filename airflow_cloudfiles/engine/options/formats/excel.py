"""Declare the options of workbooks, and read `dataAddress`.

Names, defaults and meanings are those of Databricks' reader of Excel files;
`docs/decisions/0139-reading-excel.md` says where reading differs.

`dataAddress` names cells as in Excel: `Sheet1`, `C5:H10`, `Sheet1!C5:H10`, `'My sheet'!C5:H10`;
besides whole columns (`B:F`), whole rows (`3:10`) and ranges that are open below (`B3:F`). A sheet
may be a pattern, for several sheets: names of sheets in Excel hold no `*`, `?` or `[`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FirstPart, StringValueOptions
from airflow_cloudfiles.engine.options.values import (
    RefusedOption,
    ValueKind,
    choice,
    record_size,
    text,
)

MAX_ROWS: Final = 2**20
MAX_COLUMNS: Final = 2**14
"""No sheet is larger; a file that says so is damaged."""
_CORNER: Final = r"\$?([A-Za-z]{1,3})?\$?([1-9][0-9]{0,6})?"
_RANGE: Final = re.compile(f"{_CORNER}:{_CORNER}")
_CELL: Final = re.compile(r"\$?([A-Za-z]{1,3})\$?([1-9][0-9]{0,6})")
_ADDRESS: Final = re.compile(r"(?:(?:'((?:[^']|'')+)'|([^'!]+))!)?([^!]*)", re.DOTALL)
_QUOTED: Final = re.compile(r"'((?:[^']|'')+)'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """Cells of a workbook.

    Attributes:
        sheet: The name of a sheet, or a pattern; `None` for the first sheet.
        top: The first row, from 0; `None` for the first that is not empty.
        bottom: The last row; `None` for the last that is not empty.
        left: The first column, from 0; `None` where none is named.
        right: The last column, likewise.
    """

    sheet: str | None = None
    top: int | None = None
    bottom: int | None = None
    left: int | None = None
    right: int | None = None


def _read(name: str, text: str) -> Address:
    text = text.strip()
    if not text:
        return Address()
    if quoted := _QUOTED.fullmatch(text):
        return Address(quoted[1].replace("''", "'"))
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise _unreadable(name, text)
    quoted_sheet, plain_sheet, rest = found.groups()
    sheet = quoted_sheet.replace("''", "'") if quoted_sheet else plain_sheet
    ends = _RANGE.fullmatch(rest)
    if ends is None and sheet is None and not rest.startswith("'"):
        return Address(rest)
    cell = _CELL.fullmatch(rest)
    if ends is None and cell is None:
        raise _unreadable(name, text)
    left, top, right, bottom = ends.groups() if ends else cell.groups() * 2  # type: ignore[union-attr]
    if (left is None) != (right is None) or (top is None and (left is None or bottom is not None)):
        raise _unreadable(name, text)
    address = Address(sheet, _row(top), _row(bottom), _column(left), _column(right))
    _check(name, text, address)
    return address


def _check(name: str, text: str, address: Address) -> None:
    rows, columns = (address.top, address.bottom), (address.left, address.right)
    for (first, last), most in ((rows, MAX_ROWS), (columns, MAX_COLUMNS)):
        if first is not None and last is not None and first > last:
            raise OptionError(f"{name}={text!r} ends before it begins. Exchange its two corners.")
        if max(first or 0, last or 0) >= most:
            raise OptionError(
                f"{name}={text!r} is beyond the last cell of a sheet, XFD1048576. Correct it."
            )


def _unreadable(name: str, text: str) -> OptionError:
    return OptionError(
        f"{name}={text!r} is no address. Name a sheet, a range or both, such as Sheet1, C5:H10, "
        "Sheet1!C5:H10 or 'My sheet'!C5:H10."
    )


def _row(text: str | None) -> int | None:
    return None if text is None else int(text) - 1


def _column(text: str | None) -> int | None:
    if text is None:
        return None
    number = 0
    for each in text.upper():
        number = number * 26 + ord(each) - ord("A") + 1
    return number - 1


data_address: Final = ValueKind("address", _read)
"""A sheet, a range of cells, or both."""


Operation = Literal["readSheet", "listSheets"]
_MEBIBYTE: Final = 2**20


def _header_rows(name: str, given: str) -> int:
    if given.strip() not in {"0", "1"}:
        raise OptionError(
            f"{name} must be 0 or 1, got {given!r}. Leave the rows above the header out with "
            "dataAddress, for instance A3:F."
        )
    return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcelOptions(StringValueOptions):
    """The validated options of workbooks."""

    HAS_ONLY_STRINGS: ClassVar[bool] = True
    HAS_SHEETS: ClassVar[bool] = True
    ROWS_FROM: ClassVar[FirstPart] = "all or end"
    SCHEMA_FROM: ClassVar[FirstPart] = "all or end"

    data_address: Address = option(
        "dataAddress", data_address, default=Address(), shown="all of the first sheet"
    )
    """The cells that are read, as Excel writes them: `Sheet1`, `C5:H10`, `Sheet1!C5:H10` or
    `'My sheet'!C5:H10`. Ours besides: `B:F`, `3:10`, `B3:F` (open below), and a pattern for several
    sheets, `Sales *` or `'Sales *'!A3:F`, whose names `_metadata.sheet_name` gives."""
    header_rows: int = option("headerRows", ValueKind("0 or 1", _header_rows), default=0)
    """How many of the first rows name the columns: 0 or 1. With 0 the columns are those of a given
    schema in their order, or else `_c1`, `_c2` and so on."""
    operation: Operation = option("operation", choice(get_args(Operation)), default="readSheet")
    """What is read: the cells of sheets, or with `listSheets` a row for each sheet of each file,
    with `sheetIndex BIGINT` (from 0) and `sheetName STRING`."""
    date_format: str | None = option(
        "dateFormat", text, default=None, shown="what Spark's cast takes, such as `2024-01-31`"
    )
    """Pattern of dates in cells of text, as the other patterns. Cells that Excel shows as dates
    need none."""
    time_zone: str | None = option("timeZone", text, default=None, shown="`UTC`")
    """Zone of timestamps, whatever `spark.sql.session.timeZone` is: workbooks name none. Ours, as
    are `locale` and `prefersDecimal`."""
    max_record_bytes: int = option(
        "maxRecordBytes", record_size, default=256 * _MEBIBYTE, shown="256m"
    )
    """The most bytes of text that is held of one workbook, which keeps the texts of all its sheets
    in one place; `1g` at most. A small file may hold any amount. Ours."""

    REFUSED: ClassVar[tuple[RefusedOption, ...]] = (
        RefusedOption(
            "inferSchema",
            "types are inferred with cloudFiles.inferColumnTypes=true. Set that.",
            accepts=("false",),
        ),
        RefusedOption("header", "its name is headerRows in Excel. Set that to 0 or 1."),
        RefusedOption(
            "singleVariantColumn",
            "a row of a sheet has columns. Read them as strings, or as JSON or XML files into one "
            "VARIANT column.",
        ),
    )

    @property
    def lists_sheets(self) -> bool:
        """Whether rows are sheets."""
        return self.operation == "listSheets"
