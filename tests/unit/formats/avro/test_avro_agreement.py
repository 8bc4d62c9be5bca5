"""The law of Avro: the columns and the rescued data give back every record.

Files of any schema are read by a schema that was changed at random: fields are missing, have other
types or another case, stand elsewhere. What the columns took and what was rescued, put together,
must be the values that were written.
"""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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

from tests.support.formats.avro_files import URI, encode, infer, read, some_record

LEAVES: list[DataType] = [
    BinaryType(),
    BooleanType(),
    DateType(),
    DecimalType(9, 2),
    DecimalType(20, 4),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    ShortType(),
    StringType(),
    TimestampNTZType(),
    TimestampType(),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _changed(kind: DataType, generator: random.Random) -> DataType:
    """A type, changed somewhere or nowhere."""
    chance = generator.random()
    if chance < 0.15:
        return generator.choice([*LEAVES, ArrayType(LongType()), StructType()])
    if isinstance(kind, StructType):
        return _changed_struct(kind, generator)
    if isinstance(kind, ArrayType):
        return ArrayType(_changed(kind.elementType, generator))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _changed(kind.valueType, generator))
    return kind


def _changed_struct(kind: StructType, generator: random.Random) -> StructType:
    fields = []
    for field in generator.sample(kind.fields, len(kind.fields)):
        chance = generator.random()
        if chance < 0.1:
            continue
        name = field.name.swapcase() if chance < 0.2 else field.name
        fields.append(StructField(name, _changed(field.dataType, generator)))
    if generator.random() < 0.1:
        fields.append(StructField("absent", generator.choice(LEAVES)))
    return StructType(fields)


# What was written, told from what was read ----------------------------------------------------


def _joined(schema: Any, column: Any, rescued: Any) -> Any:
    """The value of a field, from its column and from its rescued data."""
    if isinstance(schema, list):
        return _joined_union(schema, column, rescued)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if column is None and rescued is None:
        return None
    if kind == "record":
        return _joined_record(schema, column, rescued)
    if kind == "array":
        size = len(column) if column is not None else len(rescued)
        rest = [*(rescued or []), *[None] * size]
        return [
            _joined(schema["items"], None if column is None else column[at], rest[at])
            for at in range(size)
        ]
    if kind == "map":
        found, rest = dict(column or []), rescued or {}
        keys = found if column is not None else rest
        return {key: _joined(schema["values"], found.get(key), rest.get(key)) for key in keys}
    assert column is None or rescued is None, "in two places"
    return _from_column(schema, column) if rescued is None else _from_json(schema, rescued)


def _joined_record(schema: Any, column: Any, rescued: Any) -> dict[str, Any]:
    rest = rescued or {}
    found = {}
    for field in schema["fields"]:
        name = field["name"]
        found[name] = _joined(field["type"], (column or {}).get(name), rest.get(name))
    return found


def _joined_union(schema: list[Any], column: Any, rescued: Any) -> Any:
    there = [each for each in schema if each != "null"]
    if column is None and rescued is None:
        return None
    kinds = {each if isinstance(each, str) else each["type"] for each in there}
    if len(there) == 1 or kinds in ({"int", "long"}, {"float", "double"}):
        return _joined(there[-1], column, rescued)
    for place, each in enumerate(there):
        name = f"member{place}"
        found = _joined(each, (column or {}).get(name), (rescued or {}).get(name))
        if found is not None:
            return found
    return None


def _from_column(schema: Any, value: Any) -> Any:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        if schema["logicalType"] == "date":  # a date is its midnight
            return since.days
        return _scaled(schema, since // timedelta(microseconds=1))
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if kind in {"bytes", "fixed"} and isinstance(value, str):
        return value.encode()
    if kind in {"string", "enum"} and isinstance(value, bytes):
        return value.decode()
    return value


def _from_json(schema: Any, value: Any) -> Any:
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "date":
        return (date.fromisoformat(value) - _EPOCH.date()).days
    if logical and "timestamp" in logical:
        assert value.endswith("Z") == logical.startswith("timestamp")
        since = datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=UTC) - _EPOCH
        return _scaled(schema, since // timedelta(microseconds=1))
    if kind in {"bytes", "fixed"} and logical != "decimal":
        return base64.b64decode(value, validate=True)
    if kind == "float":  # as short a text as gives the 32 bits back
        return float(np.float32(str(value)))
    if kind == "double" and isinstance(value, str):
        return float(value)
    return value


def _scaled(schema: Any, micros: int) -> int:
    if not schema["logicalType"].endswith("millis"):
        return micros
    assert micros % 1000 == 0
    return micros // 1000


def _plain(value: Any) -> Any:
    """What was written, without what tells the branch of a union."""
    if isinstance(value, tuple):
        return _plain(value[1])
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _same(found: Any, written: Any) -> bool:
    if isinstance(found, dict) and isinstance(written, dict):
        return found.keys() == written.keys() and all(
            _same(found[key], each) for key, each in written.items()
        )
    if isinstance(found, list) and isinstance(written, list):
        return len(found) == len(written) and all(map(_same, found, written))
    if isinstance(found, Decimal) and isinstance(written, float):
        return float(found) == written
    if isinstance(found, float) and isinstance(written, Decimal):
        return Decimal(repr(found)) == written
    return bool(found == written)


ROWS, EXAMPLES, GROUPS = 320, 45, 8


@pytest.mark.law
@pytest.mark.parametrize("group", range(GROUPS))
def test_columns_and_rescued_data_give_back_every_record(group: int) -> None:
    rescued_rows = 0
    for seed in range(group * EXAMPLES, (group + 1) * EXAMPLES):
        generator = random.Random(seed)
        schema, make = some_record(generator, 3)
        records = [make(generator) for _ in range(ROWS)]
        data = encode(schema, records, sync_interval=generator.choice([300, 16_000]))
        target = _changed_struct(infer(data), generator)
        table = read(data, target, schemaEvolutionMode="rescue")
        assert table.num_rows == ROWS
        rescued_rows += ROWS - table["_rescued_data"].null_count
        for written, row in zip(records, table.to_pylist(), strict=True):
            text = row.pop("_rescued_data")
            rest = json.loads(text, parse_float=Decimal) if text else {}
            assert (rest.pop("_file_path") if rest else URI) == URI
            assert text is None or list(json.loads(text))[-1] == "_file_path"  # B80
            found = _joined(schema, row, rest)
            assert _same(found, _plain(written)), (seed, written, row, text)
    assert rescued_rows > ROWS  # the schemas did differ


def _waits(schema: Any) -> bool:
    """Whether it holds an empty struct, or a map or a struct of nothing but null."""
    if isinstance(schema, list):
        return any(map(_waits, schema))
    if not isinstance(schema, dict):
        return False
    if "fields" in schema:
        inner = [each["type"] for each in schema["fields"]]
        return all(each == "null" for each in inner) or any(map(_waits, inner))
    inner = [schema.get(each) for each in ("items", "values", "type")]
    return schema.get("values") == "null" or any(map(_waits, inner))


def test_without_a_change_nothing_is_rescued_that_can_be_a_column() -> None:
    for seed in range(120):
        generator = random.Random(10_000 + seed)
        schema, make = some_record(generator, 2)
        if _waits(schema):  # an empty struct is no column (B77)
            continue
        records = [make(generator) for _ in range(50)]
        assert read(encode(schema, records))["_rescued_data"].null_count == 50, seed  # B70
