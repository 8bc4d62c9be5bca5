"""Spark's own inference and DDL parser are the oracle for ours."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.types import canonical_struct, simple_ddl
from tests.support.formats.json_files import typed_options

pytestmark = pytest.mark.spark


def _by_name(kind):
    """The type with its fields sorted, as Spark infers it."""
    if isinstance(kind, StructType):
        fields = sorted(kind.fields, key=lambda field: field.name)
        return StructType([StructField(each.name, _by_name(each.dataType)) for each in fields])
    return ArrayType(_by_name(kind.elementType)) if isinstance(kind, ArrayType) else kind


def _ours(text, typed):
    inference = JsonInference(typed_options(typed))
    inference.add(text)
    return _by_name(canonical_struct(inference.result()))


def _sparks(spark, path, typed):
    return spark.read.option("primitivesAsString", not typed).json(str(path)).schema


def _value(rng, depth):
    leaves = [
        lambda: None,
        lambda: "",
        lambda: rng.choice(["x", "2021-01-01", "1", "true"]),
        lambda: rng.random() < 0.5,
        lambda: rng.randrange(-5, 5),
        lambda: rng.choice([2**63 - 1, -(2**63)]),
        lambda: rng.choice([2**63, -(2**63) - 1, 10**25, 10**38 - 1, 10**38]),
        lambda: rng.choice([1.5, -0.0, 1e300, 2.0]),
    ]
    nested = [
        list,
        lambda: {rng.choice("abc"): _value(rng, depth + 1) for _ in range(rng.randrange(1, 3))},
        lambda: [_value(rng, depth + 1) for _ in range(rng.randrange(3))],
    ]
    return rng.choice(leaves + nested * (2 if depth < 3 else 0))()


def _corpus(seed):
    """Records few enough that their types often clash, and often do not."""
    rng = random.Random(seed)
    wide = [f"{name}{number}" for name in "klm" for number in range(20)]
    return [
        {rng.choice(wide): _value(rng, 0) for _ in range(6)} for _ in range(rng.choice([3, 40]))
    ]


@pytest.mark.parametrize("typed", [False, True])
def test_we_infer_what_spark_infers(spark, tmp_path, typed):
    for seed in range(12):
        path = tmp_path / f"{seed}.json"
        text = "\n".join(json.dumps(record) for record in _corpus(seed)).encode()
        path.write_bytes(text)
        assert _ours(text, typed) == _sparks(spark, path, typed), f"seed {seed}"


@pytest.mark.parametrize(
    "lines",
    [
        ['{"a":1e3,"b":1E400,"c":1.0,"d":-0}'],
        ["{'a':1,'b':NaN,'c':-Infinity,'d':+INF,\"e\":'x'}"],
        ['{"a":{}}', '{"a":{"b":{}},"c":[{}]}'],
        ['[{"a":1},{"b":"x"}]', '{"c":[]}'],
        ['{"a":"\\u00fc","\\u00fc":1,"d e":2}'],
        ['{"a":[1,"",null]}', '{"a":[[1]]}', '{"b":[[],[1.5]]}'],
        ["", "  ", '{"a":1}', "null"],
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_we_infer_what_spark_infers_from_odd_records(spark, tmp_path, lines, typed):
    text = "\n".join(lines).encode()
    (tmp_path / "f.json").write_bytes(text)
    assert _ours(text, typed) == _sparks(spark, tmp_path / "f.json", typed)


def _without_lengths(kind: DataType) -> DataType:
    """Character types as the strings that Spark's readers make of them."""
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_lengths(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        value = _without_lengths(kind.valueType)
        return MapType(_without_lengths(kind.keyType), value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(
                    each.name, _without_lengths(each.dataType), each.nullable, each.metadata
                )
                for each in kind.fields
            ]
        )
    return kind


@pytest.mark.parametrize(
    "text",
    [
        "tags map<string,string>, version int",
        "a BOOLEAN, b TINYINT, c BYTE, d SMALLINT, e SHORT, f INT, g INTEGER, h BIGINT, i LONG",
        "a FLOAT, b REAL, c DOUBLE, d DATE, e TIMESTAMP, f TIMESTAMP_NTZ, g TIMESTAMP_LTZ",
        "a DECIMAL, b DEC(5), c NUMERIC(38, 38), d STRING, e BINARY, f CHAR(3), g VARCHAR(9)",
        "a STRUCT<b: INT, c STRING, `d e`: ARRAY<STRUCT<>>>, f MAP<INT, MAP<STRING, DATE>>",
        "a INT NOT NULL, b STRUCT<c: INT NOT NULL COMMENT 'in'> COMMENT 'out'",
        "`a b` INT, `c``d` INT, comment STRING, date DATE, time TIMESTAMP, `1` INT, e1 INT",
        "`größe` INT, _x INT, x1 INT, e1 INT",
        "a INT COMMENT 'it\\'s', b INT COMMENT \"double\"",
        " a  int ,\n\tb\tstring ",
    ],
)
def test_we_read_ddl_as_spark_reads_it(spark, text):
    assert spark is not None
    assert parse_schema(text) == _without_lengths(StructType.fromDDL(text))


@pytest.mark.parametrize(
    "text",
    [
        "a itn",
        "a INT b INT",
        "a INT,",
        "1 INT",
        "a-b INT",
        "a MAP<STRING>",
        "a DECIMAL(39, 0)",
        "a DECIMAL(5, 6)",
        "a INT COMMENT b",
        "a ARRAY<INT",
    ],
)
def test_we_refuse_ddl_that_spark_refuses(spark, text):
    assert spark is not None
    with pytest.raises(PySparkException):
        StructType.fromDDL(text)
    with pytest.raises(SchemaHintError):
        parse_schema(text)


def test_our_ddl_is_sparks_ddl(spark):
    assert spark is not None
    schema = parse_schema(
        "a INT, `b c` STRUCT<`d``e`: ARRAY<STRING> NOT NULL, f: MAP<INT, DECIMAL(5,2)>>, g BINARY"
    )
    assert StructType.fromDDL(simple_ddl(schema)) == schema
