"""VARIANTs of Parquet files: whatever a file has shredded, the column has whole values."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from pyspark.sql.variant_utils import VariantUtils

from airflow_cloudfiles.engine.formats.variant import Names, encode
from airflow_cloudfiles.engine.types import VariantType
from tests.support.formats.columnar_files import MemoryFile, infer, options, parquet, rows
from tests.support.formats.variant_files import (
    NOTHING,
    UNSHREDDED,
    annotated,
    plain,
    shredded,
    variant,
)

V = StructType([StructField("v", VariantType())])


def told(value: Any) -> Any:
    """What a VARIANT says."""
    return value and VariantUtils.to_python(value["value"], value["metadata"])


def only(kind: pa.DataType, *values: Any) -> list[dict[str, Any]]:
    """The rows of a file with one annotated column `v`."""
    file = annotated(pa.table({"v": pa.array(values, kind)}), "v")
    assert infer([file], options()) == V
    return rows(file, V)


@pytest.mark.parametrize("kind", [UNSHREDDED, variant(pa.int64())], ids=["plain", "shredded"])
def test_what_is_not_shredded_is_the_same_bytes(kind: pa.DataType) -> None:
    values = [{"a": [1, "x", None]}, "y" * 100, None, 2.5]
    found = only(kind, *map(plain, values), None)
    assert [told(row["v"]) for row in found] == [*values, None]
    assert [row["v"] for row in found[:-1]] == [plain(value) for value in values]
    assert found[2]["v"] is not None  # a null in a VARIANT is a value
    assert found[4] == {"v": None, "_rescued_data": None}


MOMENT = dt.datetime(2024, 1, 31, 8, 30, 0, 250000, tzinfo=dt.UTC)
SCALARS = [
    (pa.bool_(), True), (pa.int8(), -5), (pa.int16(), 300), (pa.int32(), 70000),
    (pa.int64(), 2**60),
    (pa.float32(), 0.5), (pa.float64(), 2.5), (pa.float64(), math.inf), (pa.string(), "é" * 50),
    (pa.binary(), b"\x00\xff"), (pa.decimal128(5, 2), Decimal("1.10")),
    (pa.date32(), MOMENT.date()),
    (pa.decimal128(38, 4), Decimal("12345678901234567890.1234")),
    (pa.timestamp("us"), MOMENT.replace(tzinfo=None)), (pa.timestamp("us", "UTC"), MOMENT),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), SCALARS, ids=[str(each[0]) for each in SCALARS])
def test_every_scalar_that_a_variant_is_shredded_into_is_read(
    kind: pa.DataType, value: Any
) -> None:
    found = only(
        variant(kind),
        {"metadata": NOTHING, "typed_value": value},
        {"metadata": NOTHING, "value": encode("else")[0]},
        {"metadata": NOTHING},
    )
    assert [told(row["v"]) for row in found] == [value, "else", None]
    assert found[2]["v"]["value"] == b"\x00"  # what is missing at the top is null


NEW_SCALARS = [
    (pa.time64("us"), dt.time(8, 30, 0, 250000), '"08:30:00.25"'),
    (pa.timestamp("ns"), 10**18 + 1, '"2001-09-09T01:46:40.000000001"'),
    (pa.timestamp("ns", "UTC"), 10**18 + 1, '"2001-09-09T01:46:40.000000001Z"'),
    (pa.binary(16), bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
]


@pytest.mark.parametrize(("kind", "value", "text"), NEW_SCALARS, ids=["time", "ns", "nsz", "uuid"])
def test_what_spark_s_functions_do_not_know_yet_is_handed_on_exactly(
    kind: pa.DataType, value: Any, text: str
) -> None:
    (row,) = only(variant(kind), {"metadata": NOTHING, "typed_value": value})
    assert Names(row["v"]["metadata"]).json(row["v"]["value"]) == text


PERSON = shredded(
    pa.struct(
        [
            ("name", shredded(pa.string())),
            ("tags", shredded(pa.list_(shredded(pa.string())))),
            ("age", pa.struct([("value", pa.binary())])),
        ]
    )
)


def test_objects_and_arrays_are_put_together_at_any_depth() -> None:
    rest, names = encode({"zip": "x", "a": {"b": [1]}})
    whole = {"name": {"typed_value": "ann"}, "age": {"value": encode(7)[0]}}
    tags = {"typed_value": [{"typed_value": "x"}, {"value": encode(None)[0]}, {}]}
    found = only(
        variant(PERSON.field("typed_value").type),
        {"metadata": NOTHING, "typed_value": whole | {"tags": tags}},
        {"metadata": names, "value": rest, "typed_value": {"name": {}, "tags": {}, "age": {}}},
        {"metadata": names, "value": rest, "typed_value": whole | {"tags": {}}},
        {"metadata": NOTHING, "value": encode([1])[0]},
        None,
    )
    assert [told(row["v"]) for row in found] == [
        {"name": "ann", "age": 7, "tags": ["x", None, None]},
        {"zip": "x", "a": {"b": [1]}},
        {"name": "ann", "age": 7, "zip": "x", "a": {"b": [1]}},
        [1],
        None,
    ]
    assert all(row["_rescued_data"] is None for row in found)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=80),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "é", "😀", "\uffff", "long" * 20]), inner)
    ),
    max_leaves=12,
)


def shred(value: Any, kind: pa.DataType, names: dict[str, int]) -> dict[str, Any]:
    """A value as a writer shreds it into a type, as far as it can."""
    typed = kind.field("typed_value").type if kind.get_field_index("typed_value") >= 0 else None
    if typed == pa.int64() and isinstance(value, int) and not isinstance(value, bool):
        return {"typed_value": value}
    if typed == pa.string() and isinstance(value, str):
        return {"typed_value": value}
    if typed is not None and pa.types.is_list(typed) and isinstance(value, list):
        return {"typed_value": [shred(each, typed.value_type, names) for each in value]}
    if typed is not None and pa.types.is_struct(typed) and isinstance(value, dict):
        inner = {
            field.name: shred(value[field.name], field.type, names) if field.name in value else {}
            for field in typed
        }
        rest = {key: each for key, each in value.items() if key not in inner}
        return {"value": encode(rest, names)[0] if rest else None, "typed_value": inner}
    return {"value": encode(value, names)[0]}


NUMBER, TEXT = shredded(pa.int64()), shredded(pa.string())
INNER = shredded(pa.struct([("a", TEXT), ("é", NUMBER), ("\uffff", NUMBER)]))
SHAPES = [
    NUMBER, TEXT, INNER, shredded(pa.list_(NUMBER)), shredded(pa.list_(INNER)),
    shredded(pa.struct([("b", shredded(pa.list_(TEXT))), ("a", INNER), ("long" * 20, TEXT)])),
]  # fmt: skip


@pytest.mark.law
@settings(max_examples=150)
@given(values=st.lists(VALUES, min_size=1, max_size=8), shape=st.sampled_from(SHAPES))
def test_whatever_is_shredded_comes_back_whole(values: list[Any], shape: pa.DataType) -> None:
    metadata = pa.field("metadata", pa.binary(), nullable=False)
    written = []
    for value in values:
        names: dict[str, int] = {}
        parts = shred(value, shape, names)
        written.append({"metadata": encode(None, names)[1], **parts})
    found = only(pa.struct([metadata, *shape]), *written, None)
    assert [told(row["v"]) for row in found] == [*values, None]
    assert [
        json.loads(Names(r["v"]["metadata"]).json(r["v"]["value"])) for r in found[:-1]
    ] == values


NO_TYPED = {"typed_value": {"a": {}}}
LOST = [
    ("no object", {"value": encode(5)[0], "typed_value": {"a": {}}}),
    ("a field twice", {"value": encode({"a": 1})[0], "typed_value": {"a": {"typed_value": 2}}}),
    ("cut off", {"value": b"\x02\x01\x00", "typed_value": {"a": {}}}),
    ("a name that is not there", {"value": b"\x02\x01\x09\x00\x02\x0c\x01", **NO_TYPED}),
]  # fmt: skip


@pytest.mark.parametrize("parts", [each[1] for each in LOST], ids=[each[0] for each in LOST])
def test_what_is_no_variant_is_rescued_with_all_of_its_parts(parts: dict[str, Any]) -> None:
    metadata = encode({"a": 1})[1]
    kind = variant(pa.struct([("a", NUMBER)]))
    bad, good = only(
        kind, {"metadata": metadata, **parts}, {"metadata": metadata, "value": b"\x00"}
    )
    assert bad["v"] is None
    assert json.loads(bad["_rescued_data"])["v"].keys() == {"metadata", "value", "typed_value"}
    assert (told(good["v"]), good["_rescued_data"]) == (None, None)


def test_metadata_of_an_unknown_version_is_rescued() -> None:
    (row,) = only(UNSHREDDED, {"metadata": b"\x02\x00\x00", "value": b"\x00"})
    assert row["v"] is None
    assert json.loads(row["_rescued_data"])["v"] == {"metadata": "AgAA", "value": "AA=="}


def test_a_value_beside_a_typed_one_is_rescued_and_the_typed_one_counts() -> None:
    parts = {"metadata": NOTHING, "value": encode("x")[0], "typed_value": 34}
    (row,) = only(variant(pa.int64()), parts)  # as Spark reads it
    assert told(row["v"]) == 34
    assert json.loads(row["_rescued_data"])["v"]["value"] == "BXg="


def test_variants_are_found_wherever_they_are_nested() -> None:
    kind = variant(pa.int64())
    one = {"metadata": NOTHING, "typed_value": 1}
    table = pa.table(
        {
            "s": pa.array([{"v": one}], pa.struct([("v", kind)])),
            "l": pa.array([[{"v": one}, None]], pa.list_(pa.struct([("v", kind)]))),
            "m": pa.array([[("k", {"v": one})]], pa.map_(pa.string(), pa.struct([("v", kind)]))),
            "id": [1],
        }
    )
    file = annotated(table, "v")
    schema = infer([file], options())
    inner = StructType([StructField("v", VariantType())])
    assert schema == StructType(
        [
            StructField("s", inner), StructField("l", ArrayType(inner)),
            StructField("m", MapType(StringType(), inner)), StructField("id", LongType()),
        ]
    )  # fmt: skip
    (row,) = rows(file, schema)
    assert told(row["s"]["v"]) == told(row["l"][0]["v"]) == told(row["m"][0][1]["v"]) == 1
    assert row["l"][1] is None


def test_without_the_annotation_it_is_a_struct_unless_the_schema_says_variant() -> None:
    file = parquet(pa.table({"v": pa.array([plain({"a": 1})], UNSHREDDED)}))
    assert infer([file], options())["v"].dataType.simpleString() == (
        "struct<metadata:binary,value:binary>"
    )
    assert told(rows(file, V)[0]["v"]) == {"a": 1}


def test_a_file_of_each_kind_after_the_other_is_read_by_its_own_annotation() -> None:
    from tests.support.formats.columnar_files import reader

    table = pa.table({"v": pa.array([plain(1)], UNSHREDDED)})
    found = reader(StructType([StructField("x", LongType())]), options(evolution="rescue"))
    rescued = [
        json.loads(batch.to_pylist()[0]["_rescued_data"])["v"]
        for file in (parquet(table), annotated(table, "v"), parquet(table))
        for batch in found.read_file(file)
    ]
    parts = {"metadata": "AQAA", "value": "DAE="}
    assert rescued == [parts, 1, parts]


def test_a_variant_fits_a_struct_of_its_two_parts_and_is_json_in_rescued_data() -> None:
    file = annotated(
        pa.table({"v": pa.array([{"metadata": NOTHING, "typed_value": 5}], variant(pa.int64()))}),
        "v",
    )
    given = options(evolution="rescue", hints="v STRUCT<metadata: BINARY, value: BINARY>")
    from tests.support.formats.xml_files import columns

    schema = columns("v STRUCT<metadata: BINARY, value: BINARY>")
    assert rows(file, schema, given)[0]["v"] == {"metadata": NOTHING, "value": b"\x0c\x05"}
    (row,) = rows(file, StructType([StructField("v", StringType())]))
    assert row["v"] is None
    assert json.loads(row["_rescued_data"])["v"] == 5


@pytest.mark.parametrize("flip", range(0, 120, 3))
def test_a_damaged_value_gives_a_row_and_no_crash(flip: int) -> None:
    value, metadata = encode({"a": {"b": [1, "x", 2.5]}, "c": [None, True, "long" * 20]})
    data = bytearray(value)
    data[flip % len(value)] ^= 0x55
    kind = variant(pa.struct([("z", NUMBER)]))
    parts = {"metadata": metadata, "value": bytes(data), "typed_value": {"z": {"typed_value": 1}}}
    (row,) = only(kind, parts)
    assert row["v"] is not None or row["_rescued_data"] is not None
    file = annotated(pa.table({"v": pa.array([parts], kind)}), "v")
    (row,) = rows(file, StructType([StructField("x", LongType())]))
    assert json.loads(row["_rescued_data"])["v"]


def test_a_group_around_a_variant_is_none() -> None:
    kind = pa.struct([("metadata", UNSHREDDED)])
    file: MemoryFile = annotated(
        pa.table({"v": pa.array([{"metadata": plain(1)}], kind)}), "metadata"
    )
    assert infer([file], options())["v"].dataType.simpleString() == "struct<metadata:variant>"
