"""Parsed columns and rescued data give back every cell, whatever the columns are."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.formats.excel.cells import number_text
from tests.support.formats.csv_files import written
from tests.support.formats.excel_files import WRITERS, inferred, local, reader, rows_of

KINDS = ["STRING", "BIGINT", "TINYINT", "DOUBLE", "BOOLEAN", "DECIMAL(12,3)", "DATE", "TIMESTAMP"]
TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=8,
).filter(lambda text: text == text.strip() and "_x" not in text)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(-1e15, 1e15).map(lambda each: float(f"{each:.15g}")),
    st.sampled_from([0, 127, 128, 2**31, 0.1, 0.125, -1.5, 1e-7]),
)
CELLS = st.one_of(
    st.none(),
    NUMBERS,
    st.booleans(),
    st.dates(dt.date(1950, 1, 1), dt.date(2100, 1, 1)),
    st.datetimes(local(1950, 1, 1), local(2100, 1, 1)).map(
        lambda each: each.replace(microsecond=0)
    ),
    TEXT,
    st.sampled_from(["007", "42", "-0", "true", "2024-01-31", "1e3", "x"]),
)


def text_of(cell: Any) -> str | None:
    """A cell as text."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    return number_text(float(cell)) if isinstance(cell, int | float) else str(cell)


def gives_back(cell: Any, value: Any) -> bool:
    """Whether the value of a column is what a cell says."""
    if isinstance(value, str):
        return value == text_of(cell)
    if isinstance(value, bool):
        return str(value).lower() == str(cell).lower()
    if isinstance(value, Decimal):
        digits = cell if isinstance(cell, str) else f"{cell:.15g}"
        return value == Decimal(digits)
    if isinstance(value, int | float):
        return value == float(cell)
    moment = dt.datetime.fromisoformat(str(cell)).replace(tzinfo=dt.UTC)
    if isinstance(value, dt.datetime):
        return value == moment
    return value == moment.date() and moment.time() == dt.time()


@pytest.mark.law
@pytest.mark.parametrize("kind", WRITERS)
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=12),
    kinds=st.lists(st.sampled_from(KINDS), min_size=3, max_size=3),
)
def test_columns_and_rescued_data_give_back_every_cell(
    kind: str, rows: list[list[Any]], kinds: list[str], tmp_path: Path
) -> None:
    names = ["a", "b", "c", "unknown"]
    file = written(tmp_path, WRITERS[kind]({"Sheet1": [names, *rows]}))
    ddl = ", ".join(f"{name} {each}" for name, each in zip(names, kinds, strict=False))
    found = rows_of(file, reader(ddl, **{"cloudFiles.rescueInexactNumbers": "all"}))
    while rows and not any(each is not None for each in rows[-1]):
        rows = rows[:-1]
    assert len(found) == len(rows)
    for cells, row in zip(rows, found, strict=True):
        rescued = json.loads(row["_rescued_data"] or "{}")
        for name, cell in zip(names, cells, strict=True):
            if name in rescued:
                assert row.get(name) is None
                assert rescued[name] == text_of(cell)
            elif cell is None or name == "unknown":
                assert cell is None
                assert row.get(name) is None
            else:
                assert gives_back(cell, row[name]), (cell, row[name])


@pytest.mark.law
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=12))
def test_nothing_is_rescued_of_the_files_a_schema_is_inferred_from(
    rows: list[list[Any]], tmp_path: Path
) -> None:
    file = written(tmp_path, WRITERS["xlsx"]({"Sheet1": [["a", "b"], *rows]}))
    types = inferred(file, typed="true")
    ddl = ", ".join(
        f"{name} {'string' if each == 'void' else each}" for name, each in types.items()
    )
    assert all(row["_rescued_data"] is None for row in rows_of(file, reader(ddl)))
