"""Spark's own readers are the oracle for Parquet and ORC: values and inferred types."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)
from pyspark.sql.variant_utils import VariantUtils

import airflow_cloudfiles
from airflow_cloudfiles.engine.types import to_arrow
from tests.support.formats.columnar_files import MemoryFile, infer, options, reader, rows
from tests.support.formats.columnar_records import numeric, table, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

USER = pa.struct([("name", pa.string()), ("age", pa.int32())])
COMMON = {
    "bool": pa.bool_(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "dec9": pa.decimal128(9, 2),
    "dec18": pa.decimal128(18, 0),
    "dec38": pa.decimal128(38, 10),
    "list": pa.list_(pa.int64()),
    "lists": pa.list_(pa.list_(pa.string())),
    "map": pa.map_(pa.string(), pa.int32()),
    "user": USER,
    "users": pa.list_(USER),
    "deep": pa.list_(pa.list_(pa.map_(pa.string(), pa.list_(USER)))),
}
PARQUET = COMMON | {
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "large": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "fixed": pa.binary(4),
    "ms": pa.timestamp("ms", "Europe/Paris"),
    "us": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "views": pa.list_(pa.timestamp("us", "UTC")),
}


def test_what_arrow_wrote_is_what_spark_reads_from_parquet(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = table(pa.schema(list(PARQUET.items())), random.Random(1), rows=2000)
    path = tmp_path / "f.parquet"
    pq.write_table(records, path, row_group_size=700)
    theirs = spark.read.parquet(str(path))
    ours = infer([_content(path)], options())
    assert ours == _nullable(theirs.schema), "the same types, in the same order"
    _assert_same(theirs, path, ours)


def test_what_arrow_wrote_is_what_spark_reads_from_orc(spark: SparkSession, tmp_path: Path) -> None:
    kinds = COMMON | {"ns": pa.timestamp("ns"), "instant": pa.timestamp("ns", "UTC")}
    records = table(pa.schema(list(kinds.items())), random.Random(2), rows=2000)
    # Whole seconds: Arrow writes fractions before 1970 in a way that Java's ORC cannot read.
    for name in ("ns", "instant"):
        place = records.schema.get_field_index(name)
        whole = records[name].cast(pa.timestamp("s", kinds[name].tz), safe=False)
        records = records.set_column(place, name, whole.cast(kinds[name]))
    path = tmp_path / "f.orc"
    orc.write_table(records, path, stripe_size=64 * 1024)
    theirs = spark.read.orc(str(path))
    ours = infer([_content(path)], options("orc"))
    assert ours == _nullable(theirs.schema)
    _assert_same(theirs, path, ours)


@pytest.mark.parametrize(
    "confs",
    [
        {},
        {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
        {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
        {"spark.sql.parquet.writeLegacyFormat": "true"},
        {
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        },
        {
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        },
        None,
    ],
    ids=["int96", "micros", "millis", "legacy-lists", "legacy-int96", "legacy-micros", "orc"],
)
def test_what_spark_wrote_is_what_spark_reads(
    spark: SparkSession, tmp_path: Path, confs: dict[str, str] | None
) -> None:
    frame = _frame(spark, *((1700, 37) if confs is None else (1, 146)))
    with _set(spark, confs or {}):
        write = frame.coalesce(1).write
        write.orc(str(tmp_path / "t")) if confs is None else write.parquet(str(tmp_path / "t"))
    (path,) = (each for each in (tmp_path / "t").iterdir() if each.name.startswith("part-"))
    theirs = spark.read.orc(str(path)) if confs is None else spark.read.parquet(str(path))
    ours = infer([_content(path)], options("orc" if confs is None else "parquet"))
    assert ours == _nullable(theirs.schema)
    _assert_same(theirs, path, ours)


@pytest.mark.parametrize(
    ("source", "column"),
    [
        (pa.int8(), ShortType()),
        (pa.int32(), LongType()),
        (pa.int32(), DoubleType()),
        (pa.int32(), DecimalType(20, 2)),
        (pa.int64(), DecimalType(38, 18)),
        (pa.uint32(), LongType()),
        (pa.float32(), DoubleType()),
        (pa.decimal128(9, 2), DecimalType(12, 3)),
        (pa.date32(), TimestampNTZType()),
        (pa.binary(), StringType()),
    ],
    ids=str,
)
def test_a_wider_column_takes_what_spark_takes(  # B10, B59, B62, B63
    spark: SparkSession, tmp_path: Path, source: pa.DataType, column: DataType
) -> None:
    rng = random.Random(str(source))
    texts = ["", "x", "é😀"]
    values = [
        rng.choice(texts).encode() if source == pa.binary() else value(source, rng)
        for _ in range(500)
    ]
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"v": pa.array(values, source)}), path)
    schema = StructType([StructField("v", column)])
    _assert_same(spark.read.schema(schema).parquet(str(path)), path, schema)


def _frame(spark: SparkSession, since_year: int, step: int) -> DataFrame:
    """Records with every type Spark writes, each some days later than the one before."""
    days = f"date_add(date'{since_year:04}-01-01', cast(id * {step} as int))"
    micros = f"(unix_date({days}) * 86400000000L + id * 1000003)"
    return spark.sql(
        f"""select id, cast(id % 128 as tinyint) b, cast(id as smallint) s, cast(id as int) i,
          cast(id / 3 as float) f, if(id % 9 = 0, double('NaN'), id / 3) d,
          cast(id / 3 as decimal(7, 2)) dec7, cast(id / 3 as decimal(38, 18)) dec38,
          {days} day, timestamp_micros({micros}) ts,
          cast(timestamp_micros({micros}) as timestamp_ntz) ntz,
          if(id % 5 = 0, null, repeat(char(48 + id % 70), cast(id % 4 as int))) text,
          cast(cast(id as string) as binary) bytes,
          array(id, null, id + 1) l, array(array(struct(id as x, 'q' as y))) ll,
          map('k', id, 'é', null) m, map(cast(id as int), array({days})) md,
          struct(id as x, struct({days} as day, timestamp_micros({micros}) as ts) as y) st
        from range(5000)"""
    )


@contextmanager
def _set(spark: SparkSession, confs: dict[str, str]) -> Iterator[None]:
    for name, setting in confs.items():
        spark.conf.set(name, setting)
    try:
        yield
    finally:
        for name in confs:
            spark.conf.unset(name)


def _content(path: Path) -> MemoryFile:
    return MemoryFile(path.read_bytes(), path.as_uri())


def _nullable(schema: StructType) -> StructType:
    """Without the metadata in which Spark keeps the length of texts."""
    return StructType([StructField(each.name, each.dataType, True) for each in schema])


def _assert_same(theirs: DataFrame, path: Path, schema: StructType) -> None:
    """Compare the values, for the fast path and for the explaining one."""
    wanted = _rows(theirs.toArrow().cast(to_arrow(schema)))
    given = options("orc" if path.suffix == ".orc" else "parquet", evolution="rescue")
    batches = list(reader(schema, given).read_file(_content(path)))
    found = pa.Table.from_batches(batches)
    assert found["_rescued_data"].null_count == found.num_rows
    assert _rows(found.drop_columns("_rescued_data")) == wanted
    # The first column is asked for in a type it never has, so that its values are rescued.
    first = schema.fields[0]
    odd = StructType([StructField(first.name, ArrayType(LongType())), *schema.fields[1:]])
    explained = pa.Table.from_batches(list(reader(odd, given).read_file(_content(path))))
    assert explained["_rescued_data"].null_count == found[first.name].null_count
    rest = schema.names[1:]
    assert _rows(explained.select(rest)) == _rows(found.select(rest))


def _rows(found: pa.Table) -> list[str]:
    """Rows as texts, in which not a number equals itself; moments as numbers."""
    columns: list[list[Any]] = []
    for column in found.columns:
        kind = numeric(column.type)
        columns.append(
            pa.chunked_array([each.view(kind) for each in column.chunks], kind).to_pylist()
        )
    return [repr(row) for row in zip(*columns, strict=True)]


SHREDDED = [
    "",
    "a BIGINT, b STRING, c ARRAY<DOUBLE>",
    "a STRUCT<x: DECIMAL(10, 2), y: BOOLEAN>, d DATE, e TIMESTAMP",
    "BIGINT",
]


@pytest.mark.parametrize("shape", SHREDDED, ids=["plain", "object", "nested", "scalar"])
def test_variants_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path, shape: str
) -> None:
    texts = [
        '{"a":1,"b":"x","c":[1.5,2,"three"],"z":{"é":null}}', '{"a":"one","c":[]}', "7", "null",
        '{"a":{"x":1.25,"y":true,"w":[]},"d":"2024-01-31"}', '[1,{"a":2}]', "{}", '"text"',
    ]  # fmt: skip
    path = str(tmp_path / "v.parquet")
    names = {
        "spark.sql.variant.writeShredding.enabled": str(bool(shape)).lower(),
        "spark.sql.variant.forceShreddingSchemaForTest": shape,
    }
    with _set(spark, names):
        frame = spark.createDataFrame([(text,) for text in [*texts, None]], "t STRING").coalesce(1)
        frame.selectExpr("parse_json(t) v", "array(parse_json(t)) l", "t").write.parquet(path)
    theirs = spark.read.parquet(path).selectExpr("to_json(v) v", "to_json(l[0]) l", "t").collect()
    (found,) = (tmp_path / "v.parquet").glob("*.parquet")
    file = MemoryFile(found.read_bytes())
    given = options(evolution="rescue")
    schema = infer([file], given)
    assert schema.simpleString() == "struct<v:variant,l:array<variant>,t:string>"
    for row, their in zip(rows(file, schema, given), theirs, strict=True):
        assert row["_rescued_data"] is None
        for one, text in ((row["v"], their.v), (row["l"][0], their.l)):
            said = one and VariantUtils.to_json(one["value"], one["metadata"])
            assert (said and json.loads(said)) == (text and json.loads(text))


def test_a_stream_of_variants_goes_through_a_sink_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    airflow_cloudfiles.register(spark)
    landing = tmp_path / "landing"
    frame = spark.range(3).selectExpr("id", "parse_json(concat('[', id, ']')) v")
    frame.selectExpr("id", "v", "struct(v) s").coalesce(1).write.parquet(str(landing))

    def run(sink: str, **hints: str) -> None:
        stream = spark.readStream.format("cloudFiles").option("cloudFiles.format", "parquet")
        stream = stream.option("cloudFiles.schemaLocation", str(tmp_path / f"state-{sink}"))
        writer = stream.options(**hints).load(str(landing)).writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / f"state-{sink}"))
        writer.trigger(availableNow=True).start(str(tmp_path / sink)).awaitTermination()

    run("parquet")
    found = spark.read.parquet(str(tmp_path / "parquet")).orderBy("id")
    assert [
        tuple(row)
        for row in found.selectExpr("to_json(v)", "to_json(s.v)", "_rescued_data").collect()
    ] == [(f"[{each}]", f"[{each}]", None) for each in range(3)]


@pytest.mark.parametrize("codec", ["none", "zlib", "snappy", "lz4", "zstd"])
def test_old_dates_and_fractions_near_1970_of_orc_are_those_that_spark_wrote(
    spark: SparkSession, tmp_path: Path, codec: str
) -> None:
    rows_of_table = ", ".join(
        f"(date'{day}', timestamp'{clock}')"
        for day, clock in [
            ("0001-01-01", "1970-01-01 00:00:00.5"),
            ("1500-01-01", "1969-12-31 23:59:58.5"),
            ("1582-10-15", "1970-01-01 05:00:00.25"),
            ("1969-12-31", "1969-12-31 12:00:00.75"),
        ]
    )
    query = f"SELECT * FROM VALUES {rows_of_table} AS t(d, t)"
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    try:
        spark.sql(query).coalesce(1).write.option("compression", codec).orc(str(tmp_path / "t"))
    finally:
        zones.setDefault(before)
    [path] = (tmp_path / "t").glob("*.orc")
    file = MemoryFile(path.read_bytes())
    given = options("orc")
    found = rows(file, infer([file], given), given)
    wanted = spark.sql(query).selectExpr("d", "unix_millis(t) AS t").toArrow().to_pylist()
    assert [row["d"] for row in found] == [row["d"] for row in wanted]
    # The clock of the writer is taken for UTC, an hour later.
    assert [row["t"].timestamp() for row in found] == [row["t"] / 1000 + 3600 for row in wanted]
