"""How are the names of columns compared?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, CASE_SENSITIVE, NameMatcher
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import apply_hints, parse_columns, parse_schema
from airflow_cloudfiles.engine.schema.inference import evolve
from airflow_cloudfiles.engine.schema.source_columns import (
    beside,
    partition_schema,
    partition_values,
)
from airflow_cloudfiles.engine.types import merge_types

_NAMES = st.text(max_size=4)


def test_fields_are_found_in_any_case():
    schema = parse_schema("Foo INT, bar STRING")
    assert CASE_INSENSITIVE.find(schema, "fOO") == schema.fields[0]
    assert CASE_INSENSITIVE.find(schema, "baz") is None
    assert CASE_INSENSITIVE.positions(schema) == {"foo": 0, "bar": 1}


def test_a_case_sensitive_matcher_finds_the_exact_name_only():
    schema = parse_schema("Foo INT, bar STRING")
    assert CASE_SENSITIVE.find(schema, "foo") is None
    assert CASE_SENSITIVE.find(schema, "Foo") == schema.fields[0]
    assert CASE_SENSITIVE.positions(schema) == {"Foo": 0, "bar": 1}


@given(_NAMES, _NAMES)
def test_names_are_the_same_when_their_keys_are(one, other):
    for matcher in (CASE_INSENSITIVE, CASE_SENSITIVE):
        assert matcher.same(one, other) == (matcher.key(one) == matcher.key(other))
        assert matcher.keys([one, other]) == {matcher.key(one), matcher.key(other)}


@pytest.mark.parametrize(("given", "sensitive"), [("true", True), ("false", False), (None, False)])
def test_the_options_of_a_stream_say_how_names_are_compared(given, sensitive):  # B16
    keys = {"cloudFiles.format": "json"}
    if given is not None:
        keys["cloudFiles.internal.caseSensitive"] = given
    matcher = CloudFilesOptions.parse(keys, path="/landing").matcher
    assert matcher == NameMatcher(sensitive)


def test_a_case_sensitive_session_has_both_columns_everywhere():  # B16
    lower, upper = parse_schema("a INT"), parse_schema("A INT")
    both = parse_schema("a INT, A INT")
    assert evolve(lower, upper, CASE_SENSITIVE) == both
    assert merge_types(lower, upper, CASE_SENSITIVE) == both
    assert apply_hints(lower, parse_columns("A INT"), CASE_SENSITIVE) == both
    assert beside(lower, upper, CASE_SENSITIVE) == upper
    assert parse_columns("s STRUCT<a: INT, A: INT>", CASE_SENSITIVE)[0].data_type == both
    paths = ["a=1/A=2/f"]
    found = partition_schema(paths, columns=None, typed=True, matcher=CASE_SENSITIVE)
    assert found == both
    assert partition_values(paths[0], ["A", "a"], CASE_SENSITIVE) == {"A": "2", "a": "1"}
