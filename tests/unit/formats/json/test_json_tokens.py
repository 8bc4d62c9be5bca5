"""Records that are JSON, nearly JSON as Spark takes it, and neither."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.formats.json.tokens import (
    DEFAULT,
    MAX_DEPTH,
    NotJsonError,
)

elements, members, strict, value_end = (
    DEFAULT.elements,
    DEFAULT.members,
    DEFAULT.strict,
    DEFAULT.value_end,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.mark.law
@given(value=VALUES, ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_json_is_taken_whole_and_left_as_it_is(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, indent=indent)
    data = text.encode("utf-8", "surrogatepass")
    assert value_end(data) == len(data)
    assert strict(data) == data
    if isinstance(value, dict):
        assert [json.loads(key) for key, _ in members(data)] == list(value)
        assert [json.loads(text) for _, text in members(data)] == list(value.values())
    if isinstance(value, list):
        assert [json.loads(text) for text in elements(data)] == value


@given(texts=st.lists(st.text().filter(lambda text: "\\" not in text)))
def test_single_quotes_say_the_same(texts):
    inner = [json.dumps(text)[1:-1].replace('\\"', '"').replace("'", "\\'") for text in texts]
    data = ("[" + ",".join(f"'{text}'" for text in inner) + "]").encode()
    assert value_end(data) == len(data)
    assert json.loads(strict(data)) == texts


@pytest.mark.parametrize(
    "text",
    ["", "{", "}", "[1,]", "[,1]", '{"a":1,}', '{"a"}', '{"a":}', '{"a",1}', "{1:2}", "[1 2]",
     '{"a":1]', "01", "1.", ".5", "+1", "-", "1e", "nul", "nullx", "1x", "'a", '"a', '"\\x"',
     '"\\u12g4"', '"\t"', "NaNs", "Inf", ":", ",", "[1}", "1-2", "true_"],
)  # fmt: skip
def test_what_is_not_json_is_refused(text):
    with pytest.raises(NotJsonError):
        value_end(text.encode())


def test_nesting_is_counted():
    assert value_end(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) == 2 * MAX_DEPTH
    with pytest.raises(NotJsonError):
        value_end(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_a_repeated_key_is_found_each_time():
    assert members(b"{'a' : 1 ,\"a\":[2 , 3]}") == [(b"'a'", b"1"), (b'"a"', b"[2 , 3]")]
