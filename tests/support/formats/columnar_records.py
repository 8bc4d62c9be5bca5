"""Records of any Arrow type, for tests of columnar formats."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


def value(kind: pa.DataType, rng: random.Random) -> Any:  # noqa: C901, PLR0911 - one return a kind
    """A value of a type; small ones and the largest are as likely as any."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {each.name: value(each.type, rng) for each in kind}
    if pa.types.is_list(kind):
        return [value(kind.value_type, rng) for _ in range(rng.choice([0, 1, 1, 3]))]
    if pa.types.is_map(kind):
        keys = {json.dumps(key): key for key in (_key(kind.key_type, rng) for _ in range(2))}
        return [(key, value(kind.item_type, rng)) for key in keys.values()]
    if pa.types.is_dictionary(kind):
        return rng.choice(["x", "yy", "é"])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        high = low + 2**kind.bit_width - 1
        return rng.choice([low, high, 0, rng.randint(low, high), min(high, rng.randint(0, 300))])
    if pa.types.is_floating(kind):
        found = rng.choice([0.0, 0.5, rng.uniform(-6e4, 9e4), 1.0, float("inf"), 0.1])
        return np.float16(min(found, 6e4)) if pa.types.is_float16(kind) else found
    if pa.types.is_decimal(kind):
        digits = rng.choice([1, kind.scale, kind.precision])
        return Decimal(rng.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-kind.scale)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return rng.choice(["", "x", 'q"\\', "é😀", "12", "\n\0", "x" * 40])
    if pa.types.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return rng.choice([b"", b"abc", b"\xff\x00", rng.randbytes(5)])
    return _moment(kind, rng)


def _key(kind: pa.DataType, rng: random.Random) -> Any:
    return rng.choice(["k", "K", "", "é"]) if pa.types.is_string(kind) else rng.choice([1, 70000])


def _moment(kind: pa.DataType, rng: random.Random) -> int:
    """Dates, timestamps and times as numbers of their unit."""
    if pa.types.is_date32(kind):
        return rng.choice([0, -1, rng.randint(-90000, 100000)])
    if pa.types.is_date64(kind):
        return rng.randint(-90000, 100000) * 86_400_000
    if pa.types.is_time(kind):
        unit = {"ms": 10**3, "ns": 10**9}[kind.unit]
        return rng.choice([0, rng.randrange(86400), rng.randrange(86400) * unit])
    unit = {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    seconds = rng.randint(-8 * 10**9, 9 * 10**9)
    return rng.choice([0, seconds * unit, seconds * unit + 7, seconds * unit + unit // 1000])


def table(source: pa.Schema, rng: random.Random, rows: int) -> pa.Table:
    """Records of a schema."""
    columns = []
    for field in source:
        values = [value(field.type, rng) for _ in range(rows)]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=source)


def numeric(kind: pa.DataType) -> pa.DataType:
    """The type with moments as numbers, at any depth: Python's own hold less."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, numeric(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(numeric(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(numeric(kind.key_type), numeric(kind.item_type))
    if pa.types.is_dictionary(kind):
        return kind
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) else kind
