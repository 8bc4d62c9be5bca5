"""The law of rescued data: parsed columns plus rescued data give back every record."""

from __future__ import annotations

import base64
import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.columnar.types import column_type, is_bytes
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from tests.support.formats.columnar_files import MemoryFile, options, orc_file, parquet, reader
from tests.support.formats.columnar_records import numeric, table
from tests.support.laws import examples

ROWS = 300
EXAMPLES = 340

COMMON: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.string(), pa.binary(), pa.date32(), pa.decimal128(9, 2), pa.decimal128(38, 10),
    pa.timestamp("ns", "UTC"),
]  # fmt: skip
ONLY_PARQUET: list[pa.DataType] = [
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.large_string(),
    pa.timestamp("us"), pa.timestamp("ms", "Europe/Paris"), pa.timestamp("us", "UTC"),
    pa.time32("ms"), pa.time64("ns"), pa.binary(4), pa.dictionary(pa.int32(), pa.string()),
    pa.date64(), pa.large_binary(), pa.decimal256(50, 3),
]  # fmt: skip
COLUMNS: list[DataType] = [
    BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(),
    StringType(), BinaryType(), DateType(), DecimalType(5, 1), DecimalType(20, 0),
    DecimalType(38, 18), TimestampType(), TimestampNTZType(),
]  # fmt: skip
MORE = StructField("more", LongType())
NAMES = ["a", "b", "A", "a.b", "é ☃", "_rescued_data", "c"]


def file_type(rng: random.Random, leaves: list[pa.DataType], depth: int = 0) -> pa.DataType:
    """A type that a file has; nested up to four times."""
    choice = rng.random()
    if depth > 3 or choice < 0.65:
        return rng.choice(leaves)
    inner = file_type(rng, leaves, depth + 1)
    if choice < 0.78:
        return pa.list_(inner)
    if choice < 0.88:
        return pa.map_(rng.choice([pa.string(), pa.int32()]), inner)
    names = rng.sample(NAMES[:4], rng.randint(1, 3))
    return pa.struct([(name, file_type(rng, leaves, depth + 1)) for name in names])


def column_for(rng: random.Random, kind: pa.DataType) -> DataType:
    """A type for the column of values of a type: the same shape, more often than not."""
    choice = rng.random()
    if choice < 0.06:
        return rng.choice([*COLUMNS, ArrayType(LongType()), StructType([MORE])])
    if pa.types.is_list(kind):
        return ArrayType(column_for(rng, kind.value_type))
    if pa.types.is_map(kind):
        return MapType(column_for(rng, kind.key_type), column_for(rng, kind.item_type))
    if pa.types.is_struct(kind):
        return columns_for(rng, list(kind))
    own = column_type(kind, CASE_INSENSITIVE)
    return rng.choice(COLUMNS) if own is None or choice < 0.35 else own


def columns_for(rng: random.Random, fields: list[pa.Field]) -> StructType:
    """Columns for these fields: some lacking, some in another case, one more."""
    found = {}
    for field in fields:
        choice = rng.random()
        if choice < 0.1 or field.name == "_rescued_data":
            continue
        name = field.name.swapcase() if choice < 0.2 else field.name
        found.setdefault(name.lower(), StructField(name, column_for(rng, field.type)))
    found.setdefault("more", MORE)
    return StructType(list(found.values()))


@pytest.mark.law
@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_columns_and_rescued_data_give_back_every_record(name: str) -> None:
    """B49, B50, B54, B71, B72, B80."""
    seen = 0

    leaves = COMMON if name == "orc" else COMMON + ONLY_PARQUET

    @settings(max_examples=examples(EXAMPLES), derandomize=True)
    @given(rng=st.randoms(use_true_random=True), case_sensitive=st.booleans())
    def law(rng: random.Random, case_sensitive: bool) -> None:
        nonlocal seen
        names = rng.sample(NAMES, rng.randint(1, 5))
        source = pa.schema([(each, file_type(rng, leaves)) for each in names])
        columns = columns_for(rng, list(source))
        given_table = table(source, rng, ROWS)
        file = (parquet if name == "parquet" else orc_file)(given_table)
        read = read_back(file, columns, name, case_sensitive=case_sensitive)
        assert len(read) == ROWS
        for record, row in zip(records(given_table), read, strict=True):
            rescued = row.pop("_rescued_data")
            left = (
                {}
                if rescued is None
                else json.loads(rescued, parse_int=Decimal, parse_float=Decimal)
            )
            assert rescued is None or list(left)[-1] == "_file_path"
            left.pop("_file_path", None)
            got = joined_struct(row, left, pa.struct(list(source)), case_sensitive=case_sensitive)
            assert got == record, (source, columns, row, rescued)
            assert not left, f"more rescued than there was: {left}"
        seen += ROWS

    law()
    assert seen >= examples(100_000)


def read_back(
    file: MemoryFile, columns: StructType, name: str, *, case_sensitive: bool
) -> list[dict[str, Any]]:
    """The rows, with moments as numbers."""
    wanted = options(
        name, evolution="rescue", readerCaseSensitive="true" if case_sensitive else "false"
    )
    found: list[dict[str, Any]] = []
    for batch in reader(columns, wanted).read_file(file):
        batch.validate(full=True)
        found += records(pa.Table.from_batches([batch]))
    return found


