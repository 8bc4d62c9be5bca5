"""Rescued values tell which columns are too narrow."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.widening import WiderTypes

FILE = "file:///landing/7.json"


def wider(schema: str, *texts: str, file_format: str = "json", **more: str) -> WiderTypes:
    options = CloudFilesOptions.parse({"cloudFiles.format": file_format, **more}, path="/landing")
    found = WiderTypes(parse_schema(schema), options)
    found.add(text[:-1] + f',"_file_path":"{FILE}"}}' for text in texts)
    return found


@pytest.mark.parametrize(
    ("schema", "rescued", "expected"),
    [
        ("a TINYINT", '{"a":300}', "a SMALLINT"),
        ("a TINYINT", '{"a":-40000}', "a INT"),
        ("a INT", '{"a":2147483648}', "a BIGINT"),  # B57
        ("a INT", '{"a":1.25}', "a DECIMAL(12,2)"),  # B59
        ("a BIGINT", '{"a":100.25}', "a DECIMAL(22,2)"),  # B59
        ("a BIGINT", '{"a":9223372036854775808}', "a DECIMAL(20,0)"),
        ("a BIGINT", '{"a":12345678901234567890123}', "a DECIMAL(23,0)"),
        ("a DECIMAL(3,2)", '{"a":12.345}', "a DECIMAL(5,3)"),
        ("a DECIMAL(3,2)", '{"a":1e4}', "a DECIMAL(12,2)"),
        ("a INT", '{"a":1E-45}', "a DOUBLE"),
        ("a INT", '{"a":1e50}', "a DOUBLE"),
        ("s STRUCT<b: INT, c: STRING>", '{"s":{"b":3000000000}}', "s STRUCT<b: BIGINT, c: STRING>"),
        ("l ARRAY<INT>", '{"l":[null,3000000000]}', "l ARRAY<BIGINT>"),
        ("l ARRAY<INT>", '{"l":[3000000000,null,0.5]}', "l ARRAY<DECIMAL(21,1)>"),
        ("l ARRAY<STRUCT<b: INT>>", '{"l":[{"b":3000000000}]}', "l ARRAY<STRUCT<b: BIGINT>>"),
        ("m MAP<STRING, INT>", '{"m":{"k":3000000000}}', "m MAP<STRING, BIGINT>"),
        ("a INT, b INT", '{"a":3000000000,"b":0.5}', "a BIGINT, b DECIMAL(11,1)"),
    ],
)
def test_the_text_of_a_number_tells_the_type(schema: str, rescued: str, expected: str) -> None:
    found = wider(schema, rescued)
    assert found.schema == parse_schema(expected)
    assert set(found.files.values()) == {FILE}


@pytest.mark.parametrize(
    ("schema", "rescued"),
    [
        ("a INT", '{"a":"text"}'),  # B60
        ("a INT", '{"a":"3000000000"}'),  # a JSON string is no number
        ("a INT", '{"a":true}'),
        ("a INT", '{"a":{"b":3000000000}}'),
        ("a INT", '{"a":[3000000000]}'),
        ("a INT", '{"A":3000000000}'),  # rescued for its name (B71)
        ("a INT", '{"b":3000000000}'),
        ("a INT", '{"a":1}'),  # rescued because its key came twice
        ("a INT", '{"a":1e400}'),  # beyond a double
        ("a INT", '{"a":1e99999999999999999999}'),
        ("a INT", '{"a":' + "9" * 40 + "}"),
        ("a BIGINT", '{"a":1e50}'),  # B61
        ("a DOUBLE", '{"a":1e400}'),
        ("a DATE", '{"a":"2026-01-31T10:00:00"}'),  # B63
        ("a DECIMAL(38,0)", '{"a":0.5}'),
        ("a STRING", '{"a":{"b":1}}'),
        ("l ARRAY<INT>", '{"l":[null]}'),
        ("a INT", '{"a":' + "[" * 5000 + "]" * 5000 + "}"),
    ],
)
def test_what_the_matrix_does_not_have_stays_rescued(schema: str, rescued: str) -> None:
    found = wider(schema, rescued)
    assert found.schema == parse_schema(schema)
    assert found.files == {}


@pytest.mark.parametrize("file_format", ["csv", "xml"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3000000000", "BIGINT"),
        ("+3000000000", "BIGINT"),
        ("-0.50", "DECIMAL(12,2)"),
        (".5", "DECIMAL(11,1)"),
        ("$100.00", "INT"),
        ("1_000", "INT"),
        ("NaN", "INT"),
        ("", "INT"),
        ("٣٠٠٠٠٠٠٠٠٠٠", "INT"),
    ],
)
def test_in_formats_of_texts_a_text_may_be_a_number(
    file_format: str, text: str, expected: str
) -> None:
    more = {"rowTag": "r"} if file_format == "xml" else {}
    found = wider("a INT", json.dumps({"a": text}), file_format=file_format, **more)
    assert found.schema == parse_schema(f"a {expected}")


def test_a_hinted_column_stays_as_it_is() -> None:
    hints = {"cloudFiles.schemaHints": "a INT"}
    found = wider("a INT, b INT", '{"a":3000000000,"b":3000000000}', **hints)
    assert found.schema == parse_schema("a INT, b BIGINT")
    assert found.files == {"b": FILE}


def test_where_case_does_not_matter_every_spelling_counts() -> None:
    text = '{"A":3000000000,"S":{"B":3000000000}}'
    found = wider("a INT, s STRUCT<b: INT>", text, readerCaseSensitive="false")
    assert found.schema == parse_schema("a BIGINT, s STRUCT<b: BIGINT>")


def test_rows_without_rescued_data_tell_nothing() -> None:
    found = wider("a INT")
    assert not found.add([None, None])
    assert found.schema == parse_schema("a INT")


@pytest.mark.law
@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=None), max_size=5))
def test_one_look_is_enough(numbers) -> None:
    texts = [json.dumps({"a": "?"}).replace('"?"', f"{number:f}"[:300]) for number in numbers]
    texts = [text for text in texts if json.loads(text)]
    found = wider("a INT", *texts)
    again = wider(f"a {found.schema['a'].dataType.simpleString()}", *texts)
    assert again.schema == found.schema
