"""When are data files that the library has written on the disk?

`deltalake` (1.6) syncs none of them. So before a commit of it is acknowledged, its files are looked
at, as the log has them, and synced. A power failure before that may leave a commit whose files are
cut: it is named when it is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from airflow_cloudfiles.engine.delta.durability import LOG
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import DataFileLostError
from airflow_cloudfiles.engine.storage.durable import sync_file


def sync_data_files(location: DeltaLocation, version: int) -> None:
    """Put the data files that a version of a table has added on the disk.

    Raises:
        DataFileLostError: One is not as it was written, as a power failure leaves it.
        OSError: The disk failed.
    """
    if location.folder is None:
        return
    folder = Path(location.folder)
    for path, size in _added(folder / LOG / f"{version:020}.json"):
        file = folder / path
        if not file.exists() or file.stat().st_size != size:
            raise DataFileLostError(
                f"The data file {path} of version {version} of {location.target} is not as it was "
                "written. Restore the table to the version before, and run again."
            )
        sync_file(os.fsencode(file))


def _added(entry: Path) -> Iterator[tuple[str, int]]:
    """The data files that an entry of a log adds, with their sizes."""
    if not entry.exists():  # cleaned up behind a checkpoint: older than any run
        return
    for line in entry.read_bytes().splitlines():
        add = json.loads(line).get("add") if line.strip() else None
        if add is not None:
            yield unquote(add["path"]), int(add["size"])
