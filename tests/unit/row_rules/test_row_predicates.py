"""A predicate of a rule has SQL's three values, and refuses what does not fit the columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.row_rules.casts import cast_from
from airflow_cloudfiles.engine.extensions.row_rules.expressions import RowPredicate
from tests.support import laws
from tests.support.row_predicates import PREDICATES, ROWS


def holds(text: str, rows: pa.RecordBatch = ROWS) -> list[int]:
    found = RowPredicate("expect.row.a", text, rows.schema).holds(rows)
    return [int(each) for each in rows.filter(found).column("id").to_pylist()]


@pytest.mark.parametrize(("text", "ids"), PREDICATES)
def test_rows_hold_as_sql_says(text: str, ids: list[int]) -> None:
    assert holds(text) == ids


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "amuont > 0",
            r"no column 'amuont'; did you mean amount\. The columns are id, name, amoun",
        ),
        ("address.zipp = 'x'", r"no column 'address\.zipp'; did you mean zip"),
        ("name.x = 1", "name is a string, and no struct"),
        ("name > 1", r"name \(string\) and 1 are not compared, as they have other types\. Cast"),
        ("id = '1'", r"id \(int32\) and 1 are not compared"),
        ("tags = 'x'", "not compared"),
        ("id", r"it is no condition, but id \(int32\)"),
        ("name AND true", r"name \(string\) is no condition"),
        ("NOT id", r"not takes conditions, and id \(int32\) is none"),
        ("name + 1 > 0", r"name \(string\) is no number"),
        ("name LIKE name", "a pattern is a text in quotes"),
        ("name RLIKE '('", "is no pattern here"),
        (r"name RLIKE '(?=a)'", "is no pattern here"),
        ("day > '2024-13-01'", "'2024-13-01' is no date"),
        ("day > DATE 'x'", "'x' is no date"),
        ("length(id) > 0", r"length takes texts, and id \(int32\) is none"),
        ("CAST(tags AS INT) = 1", "cannot be cast to INT"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^expect\.row\.a .* cannot be used: .*{reason}"):
        RowPredicate("expect.row.a", text, ROWS.schema)


_NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
_TEXTS = st.one_of(st.none(), st.text("ab%_\\ é\n", max_size=4))
_LEAVES = st.one_of(
    st.tuples(
        st.sampled_from(["i", "j"]),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(["i", "j", "0", "-1", "1.5", "NULL"]),
    ).map(" ".join),
    st.tuples(st.sampled_from(["s", "t"]), st.sampled_from(["=", "<", ">="]), st.just("'ab'")).map(
        " ".join
    ),
    st.sampled_from(
        [
            "i IS NULL", "s IS NOT NULL", "i IN (1, 2, j)", "i NOT IN (1, NULL)", "s LIKE 'a%'",
            "s NOT LIKE '_b%'", "s LIKE '%'", "j BETWEEN -1 AND i", "coalesce(i, j) = 1",
            "length(s) > 1", "CASE WHEN i > 0 THEN j = 1 WHEN s = 'a' THEN NULL ELSE true END",
            "CASE i WHEN 1 THEN j END > 0", "i + j * 2 > 1", "nullif(i, j) = 1", "upper(s) = 'AB'",
            "concat(s, t) = 'ab'", "abs(i) = 1",
        ]
    ),
)  # fmt: skip
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda t: f"NOT ({t})"),
    ),
    max_leaves=6,
)


@pytest.mark.law
@settings(max_examples=laws.examples(150), deadline=None)
@given(_TREES, st.lists(st.tuples(_NUMBERS, _NUMBERS, _TEXTS, _TEXTS), min_size=1, max_size=8))
def test_a_predicate_holds_for_the_rows_for_which_another_engine_says_so(
    text: str, values: list[Any]
) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "id": list(range(len(values))),
            **{name: [each[n] for each in values] for n, name in enumerate("ijst")},
        },
        pa.schema(
            [
                ("id", pa.int64()),
                ("i", pa.int32()),
                ("j", pa.int64()),
                ("s", pa.string()),
                ("t", pa.string()),
            ]
        ),
    )
    with duckdb.connect() as session:
        session.register("rows", pa.Table.from_batches([rows]))
        # Its concat passes over nulls.
        sql = text.replace("concat(s, t)", "(s || t)")
        wanted = session.execute(f"SELECT id FROM rows WHERE {sql} ORDER BY id").fetchall()
    assert holds(text, rows) == [each[0] for each in wanted]


@pytest.mark.law
@settings(max_examples=laws.examples(200), deadline=None)
@given(st.lists(st.from_regex(r"\s{0,1}[+-]?[0-9]{0,20}(\.[0-9]{0,4})?", fullmatch=True)))
def test_texts_are_cast_alike_whether_all_are_plain_or_not(texts: list[str]) -> None:
    for want in (pa.int32(), pa.int64(), pa.decimal128(10, 2), pa.float64()):
        cast = cast_from(pa.string(), want)
        assert cast is not None
        together = cast(pa.array([*texts, "no number"], pa.string())).to_pylist()[:-1]
        alone = [cast(pa.array([each], pa.string()))[0].as_py() for each in texts]
        assert together == alone


def test_dates_and_times_are_cast_as_sparks_cast_does() -> None:
    texts = pa.array(["2024-02-29", "2023-02-29", "2024-1-2", " 2024-01-02 ", "20240102", None])
    day = cast_from(pa.string(), pa.date32())
    assert day is not None
    assert day(texts).to_pylist() == [
        date(2024, 2, 29), None, date(2024, 1, 2), date(2024, 1, 2), None, None,
    ]  # fmt: skip
    at = cast_from(pa.string(), pa.timestamp("us", "UTC"))
    assert at is not None
    found = at(pa.array(["2024-01-02T03:04:05+01:00", "2024-01-02", "x"])).to_pylist()
    assert found == [
        datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC),
        datetime(2024, 1, 2, tzinfo=UTC),
        None,
    ]


def test_numbers_are_rounded_and_null_where_they_do_not_fit() -> None:
    cast = cast_from(pa.decimal128(10, 3), pa.decimal128(4, 1))
    assert cast is not None
    given = pa.array([Decimal("1.250"), Decimal("12345.000"), None], pa.decimal128(10, 3))
    assert cast(given).to_pylist() == [Decimal("1.3"), None, None]
    small = cast_from(pa.int64(), pa.int8())
    assert small is not None
    assert small(pa.array([1, 300, None])).to_pylist() == [1, None, None]
    whole = cast_from(pa.float64(), pa.int32())
    assert whole is not None
    assert whole(pa.array([1.9, -1.9, float("nan"), 1e20])).to_pylist() == [1, -1, None, None]
