"""A sample learned from in parts gives what is learned from it as a whole."""

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
def test_evidence_of_parts_is_the_evidence_of_the_whole(seed: int, typed: bool) -> None:
    rng = random.Random(seed)
    records, known = json_lines(rng, 60), _known(rng)
    whole = JsonInference(typed_options(typed), known)
    whole.add(b"\n".join(records))
    first = JsonInference(typed_options(typed), known)
    at = 0
    while at < len(records):
        upto = at + rng.randrange(1, 20)
        part = JsonInference(typed_options(typed), known)
        part.add(b"\n".join(records[at:upto]))
        if rng.random() < 0.5:
            first.absorb(part.evidence())
        else:
            first.add(b"\n".join(records[at:upto]))
        at = upto
    assert first.result() == whole.result()
    assert first.result().json() == whole.result().json()  # the order and spelling of fields, too


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ('{"a": [[{}], null]}', '{"a": [[1]]}', "a array<array<string>>"),
        ('{"a": {"b": 1}}', '{"A": {"B": 2, "c": 3}}', "a struct<b: bigint, c: bigint>"),
        ('{"a": 1}', '{"a": {"b": 1}}', "a string"),
        ('{"b": 9223372036854775808}', '{"a": 1, "b": 1}', "b decimal(20,0), a bigint"),
    ],
)
def test_what_one_record_hides_another_part_still_shows(
    one: str, other: str, together: str
) -> None:
    first, second = JsonInference(typed_options(True)), JsonInference(typed_options(True))
    first.add(one.encode())
    second.add(other.encode())
    first.absorb(second.evidence())
    assert first.result() == parse_schema(together)


def test_a_null_beside_an_empty_object_is_a_column_also_in_parts() -> None:
    first, second = JsonInference(typed_options(True)), JsonInference(typed_options(True))
    first.add(b'{"a": {}}')
    second.add(b'{"a": null}')
    first.absorb(second.evidence())
    assert first.result() == StructType([StructField("a", NullType())])
