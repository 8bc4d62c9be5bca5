r"""Write anew what other readers misread of a table's files: escapes of characters.

Version 0.1.0 of this package wrote characters beyond the basic plane as surrogate pairs
(`\ud842\udfb7`) into bounds and partition values. delta-kernel, by which `deltalake` (1.6) and
DuckDB read, takes every second plane of them for the one below, and skips files by such bounds. So
the actions that have them are written once more, with the characters themselves; no file changes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.delta.read.actions import AddFile, FileKey, without_nulls
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.write.log_commit import write_checkpoint, write_version
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.reading.opened import StoreFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.delta.location import DeltaLocation
    from airflow_cloudfiles.engine.files import FileEntry

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
_log = logging.getLogger(__name__)


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
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    for file in (*checkpoint, *segment.commits):
        for add, is_escaped in _added(log, file):
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
    """Whether a bound or partition value has characters that a pair may have become."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return any(
        pc.any(pc.match_substring_regex(column.cast(pa.string()), _MISREAD)).as_py()
        for name, column in zip(actions.column_names, actions.columns, strict=True)
        if name.startswith(_OF_TEXT) and _is_text(column.type)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _added(log: TableLog, file: FileEntry) -> Iterator[tuple[dict[str, Any], bool]]:
    """What a file of the log says of each file that it adds, and whether escapes are in that."""
    if file.path.endswith(".json"):
        for line in log.store.get(file.path).decode().splitlines():
            add = json.loads(line).get("add") if '"add"' in line else None
            if add is not None:
                yield add, any(each[1] for each in _ESCAPES.finditer(line))
        return
    with StoreFile(log.store, file).random_access() as content:
        rows = pq.ParquetFile(content).read(columns=["add"]).column("add").drop_null()
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        add = {name: value for name, value in row.items() if name not in _PARSED}
        # Where there is no vector, some writers have a struct of nulls.
        vector = without_nulls(add.get("deletionVector") or {})
        yield without_nulls({**add, "deletionVector": vector or None}), False


def _as_in_folder(add: Mapping[str, Any]) -> dict[str, str | None]:
    """Partition values; those that a checkpoint of `deltalake` has misread, as the folder has them.

    The folder is only a name. But where its value would be misread as just this one, it was.
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
    """What delta-kernel makes of escapes of a text."""
    found = (ord(each) for each in text)
    return "".join(chr(each if each < _PAIRED else _PAIRED | each - _PAIRED) for each in found)


def _character(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else str(json.loads(f'"{escape[1]}"'))
