"""Read Avro files.

A file is read block by block. The records of a block are decoded by its own schema (`file`),
turned into columns, and fitted into the columns of the stream as those of any columnar
format (`formats.columnar.reader`): what does not fit is rescued. A block that is damaged makes the
file unreadable; the rows before it were given out.

`fastavro` decodes records one by one into Python values, by the wire schema. Here
they are turned by 90 degrees: each column is gathered and converted at once, also within records,
arrays and maps. Nothing is judged here: a string that is no UTF-8, or a timestamp beyond the range
of Spark's, is in the array as it is in the file.
"""

from __future__ import annotations

import gc
import io
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, repeat
from operator import itemgetter, methodcaller
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.avro.file import (
    KEY,
    VALUE,
    AvroBlock,
    AvroDamagedError,
    AvroNode,
    Container,
    parse_schema,
)
from airflow_cloudfiles.engine.formats.base import validity
from airflow_cloudfiles.engine.formats.columnar.casts import Calendar
from airflow_cloudfiles.engine.formats.columnar.reader import (
    Chunk,
    ColumnarInference,
    ColumnarReader,
)
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions
from airflow_cloudfiles.engine.types import grown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.options.formats.columnar import AvroOptions

Values = Sequence[Any]
Member = Callable[[Any], Any]
_DECIMAL_BYTES: Final = 16
_MOST_SYMBOLS_BYTES: Final = 2**30
"""Of the symbols of an enum in one batch: an array names each with a byte."""


def to_array(node: AvroNode, values: Values) -> pa.Array:
    """Convert values of one type to an array.

    Args:
        node: Their type.
        values: As they are decoded by its wire schema; `None` for null.

    Raises:
        AvroDamagedError: A value is none of its type.
    """
    make = _MAKERS.get(node.kind)
    return pa.array(values, node.arrow) if make is None else make(node, values)


