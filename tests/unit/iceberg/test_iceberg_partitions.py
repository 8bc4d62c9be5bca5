"""Rows are in the partitions that Iceberg's transforms say."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError
from airflow_cloudfiles.engine.extensions.iceberg import data_files
from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.commit import (
    TableRules,
    check_table,
    commit_batch,
    ready_table,
)
from airflow_cloudfiles.engine.extensions.iceberg.data_files import IcebergFileWriter
from airflow_cloudfiles.engine.extensions.iceberg.schema import (
    Partitioner,
    new_schema,
    new_spec,
    parse,
)
from airflow_cloudfiles.engine.state.sink_log import BatchId
from tests.support.iceberg_tables import LocalCatalog, read_with_duckdb
from tests.support.laws import examples

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
TIMES = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.just(dt.UTC))  # noqa: DTZ001
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.none() | st.text(max_size=6),
            "day": st.none() | st.dates(),
            "at": st.none() | TIMES,
            "price": st.none() | st.decimals(-1000, 1000, places=2),
            "raw": st.none() | st.binary(max_size=6),
            "flag": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=20,
)
TRANSFORMS = {
    "id": ("{}", "bucket(16, {})", "truncate(10, {})"),
    "name": ("{}", "bucket(7, {})", "truncate(2, {})"),
    "day": ("{}", "bucket(3, {})", "year({})", "month({})", "day({})"),
    "at": ("{}", "bucket(3, {})", "years({})", "months({})", "days({})", "hours({})"),
    "price": ("{}", "bucket(5, {})", "truncate(50, {})"),
    "raw": ("bucket(5, {})",),
    "flag": ("{}",),
}
OPTIONS = [form.format(column) for column, forms in TRANSFORMS.items() for form in forms]


def _spec(option: str) -> tuple[PartitionSpec, Schema]:
    schema = new_schema(COLUMNS, "t")
    return new_spec(option, schema, "t"), schema


def _as_iceberg(value: Any) -> Any:
    """A value as Iceberg computes with it."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def _overflowed(value: Any) -> Any:
    """A number of 64 bits, as Java counts; the columns of the law have no smaller integers."""
    is_low = isinstance(value, int) and value < -(2**63)
    return value + 2**64 if is_low else value


def test_the_least_numbers_are_truncated_as_iceberg_does(lake: LocalCatalog) -> None:
    columns = pa.schema([("a", pa.int32()), ("b", pa.int64())])
    rules = TableRules(partition_by="truncate(10, a), truncate(10, b)")
    target = IcebergLocation.of(lake.uri("t"))
    writer = IcebergFileWriter(target, ready_table(target, columns, rules))
    rows = [{"a": -(2**31), "b": -(2**63)}]
    files = writer.write([pa.RecordBatch.from_pylist(rows, columns)])
    assert files[0].partition == (2**31 - 2, 2**63 - 2)
    batch = BatchId("s", 0)
    commit_batch(lake.uri("t"), batch=batch, files=files, columns=columns, rules=rules)
    assert lake.rows("t") == rows


@pytest.mark.law
@given(rows=ROWS, options=st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=3))
@settings(max_examples=examples(150))
def test_each_row_is_in_the_partition_of_its_own_values(
    rows: list[dict[str, Any]], options: list[str]
) -> None:
    first = {parse(each)[0].column: each for each in options}
    spec, schema = _spec(", ".join(first.values()))
    batch = pa.RecordBatch.from_pylist(rows, COLUMNS)
    seen = []
    for key, part in Partitioner(spec, schema, "t").divide(batch):
        assert key is not None
        for row in part.to_pylist():
            for index, field in enumerate(spec.fields):
                source = schema.find_field(field.source_id)
                value = field.transform.transform(source.field_type)(_as_iceberg(row[source.name]))
                assert key.partition[index] == _overflowed(value)
            seen.append(row)
    assert Counter(map(str, seen)) == Counter(map(str, batch.to_pylist()))


