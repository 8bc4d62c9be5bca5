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
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from deltalake.exceptions import CommitFailedError, DeltaError

from airflow_cloudfiles import __version__
from airflow_cloudfiles.engine.delta.data_files import DataFile
from airflow_cloudfiles.engine.delta.durability import LOG, durable_commit
from airflow_cloudfiles.engine.delta.lineage import BLIND_APPEND
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.storage import ObjectNotFoundError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import Transaction

COMMIT_TRIES: Final = 20
"""How often a commit is tried against other writers before giving up."""
CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 100
_PLAIN: Final = "/=-_.~!$&'()*+,;:@"
"""What stays as it is in a path of the log, besides letters and digits."""
_log = logging.getLogger(__name__)

_T = TypeVar("_T")
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
    reads_rows: bool = False,
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
        reads_rows: Whether rows of the table decide what the version changes.

    Raises:
        CommitFailedError: There is such a version already.
        SinkError: A name or a value is no text.
        TargetUnreachableError: The storage failed; the version may be there or not.
    """
    now_ms, listed = time.time_ns() // 10**6, list(actions)
    said = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {key: _text(value) for key, value in (parameters or {}).items()},
        BLIND_APPEND: not reads_rows and not any("remove" in each for each in listed),
        "engineInfo": f"airflow-cloudfiles:{__version__}",
        # Tells this commit from another's when the answer to the request was lost.
        "txnId": str(uuid.uuid4()),
        **(note or {}),
    }
    content = _encoded([{"commitInfo": said}, *listed], location.target)
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


def commit_version(  # noqa: PLR0913 - as `write_version`
    table: DeltaTable,
    location: DeltaLocation,
    actions: LogActions,
    *,
    operation: str,
    transactions: Iterable[Transaction] = (),
    parameters: Mapping[str, Any] | None = None,
    note: Mapping[str, Any] | None = None,
    reads_rows: bool = False,
) -> None:
    """Write the version behind that of a table, and load it; see `write_version`."""
    version, now_ms = table.version() + 1, time.time_ns() // 10**6
    named = (
        {"txn": {"appId": each.app_id, "version": each.version, "lastUpdated": now_ms}}
        for each in transactions
    )
    write_version(
        location,
        version,
        [*named, *actions],
        operation=operation,
        parameters=parameters,
        note=note,
        table=table,
        reads_rows=reads_rows,
    )
    refreshed(table, location)
    if table.version() == version:  # a later version is for its writer to checkpoint
        checkpoint_when_due(table)


def refreshed(table: DeltaTable, location: DeltaLocation) -> DeltaTable:
    """The table, once it has loaded what was committed."""
    with location.translate_errors("cannot be read after a commit"):
        table.update_incremental()
    return table


def retried(what: str, attempt: Callable[[], _T]) -> _T:
    """Try to commit until no other writer is first.

    Args:
        what: What could not be done then, for the error.
        attempt: Reads the newest version, and commits to it.

    Raises:
        SinkError: Other writers were first at every try.
    """
    for _ in range(COMMIT_TRIES):
        try:
            return attempt()
        except CommitFailedError as error:
            _log.info("Another writer committed first (%s); trying again", error)
    raise SinkError(
        f"{what}: other writers committed first, {COMMIT_TRIES} times. Run again when there are "
        "fewer writers."
    )


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


def checkpoint_when_due(table: DeltaTable) -> None:
    """Write a checkpoint at every so many versions, as `deltalake` does behind its own commits.

    Without one the log is merely longer: a failure is a warning.
    """
    text = table.metadata().configuration.get(CHECKPOINT_INTERVAL) or str(_DEFAULT_INTERVAL)
    interval = int(text) if text.isdigit() and int(text) else _DEFAULT_INTERVAL
    if not table.version() % interval:
        write_checkpoint(table)


def write_checkpoint(table: DeltaTable) -> None:
    """Write a checkpoint; a failure is a warning."""
    try:
        table.create_checkpoint()
    except (DeltaError, OSError) as error:
        _log.warning("A checkpoint of a Delta table could not be written: %s", error)


def _encoded(lines: LogActions, target: str) -> bytes:
    """The content of a version, whose texts are not escaped.

    delta-kernel, by which `deltalake` and DuckDB read, misreads escapes of characters beyond the
    basic plane.
    """
    dump = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    try:
        return "".join(f"{dump(each)}\n" for each in lines).encode()
    except UnicodeEncodeError as error:
        raise SinkError(
            f"{cut(repr(error.object[max(0, error.start - 20) : error.end]))} is not valid Unicode "
            f"(it has half of a surrogate pair), so the log of {target} cannot hold it. Correct "
            "the name or the value."
        ) from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
