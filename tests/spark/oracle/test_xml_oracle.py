"""Spark's own XML reader is the oracle for every value that fits, and for inferred schemas."""

from __future__ import annotations

import json
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    StructField,
    StructType,
    VariantVal,
)

from airflow_cloudfiles.engine.types import VariantType, canonical_struct
from tests.support.formats.numbers_law import OPTION
from tests.support.formats.xml_files import columns, inferred, numbers, reader, table_of, written
from tests.unit.formats.xml.test_xml_law import document

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = [
    "STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "DECIMAL(7,3)",
    "DECIMAL(38,10)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
]  # fmt: skip
NAMES = [f"c{place}" for place in range(len(KINDS))]
DDL = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, KINDS, strict=True))

TEXTS = [
    "0", "-0", "1", "-1", "+7", "007", "127", "128", "-128", "-129", "32767", "32768",
    "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 38, "1" * 39,
    "-9223372036854775808", "1.0", "1.10", "-1.5e3", "1E2", "1e400", "-1e400", "1e39", "1e-400",
    "3.4028234e38", "1e-46", "7.038531e-26", "0.1234567890123", "12345.678", "9999.999",
    "9999.9994", "9999.9995", "1.2345", "1e-4", "16777217", "9007199254740993", "1.", "+.5", ".5",
    "5d", "5.5f", "0x10", "0x1p3", "NaN", "nan", "Inf", "Infinity", "-Infinity", "+Infinity",
    " 1", "1 ", " 1.5 ", "\t2", "1_000", "1 000", "$1", "1.234.5", "--1", "+", "-", "e5", "1e",
    "1,234.5", "true", "TRUE", "False", "t", "yes", "2024-02-29", "2024-2-9", "2023-02-29",
    "2024", "2024-01", " 2024-01-31 ", "2024-01-31T12:30:59Z", "2024-01-31T12:30:59.123456Z",
    "2024-01-31 12:30:59", "2024-01-31T12:30:59.1+05:30", "2024-01-31T25:00:00Z",
    "2024-01-31T12:30Z", "2024-01-31T12:30", "2024-01-31 12", "2024-01-31T00:00:00Z",
    "2024-01-31T12:30:59.123456789Z", "2024-01-31T12:30:59.123456000Z",
    "2024-01-31 12:30:59.1234567", "2024-01-31 12:30:59.1234560",
    "2024-01-31 1:2:3.123456789", "2024-01-31T12:30:59 Europe/Paris", "12:30:59", "1:2",
    "2024-01-31T12:30:59GMT+1", "2024-01-31T12:30:59-0530", "2024-01-31T12:30:59 PST",
    "0001-01-01", "9999-12-31T23:59:59.999999Z", "1582-10-10", "1582-10-10T00:00:00Z",
    "2024-02-29 x", "20240131", "2024/01/31", "x", "é😀", "null", "a &lt; b &amp; c", "",
    "0.0", "-0.0", "1e5", "00.50", "1.50000", "123456789012345678", "1234567890123456789",
    "0.12345678901", "<![CDATA[<x>]]>", "&#233;", "\n x \n y ",
]  # fmt: skip


def _random_text(generator: random.Random) -> str:
    """A value of any kind."""
    date = f"{generator.randrange(1, 9999):04}-{generator.randrange(1, 13):02}"
    date += f"-{generator.randrange(1, 29):02}"
    clock = (
        f"{generator.randrange(24):02}:{generator.randrange(60):02}:{generator.randrange(60):02}"
    )
    fraction = generator.choice(["", f".{generator.randrange(10**6)}"])
    zone = generator.choice(["", "Z", "+01:00", "-05:30", "+9:00", " UTC"])
    return generator.choice(
        [
            str(generator.randrange(-(2**66), 2**66)),
            str(generator.randrange(-(2**31), 2**31)),
            str(generator.randrange(-300, 300)),
            repr(generator.uniform(-1e6, 1e6)),
            f"{generator.uniform(-1, 1) * 10.0 ** generator.randrange(-40, 40):.17e}",
            f"{generator.uniform(-99, 99):.{generator.randrange(1, 4)}f}",
            date,
            date + generator.choice("T ") + clock + fraction + zone,
            "".join(generator.choice("0123456789.-+eE") for _ in range(generator.randrange(1, 8))),
            generator.choice(TEXTS),
        ]
    )


def _differs_on_purpose(kind: str, text: str, theirs: Any) -> bool:
    """Whether Spark changes the value, where it is rescued here (decision 30)."""
    text = text.strip()
    if kind.startswith("DECIMAL"):
        return abs(theirs - Decimal(text.replace(",", ""))) > 0  # rounded
    if kind in {"BIGINT", "INT"}:
        return text.startswith(("--", "+-", "-+", "++"))  # a sign before a sign
    if kind in {"DOUBLE", "FLOAT"}:
        # Beyond the largest number; more than a number, of which Spark takes the beginning.
        plain = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text)
        return math.isinf(theirs) or plain is None
    if kind.startswith("TIMESTAMP") and re.search(r"\.\d{6}\d*[1-9]", text):
        return True  # digits after the microsecond cut off
    return kind == "TIMESTAMP" and ":" in text[:3]  # the day of reading added to a time of day


