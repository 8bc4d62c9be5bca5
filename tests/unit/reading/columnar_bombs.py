"""Small files with types of their own that describe much: make them, and read them.

`python -m tests.unit.reading.columnar_bombs make FOLDER`, and in a process that has made nothing
`... read FOLDER`, which prints for each of `CASES` the rows that came out or the error, and by how
much the largest resident memory grew. `LEFT` has those that nothing bounds; `... left FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_cloudfiles.engine.errors import CloudFilesError
from tests.support.landed import Stream
from tests.unit.reading.bombs import LIMIT, forget_most, status

LONG = "x" * 100_000
ROWS = 10_000
SYNC = b"0123456789abcdef"
REFUSED = "maxRecordBytes"
_NAMES = [f"c{number}" for number in range(2_000)]


def _parquet(table: pa.Table, **given: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False, **given)
    return sink.getvalue().to_pybytes()


def _orc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _same(rows: int, nulls: int = 0) -> pa.Array:
    """One long string, many times, behind some nulls."""
    places = pa.array([None] * nulls + [0] * (rows - nulls), pa.int32())
    return pa.DictionaryArray.from_arrays(places, pa.array([LONG]))


def _lists(values: pa.Array, each: int) -> pa.Array:
    return pa.ListArray.from_arrays(list(range(0, len(values) + 1, each)), values)


def _shared_beginnings() -> bytes:
    table = pa.table({"a": [LONG] * 5_000})
    return _parquet(table, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})


def _shared_beginnings_in_a_list() -> bytes:
    table = pa.table({"a": _lists(pa.array([LONG] * 5_000), 5_000)})
    encoding = {"a.list.element": "DELTA_BYTE_ARRAY"}
    return _parquet(table, use_dictionary=False, column_encoding=encoding)


def _beside_many_bytes() -> bytes:
    """A row group of more than 64 MB, of which one column is small."""
    noise = pa.array([os.urandom(2**20 * 70 // ROWS) for _ in range(ROWS)])
    return _parquet(pa.table({"a": _same(ROWS), "b": noise}), use_dictionary=["a"])


def _hidden_in_the_last_rows() -> bytes:
    """On average, and at the beginning of the row group, the strings are short."""
    indices = pa.array([0] * 200_000 + [1] * ROWS, pa.int32())
    return _parquet(
        pa.table({"a": pa.DictionaryArray.from_arrays(indices, pa.array(["", LONG]))}),
        row_group_size=10**6,
    )


def _avro(schema: dict[str, Any], count: int, data: bytes) -> bytes:
    def number(value: int) -> bytes:
        value, found = value << 1, bytearray()
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*found, value))

    def sized(content: bytes) -> bytes:
        return number(len(content)) + content

    pack = zlib.compressobj(wbits=-15)
    header = sized(b"avro.schema") + sized(json.dumps(schema).encode())
    header += sized(b"avro.codec") + sized(b"deflate")
    block = number(count) + sized(pack.compress(data) + pack.flush())
    return b"Obj\x01" + number(2) + header + b"\0" + SYNC + block + SYNC


def _record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


_ENUM = {"type": "enum", "name": "e", "symbols": [LONG]}
_NULLS = [(f"n{number}", "null") for number in range(2_000)]
_MAP = {"type": "map", "values": "null"}
_PAIRS = b"\x14" + b"\0" * 10 + b"\0"  # ten pairs of an empty key and nothing

CASES: dict[str, tuple[str, str, Callable[[], bytes], int | str]] = {
    # name: format, columns, content; rows, or why it is refused
    "a string": ("parquet", "a STRING", lambda: _parquet(pa.table({"a": _same(ROWS)})), ROWS),
    "a string behind null": (
        "parquet",
        "a STRING",
        lambda: _parquet(pa.table({"a": _same(ROWS, 1)})),
        ROWS,
    ),
    "a string at the end": ("parquet", "a STRING", _hidden_in_the_last_rows, 200_000 + ROWS),
    "a string in lists": (
        "parquet",
        "a ARRAY<STRING>",
        lambda: _parquet(pa.table({"a": _lists(_same(ROWS), 10)})),
        ROWS // 10,
    ),
    "a string in a list": (
        "parquet",
        "a ARRAY<STRING>",
        lambda: _parquet(pa.table({"a": _lists(_same(ROWS), ROWS)})),
        REFUSED,
    ),
    "shared beginnings": ("parquet", "a STRING", _shared_beginnings, 5_000),
    "a list of numbers": (
        "parquet",
        "a ARRAY<BIGINT>",
        lambda: _parquet(pa.table({"a": _lists(pa.array([0] * 4_000_000), 4_000_000)})),
        REFUSED,
    ),
    "many columns": (
        "parquet",
        ", ".join(f"{name} BIGINT" for name in _NAMES),
        lambda: _parquet(pa.table(dict.fromkeys(_NAMES, pa.array([0] * 2**16)))),
        2**16,
    ),
    "a wide type": (
        "parquet",
        "a BINARY",
        lambda: _parquet(pa.table({"a": pa.array([bytes(2**16)] * 2**13, pa.binary(2**16))})),
        2**13,
    ),
    "a page": (
        "parquet",
        "a STRING",
        lambda: _parquet(pa.table({"a": ["x" * 2**28]}), use_dictionary=False),
        REFUSED,
    ),
    "a stripe": ("orc", "a BIGINT", lambda: _orc(pa.table({"a": [0] * 10**7})), REFUSED),
    "a block": (
        "avro",
        "a STRING",
        lambda: _avro(_record(("a", "bytes")), 1, bytes(2**28)),
        REFUSED,
    ),
    "fields of no bytes": (
        "avro",
        "a BIGINT",
        lambda: _avro(_record(("a", "long"), *_NULLS), 2**14, bytes(2**14)),
        2**14,
    ),
    "elements of no bytes": (
        "avro",
        "a BIGINT",
        lambda: _avro(
            _record(("l", {"type": "array", "items": _record(*_NULLS, ("a", "long"), name="s")})),
            2**10,
            (b"\x20" + bytes(17)) * 2**10,  # sixteen elements
        ),
        2**10,
    ),
    "a symbol": (
        "avro",
        "a STRING",
        lambda: _avro(_record(("a", _ENUM)), 2**14, bytes(2**14)),
        2**14,
    ),
    "a symbol in an array": (
        "avro",
        "a ARRAY<STRING>",
        lambda: _avro(
            _record(("a", {"type": "array", "items": _ENUM})),
            1,
            b"\xc0\x9a\x0c" + bytes(100_000) + b"\0",
        ),
        "no column can hold",
    ),
    "entries of maps": (
        "avro",
        "a BIGINT",
        lambda: _avro(_record(("m", _MAP)), 5 * 10**5, _PAIRS * 5 * 10**5),
        5 * 10**5,
    ),
}

LEFT: dict[str, tuple[str, str, Callable[[], bytes], int | str]] = {
    "shared beginnings in a list": ("parquet", "a ARRAY<STRING>", _shared_beginnings_in_a_list, 1),
    "a large row group": ("parquet", "a STRING, b BINARY", _beside_many_bytes, ROWS),
    "strings of a stripe": (
        "orc",
        "a STRING",
        lambda: _orc(pa.table({"a": [LONG] * 5_000})),
        5_000,
    ),
}
"""What `SECURITY.md` says is left."""
ALL = {**CASES, **LEFT}


def make(folder: Path) -> None:
    """Write the files."""
    for name, (_, _, content, _) in ALL.items():
        source = folder / name / "in"
        source.mkdir(parents=True)
        (source / "bomb").write_bytes(content())


def read(folder: Path, name: str) -> dict[str, object]:
    """Read one of the cases."""
    from airflow_cloudfiles.engine.schema.ddl import parse_schema

    file_format, columns, _, _ = ALL[name]
    source = folder / name / "in"
    stream = Stream(
        source, folder / name / "state", file_format, schema=parse_schema(columns), **LIMIT
    )
    tasks = stream.tasks()
    before = forget_most()
    rows, error, total = 0, "", 0
    try:
        for task in tasks:
            for batch in task.read():
                rows += batch.num_rows
                total += batch.nbytes
                del batch
    except CloudFilesError as failure:
        error = failure.message
    pa.default_memory_pool().release_unused()
    return {
        "rows": rows,
        "error": error,
        "grew_mb": (status("VmHWM") - before) // 1024,
        "ratio": total // (source / "bomb").stat().st_size,
    }


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        names = LEFT if sys.argv[1] == "left" else CASES
        json.dump({name: read(Path(sys.argv[2]), name) for name in names}, sys.stdout)
