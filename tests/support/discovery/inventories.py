"""Writes inventory reports as the three clouds write them, into any store."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyarrow import orc
from pyarrow import parquet as pq

from airflow_cloudfiles.engine.storage import ObjectStore

KINDS = (
    "s3 csv",
    "s3 orc",
    "s3 parquet",
    "azure csv",
    "azure parquet",
    "gcs csv",
    "gcs parquet",
)


@dataclass
class Row:
    """An object, as a report names it."""

    key: str
    size: int = 3
    time_us: int = 1_700_000_000_000_000
    etag: str = "abc"
    more: dict[str, Any] = field(default_factory=dict)


def write_report(
    store: ObjectStore,
    kind: str,
    rows: Sequence[Row],
    *,
    bucket: str,
    started: datetime,
    files: int = 1,
    folder: str = "",
    columns: Sequence[str] = (),
    **changes: Any,
) -> str:
    """Write a report into a bucket; gives the key of its manifest.

    Args:
        store: The root of the bucket of reports.
        kind: Of `KINDS`.
        rows: What it names.
        bucket: Of the source.
        started: When it was begun.
        files: How many data files it has.
        folder: Where in the bucket.
        columns: Optional columns besides key, size, time and etag; of `Row.more`.
        changes: Fields of the manifest that are otherwise; `None` takes one out.
    """
    cloud, data_format = kind.split()
    write = {"s3": _s3, "azure": _azure, "gcs": _gcs}[cloud]
    parts = [list(rows[at::files]) for at in range(files)]
    return write(store, data_format, parts, bucket, started, folder, list(columns), changes)


def _s3(store, data_format, parts, bucket, started, folder, columns, changes) -> str:
    is_csv = data_format == "csv"
    names = ["Bucket", "Key", *columns, "Size", "LastModifiedDate", "ETag"]
    if not is_csv:
        names = [_snake(name) for name in names]
    root = f"{folder}/{bucket}/daily".strip("/")
    written = []
    for part in parts:
        values = [
            [
                bucket,
                quote_plus(row.key, safe="/") if is_csv else row.key,
                *(row.more.get(name, "") for name in columns),
                row.size,
                _iso(row.time_us) if is_csv else _time(row.time_us),
                row.etag,
            ]
            for row in part
        ]
        content = gzip.compress(_csv(values)) if is_csv else _columnar(names, values, data_format)
        key = f"{root}/data/{uuid.uuid4()}.{'csv.gz' if is_csv else data_format}"
        store.put(key, content)
        written.append({"key": key, "size": len(content), "MD5checksum": _md5(content)})
    manifest = {
        "sourceBucket": bucket,
        "destinationBucket": "arn:aws:s3:::reports",
        "version": "2016-11-30",
        "creationTimestamp": str(int(started.timestamp() * 1000)),
        "fileFormat": {"csv": "CSV", "orc": "ORC", "parquet": "Parquet"}[data_format],
        "fileSchema": ", ".join(names),
        "files": written,
    }
    store.put(f"{root}/hive/dt={started:%Y-%m-%d-%H-%M}/symlink.txt", b"s3://nowhere\n")
    key = f"{root}/{started:%Y-%m-%dT%H-%MZ}/manifest.json"
    return _manifest(store, key, manifest, changes)


def _azure(store, data_format, parts, bucket, started, folder, columns, changes) -> str:
    names = ["Name", "Content-Length", "Last-Modified", "Etag", *columns]
    root = f"{folder}/{started:%Y/%m/%d/%H-%M-%S}/rule".strip("/")
    written = []
    for number, part in enumerate(parts):
        values = [
            [
                f"{bucket}/{row.key}",
                row.size,
                _iso(row.time_us) if data_format == "csv" else row.time_us // 1000,
                row.etag,
                *(row.more.get(name, "") for name in columns),
            ]
            for row in part
        ]
        is_csv = data_format == "csv"
        content = _csv([names, *values]) if is_csv else _columnar(names, values, "parquet")
        key = f"{root}/rule_{number}.{data_format}"
        store.put(key, content)
        written.append({"blob": key, "size": len(content)})
    manifest = {
        "destinationContainer": "reports",
        "endpoint": "https://account.blob.core.windows.net",
        "files": written,
        "inventoryCompletionTime": started.isoformat(),
        "inventoryStartTime": started.isoformat(),
        "ruleDefinition": {
            "filters": {"blobTypes": ["blockBlob"], "prefixMatch": changes.pop("prefixes", [])},
            "format": data_format,
            "objectType": "blob",
            "schedule": "daily",
            "schemaFields": names,
        },
        "ruleName": "rule",
        "status": "Succeeded",
        "summary": {"objectCount": sum(map(len, parts)), "totalObjectSize": 1},
        "version": "1.0",
    }
    return _manifest(store, f"{root}/rule-manifest.json", manifest, changes)


def _gcs(store, data_format, parts, bucket, started, folder, columns, changes) -> str:
    names = ["project", "bucket", "name", "size", "timeCreated", "etag", "generation", *columns]
    head = f"{uuid.uuid4()}_{started:%Y-%m-%dT%H:%M}"
    is_csv, has_header = data_format == "csv", changes.pop("header", True)
    written = []
    for number, part in enumerate(parts):
        values = [
            [
                "1234",
                bucket,
                row.key,
                row.size,
                _iso(row.time_us).replace("T", " ").replace("Z", " UTC")
                if is_csv
                else _time(row.time_us),
                "CJ/x=",
                row.etag,
                *(row.more.get(name, "") for name in columns),
            ]
            for row in part
        ]
        heads = [names] if has_header else []
        content = _csv([*heads, *values]) if is_csv else _columnar(names, values, "parquet")
        written.append(f"{head}_{number}.{data_format}")
        store.put(f"{folder}/{written[-1]}".strip("/"), content)
    manifest = {
        "report_config": {
            "name": "projects/p/locations/eu/reportConfigs/c",
            **(
                {"csv_options": {"delimiter": ",", "header_required": has_header}}
                if is_csv
                else {"parquet_options": {}}
            ),
            "object_metadata_report_options": {
                "metadata_fields": names,
                "storage_filters": {"bucket": bucket},
                "storage_destination_options": {"bucket": "reports"},
            },
        },
        "records_processed": sum(map(len, parts)),
        "snapshot_time": started.isoformat(),
        "shard_count": len(parts),
        "report_shards_file_names": written,
    }
    return _manifest(store, f"{folder}/{head}_manifest.json".strip("/"), manifest, changes)


def _manifest(store: ObjectStore, key: str, manifest: dict[str, Any], changes: Any) -> str:
    checksum = changes.pop("checksum", True)
    manifest = {name: each for name, each in {**manifest, **changes}.items() if each is not None}
    content = json.dumps(manifest).encode()
    store.put(key, content)
    if checksum and "report_config" not in manifest:
        given = _md5(content) if checksum is True else checksum
        store.put(key.removesuffix(".json") + ".checksum", given.encode())
    return key


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _columnar(names: Sequence[str], rows: Sequence[Sequence[Any]], data_format: str) -> bytes:
    columns = [list(each) for each in zip(*rows, strict=True)] or [[] for _ in names]
    arrays = [pa.array(each, None if each else pa.string()) for each in columns]
    table = pa.Table.from_arrays(arrays, list(names))
    sink = pa.BufferOutputStream()
    if data_format == "orc":
        orc.write_table(table, sink)
    else:
        pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _snake(name: str) -> str:
    known = {"ETag": "e_tag", "LastModifiedDate": "last_modified_date", "VersionId": "version_id"}
    known |= {"IsLatest": "is_latest", "IsDeleteMarker": "is_delete_marker"}
    return known.get(name, name.lower())


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _time(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, tz=UTC)


def _iso(time_us: int) -> str:
    return _time(time_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")