def _both(
    spark: SparkSession, folder: Path, content: str, schema: StructType, **options: Any
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """What Spark reads, what we do, and what we do when every row is explained."""
    file = written(folder, content)
    frame = spark.read.schema(schema).options(rowTag="row", **options).format("xml")
    theirs = frame.load(str(folder / "f.xml")).toArrow()
    plain = pa.schema([each.with_type(numbers(each.type)) for each in theirs.schema])
    given = {OPTION: "none", **options}
    ours = table_of(file, reader(schema, **given))
    thorough = table_of(file, reader(schema, is_thorough=True, **given))
    return theirs.cast(plain).combine_chunks(), ours, thorough


def test_every_value_that_fits_is_what_spark_reads(spark: SparkSession, tmp_path: Path):
    generator = random.Random(30)
    texts = [*TEXTS, *(_random_text(generator) for _ in range(1500))]
    # One value a row: what follows a value that does not fit, Spark misses.
    content = "".join(f"<row><{name}>{text}</{name}></row>" for name in NAMES for text in texts)
    theirs, ours, thorough = _both(spark, tmp_path, f"<r>{content}</r>", columns(DDL))
    assert theirs.num_rows == ours.num_rows == len(texts) * len(NAMES)
    assert repr(ours.to_pylist()) == repr(thorough.to_pylist())
    wrong = []
    for place, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True)):
        begin = place * len(texts)
        parts = (each[name].slice(begin, len(texts)).to_pylist() for each in (theirs, ours))
        pairs = zip(texts, *parts, strict=True)
        for text, spark_value, our_value in pairs:
            if repr(spark_value) == repr(our_value):
                continue
            if our_value is None and _differs_on_purpose(kind, text, spark_value):
                continue
            if kind == "BIGINT" and spark_value is None and our_value == -(2**63):
                continue  # Spark negates what is too large without its sign
            wrong.append((kind, text, "spark", spark_value, "we", our_value))
    assert wrong == []


NESTED = columns(
    "_id BIGINT, name STRING, _VALUE STRING, tags ARRAY<STRING>, counts ARRAY<BIGINT>, "
    "user STRUCT<_vip: BOOLEAN, name: STRING, age: INT, since: STRUCT<day: DATE, _k: STRING, "
    "_VALUE: STRING>>, items ARRAY<STRUCT<_sku: STRING, count: INT, price: STRUCT<_currency: "
    "STRING, _VALUE: DOUBLE>>>, attributes MAP<STRING, BIGINT>"
)


def test_nested_rows_are_what_spark_reads(spark: SparkSession, tmp_path: Path):
    content = "<r>"
    for seed in range(8):
        data = document(seed, NESTED, 250, error_rate=0.0, parts_texts=False)[1].decode()
        content += data.partition("<rows>")[2].removesuffix("</rows>\n")
    theirs, ours, thorough = _both(spark, tmp_path, content + "</r>", NESTED)
    assert ours["_rescued_data"].null_count == ours.num_rows == 2000
    ours, thorough = ours.drop(["_rescued_data"]), thorough.drop(["_rescued_data"])
    assert ours.equals(thorough)
    wrong = [
        (spark_row, our_row)
        for spark_row, our_row in zip(theirs.to_pylist(), ours.to_pylist(), strict=True)
        if repr(_sorted(spark_row)) != repr(_sorted(our_row))
    ]
    assert wrong == []


def _sorted(value: Any) -> Any:
    """A row whose maps are in the order of their keys: Spark's are in none."""
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items()}
    if isinstance(value, list):
        found = [_sorted(each) for each in value]
        return sorted(found) if found and isinstance(found[0], tuple) else found
    return value


@pytest.mark.parametrize("typed", [True, False])
def test_what_is_inferred_is_what_spark_infers(spark: SparkSession, tmp_path: Path, typed: bool):
    wrong = []
    # In these, no element is a plain text here and has elements but no text there: what Spark
    # infers then depends on the order of the rows, and fields get lost (decision 30).
    for seed in (1, 2, 3, 4, 7, 8, 9, 10, 12, 14):
        schema = StructType(random.Random(seed).sample(NESTED.fields[:-1], 3))
        data = document(seed, schema, 25, parts_texts=False)[1].decode()
        # Names that differ in case only are one column here; some texts Spark takes for today.
        data = data.replace("<Name", "<nom").replace("</Name", "</nom").replace("12:30:59<", "x<")
        ours = canonical_struct(inferred(written(tmp_path, data), typed=typed))
        frame = spark.read.options(rowTag="row", inferSchema=typed).format("xml")
        theirs = frame.load(str(tmp_path / "f.xml")).schema
        if _in_order(ours) != _in_order(theirs):
            wrong.append((seed, _in_order(ours).simpleString(), _in_order(theirs).simpleString()))
    assert wrong == []


def _in_order(kind: DataType) -> DataType:
    """A type with its fields in the order of their names."""
    if isinstance(kind, ArrayType):
        return ArrayType(_in_order(kind.elementType))
    if isinstance(kind, StructType):
        fields = sorted(kind.fields, key=lambda each: each.name)
        return StructType([StructField(each.name, _in_order(each.dataType)) for each in fields])
    return kind


def test_whole_rows_as_spark_makes_them_variants(spark: SparkSession, tmp_path: Path):
    data = document(4, NESTED, 200, parts_texts=False)[1]
    more = b"<row>5</row><row/><row a='+7' b='.5' c='1e5' d='007' e='1,234.50' f='x'/></rows>"
    data = data.replace(b"</rows>", more)
    file = written(tmp_path, data)
    frame = spark.read.options(rowTag="row", singleVariantColumn="v").format("xml")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        lines = frame.load(str(tmp_path / "f.xml")).selectExpr("to_json(v) AS line").collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    schema = StructType([StructField("v", VariantType())])
    found = reader(schema, singleVariantColumn="v")
    values = [row["v"] for batch in found.read_file(file) for row in batch.to_pylist()]
    ours = [VariantVal(each["value"], each["metadata"]).toJson() for each in values]
    plain = [json.loads(line["line"], parse_float=Decimal) for line in lines]
    assert len(ours) == len(plain) == 203
    assert [json.loads(each, parse_float=Decimal) for each in ours] == plain
