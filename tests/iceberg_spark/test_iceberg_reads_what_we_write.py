"""Iceberg's own runtime reads each snapshot of what we write as we do, and goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.delta_tables import sorted_rows
from tests.support.iceberg_spark import IcebergSpark
from tests.support.iceberg_tables import LocalCatalog
from tests.support.iceberg_writes import IcebergSink

pytestmark = pytest.mark.spark

MOMENT = datetime(2024, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
NESTED = pa.schema(
    [("id", pa.int64()), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(pa.string(), INNER))]
)
ONE = {"x": 1, "y": "a"}
ROW = {"id": 1, "s": ONE, "l": [ONE, None], "m": [("k", ONE)]}
VALUES = {
    "i8": (pa.int8(), -128, 127),
    "i16": (pa.int16(), 2**15 - 1, -(2**15)),
    "i32": (pa.int32(), -(2**31), 0),
    "i64": (pa.int64(), 2**63 - 1, -(2**63)),
    "f32": (pa.float32(), 1.5, float("inf")),
    "f64": (pa.float64(), -0.0, float("-inf")),
    "small": (pa.decimal128(5, 2), Decimal("-999.99"), Decimal("0.01")),
    "large": (pa.decimal128(38, 10), Decimal("12345678901234567890.0123456789"), Decimal(0)),
    "b": (pa.bool_(), True, False),
    "s": (pa.string(), "é\n\x00☃", ""),
    "bytes": (pa.binary(), b"\x00\xff", b""),
    "d": (pa.date32(), date(1582, 10, 15), date(9999, 12, 31)),
    "ts": (pa.timestamp("us", "UTC"), MOMENT, datetime(1969, 12, 31, 23, 59, tzinfo=UTC)),
    "ntz": (pa.timestamp("us"), MOMENT.replace(tzinfo=None), datetime(1900, 1, 1)),  # noqa: DTZ001
}
TYPES = pa.schema([(name, kind) for name, (kind, _, _) in VALUES.items()])
SQL_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
    "timestamp[us]": "TIMESTAMP_NTZ",
}
ROWS: list[dict[str, Any]] = [
    {name: first for name, (_, first, _) in VALUES.items()},
    {name: second for name, (_, _, second) in VALUES.items()},
    {},
]
TRANSFORMS = {
    "identities": "i16, i32, s, small, b, d, ts",
    "buckets": "bucket(3, i64), bucket(5, s), bucket(7, small), bucket(2, d), bucket(4, bytes)",
    "more buckets": "bucket(3, i32), bucket(6, ts), bucket(9, large), bucket(8, ntz)",
    "truncations": "truncate(10, i64), truncate(1, s), truncate(50, large), truncate(3, i32)",
    "years and days": "year(ts), day(d)",
    "months and hours": "month(d), hour(ts)",
    "of local times": "hour(ntz), year(d)",
}


def _partitions(partition_by: str | None) -> Callable[[LocalCatalog], None]:
    def history(lake: LocalCatalog) -> None:
        sink = IcebergSink(lake, partition_by)
        sink.write(ROWS, TYPES)
        sink.write([], TYPES)
        sink.write(ROWS[1:], TYPES)

    return history


def _evolution(lake: LocalCatalog) -> None:
    sink = IcebergSink(lake)
    sink.write([ROW], NESTED)
    wider = pa.struct([*INNER, ("z", pa.float64())])
    more = pa.schema([*NESTED, ("new", pa.list_(pa.string())), ("a b.c/d=", pa.string())])
    more = more.set(1, pa.field("s", wider)).set(2, pa.field("l", pa.list_(wider)))
    sink.write([{**ROW, "s": {**ONE, "z": 1.5}, "new": ["n", None], "a b.c/d=": "odd"}], more)
    sink.write([{"id": 3}], pa.schema([("id", pa.int64())]))


def _widening(lake: LocalCatalog) -> None:
    def schema(number: Any, real: Any, digits: int) -> pa.Schema:
        kind = pa.decimal128(digits, 2)
        inner = pa.struct([("x", number), ("y", pa.string())])
        return pa.schema([("id", number), ("f", real), ("d", kind), ("s", inner)])

    sink = IcebergSink(lake, "bucket(4, id)")
    row = {"id": 1, "f": 1.5, "d": Decimal("1.25"), "s": ONE}
    sink.write([row], schema(pa.int32(), pa.float32(), 5))
    wide = {**row, "id": 2**40, "d": Decimal("123456.12"), "s": {"x": 2**40, "y": "b"}}
    sink.write([wide], schema(pa.int64(), pa.float64(), 10))
    sink.write([{**row, "id": 3}], schema(pa.int32(), pa.float32(), 5))


HISTORIES = {
    "every type": _partitions(None),
    "evolution": _evolution,
    "types that widen": _widening,
    **{name: _partitions(partition_by) for name, partition_by in TRANSFORMS.items()},
}


def read(lake: LocalCatalog, snapshot: int | None = None) -> pa.Table:
    """The rows of the table as pyiceberg reads them."""
    return lake.table("t").scan(snapshot_id=snapshot).to_arrow()


def theirs(iceberg: IcebergSpark, lake: LocalCatalog, snapshot: int | None = None) -> pa.Table:
    """The rows of the table as Iceberg's runtime reads them."""
    at = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    return iceberg.rows(f"SELECT * FROM {lake.name}.db.t{at}")


def same(one: pa.Table, other: pa.Table) -> None:
    """Compare columns and rows, whatever Arrow types strings have."""
    assert other.column_names == one.column_names
    assert sorted_rows(other.cast(one.schema)) == sorted_rows(one)


@pytest.mark.parametrize("name", HISTORIES)
def test_each_snapshot_is_read_alike(iceberg: IcebergSpark, lake: LocalCatalog, name: str) -> None:
    HISTORIES[name](lake)
    snapshots = [each.snapshot_id for each in lake.table("t").snapshots()]
    assert len(snapshots) == 3
    for snapshot in snapshots:
        same(read(lake, snapshot), theirs(iceberg, lake, snapshot))


@pytest.mark.parametrize("name", ["every type", *TRANSFORMS])
def test_every_value_comes_back(iceberg: IcebergSpark, lake: LocalCatalog, name: str) -> None:
    """What is read is what was written, and each row is found by its value of each column."""
    HISTORIES[name](lake)
    wrote = pa.Table.from_pylist([*ROWS, *ROWS[1:]], TYPES)
    found = theirs(iceberg, lake)
    assert sorted_rows(found.cast(TYPES)) == sorted_rows(wrote)
    for column in TYPES.names:
        for value in (ROWS[0][column], ROWS[1][column]):
            query = f"SELECT * FROM {lake.name}.db.t WHERE {column} = {literal(value, column)}"
            assert iceberg.rows(query).num_rows == 1 + (value == ROWS[1][column]), (column, value)


def literal(value: Any, column: str) -> str:
    """The constant of a value in SQL, as a type that the table's columns have."""
    kind = str(TYPES.field(column).type)
    if isinstance(value, (str, bytes)):
        text = value.encode() if isinstance(value, str) else value
        return f"X'{text.hex()}'" if kind == "binary" else f"decode(X'{text.hex()}', 'UTF-8')"
    for arrow, name in SQL_TYPES.items():
        kind = name if kind == arrow else kind
    return f"CAST('{value}' AS {kind.replace('128', '')})"
