"""Find the records in an Avro file, and the schema that its writer put into it.

A file has a header, with the schema and the compression, and blocks: how many records, how many
bytes, the compressed records, and a mark of 16 bytes that is the same throughout the file
(Avro 1.12, "Object Container Files"). A block belongs to the range of bytes its first byte is in;
the mark before it finds it from anywhere.

The schema becomes a tree of `AvroNode`s. Each knows the Arrow type of its values, which is the one
that Spark reads them as (`SchemaConverters`, Spark 4.3), and a *wire* schema: another Avro schema
for the same bytes. By that one they are decoded, so that nothing is converted, guessed or lost on
the way:

- a string is decoded as bytes: whether they are UTF-8 is judged later, value by value;
- a map is decoded as an array of pairs;
- an enum is decoded as its number;
- the branches of a union are decoded as records of one field, which tells them apart;
- logical types are taken away.

Names of the wire schema are our own, so that any name a writer may use is possible.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_cloudfiles.engine.formats.content import SNAPPY_RATIO, snappy_size
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_cloudfiles.engine.options.formats.columnar import AvroOptions

    _Decompress = Callable[[bytes, int], bytes]


MAX_DEPTH: Final = 100
"""A schema nested deeper is refused, as a column of that depth is in other formats."""
_MAX_NODES: Final = 100_000
"""A schema that is larger when all its named types are written out is refused."""
_MAX_FIXED_BYTES: Final = 2**30
_DECIMAL_BYTES: Final = 16
"""A decimal of more bytes has more digits than a column can take."""
VALUE: Final = "v"
KEY: Final = "k"

_PLAIN: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIRE: Final = {"int": "long", "string": "bytes", "enum": "long"}
_WIDER: Final = (({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64()))
"""Unions of two numbers that Spark reads as the wider one."""


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A type of a file.

    Attributes:
        kind: Its Avro type; `wider` for a union of two numbers that are read as one.
        arrow: What its values become.
        wire: The schema its bytes are decoded by.
        children: Types of fields, of elements, of map values, of the branches of a union.
        symbols: Of an enum.
        may_be_empty: Whether a value may take no bytes at all.
    """

    kind: str
    arrow: pa.DataType
    wire: Any
    children: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()
    may_be_empty: bool = False


class AvroSchemaError(ValueError):
    """A schema that is not valid, or not one that can be read here."""


