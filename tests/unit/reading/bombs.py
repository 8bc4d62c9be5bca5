"""Read small files that describe much, and tell how much memory that took; a process of its own.

`python -m tests.unit.reading.bombs FOLDER` prints, for each of `CASES`, the rows that came out or
the error, and by how much the largest resident memory grew.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.reading.decoding import _masked_crc32c
from tests.support.landed import Stream

PIECE, PIECES = 2**20, 256
LIMIT = {"maxRecordBytes": "8m"}


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.compress(data, codec=codec, asbytes=True)


def _snappy(data: bytes) -> bytes:
    parts = [b"\xff\x06\x00\x00sNaPpY"]
    for begin in range(0, len(data), 2**16):
        content = data[begin : begin + 2**16]
        body = _masked_crc32c(content).to_bytes(4, "little") + _arrow("snappy")(content)
        parts.append(b"\0" + len(body).to_bytes(3, "little") + body)
    return b"".join(parts)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
    ".snappy": _snappy,
}
"""What can stand several times one after another."""

LINES = (b"x" * 99 + b"\n") * (PIECE // 100)
CASES: dict[str, tuple[str, dict[str, str], bytes, bytes, str]] = {
    # name: format, options, beginning, what is repeated, compression
    **{f"one line{end}": ("text", LIMIT, b"", b"a" * PIECE, end) for end in COMPRESSIONS},
    "many lines.gz": ("text", LIMIT, b"", LINES, ".gz"),
    "whole.gz": ("text", {**LIMIT, "wholeText": "true"}, b"", LINES, ".gz"),
    "one string.gz": ("json", LIMIT, b'{"a": "', b"a" * PIECE, ".gz"),
    "deep.gz": ("json", LIMIT, b"", b'{"a":' * (PIECE // 5), ".gz"),
    "document.gz": ("json", {**LIMIT, "multiLine": "true"}, b"[1", b",1" * (PIECE // 2), ".gz"),
    "one value.gz": ("csv", LIMIT, b"1,", b"a" * PIECE, ".gz"),
    "open quote.gz": ("csv", {**LIMIT, "multiLine": "true"}, b'1,"', b"a\n" * (PIECE // 2), ".gz"),
}
SCHEMAS = {"json": "a STRING", "csv": "a STRING, b STRING", "text": "value STRING"}


def read(folder: Path, name: str) -> dict[str, object]:
    """Read one of the cases."""
    from airflow_cloudfiles.engine.schema.ddl import parse_schema

    file_format, given, begins, repeated, end = CASES[name]
    compress = COMPRESSIONS[end]
    source = folder / name / "in"
    source.mkdir(parents=True)
    bomb = source / f"bomb{end}"
    bomb.write_bytes((compress(begins) if begins else b"") + compress(repeated) * PIECES)
    stream = Stream(
        source,
        folder / name / "state",
        file_format,
        schema=parse_schema(SCHEMAS[file_format]),
        **given,
    )
    tasks = stream.tasks()
    before = forget_most()
    rows, error = 0, ""
    try:
        for task in tasks:
            rows += sum(batch.num_rows for batch in task.read())
    except CloudFilesError as failure:
        error = failure.message
    return {
        "rows": rows,
        "error": error,
        "grew_mb": (status("VmHWM") - before) // 1024,
        "ratio": PIECE * PIECES // bomb.stat().st_size,
    }


def forget_most() -> int:
    """Begin to measure anew; gives what is resident now, in KiB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


if __name__ == "__main__":
    json.dump({name: read(Path(sys.argv[1]), name) for name in CASES}, sys.stdout)
