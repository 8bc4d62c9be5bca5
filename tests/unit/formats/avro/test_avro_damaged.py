"""Whatever is in a file that claims to be Avro: its rows, or an error that names it."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import random
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.errors import CloudFilesError, FileUnreadableError
from airflow_cloudfiles.engine.formats.avro.reader import AvroReader
from tests.support.formats.avro_files import (
    NAMED,
    Opened,
    encode,
    infer,
    logical,
    named,
    options,
    read,
    record,
    some_record,
)

SYNC = b"0123456789abcdef"


def _long(number: int) -> bytes:
    """A number as Avro writes it."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _sized(content: bytes) -> bytes:
    return _long(len(content)) + content


def _header(schema: Any, codec: str = "null") -> bytes:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    pairs = _sized(b"avro.schema") + _sized(text.encode())
    pairs += _sized(b"avro.codec") + _sized(codec.encode())
    return b"Obj\x01" + _long(2) + pairs + b"\0" + SYNC


def _block(count: int, data: bytes) -> bytes:
    return _long(count) + _sized(data) + SYNC


def _read_all(data: bytes, **given: str) -> int:
    """Rows of a file, however it is read; only our own errors pass."""
    return read(data, infer(data), **given).num_rows


def _refuses(data: bytes, why: str, **given: str) -> None:
    with pytest.raises(FileUnreadableError, match=why) as caught:
        _read_all(data, **given)
    assert caught.value.message.startswith("file:///in/f.avro cannot be read as Avro: ")


INT = record(("a", "int"))
LIMIT = {"maxRecordBytes": "1m"}
TWO = _header(INT) + _block(2, b"\x02\x04")


def test_a_file_written_by_hand_is_read() -> None:
    assert read(TWO)["a"].to_pylist() == [1, 2]
    assert read(TWO + _block(0, b"") + _block(1, b"\x06"))["a"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a" * 99, "does not begin as an Avro file does"),
        (b"Obj\x01", "ends in the middle"),
        (TWO[:-1], "ends in the middle"),
        (TWO[:-19], "ends in the middle"),
        (TWO[:-1] + b"x", "does not end with the mark"),
        (TWO + b"\x02", "ends in the middle"),
        (_header(INT) + _block(1, b"\x02\x04"), "1 bytes behind its last record"),
        (_header(INT) + _block(3, b"\x02\x04"), "record 3 of the block"),
        (_header(INT) + _block(-1, b"\x02"), "impossible size"),
        (
            _header(INT) + _long(1) + _long(2**40) + b"x",
            "more than 1073741824 bytes.*maxRecordBytes",
        ),
        (_header(INT) + _long(1) + _long(-5) + b"x", "impossible size"),
        (_header(INT) + _long(1) + _long(2**20) + b"x", "ends in the middle"),
        (_header(INT) + b"\xff" * 12, "more than 64 bits"),
        (_header(INT) + _block(1, _long(2**31)), "more than 32 bits"),
        (_header(INT, "lzo") + _block(1, b"\x02"), "compressed by 'lzo'"),
        (_header(INT, "deflate") + _block(1, b"\x02"), "damaged"),
        (_header(INT, "snappy") + _block(1, b"\x01\x00\x02abcd"), "checksum does not fit"),
        (_header(INT, "snappy") + _block(1, b"\xff\xff\xff\xff\x0fabcd"), "larger than it can be"),
        (_header(INT, "zstandard") + _block(1, b"\x02"), "damaged"),
        (_header(INT, "bzip2") + _block(1, b"\x02"), "damaged"),
        (_header(INT, "xz") + _block(1, lzma.compress(b"\x02")[:-9]), "damaged"),
        (_header("{"), "no JSON"),
        (_header("[" * 100_000), "no JSON, or nested too deeply"),
        (_header('"int"'), "values of type int, not records"),
        (_header('{"type": "record"}'), "not valid"),
        (_header(record(("a", "nothing known"))), "'nothing known', which it does not define"),
        (_header(record(("a", []))), "a union of nothing"),
        (_header(record(("a", ["null", ["int"]]))), "of unions"),
        (_header(record(("a", {"type": "array", "items": "null"}))), "take no bytes"),
        (_header(record(("a", {"type": "fixed", "name": "F", "size": -1}))), "-1 bytes"),
        (_header(record(("a", {"type": "fixed", "name": "F", "size": 2**40}))), "fixed type"),
        (_header(record(("a", ["null", "int", "null"]))), "two nulls"),
        (_header(record(("a", ["null", "int", "string", "null"]))), "two nulls"),
        (_header(record(("a", "int"))) + _block(2**40, b""), "claims"),
    ],
)
def test_what_is_no_valid_file_is_refused_with_the_reason(data: bytes, why: str) -> None:
    _refuses(data, why)


