"""What is learned from records does not depend on how they are cut into blocks."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import NullType, StructField, StructType

from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.formats.json_files import typed_options
from tests.support.laws import examples

KNOWN = "a struct<b: bigint, c: array<string>>, d map<string, struct<e: int>>, f string"


def _value(rng: random.Random, depth: int) -> object:
    leaves = [
        lambda: None,
        lambda: "",
        lambda: rng.choice(["x", "1", "2021-01-01", "2021-01-01T10:00:00Z"]),
        lambda: rng.random() < 0.5,
        lambda: rng.randrange(-5, 5),
        lambda: rng.choice([2**63 - 1, 2**63, -(2**63) - 1, 10**25, 10**38 - 1, 10**38]),
        lambda: rng.choice([1.5, -0.0, 1e300]),
    ]
    nested = [
        list,
        dict,
        lambda: {_name(rng): _value(rng, depth + 1) for _ in range(rng.randrange(1, 3))},
        lambda: [_value(rng, depth + 1) for _ in range(rng.randrange(1, 3))],
    ]
    return rng.choice(leaves + nested * (2 if depth < 3 else 0))()


def _name(rng: random.Random) -> str:
    return rng.choice(["a", "A", "b", "c", "d", "e", "", "é", "x y", 'q"', "\ud800"])


def json_lines(rng: random.Random, most: int) -> list[bytes]:
    """Records that clash often, some of which are no JSON."""
    made = [
        json.dumps({_name(rng): _value(rng, 0) for _ in range(rng.randrange(4))}).encode()
        for _ in range(rng.randrange(1, most + 1))
    ]
    return [line if rng.random() > 0.02 else b"[1, {" for line in made]


def _known(rng: random.Random) -> StructType | None:
    return parse_schema(KNOWN) if rng.random() < 0.3 else None


@pytest.mark.law
@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), typed=st.booleans())
def test_records_in_parts_teach_what_they_teach_together(seed: int, typed: bool) -> None:
    rng = random.Random(seed)
    records, known = json_lines(rng, 60), _known(rng)
    whole = JsonInference(typed_options(typed), known)
    whole.add(b"\n".join(records))
    parts = JsonInference(typed_options(typed), known)
    at = 0
    while at < len(records):
        upto = at + rng.randrange(1, 20)
        parts.add(b"\n".join(records[at:upto]))
        at = upto
    assert parts.result() == whole.result()
    assert parts.result().json() == whole.result().json()  # the order and spelling of fields, too


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ('{"a": [[{}], null]}', '{"a": [[1]]}', "a array<array<string>>"),
        ('{"a": {"b": 1}}', '{"A": {"B": 2, "c": 3}}', "a struct<b: bigint, c: bigint>"),
        ('{"a": 1}', '{"a": {"b": 1}}', "a string"),
        ('{"b": 9223372036854775808}', '{"a": 1, "b": 1}', "b decimal(20,0), a bigint"),
    ],
)
def test_what_one_record_hides_a_later_one_still_shows(one: str, other: str, together: str) -> None:
    inference = JsonInference(typed_options(True))
    inference.add(one.encode())
    inference.add(other.encode())
    assert inference.result() == parse_schema(together)


def test_a_null_beside_an_empty_object_is_a_column() -> None:
    inference = JsonInference(typed_options(True))
    inference.add(b'{"a": {}}')
    inference.add(b'{"a": null}')
    assert inference.result() == StructType([StructField("a", NullType())])
