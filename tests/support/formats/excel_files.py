"""What the tests of workbooks share: files of each kind, options and rows."""

from __future__ import annotations

import datetime as dt
import io
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xlsxwriter
import xlwt
from odf import opendocument, table, text

from airflow_cloudfiles.engine.formats.excel.infer import ExcelInference
from airflow_cloudfiles.engine.formats.excel.reader import ExcelReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from tests.support.formats.csv_files import SHORT, columns, written

Row = Sequence[Any]
ERRORS = {"#N/A": 0x2A, "#DIV/0!": 0x07, "#REF!": 0x17}
DATE, MOMENT, CLOCK = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "hh:mm:ss"


def local(*parts: int) -> dt.datetime:
    """A time of no zone, as a workbook has it."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - there is none


EPOCH = local(1899, 12, 30)


def format_of(value: object) -> str | None:
    """The number format of a cell with a value."""
    if isinstance(value, dt.datetime):
        return MOMENT
    return {dt.date: DATE, dt.time: CLOCK}.get(type(value))


def serial(value: dt.date | dt.time) -> float:
    """Days since the epoch of 1900."""
    if isinstance(value, dt.time):
        value = dt.datetime.combine(EPOCH, value)
    elif not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    return (value - EPOCH) / dt.timedelta(1)


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


def ods(sheets: dict[str, Sequence[Row]]) -> bytes:
    """A workbook of OpenDocument."""
    book = opendocument.OpenDocumentSpreadsheet()
    for name, rows in sheets.items():
        sheet = table.Table(name=name)
        for values in rows:
            line = table.TableRow()
            for value in values:
                line.addElement(_ods_cell(value))
            sheet.addElement(line)
        book.spreadsheet.addElement(sheet)
    sink = io.BytesIO()
    book.write(sink)
    return sink.getvalue()


def _ods_cell(value: Any) -> Any:
    given: dict[str, str] = {}
    lines: list[str] = []
    if value in ERRORS:
        given = {"formula": "of:=1/0", "valuetype": "string", "stringvalue": ""}
        lines = [value]
    elif isinstance(value, str):
        given, lines = {"valuetype": "string"}, value.split("\n")
    elif isinstance(value, bool):
        given = {"valuetype": "boolean", "booleanvalue": str(value).lower()}
    elif isinstance(value, dt.date):
        given = {"valuetype": "date", "datevalue": value.isoformat()}
    elif isinstance(value, dt.time):
        given = {"valuetype": "time", "timevalue": f"{value:PT%HH%MM%SS}"}
    elif value is not None:
        given = {"valuetype": "float", "value": repr(value)}
    cell = table.TableCell(**given)
    for line in lines:
        cell.addElement(text.P(text=line))
    return cell


def xlsb(sheets: dict[str, Sequence[Row]]) -> bytes:
    """A binary workbook, record by record ([MS-XLSB]): nobody in Python writes them."""
    shared: dict[str, int] = {}
    parts = {
        f"xl/worksheets/sheet{n}.bin": _bin_sheet(rows, shared)
        for n, rows in enumerate(sheets.values(), 1)
    }
    book = b"".join(
        _record(156, struct.pack("<II", 0, n) + _wide(f"rId{n}") + _wide(name))
        for n, name in enumerate(sheets, 1)
    )
    formats = b"".join(
        _record(44, struct.pack("<H", 164 + n) + _wide(each))
        for n, each in enumerate((DATE, MOMENT, CLOCK))
    )
    cells = b"".join(
        _record(47, struct.pack("<HH", 0, each) + bytes(12)) for each in (0, 164, 165, 166)
    )
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = [
        (f"rId{n}", "worksheet", f"worksheets/sheet{n}.bin") for n in range(1, len(sheets) + 1)
    ]
    relations += [("rS", "styles", "styles.bin"), ("rT", "sharedStrings", "sharedStrings.bin")]
    parts |= {
        "xl/workbook.bin": _between(131, _record(153, bytes(8)) + _between(143, book), 132),
        "xl/styles.bin": _between(
            278, _between(615, formats, 616, 3) + _between(617, cells, 618, 4), 279
        ),
        "xl/sharedStrings.bin": _between(
            159,
            b"".join(_record(19, b"\0" + _wide(each)) for each in shared),
            160,
            len(shared),
            len(shared),
        ),
        "_rels/.rels": _relations([("r", "officeDocument", "xl/workbook.bin")], office),
        "xl/_rels/workbook.bin.rels": _relations(relations, office),
    }
    return packed({"[Content_Types].xml": b"<Types/>", **parts})


def _between(begin: int, content: bytes, end: int | None = None, *counts: int) -> bytes:
    head = _record(begin, struct.pack(f"<{len(counts)}I", *counts))
    return head + content + _record(begin + 1 if end is None else end, b"")


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


def _relations(each: list[tuple[str, str, str]], office: str) -> bytes:
    inside = "".join(
        f'<Relationship Id="{key}" Type="{office}/{kind}" Target="{target}"/>'
        for key, kind, target in each
    )
    return f"<Relationships>{inside}</Relationships>".encode()


def _bin_sheet(rows: Sequence[Row], shared: dict[str, int]) -> bytes:
    width = max(map(len, rows), default=1)
    size = struct.pack("<IIII", 0, max(0, len(rows) - 1), 0, width - 1)
    found = [_record(129, b""), _record(148, size), _record(145, b"")]
    for row, values in enumerate(rows):
        if any(each is not None for each in values):
            found.append(_record(0, struct.pack("<I", row) + bytes(13)))
        for column, value in enumerate(values):
            if value is not None:
                kind, style, data = _bin_cell(value, shared)
                found.append(_record(kind, struct.pack("<II", column, style) + data))
    return b"".join([*found, _record(146, b""), _record(130, b"")])


def _bin_cell(value: Any, shared: dict[str, int]) -> tuple[int, int, bytes]:
    shown = format_of(value)
    style = [None, DATE, MOMENT, CLOCK].index(shown)
    if value in ERRORS:
        return 11, 0, bytes([ERRORS[value]])
    if isinstance(value, bool):
        return 4, 0, bytes([value])
    if isinstance(value, str):
        return 7, 0, struct.pack("<I", shared.setdefault(value, len(shared)))
    number = serial(value) if shown else value
    if isinstance(number, int) and abs(number) < 2**28:
        return 2, style, struct.pack("<I", ((number << 2) | 2) & 0xFFFFFFFF)
    return 5, style, struct.pack("<d", number)


def _record(kind: int, data: bytes) -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    size = len(data)
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + data


def _wide(text: str) -> bytes:
    data = text.encode("utf-16-le")
    return struct.pack("<I", len(data) // 2) + data


WRITERS: dict[str, Callable[[dict[str, Sequence[Row]]], bytes]] = {
    "xlsx": xlsx,
    "xlsb": xlsb,
    "xls": xls,
    "ods": ods,
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
        inference.add_file(file)
    return {each.name: each.dataType.simpleString() for each in inference.result().fields}