def parse_schema(text: bytes, options: AvroOptions) -> AvroNode:
    """Read the schema of a file.

    Args:
        text: As it stands in the header.
        options: How the branches of unions are named.

    Returns:
        A node of kind `record`. As in Spark, a file of something else cannot be read.

    Raises:
        AvroSchemaError: It is not valid, recursive, too deep or too large; the text says why.
    """
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError("its schema is no JSON, or nested too deeply") from error
    try:
        node = _AvroSchemaParser(options).parse(loaded, "", 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise AvroSchemaError(f"its schema is not valid (at {error})") from error
    if node.kind != "record":
        raise AvroSchemaError(f"it holds values of type {node.kind}, not records")
    return node


@dataclass(slots=True)
class _AvroSchemaParser:
    """Reads one schema.

    Attributes:
        names: Definitions of named types, by full name.
        open: Full names of the records that are being read, from outside to inside.
        nodes: How many types were read.
        given: How many names were given in the wire schema.
    """

    options: AvroOptions
    names: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    nodes: int = 0
    given: int = 0

    def parse(self, schema: Any, namespace: str, depth: int) -> AvroNode:
        """Read a type.

        Args:
            schema: A name, an object, or a list (a union).
            namespace: Of the type that encloses it.
            depth: How many types enclose it.
        """
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"its schema is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > _MAX_NODES:
            raise AvroSchemaError(f"its schema has more than {_MAX_NODES} types")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _plain(schema, {})
            schema, namespace = self._named(schema, namespace)
        return self._object(schema, namespace, depth)

    def _object(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroNode:
        """Read a type that is written as an object."""
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parse(kind, namespace, depth + 1)
        if kind in _PLAIN:
            return _plain(kind, schema)
        if kind == "array":
            return self._array(self.parse(schema["items"], namespace, depth + 1))
        if kind == "map":
            return self._map(self.parse(schema["values"], namespace, depth + 1))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._defined(kind, schema, namespace, depth)
        return self.parse(kind, namespace, depth + 1)

    def _name(self) -> str:
        """Build a name for the wire schema."""
        self.given += 1
        return f"t{self.given}"

    def _named(self, name: str, namespace: str) -> tuple[Mapping[str, Any], str]:
        for full in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full in self.names:
                return self.names[full]
        raise AvroSchemaError(f"its schema names the type {name!r}, which it does not define")

    def _defined(
        self, kind: str, schema: Mapping[str, Any], namespace: str, depth: int
    ) -> AvroNode:
        name = str(schema["name"])
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self.names[full] = (schema, namespace)
        if kind == "enum":
            symbols = tuple(map(str, schema["symbols"]))
            return AvroNode("enum", pa.string(), "long", symbols=symbols)
        if kind == "fixed":
            return self._fixed(schema)
        if full in self.open:
            raise AvroSchemaError(
                f"its type {full} is recursive, which no column can be; Spark refuses it too"
            )
        self.open.append(full)
        record = self._record(schema["fields"], namespace, depth)
        self.open.pop()
        return record

    def _record(self, fields: list[Mapping[str, Any]], namespace: str, depth: int) -> AvroNode:
        children = [self.parse(each["type"], namespace, depth + 1) for each in fields]
        names = [str(each["name"]) for each in fields]
        wire = [{"name": f"f{place}", "type": child.wire} for place, child in enumerate(children)]
        return AvroNode(
            "record",
            pa.struct(zip(names, (child.arrow for child in children), strict=True)),
            {"type": "record", "name": self._name(), "fields": wire},
            tuple(children),
            may_be_empty=all(child.may_be_empty for child in children),
        )

    def _fixed(self, schema: Mapping[str, Any]) -> AvroNode:
        size = schema["size"]
        if not isinstance(size, int) or not 0 <= size <= _MAX_FIXED_BYTES:
            raise AvroSchemaError(f"its schema has a fixed type of {size!r} bytes")
        wire = {"type": "fixed", "name": self._name(), "size": size}
        kind = _decimal(schema, size) or pa.binary(size)
        return AvroNode("fixed", kind, wire, may_be_empty=size == 0)

    def _array(self, items: AvroNode) -> AvroNode:
        if items.may_be_empty:
            # Their number costs no bytes: a damaged file could claim any.
            raise AvroSchemaError("it has an array of values that take no bytes, which is refused")
        return AvroNode(
            "array",
            pa.list_(pa.field("element", items.arrow)),
            {"type": "array", "items": items.wire},
            (items,),
        )

    def _map(self, values: AvroNode) -> AvroNode:
        pair = [{"name": KEY, "type": "bytes"}, {"name": VALUE, "type": values.wire}]
        wire = {"type": "record", "name": self._name(), "fields": pair}
        return AvroNode(
            "map",
            pa.map_(pa.string(), pa.field("value", values.arrow)),
            {"type": "array", "items": wire},
            (values,),
        )

    def _union(self, schema: list[Any], namespace: str, depth: int) -> AvroNode:
        if not schema or any(isinstance(each, list) for each in schema):
            raise AvroSchemaError("its schema has a union of nothing, or of unions")
        branches = [self.parse(each, namespace, depth + 1) for each in schema]
        there = [branch for branch in branches if branch.kind != "null"]
        if len(branches) - len(there) > 1:
            raise AvroSchemaError("its schema has a union with two nulls")
        if len(there) <= 1:
            wire = [branch.wire for branch in branches]
            only = there[0] if there else branches[0]
            return AvroNode(only.kind, only.arrow, wire, only.children, only.symbols)
        kinds = {branch.kind for branch in there}
        for numbers, kind in _WIDER:
            if kinds == numbers and len(there) == len(numbers):
                wire = [_branch(self._name(), VALUE, each) for each in branches]
                return AvroNode("wider", kind, wire, tuple(there))
        names = _member_names(schema, branches, self.options)
        wire = [
            each.wire if name is None else _branch(self._name(), f"m{name[0]}", each)
            for name, each in zip(names, branches, strict=True)
        ]
        members = [name[1] for name in names if name]
        arrow = pa.struct(zip(members, (each.arrow for each in there), strict=True))
        return AvroNode("union", arrow, wire, tuple(there))


def _plain(kind: str, schema: Mapping[str, Any]) -> AvroNode:
    """Convert a type without a name."""
    logical = schema.get("logicalType")
    arrow = _LOGICAL.get((kind, logical)) if isinstance(logical, str) else None
    if arrow is None and kind == "bytes":
        arrow = _decimal(schema, None)
    return AvroNode(kind, arrow or _PLAIN[kind], _WIRE.get(kind, kind), may_be_empty=kind == "null")


def _decimal(schema: Mapping[str, Any], size: int | None) -> pa.DataType | None:
    """Find the decimal that bytes stand for; `None` where no column can be one.

    As in Avro, a logical type that is not valid is none.
    """
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    most = MAX_DECIMAL_PRECISION
    if size is not None and size < _DECIMAL_BYTES:
        most = len(str(2 ** (8 * size - 1) - 1)) - 1 if size else 0
    if not 0 <= scale <= precision <= most or precision == 0:
        return None
    return pa.decimal128(precision, scale)


def _branch(record: str, name: str, node: AvroNode) -> Any:
    """Mark a branch of a union, so that it tells which one it is; its bytes are the same."""
    if node.kind == "null":
        return node.wire
    return {"type": "record", "name": record, "fields": [{"name": name, "type": node.wire}]}


def _member_names(
    schema: list[Any], branches: list[AvroNode], options: AvroOptions
) -> list[tuple[int, str] | None]:
    """Find for each branch that is not null its place among these and its name, as in Spark."""
    names: list[tuple[int, str] | None] = []
    seen: set[str] = set()
    for each, branch in zip(schema, branches, strict=True):
        if branch.kind == "null":
            names.append(None)
            continue
        name = f"member{len(seen)}"
        if options.stable_union_names:
            name = f"{options.stable_union_prefix}{_type_name(each)}"
        key = CASE_INSENSITIVE.key(name)  # as Spark, whatever the session says
        if key in seen:
            raise AvroSchemaError(
                f"two branches of a union are called {name}; set "
                "enableStableIdentifiersForUnionType=false"
            )
        names.append((len(seen), name))
        seen.add(key)
    return names


def _type_name(schema: Any) -> str:
    """Return the name of a type, or of what it is where it has none."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2]
    name = schema.get("name", schema["type"])
    return _type_name(name) if isinstance(name, str | dict) else "union"


MAGIC: Final = b"Obj\x01"
_MAX_EMPTY_RECORDS: Final = 2**24
"""Most records of a block whose records take no bytes."""
_MAX_HEADER_BYTES: Final = 64 * 2**20
_SYNC_BYTES: Final = 16
_FIRST_BYTES, _CHUNK_BYTES = 2**16, 2**22
"""What is asked of the storage at once: little for a header, then more and more."""
_MAX_VARINT_BYTES: Final = 10
_XZ_MEMORY_BYTES: Final = 512 * 2**20


class AvroDamagedError(ValueError):
    """The file is not valid; the text says why."""


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Records as they are encoded.

    Attributes:
        start: Position of its first byte in the file.
        count: How many records it says it holds.
        data: Their bytes, decompressed.
    """

    start: int
    count: int
    data: bytes


class Container:
    """An open file.

    Args:
        stream: The file's own bytes, seekable.
        limit: A block of more bytes, compressed or not, is refused: it is read as a whole.

    Attributes:
        metadata: What its header says besides the schema.
        schema: Its schema, as JSON.

    Raises:
        AvroDamagedError: It is no Avro file.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._bytes = _Bytes(stream, 0)
        if self._bytes.take(len(MAGIC)) != MAGIC:
            raise AvroDamagedError("it does not begin as an Avro file does")
        metadata = self.metadata = self._bytes.metadata()
        self._sync = self._bytes.take(_SYNC_BYTES)
        self._first = self._bytes.position
        if "avro.schema" not in metadata:
            raise AvroDamagedError("its header has no schema")
        self.schema: bytes = metadata["avro.schema"]
        codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if codec not in _CODECS:
            raise AvroDamagedError(
                f"its blocks are compressed by {codec!r}; {', '.join(_CODECS)} can be read"
            )
        self._decompress = _CODECS[codec]

    def first_block(self, start: int, end: int | None) -> int | None:
        """Position of the first block that begins in `[start, end)`; `None` if none does."""
        if start <= self._first:
            at_end = self._bytes.position == self._first and self._bytes.at_end()
            beyond = end is not None and self._first >= end
            return None if at_end or beyond else self._first
        position = start - _SYNC_BYTES
        self._stream.seek(position)
        overlap = b""
        while end is None or position + _SYNC_BYTES < end:
            chunk = overlap + self._stream.read(_CHUNK_BYTES)
            place = chunk.find(self._sync)
            if place >= 0:
                found = position + place + _SYNC_BYTES
                self._bytes = _Bytes(self._stream, found)
                self._stream.seek(found)
                return None if (end is not None and found >= end) or self._bytes.at_end() else found
            if len(chunk) <= len(overlap):
                return None
            overlap = chunk[1 - _SYNC_BYTES :]
            position += len(chunk) - len(overlap)
        return None

    def blocks(self, first: int, end: int | None) -> Iterator[AvroBlock]:
        """Yield the blocks from one on that begin before `end`.

        Raises:
            AvroDamagedError: The file ends in the middle of a block, or a block is not valid.
        """
        if self._bytes.position != first:
            self._stream.seek(first)
            self._bytes = _Bytes(self._stream, first)
        while not self._bytes.at_end():
            start = self._bytes.position
            if end is not None and start >= end:
                return
            count, size = self._bytes.varint(), self._bytes.varint()
            if count < 0 or size < 0:
                raise AvroDamagedError(f"the block at byte {start} has an impossible size")
            self._check(size, start)
            packed = self._bytes.take(size)
            if self._bytes.take(_SYNC_BYTES) != self._sync:
                raise AvroDamagedError(f"the block at byte {start} does not end with the mark")
            try:
                data = self._decompress(packed, self._limit)
            except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, IndexError) as error:
                raise AvroDamagedError(f"the block at byte {start} is damaged ({error})") from error
            self._check(len(data), start)
            if count > max(len(data), _MAX_EMPTY_RECORDS):
                raise AvroDamagedError(f"the block at byte {start} claims {count} records")
            yield AvroBlock(start, count, data)

    def _check(self, size: int, start: int) -> None:
        if size > self._limit:
            raise AvroDamagedError(
                f"the block at byte {start} has more than {self._limit} bytes of records, which "
                "are the most that is read (maxRecordBytes)"
            )


class _Bytes:
    """A stream that is read from a position on, in large pieces."""

    def __init__(self, stream: IO[bytes], position: int) -> None:
        self._stream = stream
        self._chunk = b""
        self._at = 0
        self._ask = _FIRST_BYTES
        self.position = position

    def at_end(self) -> bool:
        """Tell whether everything was read."""
        if self._at == len(self._chunk):
            self._chunk, self._at = self._stream.read(self._ask), 0
            self._ask = min(4 * self._ask, _CHUNK_BYTES)
        return not self._chunk

    def take(self, size: int) -> bytes:
        """Read the next bytes."""
        taken = self._chunk[self._at : self._at + size]
        self._at += len(taken)
        if len(taken) < size:
            parts, missing = [taken], size - len(taken)
            while missing and not self.at_end():
                part = self._chunk[:missing]
                self._at = len(part)
                parts.append(part)
                missing -= len(part)
            if missing:
                raise AvroDamagedError(f"it ends in the middle, at byte {self.position + size}")
            taken = b"".join(parts)
        self.position += size
        return taken

    def varint(self) -> int:
        """Read the next number, as Avro writes a long."""
        number = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last byte of a number
                return number >> 1 ^ -(number & 1)
            shift += 7
        raise AvroDamagedError(f"it has a number of more than 64 bits before byte {self.position}")

    def metadata(self) -> Mapping[str, bytes]:
        """Read the next map of bytes."""
        found: dict[str, bytes] = {}
        while count := self.varint():
            if count < 0:
                self.varint()
            for _ in range(abs(count)):
                key = self._sized().decode("utf-8", "replace")
                found[key] = self._sized()
                if self.position > _MAX_HEADER_BYTES:
                    raise AvroDamagedError("its header is too large")
        return found

    def _sized(self) -> bytes:
        size = self.varint()
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise AvroDamagedError("its header is not valid")
        return self.take(size)


def _by(new: Callable[[], Any], *, may_have_more: bool = False) -> _Decompress:
    """Build what the standard library decompresses with, in one piece.

    Args:
        new: Makes a decompressor.
        may_have_more: Whether something may stand behind the end, which is no part of it.
    """

    def decompress(packed: bytes, limit: int) -> bytes:
        one = new()
        data: bytes = one.decompress(packed, limit + 1)
        ends = one.eof and (may_have_more or not one.unused_data)
        if not ends and len(data) <= limit:
            raise EOFError("its compressed content ends early, or has more behind its end")
        return data

    return decompress


def _zstandard(packed: bytes, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        data: bytes = stream.read(limit + 1)
    return data


def _snappy(packed: bytes, limit: int) -> bytes:
    """Snappy, and behind it the CRC-32 of what it holds."""
    body, checksum = packed[:-4], int.from_bytes(packed[-4:], "big")
    size = snappy_size(body)
    if size > SNAPPY_RATIO * len(body):
        raise AvroDamagedError("it claims to be larger than it can be")
    if size > limit:
        raise AvroDamagedError(
            f"it has {size} bytes of records, and {limit} are the most that is read "
            "(maxRecordBytes)"
        )
    data = pa.decompress(body, size, codec="snappy", asbytes=True) if size else b""
    if zlib.crc32(data) != checksum:
        raise AvroDamagedError("its checksum does not fit")
    return data


_CODECS: Final[dict[str, _Decompress]] = {
    "null": lambda packed, _: packed,
    # Some writers leave a checksum behind raw deflate.
    "deflate": _by(partial(zlib.decompressobj, -zlib.MAX_WBITS), may_have_more=True),
    "snappy": _snappy,
    "bzip2": _by(bz2.BZ2Decompressor),
    "xz": _by(partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)),
    "zstandard": _zstandard,
}
