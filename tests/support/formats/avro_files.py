"""Avro files for tests: schemas of any shape, records that fit them, and opened files."""

from __future__ import annotations

import io
import math
import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import count
from typing import IO, Any

import fastavro
import pyarrow as pa
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.avro.reader import AvroInference, AvroReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.types import canonical_struct

URI = "file:///in/f.avro"
Schema = Any


class Opened:
    """A file in memory."""

    def __init__(self, data: bytes, uri: str = URI) -> None:
        self.uri = uri
        self.entry = FileEntry("f", len(data), 0)
        self._data = data

    def random_access(self) -> IO[bytes]:
        return io.BytesIO(self._data)


def options(**given: str) -> CloudFilesOptions:
    named = {
        f"cloudFiles.{name}" if name in {"schemaEvolutionMode", "schemaHints"} else name: value
        for name, value in given.items()
    }
    return CloudFilesOptions.parse({"cloudFiles.format": "avro", "path": "/in", **named})


def encode(schema: Schema, records: Sequence[Any], **how: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, **how)
    return sink.getvalue()


def record(*fields: tuple[str, Schema], name: str = "Row") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def infer(*files: bytes, known: StructType | None = None, **given: str) -> StructType:
    inference = AvroInference(options(**given), known)
    for data in files:
        list(inference.add_file(Opened(data)))
    return canonical_struct(inference.result())


def read(data: bytes, schema: StructType | None = None, **given: str) -> pa.Table:
    """Everything, by the file's own schema unless another is given."""
    reader = AvroReader(infer(data) if schema is None else schema, options(**given))
    return pa.Table.from_batches(list(reader.read_file(Opened(data))), reader.arrow_schema)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


# Schemas with values -------------------------------------------------------------------------
#
# A shape is a pair: an Avro schema, and what makes values: those of the wire, so numbers for
# dates and timestamps, so that nothing is converted on the way into the file. Everything comes from
# one `Random`, so that a seed says it all and hundreds of records cost little.

Make = Callable[[random.Random], Any]
Shape = tuple[Schema, Make]

_DAY = 86_400
_FIRST, _LAST = -62_000_000_000, 253_000_000_000
"""Seconds of years that Python knows."""
_NUMBERS = count()


