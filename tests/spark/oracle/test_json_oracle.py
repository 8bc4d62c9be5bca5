"""Spark's own JSON reader is the oracle for every value that fits."""

from __future__ import annotations

import json
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from tests.support.formats.numbers_law import OPTION

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LEAVES: list[DataType] = [
    StringType(),
    LongType(),
    IntegerType(),
    ShortType(),
    ByteType(),
    DoubleType(),
    FloatType(),
    BooleanType(),
    DecimalType(7, 3),
    DecimalType(38, 10),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
    BinaryType(),
]
USER = StructType([StructField("name", StringType()), StructField("age", IntegerType())])
NESTED: list[DataType] = [
    ArrayType(StringType()),
    ArrayType(LongType()),
    ArrayType(ArrayType(DoubleType())),
    MapType(StringType(), StringType()),
    MapType(StringType(), LongType()),
    USER,
    ArrayType(USER),
]

TEXTS = [
    "true", "false", "0", "-0", "1", "-1", "127", "128", "-128", "-129", "32767", "32768",
    "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "123456789012345678901234567890", "1.0", "1.10", "-1.5e3", "1E2",
    "1e400", "-1e400", "1e39", "3.5e38", "3.4028234e38", "1e-400", "1e-46", "7.038531e-26",
    "0.1234567890123", "12345.678", "9999.999", "9999.9994", "1.2345", "1e-4", "0.12345678901",
    "-1e-11", "16777217", "9007199254740993", "1e20", "-0.0", "0e0",
    '""', '" "', '"x"', '"1"', '"0"', '"12"', '"-1"', '"1.5"', '"1.2345"', '"1,234.5"', '"+7"',
    '"7."', '".7"', '"1e2"', '"NaN"', '"-Infinity"', '"Infinity"', '"+INF"', '"INF"', '"nan"',
    '"true"', '"2024-02-29"', '"2024-2-9"', '"2023-02-29"', '"2024"', '"2024-01"', '" 2024-01-31 "',
    '"2024-01-31T12:30:59Z"', '"2024-01-31T12:30:59.123456Z"', '"2024-01-31 12:30:59"',
    '"2024-01-31T12:30:59.1+05:30"', '"2024-01-31T25:00:00Z"', '"2024-01-31T24:00:00Z"',
    '"2024-01-31T12:30Z"', '"2024-01-31T12:30"', '"2024-01-31 12"', '"2024-01-31T00:00:00Z"',
    '"2024-01-31T12:30:59.123456789Z"', '"2024-01-31T12:30:59.123456000Z"',
    '"2024-01-31 12:30:59.1234567"', '"2024-01-31 12:30:59.1234560"',
    '"2024-01-31 1:2:3.123456789"', '"2024-01-31T12:30:59 Europe/Paris"', '"12:30:59"', '"1:2"',
    '"2024-01-31T12:30:59GMT+1"', '"2024-01-31T12:30:59-0530"', '"2024-01-31T12:30:59 PST"',
    '"2024-01-31T12:30:59+18:01"', '"2024-01-31T12:30:59.Z"', '"2024-01-31T12:30:59+5:3"',
    '"2024-01-31T12:30:59 Mars/X"', '"2024-07-01T12:30:59 America/New_York"', '"T12:30:59"',
    '"2024-03-31T02:30:00 Europe/Paris"', '"2024-10-27T02:30:00 Europe/Paris"',
    '"1890-01-01T00:00:00 Europe/Paris"', '"2024-01-31t12:30:59Z"', '"2024/01/31"', '"123"',
    '"0001-01-01"', '"9999-12-31T23:59:59.999999Z"', '"1582-10-10"', '"1582-10-10T00:00:00Z"',
    '"aGVsbG8="', '"aGVsbG8"', '"aGVs"', '"aGV sbG8="', '"a===" ', '"a\\nb"', '"\\u00e9\\/"',
    '"\\ud83d\\ude00"', '"é😀"', '"a\\"b: c, d"', '"2024-02-29 x"', "{}", "[]", '{"a": 1}',
    '{"b" : [1.10, {"c":"\\u00e9"}]}', "[1 , 2]", '{"name": "x", "age": 7}', '{"age": 1.5}',
    '[{"name": "x"}, {"age": 3}]', '["a", null, "b"]', "[[1.5], [2], null]", '{"k": "v", "l": 5}',
    "null",
]  # fmt: skip