def test_rows_before_a_damaged_block_are_given_out_and_then_the_error() -> None:
    reader = AvroReader(infer(TWO), options())
    batches = reader.read_file(Opened(encode(INT, [{"a": 1}] * 20_000) + b"\x02"))
    assert next(batches).num_rows + next(batches).num_rows == 20_000
    with pytest.raises(FileUnreadableError, match="ends in the middle"):
        list(batches)


def test_values_that_no_type_allows_are_damage() -> None:
    enum = record(("e", {**NAMED["enum"][0], "name": "E"}))
    _refuses(_header(enum) + _block(1, b"\x08"), "enum of 3 symbols has a value beyond")
    _refuses(_header(record(("u", ["null", "int"]))) + _block(1, b"\x08"), "record 1 of the block")
    decimal = record(("d", logical("bytes", "decimal", precision=2, scale=0)))
    _refuses(_header(decimal) + _block(1, _sized(b"\x64")), "more than 2 digits")


def test_a_logical_type_that_is_not_valid_is_none() -> None:
    odd = [
        logical("bytes", "decimal", precision=3, scale=5),
        logical("bytes", "decimal", precision=0),
        logical("bytes", "decimal", precision="9"),
        logical("bytes", "decimal", precision=39),
        {**logical("fixed", "decimal", precision=6), "name": "F", "size": 2},
        {**logical("fixed", "duration"), "name": "D", "size": 12},
    ]
    schema = infer(_header(record(*((f"d{n}", each) for n, each in enumerate(odd)))))
    assert {field.dataType.simpleString() for field in schema} == {"binary"}
    assert infer(_header(record(("t", logical("string", "timestamp-millis")))))["t"].dataType
    assert infer(_header(record(("t", {"type": "long", "logicalType": 7})))).simpleString() == (
        "struct<t:bigint>"
    )


def test_names_of_types_are_found_in_their_namespaces() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = {
        "type": "record", "name": "R", "namespace": "x.y",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "E"},
                   {"name": "c", "type": "x.y.E"},
                   {"name": "d", "type": {"type": "x.y.E"}},
                   {"name": "e", "type": {"type": "enum", "name": "other.E", "symbols": ["B"]}},
                   {"name": "f", "type": "E"}, {"name": "g", "type": "other.E"}],
    }  # fmt: skip
    row = read(_header(schema) + _block(1, b"\0" * 7)).to_pylist()[0]
    assert "".join(row[name] for name in "abcdefg") == "AAAABAB"


@pytest.mark.law
def test_a_schema_that_explodes_is_refused() -> None:
    doubling: Any = "int"
    for level in range(40):
        fields = record(("a", doubling), ("b", f"L{level - 1}" if level else "int"))
        doubling = {**fields, "name": f"L{level}"}
    _refuses(_header(doubling), "more than 100000 types")
    deep: Any = "int"
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    _refuses(_header(record(("a", deep))), "deeper than 100")


def test_arrays_may_come_in_blocks_with_their_sizes() -> None:
    schema = record(("a", {"type": "array", "items": "int"}))
    parts = _long(-2) + _long(2) + b"\x02\x04" + _long(1) + b"\x06" + b"\0"
    assert read(_header(schema) + _block(1, parts))["a"].to_pylist() == [[1, 2, 3]]


