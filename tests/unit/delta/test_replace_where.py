"""Laws: `replaceWhere` and merges change the rows that they name, and no other."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.merge.batch_write import BatchWrite
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules, create_table
from airflow_cloudfiles.engine.tables.delta.write.rows import write_rows
from tests.support.delta_tables import read
from tests.support.delta_writes import read_by_another
from tests.support.laws import examples

SCHEMA = pa.schema(
    [("id", pa.int32()), ("day", pa.date32()), ("v", pa.string()), ("x", pa.float64())]
)
Row = tuple[Any, ...]
Truth = Callable[[dict[str, Any]], bool | None]

_LONG = "z" * 40
_VALUES: dict[str, list[Any]] = {
    "id": [1, 2, 3, -(2**31)],
    "day": [date(1, 1, 1), date(2024, 1, 1), date(2024, 1, 2), date(9999, 12, 31)],
    "v": ["", "a", "b", _LONG, _LONG + "a", "\U0010ffff" * 33],
    "x": [0.0, -0.0, 1.5, float("nan"), float("inf")],
}
_SIGNS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _is_null(name: str) -> tuple[str, Truth]:
    return f"{name} IS NULL", lambda row: row[name] is None


def _has_value(name: str) -> tuple[str, Truth]:
    return f"{name} IS NOT NULL", lambda row: row[name] is not None


def _compared(name: str, sign: str, value: Any) -> tuple[str, Truth]:
    def truth(row: dict[str, Any]) -> bool | None:
        return None if row[name] is None else bool(_SIGNS[sign](row[name], value))

    text = str(value) if name == "id" else f"'{value}'"
    return f"{name} {sign} {text}", truth


def _negated(of: tuple[str, Truth]) -> tuple[str, Truth]:
    def truth(row: dict[str, Any]) -> bool | None:
        found = of[1](row)
        return None if found is None else not found

    return f"NOT ({of[0]})", truth


def _combined(left: tuple[str, Truth], word: str, right: tuple[str, Truth]) -> tuple[str, Truth]:
    def truth(row: dict[str, Any]) -> bool | None:
        found = (left[1](row), right[1](row))
        decides = word == "OR"
        if decides in found:
            return decides
        return None if None in found else not decides

    return f"({left[0]} {word} {right[0]})", truth


_LEAVES = st.one_of(
    st.sampled_from(list(SCHEMA.names)).map(_is_null),
    st.sampled_from(list(SCHEMA.names)).map(_has_value),
    *(
        st.builds(_compared, st.just(name), st.sampled_from(list(_SIGNS)), st.sampled_from(values))
        for name, values in _VALUES.items()
        if name != "x"  # floats have no literals
    ),
)
_PREDICATES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(_negated), st.builds(_combined, inner, st.sampled_from(["AND", "OR"]), inner)
    ),
    max_leaves=4,
)
_ROWS = st.lists(
    st.tuples(*(st.sampled_from([None, *_VALUES[name]]) for name in SCHEMA.names)), max_size=5
)


def _write(
    target: Path,
    files: Sequence[Sequence[Row]],
    schema: pa.Schema = SCHEMA,
    **given_options: str,
) -> None:
    options = BatchWriteOptions.read(given_options)
    overwrites = options.replace_where is not None
    write = BatchWrite.begin(str(target), options, schema, overwrites=overwrites)
    how = write.how
    layout = how.layout(schema)
    written = [
        file
        for rows in files
        for file in write_rows(str(target), schema, [_batch(rows, schema)], layout, how.settings)
    ]
    write.commit(written, schema, layout)


def _batch(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([_named(row) for row in rows], schema)


def _tight(rows: Sequence[Row]) -> pa.Schema:
    """The columns, NOT NULL where the rows have no null: as Spark has those of literals."""
    return pa.schema(
        [
            field.with_nullable(any(row[place] is None for row in rows))
            for place, field in enumerate(SCHEMA)
        ]
    )


def _named(row: Row) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, row, strict=True))


def _shown(rows: Sequence[Row]) -> list[str]:
    return sorted(map(repr, rows))


def _found(table: pa.Table) -> list[str]:
    return _shown([tuple(row[name] for name in SCHEMA.names) for row in table.to_pylist()])


_NEW = [
    WriteRules(),
    WriteRules(partition_by=("day",)),
    WriteRules(properties={"delta.columnMapping.mode": "name"}),
    WriteRules(properties={"delta.columnMapping.mode": "id"}),
    WriteRules(partition_by=("day",), properties={"delta.columnMapping.mode": "name"}),
    WriteRules(partition_by=("day",), properties={"delta.columnMapping.mode": "id"}),
]


@pytest.mark.law
@example(
    _NEW[0],
    [[(1, date(2024, 1, 1), "a", None), (2, date(2024, 1, 2), "a", None), (3, None, "a", None)]],
    [
        (_compared("day", ">=", date(2024, 1, 2)), [(4, date(2024, 1, 2), "b", None)]),
        (_combined(_compared("id", "=", 1), "OR", _is_null("day")), []),
    ],
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(_NEW),
    st.lists(_ROWS, min_size=1, max_size=3),
    st.lists(st.tuples(_PREDICATES, _ROWS), min_size=1, max_size=3),
)
def test_rows_are_replaced_where_the_predicate_is_true(
    new: WriteRules, files: list[list[Row]], replaced: list[tuple[tuple[str, Truth], list[Row]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "t")
        create_table(str(target), SCHEMA, new)
        _write(target, files)
        model = [row for rows in files for row in rows]
        for (where, truth), candidates in replaced:
            rows = [row for row in candidates if truth(_named(row)) is True]
            _write(target, [rows], _tight(rows), replacewhere=where)
            model = [row for row in model if truth(_named(row)) is not True] + rows
            assert _found(read(target)) == _shown(model), where
            assert _found(read_by_another(target)) == _shown(model), where
        if new.properties:
            return
        assert _found(DeltaTable(target).to_pyarrow_dataset().to_table()) == _shown(model)


@pytest.mark.law
@example(
    _NEW[0],
    "v",
    [[(None, None, _VALUES["v"][-1], None)]],
    [[(None, None, _VALUES["v"][-1], None)]],
)
@example(
    _NEW[0], "id", [[(None, None, None, None)], [(1, None, "a", 0.0)]], [[(1, None, "b", 1.5)]]
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(_NEW),
    st.sampled_from(["id", "day", "v"]),
    st.lists(_ROWS, min_size=1, max_size=3),
    st.lists(_ROWS, min_size=1, max_size=3),
)
def test_rows_are_merged_where_the_key_is_the_same(
    new: WriteRules, key: str, files: list[list[Row]], batches: list[list[Row]]
) -> None:
    place = SCHEMA.names.index(key)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "t")
        create_table(str(target), SCHEMA, new)
        _write(target, files)
        model = [row for rows in files for row in rows]
        for batch in batches:
            rows = list({row[place]: row for row in batch if row[place] is not None}.values())
            _write(target, [rows], _tight(rows), mergekeys=key)
            newest = {row[place]: row for row in rows}
            there = {row[place] for row in model}
            model = [newest.get(row[place], row) for row in model]
            model += [row for row in rows if row[place] not in there]
            assert _found(read(target)) == _shown(model)
            assert _found(read_by_another(target)) == _shown(model)


@pytest.mark.parametrize("new", _NEW)
def test_columns_in_another_case_fit_and_missing_ones_are_null(
    tmp_path: Path, new: WriteRules
) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, new)
    day = date(2024, 1, 1)
    _write(target, [[(1, day, "a", 0.5), (2, day, "a", 0.5), (3, None, "a", 0.5)]])
    schema = pa.schema([("V", pa.string()), ("ID", pa.int32())])
    options = BatchWriteOptions.read({"replacewhere": "iD <> 2"})
    write = BatchWrite.begin(str(target), options, schema, overwrites=True)
    rows = pa.RecordBatch.from_pylist([{"V": "b", "ID": 1}], schema)
    layout = write.how.layout(schema)
    files = write_rows(str(target), schema, [rows], layout, write.how.settings)
    write.commit(files, schema, layout)
    expected = _shown([(1, None, "b", None), (2, day, "a", 0.5)])
    assert _found(read(target)) == _found(read_by_another(target)) == expected


@pytest.mark.parametrize("new", _NEW)
def test_a_part_is_replaced_with_rows_of_a_new_column(tmp_path: Path, new: WriteRules) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, new)
    day = date(2024, 1, 1)
    _write(target, [[(1, day, "a", 0.5), (2, day, "a", 0.5)]])
    schema = SCHEMA.append(pa.field("more", pa.int64()))
    rows = pa.RecordBatch.from_pylist([{**_named((1, day, "b", None)), "more": 7}], schema)
    options = {"replacewhere": "id = 1"}
    with pytest.raises(SchemaMismatchError, match="mergeSchema"):
        BatchWrite.begin(str(target), BatchWriteOptions.read(options), schema, overwrites=True)
    merging = BatchWriteOptions.read({**options, "mergeschema": "true"})
    write = BatchWrite.begin(str(target), merging, schema, overwrites=True)
    layout = write.how.layout(schema)
    files = write_rows(str(target), schema, [rows], layout, write.how.settings)
    write.commit(files, schema, layout)
    found = sorted((row["id"], row["v"], row["more"]) for row in read(target).to_pylist())
    assert found == [(1, "b", 7), (2, "a", None)]


@pytest.mark.parametrize("options", [{"replacewhere": "id = 1"}, {"mergekeys": "id"}])
@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (WriteRules(properties={"delta.enableTypeWidening": "true"}), "table features"),
        (WriteRules(properties={"delta.appendOnly": "true"}), "delta.appendOnly=true"),
    ],
)
def test_other_tables_are_refused_before_a_row_is_written(
    tmp_path: Path, new: WriteRules, reason: str, options: dict[str, str]
) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, new)
    with pytest.raises(SinkError, match=reason):
        _write(target, [[(1, None, "a", None)]], **options)
    assert not list(target.rglob("*.parquet"))