def _random_text(generator: random.Random) -> str:  # noqa: C901, PLR0911 - one return a kind
    """A value of any kind."""
    kind = generator.randrange(12)
    if kind == 0:
        return str(generator.randrange(-(2**66), 2**66))
    if kind == 1:
        return str(generator.randrange(-300, 300))
    if kind == 2:
        return repr(generator.uniform(-1e6, 1e6))
    if kind == 3:
        return f"{generator.uniform(-1, 1) * 10.0 ** generator.randrange(-40, 40):.17e}"
    if kind == 4:
        return f"{generator.uniform(-99, 99):.{generator.randrange(1, 4)}f}"
    if kind in {5, 6}:
        date = f"{generator.randrange(1, 9999):04}-{generator.randrange(1, 13)}"
        date += f"-{generator.randrange(1, 29)}"
        if kind == 5:
            return json.dumps(date)
        clock = f"{generator.randrange(24):02}:{generator.randrange(60):02}:"
        clock += f"{generator.randrange(60):02}.{generator.randrange(10**6)}"
        zone = generator.choice(["", "Z", "+01:00", "-05:30", "+9:00", " UTC", "UTC-3"])
        return json.dumps(f"{date}{generator.choice(' T')}{clock}{zone}")
    if kind == 7:
        characters = [chr(generator.randrange(1, 0xD7FF)) for _ in range(generator.randrange(9))]
        return json.dumps("".join(characters), ensure_ascii=generator.random() < 0.5)
    return generator.choice(TEXTS)


@pytest.mark.parametrize("kind", [*LEAVES, *NESTED], ids=lambda kind: kind.simpleString())
def test_every_value_that_fits_is_what_spark_reads(
    spark: SparkSession, tmp_path: Path, kind: DataType
):
    generator = random.Random(kind.simpleString())
    lines = [f'{{"n":{n},"v":{text}}}' for n, text in enumerate(TEXTS)]
    lines += [
        f'{{"n":{n}, "v" : {_random_text(generator)}}}' for n in range(len(lines), len(lines) + 400)
    ]
    schema = StructType([StructField("n", LongType()), StructField("v", kind)])
    spark_rows, our_rows = _both(spark, tmp_path, lines, schema)
    disagreements = []
    for line, theirs, ours in zip(lines, spark_rows, our_rows, strict=True):
        text = line.partition('"v"')[2].lstrip(" :").removesuffix("}")
        if ours["_rescued_data"] is not None:
            may_differ = theirs["v"] is None or isinstance(kind, ArrayType | MapType | StructType)
            if not may_differ and not _is_changed_by_spark(kind, text, theirs["v"]):
                disagreements.append(("we do not take", text, theirs["v"]))
        elif not _same(theirs["v"], ours["v"]):
            disagreements.append((text, "spark", theirs["v"], "we", ours["v"]))
    assert disagreements == []


def _is_changed_by_spark(kind: DataType, text: str, theirs: object) -> bool:
    """Whether Spark takes a value by making another of it, which we rescue instead.

    The module docstrings of `formats.datetimes.default_format` and `formats.json.shape`
    name each of these.
    """
    if isinstance(kind, ByteType):
        return 128 <= int(text) <= 255  # wrapped round to a negative number
    if isinstance(kind, DoubleType | FloatType):
        return math.isinf(theirs)  # beyond the largest number
    if isinstance(kind, DecimalType):
        return abs(theirs - Decimal(text.strip('"').replace(",", ""))) > 0  # rounded
    if isinstance(kind, DateType):
        # A time of day cut off, text after a blank cut off, a number of days.
        return ":" in text or " " in text.strip(' "') or re.fullmatch(r'"[+-]?\d{1,3}"', text)
    # Digits after the microsecond cut off.
    is_finer = re.search(r"\.\d{6}\d*[1-9]", text) is not None
    if isinstance(kind, TimestampType) and not is_finer:
        # The day of reading added to a time of day; seconds beyond 64 bits of microseconds.
        return text in {'"12:30:59"', '"T12:30:59"', '"1:2"'} or abs(int(text)) > 2**63 // 10**6
    return isinstance(kind, TimestampType | TimestampNTZType) and is_finer


