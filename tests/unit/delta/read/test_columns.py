"""The columns of a data file become those of the table: by name, by id, wider, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SinkError, TargetCorruptedError
from airflow_cloudfiles.engine.tables.delta.opening import table_schema
from tests.support.delta_tables import (
    MAPPED,
    HandMadeTable,
    column,
    features,
    read,
    read_by_duckdb,
    sorted_rows,
)

UTC = dt.UTC


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def nested_columns() -> list[dict[str, Any]]:
    """Columns in which every name in the file is another than the table's."""
    inner = struct(column("x", "long", 5), column("y", "string", 6))
    element = struct(column("x", "long", 7), column("y", "string", 8))
    elements = {"type": "array", "elementType": element, "containsNull": True}
    pairs = {
        "type": "map",
        "keyType": "string",
        "valueType": struct(column("z", "long", 9)),
        "valueContainsNull": True,
    }
    return [
        column("renamed", "long", 1),
        column("deep", inner, 2),
        column("many", elements, 3),
        column("pairs", pairs, 4),
        column("new", "string", 10),
    ]


def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def physical(prefix: str) -> pa.Schema:
    """The columns as the file has them, in another order than the table."""
    inner = pa.struct([with_id(f"{prefix}6", pa.string(), 6), with_id(f"{prefix}5", pa.int64(), 5)])
    element = pa.struct(
        [with_id(f"{prefix}8", pa.string(), 8), with_id(f"{prefix}7", pa.int64(), 7)]
    )
    value = pa.struct([with_id(f"{prefix}9", pa.int64(), 9)])
    return pa.schema(
        [
            with_id(f"{prefix}3", pa.list_(element), 3),
            with_id(f"{prefix}4", pa.map_(pa.string(), value), 4),
            with_id(f"{prefix}2", inner, 2),
            with_id(f"{prefix}1", pa.int64(), 1),
            with_id("renamed", pa.int64(), 77),  # of a column that was dropped
        ]
    )


