"""The matrix of `addNewColumnsWithTypeWidening`, every pair of types of it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.inference import diff
from airflow_cloudfiles.engine.schema.widening import can_widen, widen, wider_type

LEAVES = {
    "byte": ByteType(),
    "short": ShortType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "decimal(5,2)": DecimalType(5, 2),
    "decimal(20,0)": DecimalType(20, 0),
    "decimal(38,10)": DecimalType(38, 10),
    "string": StringType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "void": NullType(),
}

WIDER = {
    ("byte", "short"): "short",
    ("byte", "int"): "int",
    ("byte", "long"): "long",
    ("byte", "double"): "double",
    ("byte", "decimal(5,2)"): "decimal(12,2)",  # B62
    ("byte", "decimal(20,0)"): "decimal(20,0)",
    ("byte", "decimal(38,10)"): "decimal(38,10)",
    ("short", "int"): "int",
    ("short", "long"): "long",
    ("short", "double"): "double",
    ("short", "decimal(5,2)"): "decimal(12,2)",
    ("short", "decimal(20,0)"): "decimal(20,0)",
    ("short", "decimal(38,10)"): "decimal(38,10)",
    ("int", "long"): "long",  # B57
    ("int", "double"): "double",
    ("int", "decimal(5,2)"): "decimal(12,2)",  # B59
    ("int", "decimal(20,0)"): "decimal(20,0)",
    ("int", "decimal(38,10)"): "decimal(38,10)",
    ("long", "decimal(5,2)"): "decimal(22,2)",  # B59
    ("long", "decimal(20,0)"): "decimal(20,0)",
    ("long", "decimal(38,10)"): "decimal(38,10)",
    ("float", "double"): "double",  # B62
    ("decimal(5,2)", "byte"): "decimal(12,2)",
    ("decimal(5,2)", "short"): "decimal(12,2)",
    ("decimal(5,2)", "int"): "decimal(12,2)",
    ("decimal(5,2)", "long"): "decimal(22,2)",
    ("decimal(5,2)", "decimal(20,0)"): "decimal(22,2)",
    ("decimal(5,2)", "decimal(38,10)"): "decimal(38,10)",
    ("decimal(20,0)", "decimal(5,2)"): "decimal(22,2)",
    ("decimal(20,0)", "decimal(38,10)"): "decimal(38,10)",
}
"""Every pair of different types that gives another type than the column's; all others do not."""


def options(file_format: str = "json", hints: str = "") -> CloudFilesOptions:
    return CloudFilesOptions.parse(
        {"cloudFiles.format": file_format, "cloudFiles.schemaHints": hints}, path="/landing"
    )


@pytest.mark.parametrize(("current", "observed"), list(itertools.product(LEAVES, LEAVES)))
def test_the_matrix_is_the_documented_one_and_nothing_else(current: str, observed: str) -> None:
    # B57, B59, B60, B61, B62, B63
    schema = StructType([StructField("a", LEAVES[current])])
    seen = StructType([StructField("a", LEAVES[observed])])
    wider = WIDER.get((current, observed))
    expected = parse_schema(f"a {wider}")["a"].dataType if wider else LEAVES[current]
    [found] = widen(schema, seen, options()).fields
    assert found.dataType == expected
    is_date = (current, observed) == ("date", "timestamp_ntz")
    [found] = widen(schema, seen, options("parquet")).fields
    assert (found.dataType == TimestampNTZType()) is (is_date or current == "timestamp_ntz")


@pytest.mark.parametrize(
    ("current", "observed"),
    [("decimal(38,0)", "decimal(5,2)"), ("decimal(38,38)", "int"), ("long", "decimal(38,30)")],
)
def test_what_would_need_more_than_38_digits_is_rescued(current: str, observed: str) -> None:
    schema = parse_schema(f"a {current}")
    assert widen(schema, parse_schema(f"a {observed}"), options()) == schema


def test_long_and_double_are_no_widening_in_either_direction() -> None:  # B61
    assert wider_type(LongType(), DoubleType(), is_parquet=True) is None
    assert wider_type(DoubleType(), LongType(), is_parquet=True) is None