def _integer(bits: int) -> Make:
    ends = [0, 1, -1, 2**24 + 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits // 2)]
    if bits == 64:
        ends += [2**53, 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1, 10**18]

    def make(generator: random.Random) -> int:
        if generator.random() < 0.3:
            return generator.choice(ends)
        size = generator.choice([8, bits // 2, bits])
        return generator.randrange(-(2 ** (size - 1)), 2 ** (size - 1))

    return make


def _seconds(factor: int) -> Make:
    return lambda generator: generator.randrange(_FIRST * factor, _LAST * factor)


def _double(generator: random.Random) -> float:
    found = struct.unpack("<d", generator.randbytes(8))[0]
    plain = generator.choice([0.0, -0.5, 1e300, float(generator.randrange(999)), math.inf])
    return plain if generator.random() < 0.5 or math.isnan(found) else found


def _float(generator: random.Random) -> float:
    found = struct.unpack("<f", generator.randbytes(4))[0]
    return 1.5 if math.isnan(found) else found


def _text(generator: random.Random) -> str:
    signs = 'ab "\\\n\u00e9\u4e2d\U0001f600\0,:{}'
    return "".join(generator.choices(signs, k=generator.randrange(8)))


def _some_bytes(generator: random.Random) -> bytes:
    return generator.choice([generator.randbytes(generator.randrange(6)), b"text", "é".encode()])


def _decimal(precision: int, scale: int) -> Make:
    most = 10**precision
    return lambda generator: Decimal(generator.randrange(1 - most, most)).scaleb(-scale)


LEAVES: dict[str, Shape] = {
    "boolean": ("boolean", lambda generator: generator.random() < 0.5),
    "int": ("int", _integer(32)),
    "long": ("long", _integer(64)),
    "float": ("float", _float),
    "double": ("double", _double),
    "string": ("string", _text),
    "bytes": ("bytes", _some_bytes),
    "date": (
        logical("int", "date"),
        lambda generator: generator.randrange(_FIRST // _DAY, _LAST // _DAY),
    ),
    "millis": (logical("long", "timestamp-millis"), _seconds(10**3)),
    "micros": (logical("long", "timestamp-micros"), _seconds(10**6)),
    "local millis": (logical("long", "local-timestamp-millis"), _seconds(10**3)),
    "local micros": (logical("long", "local-timestamp-micros"), _seconds(10**6)),
    "time": (logical("int", "time-millis"), lambda generator: generator.randrange(86_400_000)),
    "decimal": (logical("bytes", "decimal", precision=9, scale=2), _decimal(9, 2)),
}
NAMED: dict[str, Shape] = {
    "enum": (
        {"type": "enum", "symbols": ["A", "B", "c_3"]},
        lambda generator: generator.choice(["A", "B", "c_3"]),
    ),
    "fixed": ({"type": "fixed", "size": 3}, lambda generator: generator.randbytes(3)),
    "fixed decimal": (
        {"type": "fixed", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 5},
        _decimal(20, 5),
    ),
    "empty": ({"type": "record", "fields": []}, lambda _generator: {}),
}
_UNIONS = [
    ["int", "string"],
    ["long", "double", "boolean"],
    ["int", "long"],
    ["bytes", "string"],
    ["float", "double"],
    ["string", "date"],
    ["micros", "string", "boolean"],
]
FIELDS = ["a", "b", "C", "d_1", "name", "Value"]


def named(shape: Shape) -> Shape:
    """The same under a name that no other type has."""
    return {**shape[0], "name": f"T{next(_NUMBERS)}"}, shape[1]


def some_shape(generator: random.Random, depth: int) -> Shape:
    """A shape of any kind."""
    kinds = ["leaf", "leaf", "leaf", "named", "null"]
    kind = generator.choice(kinds + (["optional", *_NESTED] if depth else []))
    if kind == "leaf":
        return LEAVES[generator.choice(list(LEAVES))]
    if kind == "named":
        return named(NAMED[generator.choice(list(NAMED))])
    if kind == "null":
        return "null", lambda _generator: None
    if kind == "optional":
        return _optional(generator, some_shape(generator, depth - 1))
    return _NESTED[kind](generator, depth - 1)


def _optional(generator: random.Random, shape: Shape) -> Shape:
    inner, make = shape
    if isinstance(inner, list) or inner == "null":
        return shape
    order = generator.choice([["null", inner], [inner, "null"]])
    telling = _telling(inner, make)
    return order, lambda each: None if each.random() < 0.3 else telling(each)


def _array(generator: random.Random, depth: int) -> Shape:
    inner, make = some_shape(generator, depth)
    if inner == "null" or _is_empty(inner):
        inner, make = LEAVES["int"]
    items = {"type": "array", "items": inner}
    return items, lambda each: [make(each) for _ in range(each.randrange(4))]


def _map(generator: random.Random, depth: int) -> Shape:
    inner, make = some_shape(generator, depth)
    values = {"type": "map", "values": inner}
    return values, lambda each: {_text(each): make(each) for _ in range(each.randrange(4))}


def _union(generator: random.Random, _depth: int) -> Shape:
    branches = [LEAVES[each] for each in generator.choice(_UNIONS)]
    if generator.random() < 0.5:
        branches.append(named(NAMED["enum"]))
    makes = [_telling(*each) for each in branches]
    schemas = [schema for schema, _ in branches]
    if generator.random() < 0.5:
        schemas.insert(generator.randrange(len(schemas)), "null")
        makes.append(lambda _generator: None)
    return schemas, lambda each: each.choice(makes)(each)


def _telling(schema: Schema, make: Make) -> Make:
    """Values that tell their branch, as `fastavro` takes them where it would have to guess."""
    name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
    return lambda generator: (name, make(generator))


def _is_empty(schema: Schema) -> bool:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return fields is not None and all(
        each["type"] == "null" or _is_empty(each["type"]) for each in fields
    )


def some_record(generator: random.Random, depth: int) -> Shape:
    """A record of some fields."""
    names = generator.sample(FIELDS, generator.randrange(1, 5))
    children = {name: some_shape(generator, depth) for name in names}
    schema, _ = named((record(*((name, child[0]) for name, child in children.items())), str))
    return schema, lambda each: {name: child[1](each) for name, child in children.items()}


_NESTED: dict[str, Callable[[random.Random, int], Shape]] = {
    "array": _array,
    "map": _map,
    "record": some_record,
    "union": _union,
}
