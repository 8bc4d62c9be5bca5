"""Delta's rules decide what becomes of a table's columns, at any depth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.tables.delta.merge_schema import (
    SOURCE_NAME,
    MergedSchema,
    MergeRules,
    casts_exactly,
    merge_schemas,
    partners,
    type_name,
)
from airflow_cloudfiles.engine.types import simple_ddl

VOID = StructType([StructField("a", NullType())])


def _merged(table: str | StructType, rows: str | StructType, **rules: Any) -> MergedSchema:
    have, want = (parse_schema(each) if isinstance(each, str) else each for each in (table, rows))
    given_rules = {"merge_schema": True, "widens": True, **rules}
    return merge_schemas(have, want, MergeRules(target="/t", table_id="677731f2", **given_rules))


def _changes(found: list[Any]) -> list[str]:
    return [str(each) for each in found]


# The examples of the article "Table file formats - Schema evolution: Delta Lake".
NUMBERS = "id INT, multiplication_result INT"


def test_a_new_column_is_a_schema_mismatch_that_names_the_option() -> None:  # B125
    with pytest.raises(SchemaMismatchError) as told:
        _merged(NUMBERS, f"{NUMBERS}, generation_time TIMESTAMP", merge_schema=False)
    message = told.value.message
    assert message.startswith(
        "A schema mismatch detected when writing to the Delta table (Table ID: 677731f2). "
        "To enable schema migration using DataFrameWriter or DataStreamWriter, please set: "
        '\'.option("mergeSchema", "true")\'. '
    )
    assert "/t lacks generation_time. " in message
    assert f"Table schema: {NUMBERS}. " in message
    assert f"Data schema: {NUMBERS}, generation_time TIMESTAMP. " in message


def test_with_merge_schema_the_new_column_is_the_last_of_the_table() -> None:  # B125
    found = _merged(NUMBERS, f"generation_time TIMESTAMP, {NUMBERS}")
    assert simple_ddl(found.schema) == f"{NUMBERS}, generation_time TIMESTAMP"
    assert found.added == [("generation_time",)]


def test_a_long_does_not_merge_into_an_int() -> None:  # B128
    with pytest.raises(
        SchemaMismatchError,
        match=r"Failed to merge fields 'id_as_int' and 'id_as_int'\. Failed to merge incompatible "
        "data types IntegerType and LongType",
    ):
        _merged("id_as_int INT", "id_as_int BIGINT", widens=False)


@pytest.mark.parametrize(
    ("have", "want", "says"),
    [
        ("DECIMAL(10,2)", "DECIMAL(12,4)", "precision 10 and 12 & scale 2 and 4"),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", "precision 10 and 12"),
        ("DECIMAL(10,2)", "DECIMAL(10,4)", "scale 2 and 4"),
    ],
)
def test_decimals_that_differ_are_named_by_precision_and_scale(  # B130
    have: str, want: str, says: str
) -> None:
    if "12" in want:  # wider: refused only without typeWidening
        with pytest.raises(SchemaMismatchError, match="Set mergeSchema=true and typeWidening=true"):
            _merged(f"a {have}", f"a {want}", widens=False)
        return
    with pytest.raises(
        SchemaMismatchError, match=f"Failed to merge decimal types with incompatible {says}: a is"
    ):
        _merged(f"a {have}", f"a {want}")


def test_void_gives_way_on_either_side() -> None:  # B129
    found = _merged(VOID, "a INT")
    assert simple_ddl(found.schema) == "a INT"
    assert _changes(found.retyped) == ["a is void but int"]
    found = _merged("a INT", VOID)
    assert simple_ddl(found.schema) == "a INT"
    assert not found.changes_table
    assert _changes(found.cast) == ["a is int but void"]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda kind: kind,
        lambda kind: StructType([StructField("x", kind)]),
        ArrayType,
        lambda kind: ArrayType(StructType([StructField("x", kind)])),
        lambda kind: MapType(StringType(), kind),
    ],
)
def test_void_gives_way_at_any_depth(wrapped: Any) -> None:  # B129
    void, whole = (
        StructType([StructField("a", wrapped(kind))]) for kind in (NullType(), IntegerType())
    )
    assert _merged(void, whole).schema == whole
    assert _merged(whole, void).schema == whole
    assert _merged("b INT", void, adds_void=True).schema.fields[1] == void.fields[0]
    with pytest.raises(SchemaMismatchError, match=r"Column a.* has no type \(void\)"):
        _merged("b INT", void)


# Types.
@pytest.mark.parametrize(
    ("have", "want"),
    [("TINYINT", "SMALLINT"), ("TINYINT", "INT"), ("SMALLINT", "INT")],
)
def test_byte_short_and_int_merge_without_widening(have: str, want: str) -> None:  # B128
    found = _merged(f"a {have}", f"a {want}", widens=False)
    assert simple_ddl(found.schema) == f"a {want}"
    assert len(found.retyped) == 1
    with pytest.raises(SchemaMismatchError, match=r"schema mismatch.*a is .* but"):
        _merged(f"a {have}", f"a {want}", merge_schema=False)
    back = _merged(f"a {want}", f"a {have}", merge_schema=False, widens=False)
    assert simple_ddl(back.schema) == f"a {want}"
    assert len(back.cast) == 1


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        ("INT", "BIGINT"),
        ("TINYINT", "BIGINT"),
        ("INT", "DOUBLE"),
        ("SMALLINT", "FLOAT"),
        ("FLOAT", "DOUBLE"),
        ("INT", "DECIMAL(10,0)"),
        ("INT", "DECIMAL(12,2)"),
        ("BIGINT", "DECIMAL(19,0)"),
        ("DECIMAL(5,2)", "DECIMAL(7,3)"),
        ("DATE", "TIMESTAMP_NTZ"),
    ],
)
def test_a_type_that_the_table_holds_exactly_is_cast(rows: str, table: str) -> None:
    found = _merged(f"a {table}", f"a {rows}", merge_schema=False, widens=False)
    assert simple_ddl(found.schema) == f"a {table}"
    assert len(found.cast) == 1
    assert not found.changes_table


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        ("BIGINT", "DOUBLE"),
        ("INT", "FLOAT"),
        ("DOUBLE", "FLOAT"),
        ("BIGINT", "DECIMAL(18,0)"),
        ("INT", "DECIMAL(11,2)"),
        ("DECIMAL(7,3)", "DECIMAL(7,2)"),
        ("STRING", "INT"),
        ("INT", "STRING"),
        ("BOOLEAN", "INT"),
        ("DATE", "TIMESTAMP"),
        ("TIMESTAMP_NTZ", "TIMESTAMP"),
        ("BINARY", "STRING"),
        ("ARRAY<INT>", "INT"),
        ("STRUCT<x: INT>", "MAP<STRING, INT>"),
    ],
)
def test_a_type_that_would_lose_something_is_refused(rows: str, table: str) -> None:
    with pytest.raises(SchemaMismatchError, match="Failed to merge"):
        _merged(f"a {table}", f"a {rows}", widens=False)


@pytest.mark.parametrize(
    ("have", "want"),
    [("INT", "BIGINT"), ("INT", "DOUBLE"), ("BIGINT", "DECIMAL(20,0)"), ("DATE", "TIMESTAMP_NTZ")],
)
def test_a_wider_type_needs_both_options(have: str, want: str) -> None:
    found = _merged(f"a {have}", f"a {want}")
    assert simple_ddl(found.schema) == f"a {want}"
    assert len(found.widened) == 1
    for rules in ({"merge_schema": False}, {"widens": False}):
        with pytest.raises(
            SchemaMismatchError, match="Set mergeSchema=true and typeWidening=true"
        ) as told:
            _merged(f"a {have}", f"a {want}", **rules)
        assert "delta.enableTypeWidening=true" in told.value.message


# Names.
def test_case_is_the_tables_and_does_not_matter() -> None:  # B127
    found = _merged("Id INT, S STRUCT<Inner: INT>", "ID INT, s STRUCT<INNER: INT, New: INT>")
    assert simple_ddl(found.schema) == "Id INT, S STRUCT<Inner: INT, New: INT>"
    assert found.added == [("S", "New")]


@pytest.mark.parametrize("rows", ["b INT, B INT", "b INT, b INT"])
def test_one_name_twice_is_refused(rows: str) -> None:  # B127
    twins = StructType([StructField(each.split()[0], IntegerType()) for each in rows.split(", ")])
    with pytest.raises(SchemaMismatchError, match="duplicate columns"):
        _merged("a INT", twins)
    with pytest.raises(SchemaMismatchError, match=r"duplicate columns.*s\.b and s\.[bB]"):
        _merged("s STRUCT<a: INT>", StructType([StructField("s", twins)]))


def _renamed(**sources: str) -> StructType:
    """Columns that are fed by columns of other names."""
    return StructType(
        [StructField(name, IntegerType(), True, {SOURCE_NAME: s}) for name, s in sources.items()]
    )


def test_a_renamed_column_is_fed_by_its_source() -> None:
    table = _renamed(result="multiplication_result")
    found = _merged(table, "Multiplication_Result INT", merge_schema=False)
    assert found.schema == table
    assert partners(table, parse_schema("result INT")) == [0], "also by its own name"
    swapped = _renamed(a="b", b="a")
    assert partners(swapped, parse_schema("a INT, b INT")) == [1, 0]


def test_a_column_that_another_writer_renamed_is_found_by_its_name_in_files() -> None:
    notes = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
    table = StructType([StructField("b", IntegerType(), True, notes)])
    assert partners(table, parse_schema("A INT")) == [0]
    with_new = StructType([*table.fields, StructField("a", IntegerType())])
    assert partners(with_new, parse_schema("a INT, b INT")) == [1, 0]


def test_two_columns_that_feed_one_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="Columns a and b both feed column b"):
        _merged(_renamed(b="a"), "a INT, b INT")


# Nesting, nullability.
def test_structs_arrays_and_maps_are_merged_inside() -> None:  # B131
    table = (
        "s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>, "
        "k MAP<STRUCT<a: INT>, INT>"
    )
    rows = table.replace("a: INT", "n: STRING, a: TINYINT")
    found = _merged(table, rows, widens=False)
    assert simple_ddl(found.schema) == table.replace("a: INT", "a: INT, n: STRING")
    paths = [("s", "n"), ("l", "element", "n"), ("m", "value", "n"), ("k", "key", "n")]
    assert found.added == paths
    assert len(found.cast) == 4
    with pytest.raises(SchemaMismatchError, match=r"lacks s\.n, l\.element\.n"):
        _merged(table, rows, merge_schema=False)


def test_a_column_that_rows_lack_is_null_unless_it_must_not_be() -> None:  # B126
    assert not _merged("a INT, b INT", "a INT", merge_schema=False).changes_table
    for table in ("a INT, b INT NOT NULL", "a STRUCT<x: INT, b: INT NOT NULL>"):
        rows = "a INT" if "STRUCT" not in table else "a STRUCT<x: INT>"
        with pytest.raises(SchemaMismatchError, match="b, which has a NOT NULL constraint"):
            _merged(table, rows)


def test_nullability_stays_and_new_columns_allow_null() -> None:
    found = _merged("a INT NOT NULL", "a INT, b INT NOT NULL, c STRUCT<x: INT NOT NULL>")
    assert simple_ddl(found.schema) == "a INT NOT NULL, b INT, c STRUCT<x: INT NOT NULL>"


def test_metadata_of_columns_is_kept() -> None:
    notes = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    table = StructType([StructField("a", IntegerType(), True, notes)])
    found = _merged(table, "A TINYINT, b INT")
    assert found.schema.fields[0].metadata == notes


def test_the_message_of_many_columns_is_short() -> None:
    many = ", ".join(f"column_{number} STRING" for number in range(3000))
    with pytest.raises(SchemaMismatchError, match="2,995 more") as told:
        _merged("a INT", many, merge_schema=False)
    assert len(told.value.message) < 2000


def test_types_are_called_as_delta_calls_them() -> None:
    schema = parse_schema("a DECIMAL(5,2), b BIGINT, c ARRAY<INT>, d TIMESTAMP_NTZ")
    names = [type_name(each.dataType) for each in schema.fields]
    assert names == ["DecimalType(5,2)", "LongType", "ArrayType (array<int>)", "TimestampNTZType"]


_LEAVES = st.sampled_from(
    [each.dataType for each in parse_schema("a TINYINT, b INT, c BIGINT, d STRING, e DATE").fields]
)
_KINDS: st.SearchStrategy[DataType] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner),
        st.dictionaries(st.sampled_from("xyzXY"), inner, min_size=1, max_size=3).map(
            lambda fields: StructType(
                [
                    StructField(name, kind)
                    for name, kind in fields.items()
                    if name.islower() or name.lower() not in fields
                ]
            )
        ),
    ),
    max_leaves=4,
)
_SCHEMAS = st.dictionaries(st.sampled_from("abcd"), _KINDS, min_size=1).map(
    lambda fields: StructType([StructField(name, kind) for name, kind in fields.items()])
)


@given(table=_SCHEMAS, rows=_SCHEMAS)
def test_a_merged_table_takes_the_rows_and_keeps_its_columns(
    table: StructType, rows: StructType
) -> None:
    try:
        found = _merged(table, rows)
    except SchemaMismatchError:
        return
    assert [each.name for each in found.schema.fields][: len(table.fields)] == table.fieldNames()
    again = _merged(found.schema, rows, merge_schema=False, widens=False)
    assert again.schema == found.schema, "merging twice changes nothing more"
    _merged(found.schema, table, merge_schema=False, widens=False)


@given(kinds=st.tuples(_LEAVES, _LEAVES, _LEAVES))
def test_exact_casts_are_transitive(kinds: tuple[DataType, DataType, DataType]) -> None:
    one, two, three = kinds
    if casts_exactly(one, two) and casts_exactly(two, three):
        assert casts_exactly(one, three)
