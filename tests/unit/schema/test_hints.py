from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, NullType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.schema.ddl import apply_hints, parse_columns, parse_schema


def _hinted(schema, hints):
    return apply_hints(parse_schema(schema), parse_columns(hints))


def test_first_example_of_the_documentation():  # B26
    assert _hinted(
        "date STRING, quantity INT, user_info STRUCT<id: STRING, name: STRING, dob: STRING>, "
        "purchase_options STRUCT<delivery_address: STRING>",
        "date DATE, user_info.dob DATE, purchase_options MAP<STRING,STRING>, time TIMESTAMP",
    ) == parse_schema(
        "date DATE, quantity INT, user_info STRUCT<id: STRING, name: STRING, dob: DATE>, "
        "purchase_options MAP<STRING,STRING>, time TIMESTAMP"
    )


def test_second_example_of_the_documentation():  # B27, B28, B29, B30
    assert _hinted(
        "products ARRAY<STRING>, locations ARRAY<STRING>, "
        "users ARRAY<STRUCT<id: STRING, name: STRING, dob: STRING>>, "
        "ids MAP<STRING,STRING>, names MAP<STRING,STRING>, prices MAP<STRING,STRING>, "
        "discounts MAP<STRUCT<id: STRING>,STRING>, "
        "descriptions MAP<STRING,STRUCT<content: INT>>",
        "products ARRAY<INT>, locations.element STRING, users.element.id INT, "
        "ids MAP<STRING,INT>, names.key INT, prices.value INT, discounts.key.id INT, "
        "descriptions.value.content STRING",
    ) == parse_schema(
        "products ARRAY<INT>, locations ARRAY<STRING>, "
        "users ARRAY<STRUCT<id: INT, name: STRING, dob: STRING>>, "
        "ids MAP<STRING,INT>, names MAP<INT,STRING>, prices MAP<STRING,INT>, "
        "discounts MAP<STRUCT<id: INT>,STRING>, "
        "descriptions MAP<STRING,STRUCT<content: STRING>>"
    )


def test_a_hinted_column_that_is_not_there_is_added_at_the_end():  # B31
    assert _hinted("a STRING", "b INT") == parse_schema("a STRING, b INT")


def test_a_hinted_field_that_is_not_there_is_added_at_the_end_of_its_struct():
    schema = "user STRUCT<id: STRING>, other STRING"
    expected = "user STRUCT<id: STRING, zip: INT>, other STRING"
    assert _hinted(schema, "user.zip INT") == parse_schema(expected)


def test_paths_into_nothing_build_their_structs():
    expected = "a STRING, u STRUCT<v: STRUCT<w: INT, x: DATE>>"
    assert _hinted("a STRING", "u.v.w INT, u.v.x DATE") == parse_schema(expected)


def test_paths_lead_into_what_never_had_a_value():
    schema = StructType([StructField("n", NullType())])
    assert apply_hints(schema, parse_columns("n.x INT")) == parse_schema("n STRUCT<x: INT>")


def test_a_hint_decides_the_spelling_of_its_column_only():  # B15
    assert _hinted("foo STRING, u STRUCT<Id: STRING>", "FOO STRING, U.ID INT") == parse_schema(
        "FOO STRING, u STRUCT<ID: INT>"
    )


def test_not_null_is_not_believed_of_files():
    assert _hinted("a STRING", "a STRUCT<b: INT NOT NULL> NOT NULL") == parse_schema(
        "a STRUCT<b: INT>"
    )


def test_a_comment_is_kept_as_spark_keeps_it():
    hinted = _hinted("a STRING", "a INT COMMENT 'count', b.c INT COMMENT 'inner'")
    assert hinted["a"] == StructField("a", IntegerType(), metadata={"comment": "count"})
    assert hinted["b"].dataType["c"].metadata == {"comment": "inner"}
    assert hinted["b"].metadata == {}


def test_hints_are_applied_in_their_order():
    assert _hinted("a STRING", "a STRUCT<b: STRING>, a.b INT, a.c DATE") == parse_schema(
        "a STRUCT<b: INT, c: DATE>"
    )


def test_no_hints_change_nothing():
    schema = StructType([StructField("a", StringType(), nullable=False, metadata={"x": 1})])
    assert apply_hints(schema, []) == schema


@pytest.mark.parametrize(
    ("schema", "hints", "says"),
    [
        ("a ARRAY<STRUCT<b: INT>>", "a.b INT", "a is an array: write a.element"),
        ("a MAP<STRING, INT>", "a.k INT", "a is a map: write a.key or a.value"),
        ("a STRING", "a.b INT", "a is of type string: hint it as a whole"),
        ("a STRUCT<b: INT>", "a.b.c INT", "a.b is of type int"),
        ("a ARRAY<INT>", "a.element.b INT", "a.element is of type int"),
        ("a INT", "tags.element INT", "Hint tags as a whole"),
        ("a INT", "b INT, c INT, B STRING", "B twice, at characters 1 and 15"),
        ("a INT", "b STRUCT<>", "b the type STRUCT<>"),
        ("a INT", "b ARRAY<STRUCT<c: STRUCT<>>>", "b.element.c the type STRUCT<>"),
    ],
)
def test_a_hint_that_does_not_fit_says_what_to_write_instead(schema, hints, says):
    with pytest.raises(SchemaHintError) as failure:
        _hinted(schema, hints)
    assert says in str(failure.value)
