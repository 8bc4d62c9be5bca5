"""Write a version of a table that `deltalake` does not write.

`deltalake` (1.6) changes no metadata of a table with column mapping, and appends to none whose
types widen. Such a version is one object in the log, created only if there is none of its number:
whoever creates it wins, and the other reads the table again. It says what it is based on by its
number, so nothing is rebased: a metadata change that came between is always noticed.

Version 0.1.0 of this package wrote characters beyond the basic plane as surrogate pairs
(`\ud842\udfb7`) into bounds and partition values. delta-kernel, by which `deltalake` (1.6) and
DuckDB read, takes every second plane of them for the one below, and skips files by such bounds. So
the actions that have them are written once more, with the characters themselves; no file changes.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.formats.columnar.types import is_text
from airflow_cloudfiles.engine.messages import counted, cut
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
from airflow_cloudfiles.engine.tables.delta.lineage import BLIND_APPEND
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import durable_commit, remove_expired
from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile, FileKey, without_nulls
from airflow_cloudfiles.engine.tables.delta.read.log import LOG, LogSegment
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.version import __version__

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import Transaction

    from airflow_cloudfiles.engine.files import FileEntry

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
    is_loaded: bool = False,
) -> None:
    """Write one version of a table, unless another writer has.

    Args:
        location: Of the table.
        version: The number of the version that it is based on, and one more.
        actions: What the version changes.
        operation: What `DESCRIBE HISTORY` calls it.
        parameters: Of the operation.
        note: More for the commit's own metadata.
        table: The table as it was, unless this creates it.
        reads_rows: Whether rows of the table decide what the version changes.
        is_loaded: Whether the table is to have the version then; a checkpoint follows when due.

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
    name = f"{version:020}.json"
    key, store = f"{LOG}{name}", location.store()
    what = "may not have taken a commit"
    with durable_commit(location, what, table, synced=name):
        with location.translate_store_errors(what):
            if not store.put_if_absent(key, content):
                try:
                    there = store.get(key)
                except ObjectNotFoundError:
                    there = b""
                if there != content:
                    raise CommitFailedError(f"version {version} was written by another writer")
        if table is not None and is_loaded:
            refreshed(table, location)
            if table.version() == version:  # a later version is for its writer to checkpoint
                _checkpoint_when_due(table, location)


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
        is_loaded=True,
    )


def refreshed(table: DeltaTable, location: DeltaLocation) -> DeltaTable:
    """Load what was committed into the table."""
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
    """Build the add actions of data files."""
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


def _checkpoint_when_due(table: DeltaTable, location: DeltaLocation) -> None:
    """Write a checkpoint when one is due, as Delta does: at multiples of the interval.

    Without one the log is merely longer: a failure is a warning. On a disk, entries that it covers
    are removed when it is durable.
    """
    text = table.metadata().configuration.get(CHECKPOINT_INTERVAL) or str(_DEFAULT_INTERVAL)
    interval = int(text) if text.isdigit() and int(text) else _DEFAULT_INTERVAL
    if not table.version() % interval:
        write_checkpoint(table)
        if location.folder is None:
            remove_expired(table)


def write_checkpoint(table: DeltaTable) -> None:
    """Write a checkpoint; a failure is a warning."""
    try:
        table.create_checkpoint()
    except (DeltaError, OSError) as error:
        _log.warning("A checkpoint of a Delta table could not be written: %s", error)


