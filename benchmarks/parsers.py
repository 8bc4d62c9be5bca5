"""What do libraries make of records that a reader of JSON or CSV must not take for others?

    pip install arro3-io arro3-core duckdb polars pyarrow msgspec    # in an environment of its own
    python benchmarks/parsers.py

Each case is one line, read with columns of types and with columns of strings: what each library
gives, or `error` (docs/decisions/0199-no-other-parser-of-json.md). Those of CSV are read with
columns of types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arro3.core
import arro3.io
import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

NAMES = ("i", "s", "d")
TYPED = pa.schema([("i", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
STRINGS = pa.schema([(name, pa.string()) for name in NAMES])
CASES = {
    "an unknown key": b'{"i":1,"z":2}',
    "a repeated key": b'{"i":1,"i":2}',
    "a key in another case": b'{"I":1}',
    "1.10 in a string": b'{"s":1.10}',
    "1e2 in a string": b'{"s":1e2}',
    "17 digits in a string": b'{"s":0.12345678901234567}',
    "a list in a string": b'{"s":[1,  2]}',
    "a text in a number": b'{"i":"1"}',
    "1.5 in a whole number": b'{"i":1.5}',
    "2^53+1 in a double": b'{"d":9007199254740993}',
    "1e400 in a double": b'{"d":1e400}',
    "01": b'{"i":01}',
    "1.": b'{"d":1.}',
    "a trailing comma": b'{"i":1,}',
    "a lone surrogate": b'{"s":"\\ud800"}',
    "a surrogate pair": b'{"s":"\\ud842\\udfb7"}',
    "a raw tab in a text": b'{"s":"a\tb"}',
    "bytes that are not UTF-8": b'{"s":"\xff"}',
    "two records on a line": b'{"i":1}{"i":2}',
    "3,000 levels below an unknown key": b'{"z":' + b"[" * 3000 + b"]" * 3000 + b"}",
}
CSV_CASES = {
    "a blank before a number": b" 1,a,1",
    "+1": b"+1,a,1",
    "1.5 in a whole number": b"1.5,a,1",
    "1e2 in a whole number": b"1e2,a,1",
    "1_000": b"1_000,a,1",
    "1e400 in a double": b"1,a,1e400",
    "2^53+1 in a double": b"1,a,9007199254740993",
    "nan": b"1,a,nan",
    "a row too short": b"1,a",
    "a row too long": b"1,a,1,2",
    "text behind a quoted value": b'1,"a"b,1',
    "a quote that does not end": b'1,"a,1\n2,b,2',
    "an empty text in quotes": b'1,"",1',
    "a lone CR": b"1,a\rb,1",
    "bytes that are not UTF-8": b"1,\xff,1",
}
Rows = list[dict[str, Any]]


def arro3_rows(schema: pa.Schema, path: str) -> Rows:
    """Rust's arrow-json."""
    found = arro3.io.read_json(path, arro3.core.Schema.from_arrow(schema), batch_size=16384)
    return pa.table(found.read_all()).to_pylist()


def duckdb_rows(schema: pa.Schema, path: str) -> Rows:
    """DuckDB, which parses with yyjson."""
    return _of_duckdb("read_json", "format='newline_delimited'", schema, path)


def duckdb_csv_rows(schema: pa.Schema, path: str) -> Rows:
    """DuckDB's reader of CSV."""
    return _of_duckdb("read_csv", "header=false, auto_detect=false, delim=','", schema, path)


def _of_duckdb(function: str, how: str, schema: pa.Schema, path: str) -> Rows:
    kinds = {pa.int64(): "BIGINT", pa.string(): "VARCHAR", pa.float64(): "DOUBLE"}
    columns = ", ".join(f"'{each.name}': '{kinds[each.type]}'" for each in schema)
    query = f"SELECT * FROM {function}(?, {how}, columns={{{columns}}})"
    rows = duckdb.connect().execute(query, [path]).fetchall()
    return [dict(zip(schema.names, row, strict=True)) for row in rows]


def pyarrow_rows(schema: pa.Schema, path: str) -> Rows:
    """Arrow's C++ reader, which parses with RapidJSON."""
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return pyarrow.json.read_json(path, parse_options=options).to_pylist()


def pyarrow_csv_rows(schema: pa.Schema, path: str) -> Rows:
    """Arrow's C++ reader of CSV."""
    read = pyarrow.csv.ReadOptions(column_names=schema.names)
    kinds = pyarrow.csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
    return pyarrow.csv.read_csv(path, read, convert_options=kinds).to_pylist()


def polars_rows(schema: pa.Schema, path: str) -> Rows:
    """Polars, which parses with simd-json."""
    kinds = {each.name: pl.from_arrow(pa.array([], each.type)).dtype for each in schema}
    return pl.read_ndjson(path, schema=kinds).to_dicts()


def msgspec_rows(_schema: pa.Schema, path: str) -> Rows:
    """msgspec, which this package uses: the text of each value as it is."""
    fields = [(name, msgspec.Raw, msgspec.Raw(b"null")) for name in NAMES]
    record = msgspec.defstruct("Record", fields, forbid_unknown_fields=True)
    rows = msgspec.json.Decoder(record).decode_lines(Path(path).read_bytes())
    return [{name: bytes(getattr(row, name)) for name in NAMES} for row in rows]


LIBRARIES: dict[str, Callable[[pa.Schema, str], Rows]] = {
    "arro3": arro3_rows,
    "DuckDB": duckdb_rows,
    "PyArrow": pyarrow_rows,
    "Polars": polars_rows,
    "msgspec": msgspec_rows,
}


def shown(rows: Rows) -> str:
    """Rows without their nulls."""
    some = [{k: v for k, v in row.items() if v not in {None, b"null"}} for row in rows]
    return " ".join(", ".join(f"{k}={v!r}" for k, v in row.items()) or "-" for row in some)[:44]


def main() -> None:
    """Print a table for each kind of columns."""
    of_csv = {"DuckDB": duckdb_csv_rows, "PyArrow": pyarrow_csv_rows}
    _print("JSON, columns of types", LIBRARIES, TYPED, CASES)
    _print("JSON, columns of strings", LIBRARIES, STRINGS, CASES)
    _print("CSV, columns of types", of_csv, TYPED, CSV_CASES)


def _print(
    title: str,
    libraries: dict[str, Callable[[pa.Schema, str], Rows]],
    schema: pa.Schema,
    cases: dict[str, bytes],
) -> None:
    print(f"\n| {title} | {' | '.join(libraries)} |\n|{' --- |' * (len(libraries) + 1)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case")
        for name, line in cases.items():
            path.write_bytes(line + b"\n")
            cells = []
            for read in libraries.values():
                try:
                    cells.append(shown(read(schema, str(path))))
                except Exception:  # noqa: BLE001 - each has errors of its own
                    cells.append("error")
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
