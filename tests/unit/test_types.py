from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.types import (
    all_strings,
    canonical,
    canonical_struct,
    is_column_name,
    merge_types,
    schema_tree,
    simple_ddl,
    to_arrow,
)

_LEAVES = st.sampled_from(
    [
        BinaryType(),
        BooleanType(),
        ByteType(),
        DateType(),
        DecimalType(4, 2),
        DecimalType(20, 0),
        DecimalType(38, 20),
        DoubleType(),
        FloatType(),
        IntegerType(),
        LongType(),
        NullType(),
        ShortType(),
        StringType(),
        TimestampNTZType(),
        TimestampType(),
    ]
)


def _structs(inner):
    field = st.builds(StructField, st.sampled_from(["a", "A", "b", "c d"]), inner, st.booleans())
    fields = st.lists(field, max_size=3, unique_by=lambda each: CASE_INSENSITIVE.key(each.name))
    return st.builds(StructType, fields)


_TYPES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(MapType, st.just(StringType()), inner, st.booleans()),
        _structs(inner),
    ),
    max_leaves=8,
)

_NOT_VOID = _TYPES.filter(lambda kind: "void" not in kind.simpleString())


def _unordered(kind):
    """A type without the order and the spelling of its fields."""
    if isinstance(kind, StructType):
        fields = [
            (CASE_INSENSITIVE.key(each.name), _unordered(each.dataType), each.nullable)
            for each in kind
        ]
        return ("struct", tuple(sorted(fields, key=lambda each: each[0])))
    if isinstance(kind, ArrayType):
        return ("array", _unordered(kind.elementType), kind.containsNull)
    return kind


def _names(kind, within=""):
    """Folded paths of all fields that are not below a clash."""
    if isinstance(kind, StructType):
        for field in kind:
            yield within + CASE_INSENSITIVE.key(field.name)
            yield from _names(field.dataType, f"{within}{CASE_INSENSITIVE.key(field.name)}.")
    elif isinstance(kind, ArrayType):
        yield from _names(kind.elementType, f"{within}[].")


class TestMerging:
    @pytest.mark.law
    @given(_TYPES, _TYPES)
    def test_order_of_merging_matters_only_for_column_order(self, left, right):
        assert _unordered(merge_types(left, right)) == _unordered(merge_types(right, left))

    @given(_TYPES, _TYPES, _TYPES)
    def test_merging_is_associative(self, one, two, three):
        left = merge_types(merge_types(one, two), three)
        assert left == merge_types(one, merge_types(two, three))

    @given(_TYPES)
    def test_a_type_merged_with_itself_or_with_nothing_is_itself(self, kind):
        assert merge_types(kind, kind) == kind
        assert merge_types(NullType(), kind) == kind
        assert merge_types(kind, NullType()) == kind

    @pytest.mark.law
    @given(_structs(_TYPES), _structs(_TYPES))
    def test_no_column_is_ever_dropped(self, left, right):
        merged = merge_types(left, right)
        expected = CASE_INSENSITIVE.keys((*left.names, *right.names))
        assert CASE_INSENSITIVE.keys(merged.names) == expected
        assert merged.names[: len(left.names)] == left.names

    @pytest.mark.parametrize(
        ("left", "right", "merged"),
        [
            (LongType(), DoubleType(), DoubleType()),
            (BooleanType(), LongType(), StringType()),
            (LongType(), DecimalType(20, 0), DecimalType(20, 0)),
            (LongType(), DecimalType(19, 0), DecimalType(20, 0)),
            (LongType(), DecimalType(5, 2), DecimalType(22, 2)),
            (DecimalType(38, 0), DecimalType(4, 2), DoubleType()),
            (DecimalType(20, 0), DoubleType(), DoubleType()),
            (StructType([]), StringType(), StringType()),
            (ArrayType(LongType()), StructType([]), StringType()),
            (ArrayType(LongType()), ArrayType(BooleanType()), ArrayType(StringType())),
            (ArrayType(NullType()), ArrayType(LongType()), ArrayType(LongType())),
        ],
    )
    def test_leaves_merge_as_in_sparks_json_inference(self, left, right, merged):
        assert merge_types(left, right) == merged

    def test_the_first_spelling_of_a_name_is_kept(self):  # B15
        merged = merge_types(parse_schema("foo BIGINT"), parse_schema("FOO DOUBLE, bar STRING"))
        assert merged == parse_schema("foo DOUBLE, bar STRING")

    def test_a_field_that_one_side_lacks_is_nullable(self):
        merged = merge_types(parse_schema("a INT NOT NULL, b INT NOT NULL"), parse_schema("a INT"))
        assert merged == parse_schema("a INT, b INT")
        assert merge_types(StructType([]), parse_schema("c INT NOT NULL")) == parse_schema("c INT")


