"""One step with a state of very many files: `python -m benchmarks.large_state '{"step": …}'`.

Prints one line of JSON figures. Each step is a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, open_ledger
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog, encode_files
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store
from benchmarks.generated_store import GeneratedStore

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

Figures = dict[str, Any]


def main(task: Figures) -> None:
    """Do a step and tell what it took."""
    state = open_store(task["state"])
    figures = STEPS[task["step"]](task, state)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    figures["resident_mb"] = usage.ru_maxrss / 1024
    figures["requests"] = dict(state.requests)
    print("FIGURES " + json.dumps(figures))


def _make(task: Figures, state: ObjectStore) -> Figures:
    """Write a file log and its index, as discoveries of so many files leave them."""
    source, started = GeneratedStore(task["files"]), time.monotonic()
    intake = _intake(source, state)
    log = NumberedLog(state, file_log.PREFIX, format_version=file_log.FORMAT_VERSION)
    ledger = open_ledger(intake.stream_id, FileLog(state))
    size, in_index = file_log.MAX_ENTRY_FILES, 0.0
    with closing(intake), closing(ledger):
        for number, first in enumerate(range(0, task["files"], size)):
            files = source.entries(first, min(size, task["files"] - first))
            header = {
                "files": len(files),
                "bytes": sum(file.size for file in files),
                "found_by": "listing",
                "position": None,
            }
            log.append(number, header, encode_files(files))
            assert log.written is not None
            began = time.monotonic()
            ledger.record(number, log.written.id, FileBatch(tuple(files)))
            in_index += time.monotonic() - began
    seconds = time.monotonic() - started
    return {"seconds": seconds, "in_index_seconds": in_index, **_sizes(task)}


def _open(task: Figures, state: ObjectStore) -> Figures:
    """Open the index that is there, or the one that a snapshot or the log gives."""
    if task.get("is_empty"):
        shutil.rmtree(cache_folder())
    intake = _intake(GeneratedStore(task["files"]), state)
    started = time.monotonic()
    ledger = open_ledger(intake.stream_id, FileLog(state))
    seconds = time.monotonic() - started
    if ledger.files < task["files"]:
        sys.exit(f"The index has {ledger.files} of {task['files']} files")
    ledger.close()
    return {"seconds": seconds, "close_seconds": time.monotonic() - started - seconds}


def _list(task: Figures, state: ObjectStore) -> Figures:  # noqa: ARG001 - a step
    """List the source in one thread, and compare with nothing."""
    source = GeneratedStore(task["files"])
    listing = DirectoryListing(source, FileFilter(source.uri, None, DiscoveryOptions()))
    started = time.monotonic()
    deque(listing.discover(), maxlen=0)
    return {"seconds": time.monotonic() - started, "list_calls": source.requests["list"]}


def _discover(task: Figures, state: ObjectStore) -> Figures:
    """Discover what is new in the source."""
    source = GeneratedStore(task["files"], late=task.get("late", 0))
    before = _snapshot_bytes(state)
    started = time.monotonic()
    with closing(_intake(source, state, incremental=task["incremental"])) as intake:
        found = intake.discover()
    seconds = time.monotonic() - started
    assert found.listing is not None
    after = _snapshot_bytes(state)
    return {
        "seconds": seconds,
        "kind": found.listing.kind,
        "listed": found.listed,
        "new": found.files,
        "list_calls": found.listing.list_calls,
        "snapshot_bytes": sum(after.values()),
        "uploaded_bytes": sum(size for name, size in after.items() if name not in before),
        **_sizes(task),
    }


STEPS: dict[str, Callable[[Figures, ObjectStore], Figures]] = {
    "make": _make,
    "open": _open,
    "list": _list,
    "discover": _discover,
}


def _intake(source: ObjectStore, state: ObjectStore, *, incremental: str = "false") -> Intake:
    options = DiscoveryOptions(use_incremental_listing=incremental)
    return Intake(source=source, state=state, format="json", discovery=options)


def _sizes(task: Figures) -> Figures:
    """Bytes on the disk."""
    tables = [path.stat().st_size for path in cache_folder().rglob("*.sst")]
    log = Path(task["state"]) / file_log.PREFIX
    return {
        "index_bytes": sum(p.stat().st_size for p in cache_folder().rglob("*") if p.is_file()),
        "tables": len(tables),
        "table_bytes": sum(tables),
        "log_bytes": sum(entry.stat().st_size for entry in os.scandir(log) if entry.is_file()),
    }


def _snapshot_bytes(state: ObjectStore) -> dict[str, int]:
    return {entry.path: entry.size for entry in state.list(f"{snapshots.PREFIX}/")}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
