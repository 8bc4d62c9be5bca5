from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.schema.ddl import parse_columns, parse_schema


def _only(text):
    [column] = parse_columns(text)
    return column


def test_a_list_of_columns_in_sparks_ddl():
    columns = parse_columns("tags map<string,string>, version int")  # S0
    assert [(each.path, each.data_type) for each in columns] == [
        (("tags",), MapType(StringType(), StringType())),
        (("version",), IntegerType()),
    ]


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_empty_text_has_no_columns(text):
    assert parse_columns(text) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BOOLEAN", "boolean"),
        ("tinyint", "tinyint"),
        ("BYTE", "tinyint"),
        ("short", "smallint"),
        ("SMALLINT", "smallint"),
        ("int", "int"),
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("bigint", "bigint"),
        ("float", "float"),
        ("real", "float"),
        ("double", "double"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("string", "string"),
        ("char(3)", "string"),
        ("CHARACTER(3)", "string"),
        ("varchar(10)", "string"),
        ("binary", "binary"),
        ("decimal", "decimal(10,0)"),
        ("dec(5)", "decimal(5,0)"),
        ("numeric( 5 , 2 )", "decimal(5,2)"),
        ("array<array<int>>", "array<array<int>>"),
        ("struct<>", "struct<>"),
        ("struct<a: int, b string>", "struct<a:int,b:string>"),
    ],
)
def test_every_type_has_its_spark_spellings(name, kind):
    assert _only(f"a {name}").data_type.simpleString() == kind


def test_names_are_paths_and_may_be_quoted():
    assert _only("a.b.element.c INT").path == ("a", "b", "element", "c")
    assert _only("`a.b`.`c d``e` INT").path == ("a.b", "c d`e")
    assert _only("comment STRING").path == ("comment",)
    assert _only("größe INT").path == ("größe",)


def test_not_null_and_comment_are_read():
    column = _only("a: INT NOT NULL COMMENT 'it\\'s \"so\"'")
    assert (column.nullable, column.comment) == (False, 'it\'s "so"')
    assert parse_schema('a STRUCT<b: INT NOT NULL COMMENT "x">') == StructType(
        [StructField("a", StructType([StructField("b", IntegerType(), False, {"comment": "x"})]))]
    )


def test_nested_types_nest():
    text = "a array<struct<b: map<string, decimal(10,2)>, c: array<int>>>"
    inner = StructType(
        [
            StructField("b", MapType(StringType(), DecimalType(10, 2))),
            StructField("c", ArrayType(IntegerType())),
        ]
    )
    assert _only(text).data_type == ArrayType(inner)


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("a", 2, "expected a type, found the end"),
        ("a itn", 3, "did you mean INT"),
        ("a strng", 3, "did you mean STRING"),
        ("a xyzzy", 3, "types are boolean"),
        ("a INT b STRING", 7, "expected a comma or the end, found 'b'"),
        ("a INT,", 7, "expected a column name"),
        (", a INT", 1, "expected a column name"),
        ("1 INT", 1, "backquotes"),
        ("`` INT", 1, "expected a column name"),
        ("a-b INT", 2, "'-' cannot stand here"),
        ("a. INT", 7, "expected a type"),
        ("a.`b", 3, "'`' cannot stand here"),
        ("a MAP<STRING>", 13, "a comma after the key type"),
        ("a ARRAY INT", 9, "'<' after ARRAY"),
        ("a ARRAY<INT", 12, "'>' at the end of ARRAY"),
        ("a STRUCT<b INT, B INT>", 17, "the field B is there twice"),
        ("a DECIMAL(39,0)", 3, "the precision is 1 to 38"),
        ("a DECIMAL(5,6)", 3, "the precision is 1 to 38"),
        ("a DECIMAL(x)", 11, "expected a number"),
        ("a INT NOT", 10, "NULL after NOT"),
        ("a INT COMMENT b", 15, "a quoted text"),
        ("a INTERVAL", 3, "cannot be read into the type INTERVAL"),
        ("a VARIANT", 3, "cannot be read into the type VARIANT"),
    ],
)
def test_what_cannot_be_read_is_shown_with_its_place(text, position, says):
    with pytest.raises(SchemaHintError) as failure:
        parse_columns(text)
    assert f"at character {position}, " in str(failure.value)
    assert says in str(failure.value)


def test_bottomless_nesting_is_refused():
    with pytest.raises(SchemaHintError, match="nested over"):
        parse_columns("a " + "array<" * 5000)


def test_a_schema_has_no_paths():
    with pytest.raises(SchemaHintError, match=r"a\.b is a path"):
        parse_schema("a.b INT")
