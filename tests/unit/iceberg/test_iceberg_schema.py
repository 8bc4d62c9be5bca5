"""An Iceberg table takes what fits, becomes what it may, and refuses the rest by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.commit import (
    TableRules,
    check_table,
    commit_batch,
    ready_table,
)
from airflow_cloudfiles.engine.extensions.iceberg.data_files import IcebergFileWriter
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.types import VARIANT
from tests.support.iceberg_tables import LocalCatalog

MERGES = TableRules(merge_schema=True)
WIDENS = TableRules(merge_schema=True, widens=True)


def land(
    lake: LocalCatalog,
    number: int,
    columns: pa.Schema | dict[str, pa.DataType],
    *rows: dict[str, Any],
    rules: TableRules = MERGES,
) -> None:
    """One batch, from its rows to its commit."""
    schema = columns if isinstance(columns, pa.Schema) else pa.schema(list(columns.items()))
    target = IcebergLocation.of(lake.uri("t"))
    writer = IcebergFileWriter(target, ready_table(target, schema, rules))
    files = writer.write([pa.RecordBatch.from_pylist(list(rows), schema)])
    commit_batch(
        lake.uri("t"),
        batch=BatchId("stream", number),
        files=files,
        columns=schema,
        rules=rules,
    )


def found(lake: LocalCatalog) -> list[dict[str, Any]]:
    """The rows as two implementations read them."""
    rows = lake.table("t").scan().to_arrow().to_pylist()
    by_id = sorted(rows, key=lambda row: row["id"])
    assert sorted(lake.rows("t"), key=lambda row: row["id"]) == by_id
    return by_id


ID = {"id": pa.int64()}
EVERYTHING: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "byte": (pa.int8(), -8),
    "short": (pa.int16(), -16),
    "int": (pa.int32(), 2**31 - 1),
    "long": (pa.int64(), -(2**63)),
    "float": (pa.float32(), 0.5),
    "double": (pa.float64(), 0.1),
    "decimal": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    "small decimal": (pa.decimal128(5, 2), Decimal("-1.10")),
    "string": (pa.string(), "ünï\n"),
    "binary": (pa.binary(), b"\0\xff"),
    "date": (pa.date32(), dt.date(1582, 10, 15)),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
    "array": (pa.list_(pa.int32()), [1, None, 3]),
    "struct": (pa.struct([("a b", pa.string()), ("c.d", pa.int64())]), {"a b": "x", "c.d": 1}),
    "_rescued_data": (pa.string(), '{"x": 1}'),
    "odd.name `ü": (pa.string(), "y"),
}


def test_every_type_comes_back_as_it_was(lake: LocalCatalog) -> None:
    columns = {**ID, **{name: kind for name, (kind, _) in EVERYTHING.items()}}
    row = {"id": 1, **{name: value for name, (_, value) in EVERYTHING.items()}}
    land(lake, 0, columns, row, {"id": 2})
    nothing = dict.fromkeys(EVERYTHING)
    assert found(lake) == [row, {"id": 2, **nothing}]


def test_times_with_a_zone_and_maps_come_back(lake: LocalCatalog) -> None:
    kinds = {
        **ID,
        "at": pa.timestamp("us", tz="UTC"),
        "map": pa.map_(pa.string(), pa.struct([("n", pa.int32())])),
    }
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    land(lake, 0, kinds, {"id": 1, "at": at, "map": [("k", {"n": 1})]})
    (row,) = lake.table("t").scan().to_arrow().to_pylist()
    assert row == {"id": 1, "at": at, "map": [("k", {"n": 1})]}
    (row,) = lake.rows("t")
    assert row["at"] == at


def test_dates_of_any_year_are_kept_and_only_their_bounds_left_out(lake: LocalCatalog) -> None:
    days = pa.array([-1_000_000, 5_000_000, 0], pa.int32()).cast(pa.date32())
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    target = IcebergLocation.of(lake.uri("t"))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), days], schema=schema)
    files = IcebergFileWriter(target, ready_table(target, schema, MERGES)).write([batch])
    commit_batch(lake.uri("t"), batch=BatchId("s", 0), files=files, columns=schema, rules=MERGES)
    back = lake.table("t").scan().to_arrow().sort_by("id")["day"].cast(pa.int32())
    assert back.to_pylist() == [-1_000_000, 5_000_000, 0]
    (entry,) = files
    assert set(entry.statistics["lower_bounds"]) == {1}, "of id; none of day"
    assert set(entry.statistics["null_value_counts"]) == {1, 2}


def test_new_columns_are_added_when_asked_to(lake: LocalCatalog) -> None:
    land(lake, 0, {**ID, "s": pa.struct([("a", pa.int32())])}, {"id": 1, "s": {"a": 1}})
    wider = pa.struct([("b", pa.list_(pa.struct([("x", pa.string())]))), ("a", pa.int32())])
    columns = {**ID, "new": pa.string(), "s": wider}
    row = {"id": 2, "new": "n", "s": {"a": 2, "b": [{"x": "y"}]}}
    with pytest.raises(SchemaMismatchError, match=r"lacks .*Set mergeSchema=true"):
        land(lake, 1, columns, row, rules=TableRules())
    land(lake, 1, columns, row)
    land(lake, 2, ID, {"id": 3})
    assert found(lake) == [
        {"id": 1, "s": {"a": 1, "b": None}, "new": None},
        row,
        {"id": 3, "s": None, "new": None},
    ]


def test_fields_are_added_inside_arrays_and_maps(lake: LocalCatalog) -> None:
    def kinds(*names: str) -> dict[str, pa.DataType]:
        inside = pa.struct([(name, pa.int32()) for name in names])
        return {**ID, "list": pa.list_(inside), "map": pa.map_(pa.string(), inside)}

    land(lake, 0, kinds("a"), {"id": 1, "list": [{"a": 1}], "map": [("k", {"a": 1})]})
    land(lake, 1, kinds("a", "b"), {"id": 2, "list": [{"b": 2}], "map": [("k", {"b": 2})]})
    rows = lake.table("t").scan().to_arrow().sort_by("id").to_pylist()
    assert [row["list"] for row in rows] == [[{"a": 1, "b": None}], [{"a": None, "b": 2}]]
    assert rows[1]["map"] == [("k", {"a": None, "b": 2})]


NARROW_WIDE = [
    (pa.int32(), 1, pa.int64(), 2**40),
    (pa.float32(), 0.5, pa.float64(), 0.1),
    (pa.decimal128(5, 2), Decimal("1.10"), pa.decimal128(20, 2), Decimal("123456789012.10")),
]


@pytest.mark.parametrize(("narrow", "small", "wide", "large"), NARROW_WIDE)
def test_a_column_is_widened_where_iceberg_does_it(
    lake: LocalCatalog, narrow: pa.DataType, small: Any, wide: pa.DataType, large: Any
) -> None:
    land(lake, 0, {**ID, "v": narrow}, {"id": 1, "v": small})
    before = lake.files()
    with pytest.raises(SchemaMismatchError, match="typeWidening=true"):
        land(lake, 1, {**ID, "v": wide}, {"id": 2, "v": large})
    land(lake, 1, {**ID, "v": wide}, {"id": 2, "v": large}, rules=WIDENS)
    land(lake, 2, {**ID, "v": narrow}, {"id": 3, "v": small})
    assert [row["v"] for row in found(lake)] == [small, large, small]
    assert set(before) < set(lake.files()), "no file is rewritten"


def test_fields_inside_are_widened(lake: LocalCatalog) -> None:
    land(lake, 0, {**ID, "s": pa.list_(pa.int32())}, {"id": 1, "s": [1]})
    land(lake, 1, {**ID, "s": pa.list_(pa.int64())}, {"id": 2, "s": [2**40]}, rules=WIDENS)
    assert [row["s"] for row in found(lake)] == [[1], [2**40]]


REFUSED = [
    (pa.int64(), pa.string(), "v is long in .* but string in the stream"),
    (pa.string(), pa.int64(), "v is string in .* but long in the stream"),
    (pa.int32(), pa.float64(), "Iceberg does not widen"),
    (pa.date32(), pa.timestamp("us"), "Iceberg does not widen"),
    (pa.decimal128(5, 2), pa.decimal128(9, 3), "Iceberg does not widen"),
    (pa.int64(), pa.struct([("a", pa.int64())]), "v is long"),
    (pa.list_(pa.int64()), pa.list_(pa.string()), "v.element is long"),
]


@pytest.mark.parametrize(("have", "want", "message"), REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    lake: LocalCatalog, have: pa.DataType, want: pa.DataType, message: str
) -> None:
    land(lake, 0, {**ID, "v": have}, {"id": 1})
    before = lake.files()
    with pytest.raises(SchemaMismatchError, match=message):
        land(lake, 1, {**ID, "v": want, "new": pa.string()}, {"id": 2}, rules=WIDENS)
    assert lake.files() == before
    assert [each.name for each in lake.table("t").schema().fields] == ["id", "v"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": VARIANT}, "v is a VARIANT.*format version 3"),
        ({"s": pa.struct([("v", VARIANT)])}, "s.v is a VARIANT"),
        ({"v": pa.null()}, "v has no type"),
        ({"v": pa.duration("us")}, "v has the type duration"),
        ({"a": pa.int64(), "A": pa.int64()}, "A differs only in case from a"),
        ({"s": pa.struct([("a", pa.int64()), ("A", pa.int64())])}, "s.A differs only in case"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    lake: LocalCatalog, columns: dict[str, pa.DataType], message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        check_table(lake.uri("t"), pa.schema(list(columns.items())), WIDENS)
    land(lake, 0, {"id": pa.int64(), "a": pa.int64()}, {"id": 1})
    with pytest.raises(SchemaMismatchError, match=message):
        land(lake, 1, columns, rules=WIDENS)


def test_a_required_column_takes_no_null(lake: LocalCatalog) -> None:
    inside = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", inside)])
    lake.catalog.create_table(("db", "t"), schema)
    land(lake, 0, pa.schema([("id", pa.int64())]), {"id": 1})
    with pytest.raises(SchemaMismatchError, match=r"id .*is required, and a row.*has a null"):
        land(lake, 1, pa.schema([("id", pa.int64())]), {"id": None})
    with pytest.raises(SchemaMismatchError, match=r"id .*is required, and the stream lacks it"):
        land(lake, 1, pa.schema([("s", inside)]), {"s": None})
    nullable = pa.struct([("a", pa.int64())])
    with pytest.raises(SchemaMismatchError, match=r"s.a .*the stream may have nulls there"):
        land(lake, 1, pa.schema([("id", pa.int64()), ("s", nullable)]), {"id": 1})
    assert [row["id"] for row in found(lake)] == [1]
    assert len(lake.files()) == 1


def test_a_renamed_column_keeps_its_values(lake: LocalCatalog) -> None:
    """Files have the ids of the columns: names alone would lose them."""
    land(lake, 0, {**ID, "old": pa.string()}, {"id": 1, "old": "x"})
    with lake.table("t").update_schema() as update:
        update.rename_column("old", "new")
    assert found(lake) == [{"id": 1, "new": "x"}]