def test_records_as_spark_reads_them(spark: SparkSession, tmp_path: Path):
    lines = [
        '{"a":"x","b":1}', "{'a':'it\\'s \"q\"','b':2}", "{'a':{'k':1}}", '{"a":NaN}',
        '{"a":-INF}', '[{"a":"1"},{"a":"2"}]', "[]", "", "  \t ", '{"a":"1"},', '{"a":1} ',
        '\t{"b":7}', '{"a":"x","a":"y"}', '{"A":"x"}', '{"a":[1, 2 ,{"b":"\\u00e9"}]}', "{}",
        '{"a":1.10}', '{"a":"\\/\\b"}', '{"a":null}',
    ]  # fmt: skip
    schema = StructType([StructField("a", StringType()), StructField("b", LongType())])
    # Spark matches names as its SQL does unless told otherwise; our default is Auto Loader's.
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        spark_rows, our_rows = _both(spark, tmp_path, lines, schema)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert [(row["a"], row["b"]) for row in our_rows] == [
        (row["a"], row["b"]) for row in spark_rows
    ]


@pytest.mark.parametrize(
    "line",
    ["nope", "{", '{"a":1', '{"a":01}', '{"a":1.}', '{"a":tru}', '{"a" 1}', "{a:1}", '{"a":"\t"}',
     '{"a":"\\q"}', '{"a":+1}', '{"a":1,}', "[1]", '"x"', "7", "null", "[null]",
     '[{"a":"1"}, 2]', '{"a":"\\u12"}', "\x0b", "]", "[", '{"b":' + "[" * 1100 + "]" * 1100 + "}"],
    ids=lambda line: line[:20].encode("unicode_escape").decode(),
)  # fmt: skip
def test_what_is_corrupt_for_spark_is_corrupt_here(spark: SparkSession, tmp_path: Path, line: str):
    schema = StructType(
        [StructField("a", StringType()), StructField("_corrupt_record", StringType())]
    )
    spark_rows, our_rows = _both(spark, tmp_path, ['{"a":"before"}', line], schema)
    assert [row["_corrupt_record"] for row in our_rows] == [None, line]
    assert [row["_corrupt_record"] for row in spark_rows] == [None, line]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_lines_end_where_spark_ends_them(spark: SparkSession, tmp_path: Path, line_break: str):
    schema = StructType([StructField("a", StringType())])
    lines = line_break.join(['{"a":"1"}', '{"a":"2"}', "", '{"a":"3"}'])
    spark_rows, our_rows = _both(spark, tmp_path, [lines], schema)
    assert [row["a"] for row in our_rows] == [row["a"] for row in spark_rows] == ["1", "2", "3"]


def _both(
    spark: SparkSession, folder: Path, lines: list[str], schema: StructType
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The rows of one file as Spark reads them and as we do, both by way of Arrow."""
    data = "\n".join(lines).encode()
    (folder / "records.json").write_bytes(data)
    frame = spark.read.schema(schema).json(str(folder / "records.json"))
    options = CloudFilesOptions.parse(
        {
            "cloudFiles.format": "json",
            "cloudFiles.schemaEvolutionMode": "rescue",
            OPTION: "none",
        },
        path=str(folder),
    )
    reader = JsonReader(schema, options)
    ours = reader.read([LinePiece("file:///records.json", data)])
    theirs = frame.toArrow().cast(ours.schema.remove(len(ours.schema) - 1))
    return _rows(theirs.combine_chunks().to_batches()[0]), _rows(ours)


def _rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Rows as Python objects; moments as numbers, since Python's end with the year 9999."""
    whole = {"timestamp": pa.int64(), "date32": pa.int32()}
    for index, field in enumerate(batch.schema):
        plain = whole.get(str(field.type).partition("[")[0])
        if plain is not None:
            batch = batch.set_column(index, field.name, batch.column(index).cast(plain))
    return batch.to_pylist()


def _same(theirs: object, ours: object) -> bool:
    if isinstance(theirs, float) and isinstance(ours, float):
        return theirs == ours or (math.isnan(theirs) and math.isnan(ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(_same(theirs[k], ours[k]) for k in theirs)
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        return len(theirs) == len(ours) and all(map(_same, theirs, ours))
    return type(theirs) is type(ours) and theirs == ours