def test_partitioned_rows_are_found_by_filters_of_both_readers(lake: LocalCatalog) -> None:
    rules = TableRules(partition_by="month(at), `name`, bucket(4, id)")
    target = IcebergLocation.of(lake.uri("t"))
    odd = ["a/b", "x=y", "ü %20", None, ""]
    rows = [
        {"id": n, "name": odd[n % 5], "at": dt.datetime(2024, 1 + n % 3, 1, tzinfo=dt.UTC)}
        for n in range(60)
    ]
    writer = IcebergFileWriter(target, ready_table(target, COLUMNS, rules))
    files = writer.write([pa.RecordBatch.from_pylist(rows, COLUMNS)])
    batch = BatchId("s", 0)
    commit_batch(lake.uri("t"), batch=batch, files=files, columns=COLUMNS, rules=rules)
    table = lake.table("t")
    assert len({file.partition for file in files}) == len(files) > 15
    assert sorted(row["id"] for row in lake.rows("t")) == list(range(60))
    for name in ("a/b", "x=y", "ü %20", ""):
        scan = table.scan(row_filter=EqualTo("name", name))
        expected = {row["id"] for row in rows if row["name"] == name}
        assert set(scan.to_arrow()["id"].to_pylist()) == expected
        assert len(list(scan.plan_files())) < len(files), "the others are skipped"


@pytest.mark.parametrize(
    ("option", "kind", "values"),
    [
        (
            "p",
            pa.string(),
            ["null", "", "None", "NULL", "__HIVE_DEFAULT_PARTITION__", "𠮷/=%", "nul"],
        ),
        ("truncate(4, p)", pa.string(), ["null", "nullable", "", "𠮷𠮷", "abcde"]),
        ("p", pa.bool_(), [True, False]),
        ("p", pa.decimal128(10, 8), [Decimal("0E-8"), Decimal("1E-8")]),
        ("p", pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
        ("day(p)", pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1)]),
        ("bucket(4, p)", pa.string(), ["null", "", "a"]),
        ("p", pa.int32(), [0, -1]),
    ],
)
def test_null_is_a_partition_of_its_own(
    lake: LocalCatalog, option: str, kind: pa.DataType, values: list[Any]
) -> None:
    columns = pa.schema([("id", pa.int64()), ("p", kind)])
    target, rules = IcebergLocation.of(lake.uri("t")), TableRules(partition_by=option)
    rows = [{"id": n, "p": value} for n, value in enumerate([None, *values, None])]
    writer = IcebergFileWriter(target, ready_table(target, columns, rules))
    files = writer.write([pa.RecordBatch.from_pylist([row], columns) for row in rows])
    commit_batch(lake.uri("t"), batch=BatchId("s", 0), files=files, columns=columns, rules=rules)
    for value in {None, *values}:
        chosen = IsNull("p") if value is None else EqualTo("p", value)
        want = {row["id"] for row in rows if row["p"] == value}
        assert set(lake.table("t").scan(row_filter=chosen).to_arrow()["id"].to_pylist()) == want
        where = "p IS NULL" if value is None else "p = ?"
        found = read_with_duckdb(lake.table("t"), where, [] if value is None else [value])
        assert {row["id"] for row in found} == want
    [nulls] = [file for file in files if file.partition == (None,)]
    assert nulls.rows == 2


@pytest.mark.parametrize("option", [None, "k", "truncate(1, k)"])
def test_characters_of_every_plane_are_the_same_to_both_readers(
    lake: LocalCatalog, option: str | None
) -> None:
    texts = [f"{chr(plane * 0x10000 + 0xBB7)}野家" for plane in range(17)]
    columns, rules = (
        pa.schema([("k", pa.string()), ("𠮷", pa.string())]),
        TableRules(partition_by=option),
    )
    target = IcebergLocation.of(lake.uri("t"))
    writer = IcebergFileWriter(target, ready_table(target, columns, rules))
    rows = [{"k": text, "𠮷": text} for text in texts]
    files = writer.write([pa.RecordBatch.from_pylist([row], columns) for row in rows])
    commit_batch(lake.uri("t"), batch=BatchId("s", 0), files=files, columns=columns, rules=rules)
    for row in rows:
        scan = lake.table("t").scan(row_filter=EqualTo("k", row["k"]))
        assert scan.to_arrow().to_pylist() == [row]
        assert read_with_duckdb(lake.table("t"), "k = ?", [row["k"]]) == [row]


