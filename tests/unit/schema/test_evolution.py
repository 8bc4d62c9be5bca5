from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.inference import SchemaChange, diff, evolve


def _structs(inner):
    field = st.builds(StructField, st.sampled_from(["a", "A", "b", "c"]), inner, st.booleans())
    fields = st.lists(field, max_size=3, unique_by=lambda each: CASE_INSENSITIVE.key(each.name))
    return st.builds(StructType, fields)


_LEAVES = st.sampled_from([StringType(), IntegerType(), LongType(), DoubleType()])
_SCHEMAS = _structs(
    st.recursive(
        _LEAVES,
        lambda inner: st.one_of(
            st.builds(ArrayType, inner, st.booleans()),
            st.builds(MapType, st.just(StringType()), inner),
            _structs(inner),
        ),
        max_leaves=6,
    )
)


class TestLaws:
    @pytest.mark.law
    @given(_SCHEMAS, _SCHEMAS)
    def test_evolving_twice_changes_nothing_more(self, current, observed):
        evolved = evolve(current, observed)
        assert evolve(evolved, observed) == evolved

    @pytest.mark.law
    @given(_SCHEMAS, _SCHEMAS)
    def test_what_is_there_keeps_its_name_place_and_type(self, current, observed):  # B50
        evolved = evolve(current, observed)
        assert evolved.names[: len(current.names)] == current.names
        assert [field.nullable for field in evolved][: len(current.names)] == [
            field.nullable for field in current
        ]
        assert all(change.is_additive for change in diff(current, evolved))

    @pytest.mark.law
    @given(_SCHEMAS, _SCHEMAS)
    def test_every_new_column_is_there_once_and_nullable(self, current, observed):
        evolved = evolve(current, observed)
        keys = [CASE_INSENSITIVE.key(name) for name in evolved.names]
        assert len(set(keys)) == len(keys)
        assert set(keys) == CASE_INSENSITIVE.keys((*current.names, *observed.names))
        assert all(field.nullable for field in evolved.fields[len(current.names) :])

    @pytest.mark.law
    @given(_SCHEMAS)
    def test_a_schema_does_not_differ_from_itself(self, schema):
        assert evolve(schema, schema) == schema
        assert diff(schema, schema) == []


@pytest.mark.parametrize(
    ("before", "seen", "after"),
    [
        ("a STRING", "b STRING, a STRING", "a STRING, b STRING"),  # B46
        ("a STRING", "c INT, b INT", "a STRING, c INT, b INT"),  # B47
        ("foo STRING", "FOO INT", "foo STRING"),  # B15
        ("a INT", "a STRING", "a INT"),  # B49, B50
        ("a STRING", "a STRUCT<b: INT>", "a STRING"),
        ("a STRUCT<b: INT>", "a STRING", "a STRUCT<b: INT>"),
        (
            "user STRUCT<id: INT>, x INT",
            "user STRUCT<zip: STRING, id: STRING>",
            "user STRUCT<id: INT, zip: STRING>, x INT",
        ),  # B48
        ("a ARRAY<STRUCT<b: INT>>", "a ARRAY<STRUCT<c: INT>>", "a ARRAY<STRUCT<b: INT, c: INT>>"),
        ("a ARRAY<INT>", "a ARRAY<STRING>", "a ARRAY<INT>"),
        ("m MAP<STRING, INT>", "m STRUCT<k: INT, l: STRING>", "m MAP<STRING, INT>"),
        (
            "m MAP<STRING, STRUCT<a: INT>>",
            "m STRUCT<k: STRUCT<b: INT>, l: STRUCT<c: INT>>",
            "m MAP<STRING, STRUCT<a: INT, b: INT, c: INT>>",
        ),
        ("", "a INT", "a INT"),
        ("a INT", "", "a INT"),
    ],
)
def test_only_new_columns_are_added_each_at_its_end(before, seen, after):
    assert evolve(parse_schema(before), parse_schema(seen)) == parse_schema(after)


def test_a_difference_names_every_column_that_differs():
    old = parse_schema("a INT, b STRUCT<c: INT, d: INT>, e ARRAY<STRUCT<f: INT>>, Foo INT, m INT")
    new = parse_schema(
        "a BIGINT, b STRUCT<d: INT, x: INT>, e ARRAY<STRUCT<f: DATE>>, foo INT, z INT"
    )
    assert diff(old, new) == [
        SchemaChange("retyped", "a", "int", "bigint"),
        SchemaChange("removed", "b.c", "int", None),
        SchemaChange("added", "b.x", None, "int"),
        SchemaChange("retyped", "e.element.f", "int", "date"),
        SchemaChange("respelled", "Foo", "Foo", "foo"),
        SchemaChange("removed", "m", "int", None),
        SchemaChange("added", "z", None, "int"),
    ]


def test_a_difference_looks_into_maps():
    [key, value] = diff(parse_schema("m MAP<INT, INT>"), parse_schema("m MAP<STRING, STRING>"))
    assert (key.path, value.path) == ("m.key", "m.value")
    assert not key.is_additive