def _int(node: AvroNode, values: Values) -> pa.Array:
    try:
        return pa.array(values, pa.int32()).view(node.arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise AvroDamagedError(f"an int has more than 32 bits ({error})") from error


def _bytes(node: AvroNode, values: Values) -> pa.Array:
    """Bytes, which as decimals are whole numbers, the big end first, in two's complement."""
    kind = node.arrow
    if not pa.types.is_decimal(kind):
        return pa.array(values, kind)
    limit = 10**kind.precision
    whole = bytearray()
    valid = np.ones(len(values), np.bool_)
    for place, value in enumerate(values):
        number = 0
        if value is None:
            valid[place] = False
        else:
            number = int.from_bytes(value, "big", signed=True)
            if not -limit < number < limit:
                raise AvroDamagedError(f"a decimal has more than {kind.precision} digits")
        whole += number.to_bytes(_DECIMAL_BYTES, "little", signed=True)
    buffers = [validity(valid), pa.py_buffer(bytes(whole))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _enum(node: AvroNode, values: Values) -> pa.Array:
    places = pa.array(values, pa.int64())
    found = places.drop_null().to_numpy(zero_copy_only=False)
    if ((found < 0) | (found >= len(node.symbols))).any():
        raise AvroDamagedError(f"an enum of {len(node.symbols)} symbols has a value beyond them")
    symbols = pa.array(node.symbols, pa.string())
    lengths = pc.binary_length(symbols).to_numpy().astype(np.int64)
    if len(found) and int(lengths[found].sum()) > _MOST_SYMBOLS_BYTES:
        raise AvroDamagedError(
            f"an array of an enum has symbols of more than {_MOST_SYMBOLS_BYTES} bytes, which no "
            "column can hold"
        )
    return symbols.take(places)


def _struct(node: AvroNode, values: Values, member: Callable[[int], Member]) -> pa.Array:
    """Build records, or branches of a union; `member` says how a value gives that of a place."""
    present = [value for value in values if value is not None]
    children = [
        to_array(child, list(map(member(place), present)))
        for place, child in enumerate(node.children)
    ]
    if len(present) == len(values):
        return pa.Array.from_buffers(node.arrow, len(values), [None], children=children)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    spread = [child.take(places) for child in children]
    return pa.Array.from_buffers(node.arrow, len(values), [validity(valid)], children=spread)


def _array(node: AvroNode, values: Values) -> pa.Array:
    elements = list(chain.from_iterable(value for value in values if value))
    return _nested(node.arrow, values, [to_array(node.children[0], elements)])


def _map(node: AvroNode, values: Values) -> pa.Array:
    pairs = list(chain.from_iterable(value for value in values if value))
    keys = pa.array(list(map(itemgetter(KEY), pairs)), pa.binary()).view(pa.string())
    items = to_array(node.children[0], list(map(itemgetter(VALUE), pairs)))
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[node.arrow.key_field, node.arrow.item_field]
    )
    return _nested(node.arrow, values, [entries])


def _nested(kind: pa.DataType, values: Values, children: list[pa.Array]) -> pa.Array:
    """Build lists or maps of elements that lie one after another."""
    lengths = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    buffers = [validity(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=children)


def _wider(node: AvroNode, values: Values) -> pa.Array:
    return pa.array([value and value[VALUE] for value in values], node.arrow)


_MAKERS: Final[dict[str, Callable[[AvroNode, Values], pa.Array]]] = {
    "int": _int,
    "long": lambda node, values: pa.array(values, pa.int64()).view(node.arrow),
    "bytes": _bytes,
    "fixed": _bytes,
    # Whether they are UTF-8 is asked when they are fitted into their column.
    "string": lambda _, values: pa.array(values, pa.binary()).view(pa.string()),
    "enum": _enum,
    "record": partial(_struct, member=lambda place: itemgetter(f"f{place}")),
    "array": _array,
    "map": _map,
    "union": partial(_struct, member=lambda place: methodcaller("get", f"m{place}")),
    "wider": _wider,
}


try:
    import fastavro
except ImportError as error:
    raise OptionError(
        f"cloudFiles.format=avro needs the package fastavro. {install('avro')}"
    ) from error


_BATCH_ROWS: Final = 2**14
"""Most rows of a batch: their Python values are held at once."""
_BATCH_VALUES: Final = 2**20
"""Most values of a batch without those of arrays and maps: some of them take no bytes."""
_BATCH_BYTES: Final = 2 * 2**20
"""A batch ends with the record that reaches so many encoded bytes, or fewer where a byte may take
more than `_USUAL_WEIGHT` in memory."""
_USUAL_WEIGHT, _ENTRY_WEIGHT = 64, 256
_COPIES: Final = 4
"""Of a column, while it is made."""
_UNDECODABLE: Final = (
    *(EOFError, IndexError, KeyError, OverflowError, MemoryError, RecursionError),
    *(TypeError, ValueError, struct.error),
)
"""What `fastavro` raises for bytes that are not what the schema says."""

Decode = Callable[[io.BytesIO], dict[str, Any]]


class AvroFile:
    """An open file.

    Args:
        content: Its bytes, seekable.
        options: How the branches of unions are named, and which calendar dates follow.

    Attributes:
        schema: Its columns, with the types its values have for Spark.

    Raises:
        ValueError: It is no Avro file, or its schema cannot be read; the text says why.
    """

    def __init__(self, content: IO[bytes], options: AvroOptions) -> None:
        self._container = Container(content, options.max_record_bytes)
        self.node, self._decode = _compiled(self._container.schema, options)
        self.schema = pa.schema(list(self.node.arrow))
        self._rows = max(1, min(_BATCH_ROWS, _BATCH_VALUES // _values(self.node)))
        self._bytes = _BATCH_BYTES * _USUAL_WEIGHT // max(_USUAL_WEIGHT, _weight(self.node))
        metadata = {key.encode(): value for key, value in self._container.metadata.items()}
        self._calendar = Calendar.of(
            metadata, ParquetOptions(datetime_rebase_mode=options.datetime_rebase_mode)
        )
        self._end: int | None = None

    def parts(self, start: int, end: int | None) -> list[int]:
        """Find the first block that begins in a range; it stands for all of them."""
        self._end = end
        first = self._container.first_block(start, end)
        return [] if first is None else [first]

    def rows_before(self, parts: list[int]) -> int | None:
        """Count the rows before the first of some blocks: a part of a file does not tell."""
        del parts
        return None

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """Yield the rows of the blocks from one on; before an error, all that come before it.

        Raises:
            AvroDamagedError: A block is damaged.
        """
        records = self._records(parts)
        error: AvroDamagedError | None = None
        while error is None:
            with _without_collector():
                rows, error = _batch(records, self._rows, self._bytes)
                chunk = self._chunk(rows, columns) if rows else None
                ended = not rows
                rows.clear()
            if chunk is not None:
                yield chunk
            if ended:
                break
        if error is not None:
            raise error

    def _records(self, parts: list[int]) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the records of the blocks from one on, with the bytes they take."""
        for first in parts:
            for block in self._container.blocks(first, self._end):
                yield from self._records_of(block)

    def _records_of(self, block: AvroBlock) -> Iterator[tuple[dict[str, Any], int]]:
        stream = io.BytesIO(block.data)
        before = 0
        for number in range(1, block.count + 1):
            try:
                record = self._decode(stream)
            except _UNDECODABLE as error:
                raise AvroDamagedError(
                    f"record {number} of the block at byte {block.start} does not fit the schema "
                    f"of the file ({type(error).__name__}: {error})"
                ) from error
            after = stream.tell()
            yield record, after - before
            before = after
        if before != len(block.data):
            raise AvroDamagedError(
                f"the block at byte {block.start} has {len(block.data) - before} bytes behind its "
                "last record"
            )

    def _chunk(self, rows: list[dict[str, Any]], columns: list[int]) -> Chunk:
        arrays = [
            to_array(self.node.children[place], list(map(itemgetter(f"f{place}"), rows)))
            for place in columns
        ]
        if not self._calendar.is_ours:
            arrays = [self._calendar.convert(array, repeat(False)) for array in arrays]
        return Chunk(len(rows), arrays)


def _values(node: AvroNode) -> int:
    """Count the values that one value has in itself, but for those of arrays and maps."""
    inner = () if node.kind in {"array", "map"} else node.children
    return 1 + sum(map(_values, inner))


def _weight(node: AvroNode) -> int:
    """About how many bytes in memory a byte of a file may become.

    It may name a long symbol, or be an element with many fields that take no bytes.
    """
    own = _COPIES * max(map(len, node.symbols), default=0)
    if node.kind == "array":
        own = _USUAL_WEIGHT * _values(node.children[0])
    elif node.kind == "map":
        own = _ENTRY_WEIGHT + _USUAL_WEIGHT * _values(node.children[0])
    return max(own, *map(_weight, node.children), 0)


def _batch(
    records: Iterator[tuple[dict[str, Any], int]], most_rows: int, most_bytes: int
) -> tuple[list[dict[str, Any]], AvroDamagedError | None]:
    """Read the next records, and say why there are no more, if that is not the end."""
    rows: list[dict[str, Any]] = []
    held = 0
    try:
        for record, size in records:
            rows.append(record)
            held += size
            if len(rows) >= most_rows or held >= most_bytes:
                break
    except AvroDamagedError as error:
        return rows, error
    return rows, None


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python from looking for cycles among the records of a batch: a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@lru_cache(maxsize=16)
def _compiled(schema: bytes, options: AvroOptions) -> tuple[AvroNode, Decode]:
    """Compile a schema to what decodes a record by it; most files of a stream have the same."""
    node = parse_schema(schema, options)
    try:
        wire = fastavro.parse_schema(node.wire)
    except fastavro.schema.SchemaParseException as error:
        raise AvroDamagedError(f"its schema is not valid ({error})") from error

    def decode(stream: io.BytesIO) -> dict[str, Any]:
        return fastavro.schemaless_reader(stream, wire, None)  # type: ignore[return-value]

    return node, decode


class AvroReader(ColumnarReader):
    """Reads Avro files with one schema."""

    format, file = "Avro", AvroFile


class AvroInference(ColumnarInference):
    """Learns the schema of Avro files, which is in their headers.

    Where files disagree, fields are added, and types never relaxed (B12): the first file that has a
    field, which is the newest of a sample, says its type.
    """

    format, file = "Avro", AvroFile

    def _learn(self, found: StructType, where: str) -> None:
        del where
        self._has_learned = True
        self._found = grown(self._found, found, self._matcher)
