"""VARIANT: PySpark's own decoder reads what is encoded; what cannot be kept exactly is refused.

The very bytes are compared with Spark's in `tests/stream/test_json_options_oracle.py`.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from airflow_cloudfiles.engine.formats.base import Piece
from airflow_cloudfiles.engine.formats.json_document import JsonDocumentReader
from airflow_cloudfiles.engine.formats.table import fixed_schema, open_reader
from airflow_cloudfiles.engine.formats.variant import NotVariantError, encode, encode_json
from tests.engine.formats.json_files import MemoryFile
from tests.engine.formats.test_json_agreement import options

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(), inner, max_size=5)
        | st.lists(inner, min_size=256, max_size=300)
    ),
    max_leaves=20,
)


@settings(max_examples=60)
@given(value=VALUES)
def test_what_is_encoded_says_what_the_source_said(value):
    encoded = encode_json(json.dumps(value).encode())
    back = VariantUtils.to_python(*encoded)
    assert _plain(back) == _plain(value)
    assert VariantUtils.to_python(*encode(value)) == value


def _plain(value: object) -> object:
    """Decimals and floats of one number are the same here."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float | Decimal):
        return float(value) + 0.0
    return value


def test_a_fraction_keeps_its_digits():
    assert VariantUtils.to_python(*encode_json(b"1.10")) == Decimal("1.10")
    assert VariantUtils.to_json(*encode_json(b'{"price":1.10}')) == '{"price":1.10}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1e400", "beyond the largest double"), (b"-" + b"9" * 400, "beyond the largest double"),
        (b'{"a":1,"a":1}', "comes twice"), (b'"\\ud800"', "no UTF-8"), (b"\xff", "no UTF-8"),
        (b"NaN", "no JSON"), (b"[" * 100_000, "nested too deeply"), (b"{", "Expecting"),
        (b'"' + b"x" * (16 * 2**20) + b'"', "larger than"),
    ],
    ids=["exponent", "digits", "twice", "surrogate", "bytes", "NaN", "deep", "open", "large"],
)  # fmt: skip
def test_what_cannot_be_kept_exactly_is_refused(text, reason):
    with pytest.raises(NotVariantError, match=reason):
        encode_json(text)


def test_every_line_is_a_value_and_broken_ones_are_rescued():
    chosen = options(singleVariantColumn="v")
    reader = open_reader(fixed_schema(chosen), chosen)
    batch = reader.read([Piece("file:///f", b'{"a":1}\n\n[1, 2]\nbroken\n"x"')])
    rows = batch.to_pylist()
    told = [row["v"] and VariantUtils.to_json(**row["v"]) for row in rows]
    assert told == ['{"a":1}', "[1,2]", None, '"x"']
    assert [row["_rescued_data"] for row in rows] == [
        None, None, '{"_corrupt_record":"broken","_file_path":"file:///f"}', None,
    ]  # fmt: skip


def test_a_document_is_one_value():
    chosen = options(singleVariantColumn="v", multiLine="true")
    reader = JsonDocumentReader(fixed_schema(chosen), chosen)
    rows = [r for b in reader.read_file(MemoryFile(b'[{"a":\n1},\n2]')) for r in b.to_pylist()]
    assert [VariantUtils.to_json(**row["v"]) for row in rows] == ['[{"a":1},2]']