@pytest.mark.parametrize(
    ("current", "observed", "widened"),
    [
        ("s STRUCT<a: INT, b: STRING>", "s STRUCT<A: BIGINT>", "s STRUCT<a: BIGINT, b: STRING>"),
        ("l ARRAY<INT>", "l ARRAY<BIGINT>", "l ARRAY<BIGINT>"),
        ("l ARRAY<STRUCT<a: INT>>", "l ARRAY<STRUCT<a: BIGINT>>", "l ARRAY<STRUCT<a: BIGINT>>"),
        ("m MAP<STRING, FLOAT>", "m MAP<STRING, DOUBLE>", "m MAP<STRING, DOUBLE>"),
        ("m MAP<INT, INT>", "m MAP<BIGINT, INT>", "m MAP<BIGINT, INT>"),
        ("l ARRAY<INT>", "l BIGINT", "l ARRAY<INT>"),
        ("s STRUCT<a: INT>", "s MAP<STRING, BIGINT>", "s STRUCT<a: INT>"),
        ("a INT, b STRING", "new BIGINT", "a INT, b STRING"),
        ("a INT NOT NULL COMMENT 'x'", "a BIGINT", "a BIGINT NOT NULL COMMENT 'x'"),
    ],
)
def test_what_is_nested_is_widened_in_its_place(current: str, observed: str, widened: str) -> None:
    found = widen(parse_schema(current), parse_schema(observed), options())
    assert found == parse_schema(widened)


@pytest.mark.parametrize(
    ("hints", "widened"),
    [
        ("a INT", "a INT, s STRUCT<b: BIGINT>, l ARRAY<BIGINT>"),
        ("A INT, s.b INT", "a INT, s STRUCT<b: INT>, l ARRAY<BIGINT>"),
        ("s STRUCT<b: INT>", "a BIGINT, s STRUCT<b: INT>, l ARRAY<BIGINT>"),
        ("l.element INT", "a BIGINT, s STRUCT<b: BIGINT>, l ARRAY<INT>"),
    ],
)
def test_a_hinted_column_keeps_its_type(hints: str, widened: str) -> None:
    schema = parse_schema("a INT, s STRUCT<b: INT>, l ARRAY<INT>")
    seen = parse_schema("a BIGINT, s STRUCT<b: BIGINT>, l ARRAY<BIGINT>")
    assert widen(schema, seen, options(hints=hints)) == parse_schema(widened)


@pytest.mark.parametrize(
    ("schema", "hints", "expected"),
    [
        ("a STRING, b BOOLEAN, c TIMESTAMP, d DOUBLE", "", False),
        ("a STRING, b STRUCT<c: ARRAY<MAP<STRING, INT>>>", "", True),
        ("a STRING, b STRUCT<c: ARRAY<MAP<STRING, INT>>>", "b.c.element.value INT", False),
        ("a DATE", "", False),
        ("a INT", "a INT", False),
    ],
)
def test_it_is_known_beforehand_whether_anything_can_widen(
    schema: str, hints: str, expected: bool
) -> None:
    assert can_widen(parse_schema(schema), options(hints=hints)) is expected
    assert can_widen(parse_schema("a DATE"), options("parquet"))


_TYPES = st.sampled_from(list(LEAVES.values()))
_DECIMALS = st.integers(1, 38).flatmap(
    lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p))
)
_SCHEMAS = st.lists(st.one_of(_TYPES, _DECIMALS), min_size=3, max_size=3).map(
    lambda kinds: StructType(
        [StructField(name, kind) for name, kind in zip("abc", kinds, strict=True)]
    )
)


class TestLaws:
    @pytest.mark.law
    @given(_SCHEMAS, _SCHEMAS)
    def test_widening_twice_changes_nothing_more(
        self, current: StructType, observed: StructType
    ) -> None:
        for chosen in (options(), options("parquet")):
            widened = widen(current, observed, chosen)
            assert widen(widened, observed, chosen) == widened

    @pytest.mark.law
    @given(_SCHEMAS, _SCHEMAS)
    def test_only_types_change_and_only_to_what_holds_the_column(
        self, current: StructType, observed: StructType
    ) -> None:
        widened = widen(current, observed, options())
        assert widened.names == current.names
        assert {change.kind for change in diff(current, widened)} <= {"retyped"}
        assert widen(widened, current, options()) == widened

    @pytest.mark.law
    @given(_SCHEMAS, st.lists(_SCHEMAS, max_size=8))
    def test_a_stream_of_changes_comes_to_an_end(
        self, current: StructType, observed: list[StructType]
    ) -> None:
        for each in observed:
            current = widen(current, each, options())
        for _ in range(len(observed)):
            for each in observed:
                current = widen(current, each, options())
        assert all(widen(current, each, options()) == current for each in observed)
