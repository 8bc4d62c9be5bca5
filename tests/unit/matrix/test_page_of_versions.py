"""The page of tested versions: rows of what was run now, and of what was run before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix import page
from matrix.declared import Cell, read
from matrix.parts import PARTS

OLD, NEW = Cell("3.9", "3.1", "4.2"), Cell("3.11", "3.1", "4.2")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(f"# Before\n\n{page.BEGIN}{page.END}\n\nBehind.\n", encoding="utf-8")
    return path


def _result(python: str, failed: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"passed": 1200, "failed": failed, "skipped": 2}
    return {
        "date": "2026-11-24",
        "commit": "1a2b3c",
        "versions": {
            "python": python,
            "apache-airflow": "3.1.8",
            "pyspark": "4.2.0",
            "pyarrow": "25.0",
            "java": "",
            "numpy": "2.4.6 with a very long name of its build " * 3,
        },
        "parts": {PARTS[0].name: counts, **more},
    }


def _rows(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("| 3")]


def test_rows_are_replaced_by_their_versions_and_others_stay(written: Path) -> None:
    page.write({NEW: _result("3.11.7", failed=2)}, page=written)
    page.write({OLD: _result("3.9.1")}, page=written)
    first, second = _rows(written)
    assert first.startswith("| 3.9.1 | 3.1.8 | 4.2.0 | 1,200 passed | not run |")
    assert second.startswith("| 3.11.7 | 3.1.8 | 4.2.0 | 1,200 passed, 2 **failed** | not run |")
    page.write({NEW: _result("3.11.8")}, page=written)
    assert [row.split()[1] for row in _rows(written)] == ["3.9.1", "3.11.8"]
    text = written.read_text()
    assert "**failed**" not in text
    words = " ".join(text.split())
    assert "- Python 3.11.8, Airflow 3.1.8, PySpark 4.2.0: PyArrow 25.0, NumPy 2.4.6 with" in words
    assert "3.11.7" not in text
    assert text.startswith("# Before\n\n")
    assert text.endswith("\n\nBehind.\n")
    assert all(f"- **{part.name}**: {part.what}." in words for part in PARTS)
    again = written.read_text()
    page.write({NEW: _result("3.11.8")}, page=written)
    assert written.read_text() == again


def test_a_covering_cell_that_was_not_run_says_so(written: Path) -> None:
    page.write({}, [OLD, NEW], written)
    page.write({OLD: _result("3.9.1")}, [OLD, NEW], written)
    first, second = _rows(written)
    assert first.startswith("| 3.9.1 | 3.1.8 |")
    assert second.startswith("| 3.11 | 3.1 | 4.2 | not run | not run |")
    assert {row.count("|") for row in _rows(written)} == {len(page.HEADS) + 1}
    page.write({NEW: _result("3.11.7")}, [OLD, NEW], written)
    assert [row.split()[1] for row in _rows(written)] == ["3.9.1", "3.11.7"]


def test_rows_of_other_columns_go(written: Path) -> None:
    page.write({OLD: _result("3.9.1")}, page=written)
    written.write_text(written.read_text().replace(f"| {PARTS[0].name} |", "| other |"))
    page.write({NEW: _result("3.11.7")}, page=written)
    assert [row.split()[1] for row in _rows(written)] == ["3.11.7"]


def test_a_page_without_marks_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Other\n")
    with pytest.raises(ValueError, match="lacks its marks"):
        page.write({NEW: _result("3.11.7")}, page=path)
    assert path.read_text() == "# Other\n"


def test_the_terminal_has_a_line_for_each_cell() -> None:
    failed = _result("3.11.7", **{PARTS[1].name: {"passed": 0, "failed": 0}})
    lines = page.table([OLD, NEW], {NEW: failed}).splitlines()
    assert lines[0].split()[:2] == ["cell", PARTS[0].name]
    assert lines[1].split()[:3] == [OLD.name, "not", "run"]
    assert lines[2].split()[:3] == [NEW.name, "passed", "FAILED"]


def test_the_committed_page_has_a_row_for_each_covering_cell() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    held = text.partition(page.BEGIN)[2].partition(page.END)[0]
    rows = page._rows(held)
    assert {(cell.python, cell.airflow, cell.spark) for cell in read().covering} <= rows.keys()
