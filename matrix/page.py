"""What does the page of tested versions say, and what does the terminal?

The rows of a page are its record: a run replaces those of the cells that it has tested, and leaves
the others as they are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matrix.declared import ROOT, Cell
from matrix.parts import PARTS, Part

PAGE: Final = ROOT / "docs" / "reference" / "tested-versions.md"
BEGIN: Final = "<!-- results of make test-matrix -->\n"
END: Final = "<!-- end of results -->"
HEADS: Final = ("Python", "Airflow", "PySpark", *(part.name for part in PARTS), "when", "commit")
_BESIDE: Final = {
    "apache-airflow-providers-common-compat": "common-compat provider",
    "apache-airflow-providers-standard": "standard provider",
    "deltalake": "deltalake",
    "pyarrow": "PyArrow",
    "numpy": "NumPy",
    "pandas": "pandas",
    "java": "Java",
}


def has_passed(part: Mapping[str, Any] | None) -> bool:
    """Whether a part was run, and passed."""
    return part is not None and not part["failed"] and part["passed"] > 0


def write(
    results: Mapping[Cell, Mapping[str, Any]], covering: Iterable[Cell] = (), page: Path = PAGE
) -> None:
    """Write results into the page, between its marks.

    Args:
        results: By cell.
        covering: Cells that get a row in any case.
        page: Which.

    Raises:
        ValueError: The page does not have the marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    held, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks its marks: {BEGIN.strip()} and {END}.")
    rows = _rows(held) | {_key(row): row for row in map(_row, results.values())}
    for cell in covering:
        none = (_shown(each, None, cell.spark) for each in PARTS)
        empty = (cell.python, cell.airflow, cell.spark, *none, "-", "-")
        rows.setdefault(_key(empty), empty)
    beside = _beside(held) | {_key(_row(each)): _versions(each) for each in results.values()}
    parts = "\n".join(_wrapped(f"- **{part.name}**: {part.what}.") for part in PARTS)
    lines = [
        f"| {' | '.join(HEADS)} |",
        f"|{' --- |' * len(HEADS)}",
        *(f"| {' | '.join(rows[key])} |" for key in sorted(rows, key=_order)),
        "",
        *(_wrapped(f"- {beside[key]}") for key in sorted(beside, key=_order) if key in rows),
    ]
    new = f"\n{parts}\n\n" + "\n".join(lines) + "\n\n"
    page.write_text(f"{before}{BEGIN}{new}{END}{after}", encoding="utf-8")


def _wrapped(item: str) -> str:
    """Break an item of a list as the documentation does."""
    return textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False)


def _rows(held: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The rows that a page has; none of a page with other columns."""
    tables = [
        tuple(word.strip() for word in line.strip("| ").split("|"))
        for line in held.splitlines()
        if line.startswith("| ") and not line.startswith("| ---")
    ]
    if not tables or tables[0] != HEADS:
        return {}
    return {_key(row): row for row in tables[1:]}


def _beside(held: str) -> dict[tuple[str, ...], str]:
    """The lines on further versions that a page has."""
    found = {}
    for line in held.replace("\n  ", " ").splitlines():
        if line.startswith("- Python "):
            cell = line.removeprefix("- ").partition(":")[0]
            found[_key([each.split()[-1] for each in cell.split(", ")])] = line.removeprefix("- ")
    return found


def _key(row: Sequence[str]) -> tuple[str, ...]:
    """The minor versions, by which a row is known."""
    return tuple(".".join(each.split(".")[:2]) for each in row[:3])


def _order(key: Sequence[str]) -> list[list[int]]:
    return [[int(number) for number in each.split(".")] for each in key]


def _row(result: Mapping[str, Any]) -> tuple[str, ...]:
    versions = result["versions"]
    return (
        versions["python"],
        versions["apache-airflow"],
        versions["pyspark"],
        *(_shown(each, result["parts"].get(each.name), versions["pyspark"]) for each in PARTS),
        result["date"],
        result["commit"],
    )


def _versions(result: Mapping[str, Any]) -> str:
    versions = result["versions"]
    name = (
        f"Python {versions['python']}, Airflow {versions['apache-airflow']}, "
        f"PySpark {versions['pyspark']}"
    )
    return f"{name}: " + ", ".join(
        f"{label} {versions[each]}" for each, label in _BESIDE.items() if versions.get(each)
    )


def _shown(part: Part, found: Mapping[str, Any] | None, spark: str) -> str:
    if found is None:
        return "not run" if part.is_for(spark) else f"needs {part.oldest_spark}"
    counts = [(found["passed"], "passed"), (found["failed"], "**failed**")]
    return ", ".join(f"{count:,} {word}" for count, word in counts if count or word == "passed")


def table(cells: Iterable[Cell], results: Mapping[Cell, Mapping[str, Any]]) -> str:
    """Write a table for a terminal.

    Args:
        cells: Which, in their order.
        results: Of those that were run, now or before.
    """
    rows = [("cell", *(part.name for part in PARTS))]
    for cell in cells:
        parts = results[cell]["parts"] if cell in results else {}
        words = (_word(parts.get(each.name)) if each.is_for(cell.spark) else "-" for each in PARTS)
        rows.append((cell.name, *words))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _word(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "not run"
    return "passed" if has_passed(part) else "FAILED"


def left(parts: Sequence[Part], result: Mapping[str, Any] | None, commit: str) -> list[Part]:
    """The parts that are still to be run: those that have not passed for the same commit.

    Args:
        parts: Which are asked for.
        result: Of the cell, from an earlier run.
        commit: What is tested now; with changes that are in no commit, nothing counts.
    """
    if result is None or result["commit"] != commit or " " in commit:
        return list(parts)
    return [part for part in parts if not has_passed(result["parts"].get(part.name))]
