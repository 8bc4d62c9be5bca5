"""A checkpoint says the same as columns and as lines of JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from airflow_cloudfiles.engine.tables.delta.read.actions import CheckpointPart, decode

VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("deletionVector", VECTOR),
        ("stats", pa.string()),
    ]
)
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("deletionVector", VECTOR),
    ]
)
SCHEMA = pa.schema(
    [("add", ADD), ("remove", REMOVE), ("sidecar", pa.struct([("path", pa.string())]))]
)

NUMBERS = st.integers(0, 2**31 - 1)
PATHS = st.text(min_size=1, max_size=8).map(lambda text: text.replace("%", "%25"))
VECTORS = st.fixed_dictionaries(
    {
        "storageType": st.sampled_from("upi"),
        "pathOrInlineDv": st.text(max_size=4),
        "sizeInBytes": NUMBERS,
        "cardinality": NUMBERS,
    },
    optional={"offset": NUMBERS},
)
OF_BOTH = {"dataChange": st.booleans(), "deletionVector": VECTORS}
ADDS = st.fixed_dictionaries(
    {
        "path": PATHS,
        "size": NUMBERS,
        "partitionValues": st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2)),
    },
    optional={**OF_BOTH, "modificationTime": NUMBERS, "stats": st.just("{}")},
)
REMOVES = st.fixed_dictionaries({"path": PATHS}, optional={**OF_BOTH, "deletionTimestamp": NUMBERS})
ACTIONS = st.lists(
    st.fixed_dictionaries({"add": ADDS})
    | st.fixed_dictionaries({"remove": REMOVES})
    | st.fixed_dictionaries({"sidecar": st.fixed_dictionaries({"path": PATHS})})
)


def _columnar(actions: list[dict[str, Any]]) -> CheckpointPart:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(actions, SCHEMA), content)
    content.seek(0)
    return CheckpointPart.read(content)


@pytest.mark.law
@given(ACTIONS)
def test_columns_say_what_lines_say(actions: list[dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps(each) for each in actions).encode()
    by_line = CheckpointPart(decode(lines) if lines else [])
    columnar = _columnar(actions)
    assert list(columnar.files()) == list(by_line.files())
    assert list(columnar.gone()) == list(by_line.gone())
    sidecars = [each.sidecar for each in by_line.others if each.sidecar]
    assert [each.sidecar for each in columnar.others] == sidecars


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.struct([("size", pa.int64())]), "has no path"),
        (pa.struct([("path", pa.string())]), "has no size"),
        (pa.struct([("path", pa.string()), ("size", pa.string())]), "size is a string"),
        (pa.struct([("path", pa.int64()), ("size", pa.int64())]), "path is a int64"),
    ],
)
def test_files_that_are_not_as_the_protocol_has_them_are_damage(
    kind: pa.StructType, message: str
) -> None:
    content = io.BytesIO()
    row = {name: 1 if pa.types.is_integer(kind.field(name).type) else "x" for name in kind.names}
    pq.write_table(pa.Table.from_pylist([{"add": row}], pa.schema([("add", kind)])), content)
    with pytest.raises(msgspec.ValidationError, match=message):
        CheckpointPart.read(content)


def test_a_file_with_a_null_for_its_size_is_damage() -> None:
    with pytest.raises(msgspec.ValidationError, match="has no size"):
        _columnar([{"add": {"path": "a", "size": None}}])
