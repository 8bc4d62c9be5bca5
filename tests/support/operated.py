"""A stream of a few files with odd names, on which operations are done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_cloudfiles import cloud_files_state, operate_on_files
from tests.support.ingested import Ingested

ODD = ["a b", "c%20d", "e=+", "ü日本"]


def started(folder: Path, files_per_batch: int = 2, **options: str) -> Ingested:
    """A stream whose table keeps the paths, with two batches of two files."""
    given = {"cloudFiles.metadataColumns": "_metadata", **options}
    stream = Ingested(folder, **{**given, "cloudFiles.maxFilesPerTrigger": str(files_per_batch)})
    stream.add(*ODD)
    stream.run()
    return stream


def asked(stream: Ingested, action: Any, *names: str, **more: Any) -> Any:
    paths = [f"{name}.json" for name in names]
    return operate_on_files(str(stream.state), action, paths, target=str(stream.target), **more)


def told(stream: Ingested, **query: Any) -> list[tuple[str, str, int | None]]:
    """What the state says of each record: name, status and batch."""
    table = cloud_files_state(str(stream.state), **query).read_all().to_pylist()
    root = f"file://{stream.source}/"
    return [
        (row["path"].removeprefix(root).removesuffix(".json"), row["status"], row["batch_id"])
        for row in table
    ]