@pytest.mark.law
def test_a_bomb_stops_at_the_limit() -> None:
    one = zlib.compressobj(wbits=-15)
    bomb = one.compress(bytes(2**24)) + one.flush()
    schema = record(("s", "bytes"))
    _refuses(_header(schema, "deflate") + _block(1, bomb), "more than 1048576 bytes", **LIMIT)
    zstd = pa.compress(bytes(2**24), codec="zstd", asbytes=True)
    _refuses(_header(schema, "zstandard") + _block(1, zstd), "more than 1048576 bytes", **LIMIT)
    _refuses(
        _header(schema, "xz") + _block(1, lzma.compress(bytes(2**24))), "more than 1048576", **LIMIT
    )


def test_a_checksum_that_old_writers_leave_behind_deflate_is_no_damage() -> None:
    data = zlib.compress(b"\x02")[2:]
    assert read(_header(INT, "deflate") + _block(1, data))["a"].to_pylist() == [1]


@pytest.mark.law
@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_flipped_and_lost_bytes_end_in_rows_or_in_our_error(codec: str) -> None:
    outcomes = {True: 0, False: 0}
    for seed in range(400):
        generator = random.Random(seed)
        schema, make = some_record(generator, 3)
        data = encode(schema, [make(generator) for _ in range(12)], codec=codec)
        damaged = bytearray(data)
        header = data.index(fastavro.block_reader(io.BytesIO(data))._header["sync"])
        first = 0 if seed % 4 == 0 else header + 16
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(first, len(data))] = generator.randrange(256)
        if seed % 5 == 0:
            del damaged[generator.randrange(len(damaged)) :]
        try:
            _read_all(bytes(damaged))
            outcomes[True] += 1
        except CloudFilesError:
            outcomes[False] += 1
    assert min(outcomes.values()) >= (1 if codec == "snappy" else 20)  # Snappy has checksums


@pytest.mark.law
def test_any_bytes_behind_a_header_end_in_rows_or_in_our_error() -> None:
    for seed in range(400):
        generator = random.Random(seed)
        schema, _ = named(some_record(generator, 3))
        count, size = generator.randrange(4), generator.choice([0, 1, 5, 40])
        data = _header(schema) + _block(count, generator.randbytes(size))
        try:
            assert _read_all(data) == count
        except CloudFilesError as error:
            assert "file:///in/f.avro" in error.message  # noqa: PT017 - either is right


ODD: list[Any] = [
    *(None, 1, -1, 2**70, 1.5, True, "", "int", "null", "record", "array", "enum", "fixed", "x.y"),
    *([], {}, ["null"], {"type": "int"}, ["null", "string"], {"type": "array", "items": "int"}),
    *({"type": "record", "name": "T5", "fields": []}, {"type": "enum", "name": "Z", "symbols": []}),
]
KEYS = ["logicalType", "precision", "scale", "size", "namespace", "aliases", "default", "name"]


def _mutated(schema: Any, generator: random.Random) -> Any:
    if generator.random() < 0.05:
        return generator.choice(ODD)
    if isinstance(schema, list):
        return [_mutated(each, generator) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _mutated(each, generator) for key, each in schema.items()}
    if generator.random() < 0.05:
        found.pop(generator.choice([*found]))
    if generator.random() < 0.1:
        odd = [*ODD, "decimal", "date", "timestamp-micros", "uuid", "time-millis"]
        found[generator.choice([*KEYS, "type"])] = generator.choice(odd)
    return found


@pytest.mark.law
def test_any_schema_ends_in_rows_or_in_our_error() -> None:
    read_whole = 0
    for seed in range(2000):
        generator = random.Random(seed)
        schema = _mutated(some_record(generator, 3)[0], generator)
        data = _header(schema) + _block(generator.randrange(3), generator.randbytes(seed % 3))
        with contextlib.suppress(CloudFilesError):
            _read_all(data)
            read_whole += 1
    assert read_whole > 50
