"""Input of the format benchmark: the same records in every format, generated once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa

from benchmarks.data import ROWS_A_FILE, records

FORMATS = ("json", "csv", "parquet", "avro", "orc", "xml", "excel", "text", "binaryFile")
BINARY_BYTES = 64 * 1024
"""Size of one file of `binaryFile`, which is one row."""
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("user_id", pa.int64()),
        ("event", pa.string()),
        ("time", pa.string()),
        ("price", pa.float64()),
        ("quantity", pa.int64()),
        ("city", pa.string()),
        ("url", pa.string()),
        ("comment", pa.string()),
        ("member", pa.bool_()),
    ]
)
_AVRO_NAMES = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}

Records = Iterable[Mapping[str, Any]]


def folder(root: Path, name: str, rows: int, rows_a_file: int = ROWS_A_FILE) -> Path:
    """Write `rows` records in a format; of `binaryFile`, as many bytes as JSON would need.

    Args:
        root: Where inputs are kept.
        name: The format.
        rows: How many records.
        rows_a_file: How many of them in a file.
    """
    target = root / f"{name}-{rows}-{rows_a_file}"
    if not (target / ".complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        if name == "binaryFile":
            _binary(target, rows)
        else:
            source = records(rows)
            for number in range(-(-rows // rows_a_file)):
                path = target / f"part-{number:05}.{name}"
                _WRITERS[name](path, islice(source, rows_a_file))
        (target / ".complete").touch()
    return target


def _json(path: Path, rows: Records) -> None:
    _lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def _text(path: Path, rows: Records) -> None:
    _lines(path, (f"{row['time']} {row['event']} {row['url']} {row['comment']}" for row in rows))


def _xml(path: Path, rows: Records) -> None:
    def elements() -> Iterator[str]:
        yield "<rows>"
        for row in rows:
            fields = "".join(f"<{key}>{escape(_word(row[key]))}</{key}>" for key in row)
            yield f"  <row>{fields}</row>"
        yield "</rows>"

    _lines(path, elements())


def _csv(path: Path, rows: Records) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ARROW.names)
        writer.writerows([_word(row[name]) for name in ARROW.names] for row in rows)


def _excel(path: Path, rows: Records) -> None:
    import xlsxwriter  # noqa: PLC0415

    with xlsxwriter.Workbook(path, {"constant_memory": True}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ARROW.names)
        for number, row in enumerate(rows, 1):
            sheet.write_row(number, 0, [row[name] for name in ARROW.names])


def _parquet(path: Path, rows: Records) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(_table(rows), path)


def _orc(path: Path, rows: Records) -> None:
    from pyarrow import orc  # noqa: PLC0415

    orc.write_table(_table(rows), str(path))


def _avro(path: Path, rows: Records) -> None:
    import fastavro  # noqa: PLC0415

    fields = [
        {"name": field.name, "type": ["null", _AVRO_NAMES.get(field.type, "boolean")]}
        for field in ARROW
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "event", "fields": fields})
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")


def _binary(target: Path, rows: int) -> None:
    """Files of bytes that do not compress and differ from each other."""
    block = bytes(number * number % 251 for number in range(BINARY_BYTES - 8))
    for number in range(max(1, rows * 270 // BINARY_BYTES)):
        (target / f"{number:06}.bin").write_bytes(number.to_bytes(8, "big") + block)


_WRITERS: dict[str, Callable[[Path, Records], None]] = {
    "avro": _avro,
    "csv": _csv,
    "excel": _excel,
    "json": _json,
    "orc": _orc,
    "parquet": _parquet,
    "text": _text,
    "xml": _xml,
}


def _table(rows: Records) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=ARROW)


def _lines(path: Path, lines: Iterable[str] | Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _word(value: object) -> str:
    """A value as the text formats write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
