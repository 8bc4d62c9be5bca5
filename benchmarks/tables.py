"""Tables beside Spark's Parquet source: a read, a stream, an opening, an append to partitions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from benchmarks import data
from benchmarks.cases import Bench, Record, measured

VERSIONS = 10_000
"""Of the table that is opened; each adds a file."""
_CATALOG = "benchmarks"
_PART = "event"
_READ_ROWS = 100_000
"""In each of the files that are read."""


def cases(bench: Bench) -> Iterator[Record]:
    """A batch read, a stream, opening a table of many versions, an append to partitioned tables."""
    yield from _read(bench)
    yield from _stream(bench)
    yield from _open(bench)
    yield from _append(bench)


def _read(bench: Bench) -> Iterator[Record]:
    """A batch read of all columns; the same Parquet files are read by both."""
    rows = bench.arguments.rows
    table = _table_of_rows(bench.arguments.data, rows)
    for _ in range(bench.arguments.repeat):
        for engine in ("deltalake", "parquet"):
            with bench.folder() as folder:
                task = bench.task(table, folder)
                task["format"] = engine
                title = f"batch read of {rows:,} rows, {_NAMES[engine]}"
                record = measured("table-read", title, "read-table", task)
                if record["figures"]["rows"] != rows:
                    sys.exit(f"{title}: {record['figures']['rows']} rows, not {rows}")
                yield record


def _stream(bench: Bench) -> Iterator[Record]:
    """A stream of all rows to Parquet; the same Parquet files are read by both."""
    rows = bench.arguments.rows
    table = _table_of_rows(bench.arguments.data, rows)
    for _ in range(bench.arguments.repeat):
        for engine in ("deltalake", "parquet"):
            with bench.folder() as folder:
                task = bench.task(table, folder)
                task["format"] = engine
                title = f"stream of {rows:,} rows to Parquet, from {_NAMES[engine]}"
                record = measured("table-stream", title, "stream-table", task)
                yield {**record, "rows": _in_parquet(task, rows, title)}


def _open(bench: Bench) -> Iterator[Record]:
    """The newest version with its files: by this engine, by deltalake; Spark lists the files."""
    table = _table_of_versions(bench.arguments.data)
    for _ in range(bench.arguments.repeat):
        for engine in ("ours", "deltalake", "parquet"):
            with bench.folder() as folder:
                task = bench.task(table, folder)
                task["opened_by"] = engine
                title = f"open a table of {VERSIONS:,} versions, {_OPENERS[engine]}"
                record = measured("table-open", title, "open-table", task)
                if record["figures"]["files"] != VERSIONS:
                    sys.exit(f"{title}: {record['figures']['files']} files, not {VERSIONS}")
                yield record


def _append(bench: Bench) -> Iterator[Record]:
    """Ingest into partitioned tables, Delta and Iceberg; Spark writes partitioned Parquet."""
    rows = bench.arguments.rows
    source = data.json_files(bench.arguments.data, rows, data.ROWS_A_FILE)
    for _ in range(bench.arguments.repeat):
        with bench.folder() as folder:
            task = bench.task(source, folder, options={"partitionBy": _PART})
            title = f"append of {rows:,} rows to 4 partitions, Delta"
            record = measured("table-append", title, "ingest", task)
            yield {**record, "rows": _in_delta(task, rows)}
        with bench.folder() as folder, _catalog(folder):
            task = bench.task(source, folder, options={"partitionBy": _PART})
            task["target"] = f"iceberg://{_CATALOG}/db/t"
            title = f"append of {rows:,} rows to 4 partitions, Iceberg"
            yield {**measured("table-append", title, "ingest", task), "rows": _in_iceberg(rows)}
        with bench.folder() as folder:
            task = bench.task(source, folder, partition_by=_PART)
            title = f"append of {rows:,} rows to 4 partitions, Spark to Parquet"
            record = measured("table-append", title, "spark", task)
            yield {**record, "rows": _in_parquet(task, rows, title)}


_NAMES: Mapping[str, str] = {"deltalake": "Delta, ours", "parquet": "Spark's Parquet source"}
_OPENERS: Mapping[str, str] = {
    "ours": "ours",
    "deltalake": "deltalake",
    "parquet": "Spark's Parquet source: the same files without a log",
}


@contextmanager
def _catalog(folder: Path) -> Iterator[None]:
    """A catalog on SQLite, which processes find by the environment."""
    prefix = f"PYICEBERG_CATALOG__{_CATALOG.upper()}"
    more = {
        f"{prefix}__URI": f"sqlite:///{folder / 'catalog.db'}",
        f"{prefix}__WAREHOUSE": f"file://{folder / 'warehouse'}",
    }
    os.environ.update(more)
    try:
        _load().create_namespace("db")
        yield
    finally:
        for name in more:
            del os.environ[name]


def _load() -> Any:
    """The catalog as the environment has it now; pyiceberg itself looks once a process."""
    prefix = f"PYICEBERG_CATALOG__{_CATALOG.upper()}"
    names = ("URI", "WAREHOUSE")
    return load_catalog(_CATALOG, **{n.lower(): os.environ[f"{prefix}__{n}"] for n in names})


def _in_parquet(task: Mapping[str, Any], expected: int, title: str) -> int:
    """The rows of the target; ends the benchmark where they are not all."""
    found = data.row_count(task["target"], is_delta=False)
    if found != expected:
        sys.exit(f"{title}: {found} rows, not {expected}")
    return found


def _in_delta(task: Mapping[str, Any], expected: int) -> int:
    """The rows of the table, which is partitioned; ends the benchmark where they are not all."""
    found = data.row_count(task["target"], is_delta=True)
    partitions = DeltaTable(task["target"]).metadata().partition_columns
    if found != expected or partitions != [_PART]:
        sys.exit(f"The Delta table has {found} rows by {partitions}, not {expected} by {_PART}")
    return found


def _in_iceberg(expected: int) -> int:
    """The rows of the table; ends the benchmark where they are not all."""
    found = int(_load().load_table(("db", "t")).scan().count())
    if found != expected:
        sys.exit(f"The Iceberg table has {found} rows, not {expected}")
    return found


def _table_of_rows(root: Path, rows: int) -> Path:
    """A Delta table with the records of the benchmarks in files of equal size."""
    table = root / f"delta-{rows}"
    if not (table / ".complete").exists():
        source = data.records(rows)
        for begin in range(0, rows, _READ_ROWS):
            some = [next(source) for _ in range(min(_READ_ROWS, rows - begin))]
            write_deltalake(str(table), pa.Table.from_pylist(some), mode="append")
        (table / ".complete").touch()
    return table


def _table_of_versions(root: Path) -> Path:
    """A Delta table of which each version has added a file of one row, with a checkpoint."""
    table = root / f"versions-{VERSIONS}"
    if not (table / ".complete").exists():
        log = table / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        column = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
        first: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "benchmark",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": [column]}),
                    "partitionColumns": [],
                    "configuration": {},
                }
            },
        ]
        for version in range(VERSIONS):
            name = f"part-{version:06}.parquet"
            pq.write_table(pa.table({"a": [version]}), table / name)
            add = {
                "path": name,
                "partitionValues": {},
                "size": (table / name).stat().st_size,
                "modificationTime": 1_700_000_000_000 + version,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 1}),
            }
            lines = [*(first if version == 0 else []), {"add": add}]
            text = "\n".join(json.dumps(line) for line in lines)
            (log / f"{version:020}.json").write_text(text, encoding="utf-8")
        DeltaTable(str(table)).create_checkpoint()
        (table / ".complete").touch()
    return table
