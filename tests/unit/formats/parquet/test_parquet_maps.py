"""Maps whose keys are marked as optional, which the library refuses and Spark reads."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.types import VariantType
from tests.support.formats.columnar_files import MemoryFile, infer, options, rows
from tests.support.formats.map_files import pairs, with_optional_keys
from tests.support.formats.variant_files import NOTHING, UNSHREDDED

M: DataType = MapType(StringType(), IntegerType())
KIND = pairs(pa.string(), pa.int32())
ONE = [{"key": "a", "value": 1}, {"key": "b", "value": None}]
MAP = [("a", 1), ("b", None)]


def refused(file: MemoryFile) -> None:
    """The library does not open it; otherwise these tests would say nothing."""
    with pytest.raises(pa.ArrowInvalid, match="Map keys must be annotated as required"):
        pq.ParquetFile(io.BytesIO(file.data))


@pytest.mark.parametrize(
    ("kind", "column", "values", "expected"),
    [
        (KIND, M, [ONE, [], None, ONE], [MAP, [], None, MAP]),
        (
            pa.struct([("x", pa.int64()), ("m", KIND)]),
            StructType([StructField("x", LongType()), StructField("m", M)]),
            [{"x": 1, "m": ONE}, None, {"x": None, "m": None}],
            [{"x": 1, "m": MAP}, None, {"x": None, "m": None}],
        ),
        (pa.list_(pa.struct([("m", KIND)])), ArrayType(StructType([StructField("m", M)])),
         [[{"m": ONE}, None], None, []], [[{"m": MAP}, None], None, []]),
        (pa.map_(pa.int32(), pa.struct([("m", KIND)])),
         MapType(IntegerType(), StructType([StructField("m", M)])),
         [[(7, {"m": ONE})], None], [[(7, {"m": MAP})], None]),
    ],
    ids=["column", "struct", "list", "map"],
)  # fmt: skip
def test_maps_with_optional_keys_are_read(
    kind: pa.DataType, column: DataType, values: list[Any], expected: list[Any]
) -> None:
    table = pa.table({"id": range(len(values)), "m": pa.array(values, kind)})
    file = with_optional_keys(table, "m")
    refused(file)
    schema = infer([file], options())
    assert schema == StructType([StructField("id", LongType()), StructField("m", column)])
    found = rows(file, schema)
    assert [row["m"] for row in found] == expected
    assert [row["id"] for row in found] == list(range(len(values)))
    assert all(row["_rescued_data"] is None for row in found)


def test_a_key_that_is_null_is_refused_by_name() -> None:
    values = [ONE, [{"key": None, "value": 5}, {"key": "c", "value": 6}]]
    file = with_optional_keys(pa.table({"id": [1, 2], "m": pa.array(values, KIND)}), "m")
    schema = StructType([StructField("id", LongType()), StructField("m", M)])
    with pytest.raises(FileUnreadableError, match="a map has a key that is null"):
        rows(file, schema)
    given = options(has_schema=True)
    assert rows(file, StructType(schema.fields[:1]), given) == [{"id": 1}, {"id": 2}]


def test_other_columns_of_such_a_file_are_what_they_are() -> None:
    table = pa.table(
        {
            "m": pa.array([ONE], KIND),
            "list": [[1, 2]],
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    file = with_optional_keys(table, "m")
    (row,) = rows(file, infer([file], options()))
    assert (row["m"], row["list"], row["map"]) == (MAP, [1, 2], [("k", 1)])


def test_values_of_such_a_map_may_be_variants() -> None:
    pair = pa.array([[{"key": "a", "value": {"metadata": NOTHING, "value": b"\x0c\x01"}}]],
                    pairs(pa.string(), UNSHREDDED))  # fmt: skip
    file = with_optional_keys(pa.table({"m": pair}), "m")
    schema = StructType([StructField("m", MapType(StringType(), VariantType()))])
    (row,) = rows(file, schema)
    assert row["m"] == [("a", {"value": b"\x0c\x01", "metadata": NOTHING})]
