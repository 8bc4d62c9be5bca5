"""What the log says of a data file lets readers skip it, and never hides a row."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter, FileSettings
from airflow_cloudfiles.engine.tables.delta.statistics import FileStatistics, IndexedColumns
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.delta_tables import duckdb_session
from tests.support.laws import examples

WHOLE = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("n", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("s", pa.string()),
        ("b", pa.struct([("s", pa.string()), ("c", pa.struct([("i", pa.int32())]))])),
    ]
)
_MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(width=32),
        "d": st.none() | st.floats(),
        "n": st.none()
        | st.decimals(min_value=-(10**27), max_value=10**27, places=10, allow_nan=False),
        "day": st.none() | st.dates(),
        "at": st.none() | _MOMENTS.map(lambda each: each.replace(tzinfo=UTC)),
        "local": st.none() | _MOMENTS,
        "s": st.none() | _TEXTS,
        "b": st.none()
        | st.fixed_dictionaries(
            {
                "s": st.none() | _TEXTS,
                "c": st.none()
                | st.fixed_dictionaries({"i": st.none() | st.integers(-(2**31), 2**31 - 1)}),
            }
        ),
    }
)


def _statistics(
    schema: pa.Schema, rows: list[dict[str, Any]], columns: IndexedColumns | None = None
) -> dict[str, Any]:
    """The statistics of a file of these rows, in row groups of two."""
    sink = pa.BufferOutputStream()
    found = FileStatistics(schema, columns or IndexedColumns())
    with pq.ParquetWriter(sink, schema) as writer:
        for first in range(0, len(rows), 2):
            batch = pa.RecordBatch.from_pylist(rows[first : first + 2], schema)
            writer.write_batch(batch)
            found.add(batch)
    text = found.to_json(pq.read_metadata(pa.BufferReader(sink.getvalue())))
    loaded: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return loaded


def _value(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        row = None if row is None else row[name]
    return row


def _bound(found: dict[str, Any], path: tuple[str, ...], like: Any) -> Any:
    """A bound, as a value to compare with one of the column."""
    for name in path:
        found = found.get(name, {})
    if found == {}:
        return None
    bound: Any = found
    if isinstance(like, datetime):
        return datetime.fromisoformat(bound)
    if isinstance(like, date):
        return date.fromisoformat(bound)
    return float(bound) if isinstance(like, float) else bound


PATHS = [(name,) for name in WHOLE.names if name != "b"] + [("b", "s"), ("b", "c", "i")]


@pytest.mark.law
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=7))
def test_no_bound_excludes_a_value(rows: list[dict[str, Any]]) -> None:
    told = _statistics(WHOLE, rows)
    assert told["numRecords"] == len(rows)
    stored = pa.RecordBatch.from_pylist(rows, WHOLE).to_pylist()
    for path in PATHS:
        values = [_value(row, path) for row in stored]
        assert _bound(told["nullCount"], path, 0) == values.count(None)
        for value in values:
            if value is None:
                continue
            low, high = (_bound(told[kind], path, value) for kind in ("minValues", "maxValues"))
            assert (low is None) == (high is None)
            if low is None:
                continue
            assert not (isinstance(value, float) and math.isnan(value)), "NaN is above all bounds"
            assert low <= value <= high
            if isinstance(value, str):
                assert low.encode() <= value.encode() <= high.encode()


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (pa.int8(), [3, None, -2], -2, 3),
        (pa.float64(), [1.5, -0.25], Decimal("-0.25"), Decimal("1.5")),
        (pa.float64(), [1.5, math.nan], None, None),
        (pa.float32(), [1.5, math.inf], None, None),
        (pa.float64(), [None, None], None, None),
        (pa.decimal128(20, 3), [Decimal("-1.234"), Decimal("12345678901234567.891")],
         Decimal("-1.234"), Decimal("12345678901234567.891")),
        (pa.decimal128(5, 0), [Decimal(70)], 70, 70),
        (pa.bool_(), [True, False], None, None),
        (pa.binary(), [b"a"], None, None),
        (pa.date32(), [date(2024, 2, 29)], "2024-02-29", "2024-02-29"),
        (pa.timestamp("us", tz="UTC"), [datetime(2024, 1, 1, 0, 0, 0, 1001, tzinfo=UTC)],
         "2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.002Z"),
        (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001
         "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        (pa.timestamp("us"), [datetime(9999, 12, 31, 23, 59, 59, 999999)], None, None),  # noqa: DTZ001
        (pa.string(), ["b" * 32], "b" * 32, "b" * 32),
        (pa.string(), ["b" * 33], "b" * 32, "b" * 32 + "\U0010ffff"),
        (pa.string(), ["b" * 32 + "\U0010ffff" + "a" + "b"], "b" * 32,
         "b" * 32 + "\U0010ffff" + "\U0010ffff"),
    ],
)  # fmt: skip
def test_bounds_are_written_as_delta_writes_them(
    kind: pa.DataType, values: list[Any], low: Any, high: Any
) -> None:
    told = _statistics(pa.schema([("c", kind)]), [{"c": value} for value in values])
    assert (told["minValues"].get("c"), told["maxValues"].get("c")) == (low, high)
    assert told["nullCount"] == {"c": values.count(None)}


def test_the_table_chooses_the_columns() -> None:
    schema = pa.schema(
        [
            ("a", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            ("many", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("b.c", pa.int32()),
            ("d", pa.int32()),
        ]
    )
    row = {"a": {"x": 1, "y": 2}, "many": [("k", [7])], "b.c": 3, "d": 4}

    def low(**configuration: str) -> Any:
        columns = IndexedColumns.of({f"delta.{k}": v for k, v in configuration.items()})
        return _statistics(schema, [row], columns)["minValues"]

    assert low() == {"a": {"x": 1, "y": 2}, "b.c": 3, "d": 4}
    assert low(dataSkippingNumIndexedCols="0") == {}
    assert low(dataSkippingNumIndexedCols="1") == {"a": {"x": 1}}
    assert low(dataSkippingNumIndexedCols="4") == {"a": {"x": 1, "y": 2}, "b.c": 3}
    assert low(dataSkippingNumIndexedCols="-1") == low()
    assert low(dataSkippingStatsColumns="`B.c`, a.Y") == {"a": {"y": 2}, "b.c": 3}
    assert low(dataSkippingStatsColumns="a,d", dataSkippingNumIndexedCols="0") == {
        "a": {"x": 1, "y": 2},
        "d": 4,
    }


def _random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = []
    for _ in range(count):
        at = start + timedelta(microseconds=chance.randrange(10**4))
        text = "common prefix of thirty-two chars" + chance.choice("abc\u00e9\U0001f600")
        rows.append(
            {
                "i": chance.choice([None, chance.randrange(20)]),
                "f": chance.choice([0.5, -0.0, 2.25]),
                "d": chance.choice([math.nan, 1.0, 3.0, None]),
                "n": Decimal(chance.randrange(-(10**6), 10**6)).scaleb(-3),
                "day": date(2024, 1, 1 + chance.randrange(9)),
                "at": at,
                "local": at.replace(tzinfo=None),
                "s": chance.choice([text, text * 2, "z", None]),
                "b": chance.choice([None, {"s": text, "c": {"i": chance.randrange(5)}}]),
            }
        )
    return rows


def _landed(target: Path) -> list[dict[str, Any]]:
    """A table of several files, with a checkpoint; its rows."""
    chance = random.Random(11)
    for batch in range(6):
        rows = _random_rows(chance, 3)
        files = DataFileWriter(str(target), WHOLE).write([pa.RecordBatch.from_pylist(rows, WHOLE)])
        delta_commit.commit_batch(
            str(target),
            batch=BatchId("stream", batch),
            files=files,
            schema=WHOLE,
            rules=WriteRules(merge_schema=True),
        )
    DeltaTable(target).create_checkpoint()
    files_there = sorted(target.glob("*.parquet"))
    values: list[dict[str, Any]] = pq.ParquetDataset(files_there).read().to_pylist()
    return values


@pytest.mark.slow
def test_duckdb_finds_with_a_filter_what_it_finds_without(tmp_path: Path) -> None:
    """DuckDB skips files by the log, and then row groups; without a log it reads them all."""
    target, values = tmp_path / "t", _landed(tmp_path / "t")
    with duckdb_session() as duck:
        for name in [each for each in WHOLE.names if each != "b"]:
            there = {repr(row[name]): row[name] for row in values if row[name] is not None}
            for value, sign in product(there.values(), ("=", "<=", ">=")):
                counts = [
                    duck.execute(
                        f'SELECT count(*) FROM {scan} WHERE "{name}" {sign} ?', [value]
                    ).fetchall()
                    for scan in (f"read_parquet('{target}/*.parquet')", f"delta_scan('{target}')")
                ]
                assert counts[0] == counts[1], (name, sign, value)


def test_deltalake_finds_with_a_filter_what_is_there(tmp_path: Path) -> None:
    target, values = tmp_path / "t", _landed(tmp_path / "t")
    dataset = DeltaTable(target).to_pyarrow_dataset()  # skips by the log, too
    for name in ("i", "n", "at", "local", "day", "s"):
        for row in values:
            if row[name] is not None:
                equal = pc.field(name) == pa.scalar(row[name], WHOLE.field(name).type)
                assert dataset.count_rows(filter=equal) == sum(
                    each[name] == row[name] for each in values
                )


def test_a_data_file_is_closed_at_its_size(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64())])
    chance = random.Random(3)
    batches = [
        pa.record_batch({"x": [chance.randrange(2**60) for _ in range(1000)]}, schema=schema)
        for _ in range(40)
    ]
    one = DataFileWriter(str(tmp_path / "one"), schema).write(batches)
    assert len(one) == 1
    settings = FileSettings(target_bytes=50_000)
    several = DataFileWriter(str(tmp_path / "several"), schema, settings).write(batches)
    assert sum(file.rows for file in several) == 40_000
    # A row group is as large as a file, so that one has no more than two.
    assert all(50_000 < file.size < 110_000 for file in several[:-1])
    assert len(several) >= 3
    assert len(several) == pytest.approx(one[0].size / 60_000, abs=2)


def test_the_table_says_how_large_its_files_are_unless_the_writer_does() -> None:
    assert FileSettings.of({}) == FileSettings()
    properties = {"delta.targetFileSize": "2mb", "delta.dataSkippingNumIndexedCols": "3"}
    assert FileSettings.of(properties) == FileSettings(2 * 2**20, IndexedColumns(3))
    assert FileSettings.of(properties, 5000).target_bytes == 5000
