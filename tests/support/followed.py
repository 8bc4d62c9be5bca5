"""A stream whose table follows its files."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.ingested import Ingested

FOLLOWS = {
    "cloudFiles.onOverwrite": "replace",
    "cloudFiles.onDelete": "delete",
    "cloudFiles.maxDeletedShare": "1",
    "cloudFiles.metadataColumns": "file_path",
}


def following(folder: Path, **options: str) -> Ingested:
    return Ingested(folder, **{**FOLLOWS, "cloudFiles.maxFilesPerTrigger": "2", **options})


def put(stream: Ingested, name: str, *values: str) -> None:
    lines = [json.dumps({"a": value}) for value in values]
    path = stream.source / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def delete(stream: Ingested, *names: str) -> None:
    for name in names:
        (stream.source / f"{name}.json").unlink()


def there(stream: Ingested) -> list[str]:
    """What reading the folder afresh gives."""
    lines = [
        line for path in stream.source.rglob("*.json") for line in path.read_text().splitlines()
    ]
    return sorted(json.loads(line)["a"] for line in lines)


def live(stream: Ingested) -> list[str]:
    """The rows of the newest version, without those that are deleted."""
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    reader = DataFileReader(TableColumns.of(snapshot), ["a"], open_store(str(stream.target)))
    batches = [batch for file in snapshot.files for batch in reader.read(file)]
    return sorted(row["a"] for batch in batches for row in batch.to_pylist())
