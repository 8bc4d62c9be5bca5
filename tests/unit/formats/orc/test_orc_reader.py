"""What only ORC files have: timestamps in nanoseconds, Spark's attributes, stripes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import FileUnreadableError, UnsupportedOptionError
from tests.support.formats.columnar_files import MemoryFile, infer, options, orc_file, reader, rows
from tests.support.formats.orc_bytes import of_hive_11, of_version


def only(file: MemoryFile) -> list[dict[str, Any]]:
    """Rows of a file in its own schema, in mode rescue."""
    given = options("orc", evolution="rescue")
    return rows(file, infer([file], given), given)


def test_both_timestamps_of_orc_are_spark_s_timestamp() -> None:
    table = pa.table(
        {
            "t": pa.array([10**18, None], pa.timestamp("ns")),
            "i": pa.array([10**18 + 1, 5000], pa.timestamp("ns", "UTC")),
        }
    )
    file = orc_file(table)
    assert infer([file], options("orc")) == StructType(
        [StructField("t", TimestampType()), StructField("i", TimestampType())]
    )
    first, second = only(file)
    assert str(first["t"]) == "2001-09-09 01:46:40+00:00"
    assert first["i"] is None
    assert json.loads(first["_rescued_data"])["i"] == "2001-09-09T01:46:40.000000001Z"
    assert second["t"] is None
    assert str(second["i"]) == "1970-01-01 00:00:00.000005+00:00"


def test_a_number_that_spark_says_is_a_time_is_one() -> None:
    field = pa.field("t", pa.int64(), metadata={"spark.sql.catalyst.type": "timestamp_ntz"})
    table = pa.Table.from_arrays([pa.array([1_500_000])], schema=pa.schema([field]))
    file = orc_file(table)
    # Arrow's writer keeps the attribute where Spark's reader looks for it.
    assert infer([file], options("orc")) == StructType([StructField("t", TimestampNTZType())])
    assert str(only(file)[0]["t"]) == "1970-01-01 00:00:01.500000"


def test_times_beyond_64_bits_of_nanoseconds_are_told() -> None:
    file = orc_file(pa.table({"t": pa.array([253402300799 * 10**6], pa.timestamp("us"))}))
    with pytest.raises(FileUnreadableError, match="out of range"):
        only(file)


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "zlib", "lz4", "zstd"])
def test_every_codec_of_the_library_is_read(codec: str) -> None:
    file = orc_file(pa.table({"a": [7] * 1000}), compression=codec)
    assert [row["a"] for row in only(file)] == [7] * 1000


def test_a_large_stripe_is_given_out_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.formats.orc.BATCH_BYTES", 10_000)
    file = orc_file(pa.table({"n": list(range(10_000))}))
    made = reader(StructType([StructField("n", LongType())]), options("orc"))
    batches = list(made.read_file(file))
    assert len(batches) > 5
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(10_000))


def test_options_of_orc() -> None:
    assert options("orc", mergeSchema="true").format_options.merge_schema
    assert options("orc", readerCaseSensitive="false").reader_case_sensitive is False
    with pytest.raises(UnsupportedOptionError, match="datetimeRebaseMode"):
        options("orc", datetimeRebaseMode="LEGACY")


def test_a_hint_says_how_a_column_is_read() -> None:  # B11
    file = orc_file(pa.table({"n": [1]}))
    columns = StructType([StructField("n", StringType())])
    (row,) = rows(file, columns, options("orc", evolution="rescue"))
    assert row == {"n": None, "_rescued_data": '{"n":1,"_file_path":"file:///landing/f"}'}


DECIMAL = pa.decimal128(38, 6)


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (DECIMAL, Decimal("1.5"), "c"),
        (pa.struct([("a", pa.int32()), ("b", DECIMAL)]), {"a": 1, "b": Decimal("1.5")}, "c.b"),
        (pa.list_(DECIMAL), [Decimal("1.5")], "c"),
        (pa.map_(pa.string(), DECIMAL), [("k", Decimal("1.5"))], "c"),
    ],
    ids=["column", "field", "element", "value"],
)
def test_a_decimal_without_a_precision_is_refused_and_not_cut(
    kind: pa.DataType, value: Any, path: str
) -> None:
    table = pa.table({"id": pa.array([1], pa.int64()), "c": pa.array([value], kind)})
    told, untold = orc_file(table), of_hive_11(table)
    schema = infer([told], options("orc"))
    assert only(told)[0]["id"] == 1
    given = options("orc", evolution="rescue")
    for read in (lambda: infer([untold], given), lambda: rows(untold, schema, given)):
        with pytest.raises(FileUnreadableError, match=rf"its column {path} is a decimal without"):
            read()


def test_a_column_that_nobody_asks_for_may_be_such_a_decimal() -> None:
    table = pa.table({"id": [1], "c": pa.array([Decimal("1.5")], DECIMAL)})
    schema = StructType([StructField("id", LongType())])
    given = options("orc", has_schema=True)
    assert rows(of_hive_11(table), schema, given) == [{"id": 1}]


@pytest.mark.parametrize(("major", "minor"), [(0, 13), (1, 0), (19, 99)])
def test_a_later_version_of_the_format_is_refused_by_name(major: int, minor: int) -> None:
    file = of_version(major, minor, pa.table({"id": [1]}))
    with pytest.raises(FileUnreadableError, match=f"written in version {major}.{minor} of the"):
        only(file)
    for version in ((0, 11), (0, 12)):
        assert only(of_version(*version, pa.table({"id": [1]})))[0]["id"] == 1
