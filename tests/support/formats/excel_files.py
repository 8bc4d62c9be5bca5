"""What the tests of workbooks share: files of each kind, options and rows."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xlsxwriter
import xlwt

from airflow_cloudfiles.engine.formats.excel.reader import ExcelInference, ExcelReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from tests.support.formats.csv_files import SHORT, columns, written

Row = Sequence[Any]
ERRORS = {"#N/A": 0x2A, "#DIV/0!": 0x07, "#REF!": 0x17}
DATE, MOMENT, CLOCK = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "hh:mm:ss"


def local(*parts: int) -> dt.datetime:
    """A time of no zone, as a workbook has it."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - there is none


def format_of(value: object) -> str | None:
    """The number format of a cell with a value."""
    if isinstance(value, dt.datetime):
        return MOMENT
    return {dt.date: DATE, dt.time: CLOCK}.get(type(value))


def xlsx(sheets: dict[str, Sequence[Row]], **book_options: Any) -> bytes:
    """A workbook of Open XML."""
    sink = io.BytesIO()
    with xlsxwriter.Workbook(sink, {"in_memory": True, **book_options}) as book:
        formats = {each: book.add_format({"num_format": each}) for each in (DATE, MOMENT, CLOCK)}
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for row, values in enumerate(rows):
                for column, value in enumerate(values):
                    _xlsx_cell(sheet, (row, column), value, formats.get(format_of(value)))
    return sink.getvalue()


def _xlsx_cell(sheet: Any, place: tuple[int, int], value: Any, shown: Any) -> None:
    if value in ERRORS:
        sheet.write_formula(*place, "=1/0", None, value)
    elif isinstance(value, str):
        sheet.write_string(*place, value)
    elif isinstance(value, bool):
        sheet.write_boolean(*place, value)
    elif shown is not None:
        sheet.write_datetime(*place, value, shown)
    elif value is not None:
        sheet.write_number(*place, value)


def xls(sheets: dict[str, Sequence[Row]]) -> bytes:
    """A workbook of Excel 97 to 2003."""
    book = xlwt.Workbook()
    for name, rows in sheets.items():
        sheet = book.add_sheet(name)
        for row, values in enumerate(rows):
            for column, value in enumerate(values):
                if value in ERRORS:
                    sheet.row(row).set_cell_error(column, ERRORS[value])
                elif value is not None:
                    shown = format_of(value)
                    style = xlwt.easyxf(num_format_str=shown or "General")
                    sheet.write(row, column, value, style)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def packed(parts: dict[str, bytes]) -> bytes:
    """A zip archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            stored = name == "mimetype"
            kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(name, content, kind)
    return sink.getvalue()


def unpacked(content: bytes) -> dict[str, bytes]:
    """The parts of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(content: bytes, part: str, change: Callable[[bytes], bytes]) -> bytes:
    """A workbook with another part."""
    parts = unpacked(content)
    after = change(parts[part])
    assert after != parts[part]
    return packed(parts | {part: after})


WRITERS: dict[str, Callable[[dict[str, Sequence[Row]]], bytes]] = {
    "xlsx": xlsx,
    "xls": xls,
}


def options(*, given: bool = False, **others: Any) -> CloudFilesOptions:
    """Options of a source of workbooks; what does not fit is rescued, and new columns too."""
    found = {"cloudFiles.format": "excel", "headerRows": "1"}
    if not given:
        found["cloudFiles.schemaEvolutionMode"] = "rescue"
    found |= {SHORT.get(key, key): value for key, value in others.items()}
    return CloudFilesOptions.parse(found, path="/landing", has_schema=given)


def reader(ddl: str, **others: Any) -> ExcelReader:
    """A reader of a schema."""
    return ExcelReader(columns(ddl), options(**others))


def rows_of(file: StoreFile, found: ExcelReader) -> list[dict[str, Any]]:
    """The rows of a file; batches are valid and of the promised schema."""
    rows = []
    for batch in found.read_file(file):
        batch.validate(full=True)
        assert batch.schema.equals(found.arrow_schema)
        rows += batch.to_pylist()
    return rows


def book(folder: Path, rows: Sequence[Row], name: str = "f.xlsx", kind: str = "xlsx") -> StoreFile:
    """A new workbook with one sheet."""
    return written(folder, WRITERS[kind]({"Sheet1": rows}), name)


def inferred(*files: StoreFile, known: str | None = None, **others: Any) -> dict[str, str]:
    """What inference finds: type by column."""
    inference = ExcelInference(options(**others), None if known is None else columns(known))
    for file in files:
        list(inference.add_file(file))
    return {each.name: each.dataType.simpleString() for each in inference.result().fields}
