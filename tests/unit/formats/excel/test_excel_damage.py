"""Whatever becomes of the bytes of a workbook: rows, or an error that names the file; no memory."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.excel.reader import ExcelReader
from airflow_cloudfiles.engine.reading.opened import StoreFile
from tests.support.damage import damages
from tests.support.formats.csv_files import written
from tests.support.formats.excel_files import (
    WRITERS,
    changed,
    packed,
    reader,
    rows_of,
    unpacked,
    xlsx,
)

SHEET = "xl/worksheets/sheet1.xml"
BINARY = (
    b'<Relationships><Relationship Id="r" Target="xl/workbook.bin" Type="http://schemas.'
    b'openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>'
)
"""What leads to the parts of a binary workbook."""
ROWS = [["a", "b"], *([each, f"text {each}"] for each in range(50))]


def _is_refused(file: StoreFile, found: ExcelReader, what: str) -> bool:
    """Whether a file has an error, which names it, rather than rows."""
    error = None
    try:
        rows_of(file, found)
    except FileUnreadableError as caught:
        error = caught
    assert error is None or "f.csv" in str(error), what
    return error is not None


@pytest.mark.law
@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_give_rows_or_an_error_that_names_them(kind: str, tmp_path: Path) -> None:
    content = WRITERS[kind]({"Sheet1": ROWS})
    found = reader("a INT, b STRING")
    refused = 0
    for what, damaged in damages(content, chance=random.Random(7)):
        refused += _is_refused(written(tmp_path, damaged), found, what)
    assert refused > 20


@pytest.mark.law
def test_damaged_parts_give_rows_or_an_error_that_names_the_file(tmp_path: Path) -> None:
    parts = unpacked(xlsx({"Sheet1": ROWS[:5]}))
    found = reader("a INT, b STRING")
    chance = random.Random(7)
    refused = 0
    for name, part in parts.items():
        for what, damaged in damages(part, share=60, chance=chance):
            file = written(tmp_path, packed(parts | {name: damaged}))
            refused += _is_refused(file, found, what)
    assert refused > 20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a,b\n1,2\n", "looks like a CSV file"),
        (b"<html></html>", "looks like an HTML file"),
        (packed({"a.txt": b"x"}), "looks like a zip file"),
        (packed({"[Content_Types].xml": b"<Types/>"}), "lacks its part xl/workbook.xml"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "cannot be read as Excel"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
            + bytes(600)
            + "EncryptedPackage".encode("utf-16-le"),
            "protected with a password",
        ),
        (
            packed(
                {
                    "mimetype": b"application/vnd.oasis.opendocument.spreadsheet",
                    "content.xml": b"?",
                }
            ),
            r"OpenDocument \(\.ods\), and \.xlsx, \.xlsm and \.xls are read\. Save it as \.xlsx",
        ),
        (
            packed({"_rels/.rels": BINARY, "xl/workbook.bin": b"?"}),
            r"binary format \(\.xlsb\), and .* Save it as \.xlsx",
        ),
    ],
)
def test_what_is_no_workbook_is_told_by_name(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(FileUnreadableError, match=rf"f\.csv.*{reason}"):
        rows_of(written(tmp_path, content), reader("a INT"))


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(written(tmp_path, b""), reader("a INT")) == []


def test_entities_are_refused(tmp_path: Path) -> None:
    content = changed(
        xlsx({"S": ROWS}),
        SHEET,
        lambda part: part.replace(b"<worksheet", b'<!DOCTYPE w [<!ENTITY a "b">]><worksheet', 1),
    )
    with pytest.raises(FileUnreadableError, match="DOCTYPE"):
        rows_of(written(tmp_path, content), reader("a INT"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'<row r="3"', b'<row r="1"'),
        (b'<row r="3"', b'<row r="1048577"'),
        (b'r="B3"', b'r="A3"'),
        (b'r="B3"', b'r="XFE3"'),
        (b"<v>2</v>", b"<v>9999</v>"),
        (b"<v>0</v>", b"<v>nan</v>"),
    ],
)
def test_rows_and_cells_in_disorder_are_damage(old: bytes, new: bytes, tmp_path: Path) -> None:
    content = changed(xlsx({"S": ROWS}), SHEET, lambda part: part.replace(old, new))
    with pytest.raises(FileUnreadableError, match=r"f\.csv cannot be read as Excel"):
        rows_of(written(tmp_path, content), reader("a INT, b STRING"))


def _bomb(part: str, before: bytes, repeated: bytes, after: bytes, megabytes: int) -> bytes:
    """A workbook one part of which is large outside of the archive, and small within."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in unpacked(xlsx({"S": ROWS})).items():
            if name != part:
                archive.writestr(name, content)
        with archive.open(part, "w", force_zip64=True) as target:
            target.write(before)
            piece = repeated * (2**20 // len(repeated))
            for _ in range(megabytes):
                target.write(piece)
            target.write(after)
    return sink.getvalue()


SHARED = "xl/sharedStrings.xml"
BOMBS = {
    "many texts": (SHARED, b"<sst>", b"<si><t>x</t></si>", b"</sst>"),
    "a long text": (SHARED, b"<sst><si><t>", bytes([120]), b"</t></si></sst>"),
    "a long tag": (
        SHEET,
        b"<worksheet><sheetData><row r='1'",
        b" ",
        b"></row></sheetData></worksheet>",
    ),
    "styles": ("xl/styles.xml", b"<styleSheet><cellXfs>", b"<xf/>", b"</cellXfs></styleSheet>"),
    "zeros": (SHEET, bytes(1), bytes(1), b""),
}
_LIMITED = """
import resource, sys
from pathlib import Path
from tests.support.formats.csv_files import opened
from tests.support.formats.excel_files import reader, rows_of
import airflow_cloudfiles.engine.formats.excel.workbook
found = reader("a INT, b STRING", maxRecordBytes="8m")
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 400 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        print(len(rows_of(opened(Path(path)), found)))
    except Exception as error:
        print(type(error).__name__, path in str(error), error)
"""


@pytest.mark.slow
def test_no_bomb_takes_the_memory(tmp_path: Path) -> None:
    names = []
    for name, (part, *pieces) in BOMBS.items():
        path = tmp_path / f"{name}.xlsx"
        path.write_bytes(_bomb(part, *pieces, megabytes=300))
        names.append(str(path))
    corners = tmp_path / "corners.xlsx"
    corners.write_bytes(xlsx({"S": [["a", "b"], *[[None]] * 1000, [1] + [None] * 16382 + [2]]}))
    run = subprocess.run(
        [sys.executable, "-c", _LIMITED, *names, str(corners)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    *errors, rows = run.stdout.splitlines()
    assert len(errors) == len(BOMBS)
    for each in errors:
        assert each.startswith("FileUnreadableError True"), each
    assert rows == "1001"


def test_a_sheet_that_ends_far_away_is_read_row_by_row(tmp_path: Path) -> None:
    far = b'</row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    content = changed(
        xlsx({"S": [["a"], [1]]}),
        SHEET,
        lambda part: part.replace(b"</row></sheetData>", far),
    )
    found = reader("a INT")
    batches = list(found.read_file(written(tmp_path, content)))
    assert sum(each.num_rows for each in batches) == 1048575
    assert max(each.nbytes for each in batches) < 2**20
    assert found.counts.corrupt_records == 1
