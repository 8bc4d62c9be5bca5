"""How is a version written that `deltalake` does not write?

`deltalake` (1.6) changes no metadata of a table with column mapping, and appends to none whose
types widen. Such a version is one object in the log, created only if there is none of its number:
whoever creates it wins, and the other reads the table again. It says what it is based on by its
number, so nothing is rebased: a metadata change that came between is always noticed.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from deltalake.exceptions import CommitFailedError, DeltaError

from airflow_cloudfiles import __version__
from airflow_cloudfiles.engine.delta.data_files import DataFile
from airflow_cloudfiles.engine.delta.durability import LOG, durable_commit
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.storage import ObjectNotFoundError

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 100
_PLAIN: Final = "/=-_.~!$&'()*+,;:@"
"""What stays as it is in a path of the log, besides letters and digits."""
_log = logging.getLogger(__name__)

LogActions = Iterable[Mapping[str, Any]]


def write_version(  # noqa: PLR0913 - what a version is, and what its history says
    location: DeltaLocation,
    version: int,
    actions: LogActions,
    *,
    operation: str,
    parameters: Mapping[str, Any] | None = None,
    note: Mapping[str, Any] | None = None,
    table: DeltaTable | None = None,
) -> None:
    """Write one version of a table, if nobody else has.

    Args:
        location: Of the table.
        version: The number of the version that it is based on, and one more.
        actions: What the version changes.
        operation: What `DESCRIBE HISTORY` calls it.
        parameters: Of the operation.
        note: More for the commit's own metadata.
        table: The table as it was, unless this creates it.

    Raises:
        CommitFailedError: There is such a version already.
        TargetUnreachableError: The storage failed; the version may be there or not.
    """
    now_ms = time.time_ns() // 10**6
    said = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {key: _text(value) for key, value in (parameters or {}).items()},
        "engineInfo": f"airflow-cloudfiles:{__version__}",
        # Tells this commit from another's when the answer to the request was lost.
        "txnId": str(uuid.uuid4()),
        **(note or {}),
    }
    lines = [{"commitInfo": said}, *actions]
    content = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines).encode()
    key = f"{LOG}/{version:020}.json"
    store = location.store()
    with durable_commit(location, "may not have taken a commit", table):
        if not store.put_if_absent(key, content):
            try:
                there = store.get(key)
            except ObjectNotFoundError:
                there = b""
            if there != content:
                raise CommitFailedError(f"version {version} was written by another writer")


def add_actions(files: Iterable[DataFile]) -> list[dict[str, Any]]:
    """Data files, as a version adds them."""
    return [
        {
            "add": {
                "path": quote(file.name, safe=_PLAIN),
                "partitionValues": dict(file.partition_values),
                "size": file.size,
                "modificationTime": file.modification_time_ms,
                "dataChange": True,
                "stats": file.statistics,
            }
        }
        for file in files
    ]


def transaction_action(app_id: str, version: int) -> dict[str, Any]:
    """That a batch of a stream is in the table."""
    now_ms = time.time_ns() // 10**6
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def checkpoint_when_due(table: DeltaTable) -> None:
    """Write a checkpoint at every so many versions, as `deltalake` does behind its own commits.

    Without one the log is merely longer: a failure is a warning.
    """
    text = table.metadata().configuration.get(CHECKPOINT_INTERVAL) or str(_DEFAULT_INTERVAL)
    interval = int(text) if text.isdigit() and int(text) else _DEFAULT_INTERVAL
    if table.version() % interval:
        return
    try:
        table.create_checkpoint()
    except (DeltaError, OSError) as error:
        _log.warning("A checkpoint of a Delta table could not be written: %s", error)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