def _encoded(lines: LogActions, target: str) -> bytes:
    """Encode the content of a version, without escapes in its texts.

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


_HALF: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_ESCAPES: Final = re.compile(rf"\\\\|({_HALF}\\u[dD][c-fC-F][0-9a-fA-F]{{2}})")
_MISREAD: Final = (
    "[" + "".join(f"\\x{{{plane:x}0000}}-\\x{{{plane:x}FFFF}}" for plane in range(1, 16, 2)) + "]"
)
"""The planes that delta-kernel makes of pairs: the odd ones."""
_PAIRED: Final = 0x10000
"""The first character that is a pair."""
_OF_TEXT: Final = ("min.", "max.", "partition.")
_PARSED: Final = ("stats_parsed", "partitionValues_parsed")


def write_unescaped(table: DeltaTable, location: DeltaLocation) -> None:
    """Write anew what other readers may misread of a table's files; the table is loaded again.

    Raises:
        CommitFailedError: Another writer was first: try again.
        TargetCorruptedError: The log is damaged.
        TargetUnreachableError: The storage failed.
    """
    if not _may_be_misread(table):
        return
    log = TableLog(location)
    segment = log.listing(whole=True).segment(location.target, table.version())
    there = {file.key for file in log.snapshot_of(segment).files}
    found: dict[FileKey, dict[str, Any]] = {}
    for add, is_escaped in added(log, segment):
        key = msgspec.convert(add, AddFile).key
        plain = {**add, "partitionValues": _as_in_folder(add)}
        if add.get("stats"):
            plain["stats"] = _ESCAPES.sub(_character, add["stats"])
        found.pop(key, None)
        if key in there and (is_escaped or plain != add):
            found[key] = plain
    if found:
        _log.info("Writing the bounds of %s of %s anew", counted(len(found), "file"), log.target)
        write_version(
            location,
            table.version() + 1,
            [{"add": {**add, "dataChange": False}} for add in found.values()],
            operation="COMPUTE STATS",
            table=table,
            reads_rows=True,
        )
        with location.translate_errors("cannot be read after a commit"):
            table.update_incremental()
        write_checkpoint(table)  # delta-kernel filters by what the older action says, too


def _may_be_misread(table: DeltaTable) -> bool:
    """Tell whether a bound or partition value has characters that a pair may have become."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return any(
        pc.any(pc.match_substring_regex(column.cast(pa.string()), _MISREAD)).as_py()
        for name, column in zip(actions.column_names, actions.columns, strict=True)
        if name.startswith(_OF_TEXT) and is_text(column.type)
    )


def added(
    log: TableLog, segment: LogSegment, names: Collection[str] | None = None
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the actions of a version that add files, the last word last; and if each has escapes.

    Args:
        log: The log.
        segment: What of it makes the version up.
        names: Of the files that are wanted, as the log has them; `None` for all.
    """
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    for file in (*checkpoint, *segment.commits):
        yield from _added(log, file, names)


def _added(
    log: TableLog, file: FileEntry, names: Collection[str] | None
) -> Iterator[tuple[dict[str, Any], bool]]:
    if file.path.endswith(".json"):
        for line in log.store.get(file.path).decode().splitlines():
            add = json.loads(line).get("add") if '"add"' in line else None
            if add is not None and (names is None or add["path"] in names):
                yield add, any(each[1] for each in _ESCAPES.finditer(line))
        return
    with StoreFile(log.store, file).random_access() as content:
        rows = pq.ParquetFile(content).read(columns=["add"]).column("add").drop_null()
    if names is not None:
        rows = rows.filter(pc.is_in(pc.struct_field(rows, "path"), pa.array([*names], pa.string())))
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        add = {name: value for name, value in row.items() if name not in _PARSED}
        # Where there is no vector, some writers have a struct of nulls.
        vector = without_nulls(add.get("deletionVector") or {})
        yield without_nulls({**add, "deletionVector": vector or None}), False


def _as_in_folder(add: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the partition values; take from the folder's name what `deltalake` has misread.

    `deltalake` misreads values in its checkpoints. The folder is only a name, but where its value
    would be misread as just the one in the checkpoint, it was.
    """
    parts = (unquote(part).partition("=") for part in str(add["path"]).split("/"))
    in_folder = {unquote(name): unquote(value) for name, _, value in parts}
    return {
        name: in_folder[name]
        if value and name in in_folder and _misread(in_folder[name]) == value
        else value
        for name, value in add["partitionValues"].items()
    }


def _misread(text: str) -> str:
    """Convert a text to what delta-kernel makes of its escapes."""
    found = (ord(each) for each in text)
    return "".join(chr(each if each < _PAIRED else _PAIRED | each - _PAIRED) for each in found)


def _character(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else str(json.loads(f'"{escape[1]}"'))