class TestSettling:
    def test_what_never_had_a_value_is_a_string(self):
        schema = StructType([StructField("a", NullType()), StructField("b", ArrayType(NullType()))])
        assert canonical_struct(schema) == parse_schema("a STRING, b ARRAY<STRING>")

    def test_empty_structs_are_gone_wherever_they_are(self):  # SPARK-8093
        schema = parse_schema("a STRUCT<>, b ARRAY<STRUCT<>>, c STRUCT<d: STRUCT<>>, e INT")
        assert canonical_struct(schema) == parse_schema("e INT")
        assert canonical(StructType([])) is None

    @given(_TYPES)
    def test_resolving_twice_is_resolving_once(self, kind):
        resolved = canonical(kind)
        assert resolved is None or canonical(resolved) == resolved

    def test_all_strings_keeps_the_shape(self):
        schema = parse_schema("a INT, b STRUCT<c: ARRAY<DOUBLE>>, d MAP<INT, DATE>")
        expected = "a STRING, b STRUCT<c: ARRAY<STRING>>, d MAP<STRING, STRING>"
        assert all_strings(schema) == parse_schema(expected)

    @given(_TYPES)
    def test_all_strings_drops_no_field(self, kind):
        assert list(_names(all_strings(kind))) == list(_names(kind))


class TestNames:
    @pytest.mark.parametrize("name", ["", "\ud800", "a\udfff"])
    def test_what_cannot_be_written_as_utf8_is_no_column(self, name):
        assert not is_column_name(name)

    @pytest.mark.parametrize("name", ["a", " ", "ä", "\U0001f600", 'a"b', "a.b"])
    def test_any_other_text_is_a_column(self, name):
        assert is_column_name(name)


class TestArrow:
    @pytest.mark.law
    @given(_structs(_NOT_VOID))
    def test_arrow_schema_is_the_one_spark_checks_against(self, schema):
        expected = to_arrow_schema(schema, timezone="UTC")
        assert to_arrow(schema).equals(expected, check_metadata=True)

    def test_field_metadata_travels_as_spark_writes_it(self):
        schema = StructType(
            [
                StructField("a", LongType(), metadata={"comment": "ünit", "n": 1}),
                StructField("s", StructType([StructField("b", LongType(), False, {"x": []})])),
            ]
        )
        expected = to_arrow_schema(schema, timezone="UTC")
        assert to_arrow(schema).equals(expected, check_metadata=True)

    def test_a_type_that_files_cannot_be_read_into_is_named_with_its_place(self):
        inner = StructType([StructField("b", ArrayType(DayTimeIntervalType()))])
        with pytest.raises(
            IncompatibleSchemaError, match=r"Column a\.b\.element has type interval"
        ):
            to_arrow(StructType([StructField("a", inner)]))


class TestDdl:
    @given(_structs(_NOT_VOID))
    def test_ddl_says_the_whole_type(self, schema):
        # Whether array elements and map values may be null has no form in DDL.
        text = simple_ddl(schema)
        assert simple_ddl(parse_schema(text)) == text

    def test_ddl_is_short_and_quotes_what_it_must(self):
        schema = parse_schema("a int, `b c` struct<`d``e`: array<string> not null>")
        assert simple_ddl(schema) == "a INT, `b c` STRUCT<`d``e`: ARRAY<STRING> NOT NULL>"


def test_the_tree_of_a_schema_is_that_of_spark() -> None:
    inner = StructType(
        [StructField("b", DecimalType(12, 2), False), StructField("é f", DateType())]
    )
    schema = StructType(
        [
            StructField("a", LongType(), False),
            StructField("s", inner),
            StructField("list", ArrayType(inner, False)),
            StructField("map", MapType(StringType(), ArrayType(TimestampNTZType()), False)),
        ]
    )
    assert schema_tree(schema) == schema.treeString()
