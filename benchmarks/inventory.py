"""One step with an inventory report: `python -m benchmarks.inventory '{"step": …}'`.

The report is of the source of `generated_store`, as S3 Inventory writes it: a million rows in each
data file. It lies on the disk, behind a store that counts requests as one in a cloud does.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import resource
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyarrow import orc
from pyarrow import parquet as pq

from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from benchmarks.generated_store import GeneratedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.files import FileEntry

Figures = dict[str, Any]
REPORTS = "memory://reports"
ROWS_A_FILE = 1_000_000
_BATCH = 100_000
_FIRST = datetime(2020, 1, 1, tzinfo=UTC)
_NAMES = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
_COLUMNS = ("bucket", "key", "size", "last_modified_date", "e_tag")


class ReportStore(LocalStore):
    """A folder on the disk under the name of a bucket."""

    def child_uri(self, key: str) -> str:
        """Give the name of an object in that bucket."""
        return f"{REPORTS}/{key}"


def main(task: Figures) -> None:
    """Do a step and tell what it took."""
    figures = {"write": _write, "read": _read}[task["step"]](task)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    figures["resident_mb"] = usage.ru_maxrss / 1024
    print("FIGURES " + json.dumps(figures))


def _write(task: Figures) -> Figures:
    """Write a report of a million rows a file."""
    source, started, files = GeneratedStore(task["files"]), time.monotonic(), []
    data_format, folder = task["format"], Path(task["reports"])
    for first in range(0, task["files"], ROWS_A_FILE):
        count = min(ROWS_A_FILE, task["files"] - first)
        end = {"csv": "csv.gz"}.get(data_format, data_format)
        key = f"generated/daily/data/{first:012}.{end}"
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        batches = _batches(source, first, count)
        (_write_csv if data_format == "csv" else _write_columnar)(path, batches, data_format)
        content = path.read_bytes()
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        files.append({"key": key, "size": len(content), "MD5checksum": digest})
    begun = datetime.now(tz=UTC) - timedelta(hours=30)
    manifest = json.dumps(
        {
            "sourceBucket": "generated",
            "destinationBucket": "arn:aws:s3:::reports",
            "version": "2016-11-30",
            "creationTimestamp": str(int(begun.timestamp() * 1000)),
            "fileFormat": {"csv": "CSV", "orc": "ORC", "parquet": "Parquet"}[data_format],
            "fileSchema": ", ".join(_NAMES),
            "files": files,
        }
    ).encode()
    place = folder / f"generated/daily/{begun:%Y-%m-%dT%H-%MZ}"
    place.mkdir()
    (place / "manifest.json").write_bytes(manifest)
    digest = hashlib.md5(manifest, usedforsecurity=False).hexdigest()
    (place / "manifest.checksum").write_text(digest, encoding="ascii")
    size = sum(int(each["size"]) for each in files)
    return {"seconds": time.monotonic() - started, "report_bytes": size, "data_files": len(files)}


def _batches(source: GeneratedStore, first: int, count: int) -> Iterator[list[FileEntry]]:
    for start in range(first, first + count, _BATCH):
        yield source.entries(start, min(_BATCH, first + count - start))


def _time(number: int) -> datetime:
    return _FIRST + timedelta(seconds=number)


def _write_csv(path: Path, batches: Iterator[list[FileEntry]], _format: str) -> None:
    with gzip.open(path, "wt", compresslevel=6, newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for batch in batches:
            writer.writerows(
                (
                    "generated",
                    quote_plus(each.path, safe="/"),
                    each.size,
                    f"{_time(at):%Y-%m-%dT%H:%M:%S}.000Z",
                    each.etag,
                )
                for at, each in enumerate(batch)
            )


def _write_columnar(path: Path, batches: Iterator[list[FileEntry]], data_format: str) -> None:
    tables = []
    for batch in batches:
        columns = [
            ["generated"] * len(batch),
            [each.path for each in batch],
            [each.size for each in batch],
            pa.array([_time(at) for at in range(len(batch))], pa.timestamp("ms")),
            [each.etag for each in batch],
        ]
        tables.append(pa.table(dict(zip(_COLUMNS, columns, strict=True))))
    whole = pa.concat_tables(tables)
    if data_format == "orc":
        orc.write_table(whole, str(path), compression="zlib")
    else:
        pq.write_table(whole, path, row_group_size=_BATCH)


def _read(task: Figures) -> Figures:
    """Discover by a report alone."""
    reports = ReportStore(f"file://{task['reports']}")
    memory.MemoryStore = lambda _: reports  # type: ignore[assignment, misc]
    source = GeneratedStore(task["files"])
    options = DiscoveryOptions(inventory=REPORTS)
    started = time.monotonic()
    state = open_store(task["state"])
    with closing(Intake(source=source, state=state, format="json", discovery=options)) as intake:
        found = intake.discover()
    if found.files != task["files"]:
        sys.exit(f"{found.files} of {task['files']} files were found")
    asked = reports.requests
    return {
        "seconds": time.monotonic() - started,
        "listed": found.listed,
        "new": found.files,
        "list_calls": source.requests["list"],
        "report_requests": {"head": asked["head"], "get": asked["get"], "list": asked["list"]},
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
