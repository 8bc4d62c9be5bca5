"""A predicate of an option chooses the rows that SQL says, and is never pasted into a statement."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.tables.delta.predicates import holds, parse_predicate

ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "op": "D", "Weird `x`": True, "day": date(2024, 1, 1), "n": Decimal("1.50"),
         "at": datetime(2024, 1, 1, 12, tzinfo=UTC), "f": 1.0},
        {"id": 2, "op": "it's", "Weird `x`": False, "day": date(2024, 1, 2), "n": Decimal("-1.00"),
         "at": datetime(2024, 1, 2, 12, tzinfo=UTC), "f": 2.0},
        {"id": 3, "op": None, "Weird `x`": None, "day": None, "n": None, "at": None, "f": None},
        {"id": -4, "op": "", "Weird `x`": True, "day": date(2024, 1, 1), "n": Decimal("0.00"),
         "at": datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=UTC), "f": 4.0},
    ],
    pa.schema(
        [
            ("id", pa.int32()),
            ("op", pa.string()),
            ("Weird `x`", pa.bool_()),
            ("day", pa.date32()),
            ("n", pa.decimal128(6, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("f", pa.float64()),
        ]
    ),
)  # fmt: skip
CASES: list[tuple[str, list[int]]] = [
    ("op = 'D'", [1]),
    ("OP == 'it''s'", [2]),
    ("op != 'D'", [2, -4]),
    ("op IS NULL", [3]),
    ("op is not null and id > 1", [2]),
    ("NOT op = 'D'", [2, -4]),
    ("id in (1, -4)", [1, -4]),
    ("id NOT IN (1, -4)", [2, 3]),
    ("id between 1 and 2 or op is null", [1, 2, 3]),
    ("not (id between 1 and 2 or op is null)", [-4]),
    ("`weird ``x``` = true", [1, -4]),
    ("day = '2024-01-01'", [1, -4]),
    ("day > DATE '2024-01-01'", [2]),
    ("n >= 0", [1, -4]),
    ("n = 1.5", [1]),
    ("at <= TIMESTAMP '2024-01-01T12:00:00'", [1]),
    ("at > '2024-01-01 13:00:00+01:00'", [2, -4]),
    ("id = 1 or id = 2 and op = 'D'", [1]),
    ("op <> 'D' or op is null", [2, 3, -4]),
]


def _chosen(text: str) -> list[int]:
    found = holds(parse_predicate("replaceWhere", text, ROWS.schema), ROWS)
    return [int(each) for each in ROWS.filter(found).column("id").to_pylist()]


@pytest.mark.parametrize(("text", "ids"), CASES)
def test_rows_are_chosen_as_sql_says(text: str, ids: list[int]) -> None:
    assert _chosen(text) == ids


def test_the_sql_that_is_made_anew_chooses_the_same_rows(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table(ROWS))
    session = QueryBuilder().register("t", DeltaTable(tmp_path))
    for text, ids in CASES:
        sql = parse_predicate("replaceWhere", text, ROWS.schema).to_sql("t")
        found = pa.table(session.execute(f"SELECT id FROM t WHERE {sql}").read_all())
        assert sorted(found["id"].to_pylist()) == sorted(ids), sql


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ends too early"),
        ("id", "ends too early"),
        ("id = 1; DROP TABLE t", "'; DROP TABLE t' is not understood"),
        ("id = 1 id", "'id' is not expected"),
        ("id = other", "no literal of the type of id"),
        ("id = '1'", "no literal of the type of id"),
        ("id = 1.5", "no literal of the type of id"),
        ("id = 99999999999", "no literal of the type of id"),
        ("op = D", "no literal of the type of op"),
        ("f = 1.0", "no literal of the type of f"),
        ("n = 1.005", "no literal of the type of n"),
        ("day = '2024-13-01'", "no literal of the type of day"),
        ("missing = 1", "there is no column 'missing'"),
        ("1 = 1", "'1' stands where a column is expected"),
        ("id = 1 or (id = 2", r"\) is expected"),
        ("exists(select 1)", "there is no function 'exists'"),
        ("id = = 1", "'=' stands where a column or a value is expected"),
        ("(" * 60 + "id = 1" + ")" * 60, "nested too deeply"),
    ],
)
def test_anything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^replaceWhere .* cannot be used: .*{reason}"):
        parse_predicate("replaceWhere", text, ROWS.schema)


@pytest.mark.law
@given(st.text())
def test_no_text_gets_out_of_its_literal(text: str) -> None:
    quoted = text.replace("'", "''")
    sql = parse_predicate("where", f"op = '{quoted}'", ROWS.schema).to_sql()
    assert sql == f"\"op\" = '{quoted}'"


@given(st.text(max_size=30))
def test_no_text_ends_in_another_error(text: str) -> None:
    for predicate in (text, f"id = {text}", f"op in ({text})", f"({text}"):
        found: Any = None
        try:
            found = parse_predicate("where", predicate, ROWS.schema)
        except OptionError:
            continue
        assert len(holds(found, ROWS)) == ROWS.num_rows