def records(of: pa.Table) -> list[dict[str, Any]]:
    """Rows with plain values: numbers as decimals, moments as nanoseconds, bytes as bytes."""
    columns = [
        [plain_value(each, field.type) for each in as_numbers(column).to_pylist()]
        for column, field in zip(of.columns, of.schema, strict=True)
    ]
    return [dict(zip(of.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as numbers, at any depth: Python's own hold less."""
    kind = numeric(column.type)
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def plain_value(found: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911 - one return a kind
    if found is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: plain_value(found[each.name], each.type) for each in kind}
    if pa.types.is_list(kind):
        return [plain_value(each, kind.value_type) for each in found]
    if pa.types.is_map(kind):
        return [
            (plain_value(key, kind.key_type), plain_value(each, kind.item_type))
            for key, each in found
        ]
    if pa.types.is_temporal(kind):
        unit = "D" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
        factor = {"D": 86400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
        return ("moment", found * factor[unit])
    if pa.types.is_boolean(kind):
        return found
    if pa.types.is_floating(kind):
        return float(found)
    return Decimal(found) if isinstance(found, int | Decimal) else found


Joined = Any


def joined(column: Any, left: Any, kind: pa.DataType, *, case_sensitive: bool) -> Joined:
    """What a column and rescued data say together of a value of a type of the file."""
    if pa.types.is_struct(kind):
        if column is None and left is None:
            return None
        column = column if isinstance(column, dict) else {}
        return joined_struct(column, left or {}, kind, case_sensitive=case_sensitive)
    if pa.types.is_list(kind) and isinstance(column, list):
        rest = [*(left or []), *[None] * len(column)]
        return [
            joined(each, rest[place], kind.value_type, case_sensitive=case_sensitive)
            for place, each in enumerate(column)
        ]
    if pa.types.is_map(kind) and isinstance(column, list):
        rest = left or {}
        keys = [as_type(key, kind.key_type) for key, _ in column]
        return [
            (
                key,
                joined(each, rest.get(text_of(key)), kind.item_type, case_sensitive=case_sensitive),
            )
            for key, (_, each) in zip(keys, column, strict=True)
        ]
    if left is not None:
        assert column is None
        return rescued_value(left, kind)
    return as_type(column, kind)


def joined_struct(
    column: dict[str, Any], left: dict[str, Any], kind: pa.StructType, *, case_sensitive: bool
) -> dict[str, Any]:
    """The fields of the file; takes what it uses out of `left`."""
    taken = set()
    found = {}
    for field in sorted(kind, key=lambda each: each.name not in column):
        name = field.name
        if name not in column and not case_sensitive:
            folded = [each for each in column if each.lower() == name.lower()]
            name = folded[0] if folded and folded[0] not in taken else name
        taken.add(name)
        found[field.name] = joined(
            column.get(name), left.pop(field.name, None), field.type, case_sensitive=case_sensitive
        )
    return {field.name: found[field.name] for field in kind}


def text_of(key: Any) -> str:
    """A key of a map as the name of a member."""
    return str(int(key)) if isinstance(key, Decimal) else key


def as_type(found: Any, kind: pa.DataType) -> Any:
    """A value of a column, in the precision of the file."""
    if pa.types.is_floating(kind) and found is not None:
        return float(kind.to_pandas_dtype()(float(found)))
    if isinstance(found, float):
        # Every whole number is what the double is; a decimal is what it is written as.
        return Decimal(found) if pa.types.is_integer(kind) else Decimal(repr(found))
    if isinstance(found, str) and is_bytes(kind):
        return found.encode()
    return found.decode() if isinstance(found, bytes) and not is_bytes(kind) else found


def rescued_value(left: Any, kind: pa.DataType) -> Any:  # noqa: C901, PLR0911 - one return a kind
    """A value of a type from its JSON."""
    if left is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: rescued_value(left.get(each.name), each.type) for each in kind}
    if pa.types.is_list(kind):
        return [rescued_value(each, kind.value_type) for each in left]
    if pa.types.is_map(kind):
        keys = [Decimal(key) if pa.types.is_integer(kind.key_type) else key for key in left]
        return [
            (key, rescued_value(each, kind.item_type))
            for key, each in zip(keys, left.values(), strict=True)
        ]
    if pa.types.is_floating(kind):
        return as_type(float(left), kind)
    if pa.types.is_time(kind):
        clock, _, fraction = left.partition(".")
        hours, minutes, seconds = map(int, clock.split(":"))
        nanos = int(fraction.ljust(9, "0")) if fraction else 0
        return ("moment", ((hours * 60 + minutes) * 60 + seconds) * 10**9 + nanos)
    if pa.types.is_temporal(kind):
        return ("moment", int(np.datetime64(left.removesuffix("Z"), "ns").astype(np.int64)))
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return left
    return base64.b64decode(left) if isinstance(left, str) else left
