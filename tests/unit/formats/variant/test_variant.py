"""VARIANT: PySpark's own decoder reads what is encoded; what cannot be kept exactly is refused.

The very bytes are compared with Spark's in `tests/spark/oracle/test_json_options_oracle.py`.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.sql.variant_utils import VariantUtils

from airflow_cloudfiles.engine.errors import CorruptRecordError
from airflow_cloudfiles.engine.formats.base import LinePiece
from airflow_cloudfiles.engine.formats.json.document import JsonDocumentReader
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_reader
from airflow_cloudfiles.engine.formats.variant import NotVariantError, encode, encode_json
from tests.support.formats.json_files import MemoryFile
from tests.unit.formats.json.test_json_agreement import options

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


@pytest.mark.law
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
        (b'{"a":1,"a":1}', "comes twice"), (b'"\\ud800"', "no UTF-8"), (b"\xff", "no UTF-8"),
        (b"NaN", "no JSON"), (b"[" * 100_000, "nested too deeply"), (b"{", "Expecting"),
        (b'"' + b"x" * (16 * 2**20) + b'"', "larger than"),
    ],
    ids=["twice", "surrogate", "bytes", "NaN", "deep", "open", "large"],
)  # fmt: skip
def test_what_cannot_be_kept_exactly_is_refused(text, reason):
    with pytest.raises(NotVariantError, match=reason):
        encode_json(text)


DEEP = 900
BEYOND = [b"1e9999", b"-1e9999", b"9" * 400, b"9" * 5000, b"1.0e400"]


@pytest.mark.parametrize("text", BEYOND, ids=[text[:8].decode() for text in BEYOND])
def test_a_number_beyond_the_largest_double_is_infinity(text):
    value, metadata = encode_json(text)
    assert VariantUtils.to_python(value, metadata) == math.copysign(math.inf, float(text))


@pytest.mark.law
@pytest.mark.parametrize("words", [False, True], ids=["strict", "words"])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b"[", b"]"), (b'{"a":', b"}"), (b'[1, {"b" : [] , "]":', b', "c":2}]')],
)
def test_depth_makes_no_difference_to_the_bytes(opening, closing, words):
    inner = b"NaN" if words else b"-1.50"
    shallow = opening * 9 + inner + closing * 9
    value, metadata = encode_json(opening * DEEP + inner + closing * DEEP, checked=True)
    assert metadata == encode_json(shallow, checked=True)[1]
    # What is in the middle is the very same, whichever way it was encoded.
    assert encode_json(shallow, checked=True)[0][-3:] == value[-3:]
    depth = len(value)
    assert (
        encode_json(b"[" + opening * DEEP + inner + closing * DEEP + b"]", checked=True)[0][-depth:]
        == value
    )


def read_lines(*lines, given="", **more):
    """Rows of JSON lines in one VARIANT column, and the reader."""
    chosen = options(singleVariantColumn="v", **more)
    schema = fixed_schema(chosen)
    if given:
        schema = StructType([*schema.fields, StructField(given, StringType())])
    reader = open_reader(schema, chosen)
    return reader.read([LinePiece("file:///f", b"\n".join(lines))]).to_pylist(), reader


TAILS = {
    b'{"a":"b"}#': '{"a":"b"}', b'{"a":1}{"b":2}': '{"a":1}', b"[1] [2]": "[1]", b"1 2": "1",
    b"[1]]": "[1]", b'"a"b': '"a"', b'{"a":1}//c': '{"a":1}', b"true false": "true",
    b"1}": None, b"2@": None, b"{'a':1}x": '{"a":1}',
}  # fmt: skip


@pytest.mark.parametrize("line", TAILS, ids=[line.decode() for line in TAILS])
def test_of_what_has_more_behind_it_nothing_is_lost(line):
    rows, reader = read_lines(line, b"[3]")
    assert [row["v"] and VariantUtils.to_json(**row["v"]) for row in rows] == [TAILS[line], "[3]"]
    assert json.loads(rows[0]["_rescued_data"])["_corrupt_record"] == line.decode()
    assert (reader.counts.corrupt_records, reader.counts.rescued_rows) == (1, 1)
    rows, _ = read_lines(line, given="_corrupt_record")
    assert rows[0]["_corrupt_record"] == line.decode()
    rows, reader = read_lines(line, badRecordsPath="/bad")
    assert rows == []
    assert [bad.record for bad in reader.bad_records] == [line.decode()]
    rows, _ = read_lines(line, mode="DROPMALFORMED")
    assert len(rows) == (TAILS[line] is not None)
    with pytest.raises(CorruptRecordError, match="more after the record"):
        read_lines(line, mode="FAILFAST")


NO_VARIANT = [
    b"nope", b'{"a":1,"a":2}', b'{"\\uDFAA":0}', b'"\\ud800"', b'["\xff"]',
    b"[" * 1001 + b"]" * 1001,
    b'{"a":', b"[1,]", b"01", b"\x00",
]  # fmt: skip


@pytest.mark.parametrize("line", NO_VARIANT, ids=[repr(line[:12]) for line in NO_VARIANT])
def test_what_has_no_variant_goes_where_corrupt_records_go(line):
    text = line.decode("utf-8", "backslashreplace")
    rows, reader = read_lines(line)
    assert json.loads(rows[0]["_rescued_data"])["_corrupt_record"] == text
    assert (rows[0]["v"], reader.counts.corrupt_records) == (None, 1)
    assert read_lines(line, given="_corrupt_record")[0][0]["_corrupt_record"] == text
    rows, reader = read_lines(line, badRecordsPath="/bad")
    assert (rows, [bad.record for bad in reader.bad_records]) == ([], [text])
    rows, reader = read_lines(line, mode="DROPMALFORMED")
    assert (rows, reader.counts.dropped_records) == ([], 1)
    with pytest.raises(CorruptRecordError):
        read_lines(line, mode="FAILFAST")


def test_every_line_is_a_value_and_broken_ones_are_rescued():
    chosen = options(singleVariantColumn="v")
    reader = open_reader(fixed_schema(chosen), chosen)
    batch = reader.read([LinePiece("file:///f", b'{"a":1}\n\n[1, 2]\nbroken\n"x"')])
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