@pytest.mark.parametrize("option", ["p", "bucket(4, p)", "truncate(2, p)"])
def test_rows_without_the_column_of_a_partition_are_in_that_of_null(
    lake: LocalCatalog, option: str
) -> None:
    columns = pa.schema([("id", pa.int64()), ("p", pa.string())])
    target, rules = IcebergLocation.of(lake.uri("t")), TableRules(partition_by=option)
    table = ready_table(target, columns, rules)
    fewer = pa.schema([("id", pa.int64())])
    files = IcebergFileWriter(target, table).write([pa.RecordBatch.from_pydict({"id": [1]}, fewer)])
    assert [file.partition for file in files] == [(None,)]
    commit_batch(lake.uri("t"), batch=BatchId("s", 0), files=files, columns=fewer, rules=rules)
    assert lake.rows("t") == [{"id": 1, "p": None}]


def test_many_partitions_keep_few_files_open(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_OPEN_FILES", 3)
    monkeypatch.setattr(data_files, "MOST_WAITING_BYTES", 1)
    rules = TableRules(partition_by="id")
    target = IcebergLocation.of(lake.uri("t"))
    columns = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])
    rows = [{"id": n, "price": Decimal(n)} for n in range(10)]
    batches = [pa.RecordBatch.from_pylist(rows, columns)] * 2
    files = IcebergFileWriter(target, ready_table(target, columns, rules)).write(batches)
    assert sum(file.rows for file in files) == 20
    assert len(files) == 20, "ten partitions do not fit: each batch opens and closes them"
    batch = BatchId("s", 0)
    commit_batch(lake.uri("t"), batch=batch, files=files, columns=columns, rules=rules)
    assert sorted(row["id"] for row in lake.rows("t")) == sorted([*range(10)] * 2)


def test_files_are_closed_at_the_size_the_table_asks_for(lake: LocalCatalog) -> None:
    columns = pa.schema([("id", pa.int64())])
    properties = {"write.target-file-size-bytes": "1000", "write.parquet.compression-codec": "none"}
    lake.catalog.create_table(("db", "t"), columns, properties=properties)
    target = IcebergLocation.of(lake.uri("t"))
    large = pa.RecordBatch.from_pydict({"id": list(range(3_000_000))}, schema=columns)
    files = IcebergFileWriter(target, ready_table(target, columns, TableRules())).write([large] * 2)
    assert [file.rows for file in files] == [3_000_000] * 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("a,,b", "cannot be read from"),
        ("day(", "cannot be read from"),
        ("", "names no column"),
        ("bucket(id)", "is no partitioning of Iceberg"),
        ("bucket(0, id)", "is no partitioning of Iceberg"),
        ("minute(at)", "is no partitioning of Iceberg"),
        ("day(3, at)", "is no partitioning of Iceberg"),
    ],
)
def test_what_is_no_partitioning_is_refused(option: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(option)


def test_a_table_is_partitioned_as_asked_or_refused(lake: LocalCatalog) -> None:
    for wrong in ("nothing", "day(name)", "raw, hour(day)"):
        with pytest.raises(SchemaMismatchError, match="cannot be partitioned by"):
            check_table(lake.uri("t"), COLUMNS, TableRules(partition_by=wrong))
    target = IcebergLocation.of(lake.uri("t"))
    ready_table(target, COLUMNS, TableRules(partition_by="DAYS(at),bucket( 4 , id )"))
    assert [field.name for field in lake.table("t").spec().fields] == ["at_day", "id_bucket"]
    check_table(lake.uri("t"), COLUMNS, TableRules(partition_by="day(at), bucket(4, id)"))
    check_table(lake.uri("t"), COLUMNS, TableRules())
    with pytest.raises(OptionError, match=r"is partitioned by day\(at\), bucket\[4\]\(id\)"):
        check_table(lake.uri("t"), COLUMNS, TableRules(partition_by="day(at)"))