def physical_rows(prefix: str) -> pa.Table:
    inner = {f"{prefix}5": 5, f"{prefix}6": "six"}
    element = {f"{prefix}7": 5, f"{prefix}8": "six"}
    rows = [
        [[element, None], [("k", {f"{prefix}9": 9}), ("n", None)], inner, 1, -1],
        [[], [], None, None, -1],
        [None, None, {f"{prefix}5": None, f"{prefix}6": "y"}, 3, -1],
    ]
    schema = physical(prefix)
    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    arrays = [pa.array(each, kind) for each, kind in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


EXPECTED = [
    {
        "renamed": 1,
        "deep": {"x": 5, "y": "six"},
        "many": [{"x": 5, "y": "six"}, None],
        "pairs": [("k", {"z": 9}), ("n", None)],
        "new": None,
    },
    {"renamed": None, "deep": None, "many": [], "pairs": [], "new": None},
    {"renamed": 3, "deep": {"x": None, "y": "y"}, "many": None, "pairs": None, "new": None},
]


@pytest.mark.parametrize("protocol", [MAPPED, features("columnMapping")], ids=["legacy", "named"])
@pytest.mark.parametrize(("mode", "prefix"), [("name", "col-"), ("id", "any-"), ("id", "col-")])
def test_mapped_columns_are_found_at_every_depth(
    tmp_path: Path, mode: str, prefix: str, protocol: dict[str, Any]
) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("part-0.parquet", physical_rows(prefix))
    made.create(
        file, protocol=protocol, columns=nested_columns(), delta_columnMapping_mode=mode
    )  # the table is what it was before its columns were renamed
    assert read(tmp_path / "t").to_pylist() == EXPECTED
    if prefix == "col-":  # DuckDB (1.5) finds columns by name in the mode `id`, too
        assert sorted_rows(read(tmp_path / "t")) == sorted_rows(read_by_duckdb(tmp_path / "t"))


def test_ids_count_where_names_would_mislead(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    schema = pa.schema([with_id("col-1", pa.int64(), 2), with_id("col-2", pa.int64(), 1)])
    file = made.file("part-0.parquet", pa.table([[10], [20]], schema=schema))
    columns = [column("a", "long", 1), column("b", "long", 2)]
    made.create(file, protocol=MAPPED, columns=columns, delta_columnMapping_mode="id")
    assert read(tmp_path / "t").to_pylist() == [{"a": 20, "b": 10}]


def test_a_mode_without_the_feature_means_nothing(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("part-0.parquet", {"a": [1], "col-1": [2]})
    made.create(file, columns=[column("a", "long", 1)], delta_columnMapping_mode="name")
    assert read(tmp_path / "t").to_pylist() == [{"a": 1}]


def test_a_partition_value_is_under_its_physical_name(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("x/part-0.parquet", {"col-1": [1]}, partition={"col-2": "7"})
    made.create(
        file,
        protocol=MAPPED,
        columns=[column("a", "long", 1), column("p", "integer", 2)],
        partitions=("p",),
        delta_columnMapping_mode="name",
    )
    found = read(tmp_path / "t")
    assert found.to_pylist() == [{"a": 1, "p": 7}]
    scanned = pa.table(DeltaTable(str(tmp_path / "t")).scan()).select(["a", "p"])
    assert scanned.to_pylist() == found.to_pylist()


_NAIVE = dt.datetime(2020, 2, 29, tzinfo=UTC).replace(tzinfo=None)
WIDENED = [
    (pa.int8(), 1, "long", 1),
    (pa.int16(), 300, "integer", 300),
    (pa.int32(), 2**31 - 1, "long", 2**31 - 1),
    (pa.int32(), 2**31 - 1, "double", float(2**31 - 1)),
    (pa.int32(), 7, "decimal(12,2)", Decimal("7.00")),
    (pa.int64(), 2**62, "decimal(20,0)", Decimal(2**62)),
    (pa.float32(), 0.5, "double", 0.5),
    (pa.decimal128(5, 2), Decimal("123.45"), "decimal(12,4)", Decimal("123.4500")),
    (pa.date32(), dt.date(2020, 2, 29), "timestamp_ntz", _NAIVE),
    (pa.binary(), b"text", "string", "text"),
    (pa.large_string(), "text", "string", "text"),
    (pa.timestamp("ms", "UTC"), dt.datetime(2020, 1, 1, tzinfo=UTC), "timestamp", None),
    (pa.dictionary(pa.int32(), pa.string()), "text", "string", "text"),
]


@pytest.mark.parametrize(("kind", "value", "wanted", "expected"), WIDENED)
def test_values_of_a_narrower_type_are_cast(
    tmp_path: Path, kind: pa.DataType, value: Any, wanted: str, expected: Any
) -> None:
    made = HandMadeTable(tmp_path / "t")
    inner = struct(column("x", wanted))
    array = pa.array([value, None], kind)
    rows = {"a": array, "n": pa.StructArray.from_arrays([array], ["x"])}
    made.create(
        made.file("part-0.parquet", pa.table(rows)),
        protocol=features("typeWidening", "timestampNtz"),
        columns=[column("a", wanted), column("n", inner)],
    )
    result = value if expected is None else expected
    assert read(tmp_path / "t").to_pylist() == [
        {"a": result, "n": {"x": result}},
        {"a": None, "n": {"x": None}},
    ]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.string(), "5", "long"),
        (pa.int64(), 5, "string"),
        (pa.int64(), 5, "double"),
        (pa.float64(), 1.0, "long"),
        (pa.list_(pa.int64()), [5], "long"),
        (pa.int64(), 2**40, "integer"),
        (pa.float64(), 1e300, "decimal(5,2)"),
        (pa.bool_(), True, "integer"),
        (pa.timestamp("us"), _NAIVE, "date"),
    ],
)
def test_a_type_that_the_column_never_had_is_refused(
    tmp_path: Path, kind: pa.DataType, value: Any, wanted: str
) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("part-0.parquet", pa.table({"a": pa.array([value], kind)}))
    made.create(file, columns=[column("a", wanted)])
    with pytest.raises(SinkError, match=r"Column a of the Delta table .*part-0\.parquet"):
        read(tmp_path / "t")


def test_void_and_missing_columns_are_null(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    kinds = [column("v", "void"), column("n", struct(column("v", "void"), column("m", "long")))]
    rows = {"n": pa.array([{"m": 1}, None], pa.struct([("m", pa.int64())]))}
    made.create(made.file("part-0.parquet", pa.table(rows)), columns=kinds)
    found = read(tmp_path / "t")
    assert found.to_pylist() == [{"v": None, "n": {"v": None, "m": 1}}, {"v": None, "n": None}]
    assert pa.types.is_null(found.schema.field("v").type)


def test_a_file_without_any_column_of_the_table_keeps_its_rows(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(made.file("part-0.parquet", {"old": [1, 2, 3]}))
    assert read(tmp_path / "t").to_pylist() == [{"a": None, "s": None}] * 3


def test_the_notes_of_delta_are_not_shown(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    columns = [column("a", struct(column("b", "long", 2)), 1, comment="kept")]
    made.create(protocol=MAPPED, columns=columns, delta_columnMapping_mode="name")
    [found] = table_schema(str(tmp_path / "t")).fields
    assert found.metadata == {"comment": "kept"}
    assert found.dataType["b"].metadata == {}


def test_int96_of_any_year_is_right(tmp_path: Path) -> None:
    moments = [dt.datetime(year, 7, 1, 12, tzinfo=UTC) for year in (1, 1582, 1970, 2300, 9999)]
    made = HandMadeTable(tmp_path / "t")
    rows = pa.table({"a": pa.array(moments, pa.timestamp("us", "UTC"))})
    file = made.file("part-0.parquet", rows, use_deprecated_int96_timestamps=True)
    made.create(file, columns=[column("a", "timestamp")])
    assert read(tmp_path / "t")["a"].to_pylist() == moments


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a b.parquet", "a%20b.parquet"),
        ("a%20b.parquet", "a%2520b.parquet"),
        ("p=x%2Fy/ü#?.parquet", "p=x%252Fy/%C3%BC%23%3F.parquet"),
        ("plus+.parquet", "plus+.parquet"),
        ("t=12:30/f.parquet", "t=12:30/f.parquet"),
    ],
)
def test_paths_are_percent_encoded(tmp_path: Path, name: str, path: str) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(made.file(name, {"a": [1], "s": ["x"]}, path=path))
    assert read(tmp_path / "t").num_rows == 1


@pytest.mark.parametrize("form", ["uri", "file:", "plain"])
def test_a_file_of_another_table_is_read_where_it_is(tmp_path: Path, form: str) -> None:
    other = HandMadeTable(tmp_path / "other")
    add = other.file("pärt 0.parquet", {"a": [1], "s": ["x"]})
    where = tmp_path / "other" / "pärt 0.parquet"
    plain = str(where).replace(" ", "%20")
    add["add"]["path"] = {"uri": where.as_uri(), "file:": f"file:{plain}", "plain": plain}[form]
    HandMadeTable(tmp_path / "clone").create(add)
    assert read(tmp_path / "clone").to_pylist() == [{"a": 1, "s": "x"}]


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"not parquet at all, whatever it says"])
def test_a_data_file_that_is_gone_or_damaged_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(made.file("part-0.parquet", {"a": [1], "s": ["x"]}))
    path = tmp_path / "t" / "part-0.parquet"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(TargetCorruptedError, match=r"part-0\.parquet cannot"):
        read(tmp_path / "t")


@pytest.mark.parametrize(
    "path", ["../part-0.parquet", "", "a/../part-0.parquet", ".", "a//b", "%2E%2E/x"]
)
def test_a_path_that_leaves_the_table_is_refused(tmp_path: Path, path: str) -> None:
    made = HandMadeTable(tmp_path / "t")
    add = made.file("part-0.parquet", {"a": [1], "s": ["x"]})
    made.create({"add": {**add["add"], "path": path}})
    with pytest.raises(TargetCorruptedError, match="names no file"):
        read(tmp_path / "t")
