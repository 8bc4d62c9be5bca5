"""Give the table of files: its columns, and its rows as dictionaries.

First those of Auto Loader's `cloud_files_state`, in its order, then ours. The table is made column
by column: what all files of a group share is written down once and repeated.

`cloud_files_state` gives the answer for every file of a stream, as Auto Loader's function of that
name does: a table, read record batch by record batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_cloudfiles.engine.files import Offset, iso_time, printable_path
from airflow_cloudfiles.engine.intake.file_states import (
    FileGroup,
    FileQuery,
    FileStates,
    StateSnapshot,
)
from airflow_cloudfiles.engine.intake.ledger.changed import path_hash

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.files import FileCounts
    from airflow_cloudfiles.engine.state.batch_states import CleanedFiles
    from airflow_cloudfiles.engine.storage.access import Access

Kind = Literal["STRING", "BIGINT", "INT", "TIMESTAMP"]
BATCH_ROWS: Final = 10_000
"""About how many rows a record batch has."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FileStateColumn:
    """A column of the table.

    Attributes:
        name: Its name.
        kind: Its type, as Spark writes it.
        values: Its values for the files of a group, or the value that they share.
        is_nullable: Whether it may be null.
    """

    name: str
    kind: Kind
    values: Callable[[FileGroup], Any]
    is_nullable: bool = True


def _paths(group: FileGroup) -> list[str]:
    root = group.source.rstrip("/") + "/"
    return [root + printable_path(file.path) for file in group.files]


def _created(group: FileGroup) -> list[int]:
    """Return the times in microseconds since 1970: `datetime` holds less than a disk."""
    return [file.modification_time_us for file in group.files]


_STATES: Final = {
    "": "INGESTED",
    "missing": "SKIPPED_MISSING",
    "corrupt": "SKIPPED_CORRUPTED",
}
"""Auto Loader's words. It has none for a file that was overwritten before it was read."""


def _ingestion_state(group: FileGroup) -> str | list[str | None] | None:
    """Auto Loader's word for it; null where what became of each file is not recorded."""
    if group.status == "planned":
        return "PROCESSING"
    if group.status != "committed" or group.batch is None:
        return None
    if group.batch.results is not None:
        return [None if each is None else _STATES.get(each.skipped) for each in group.read]
    files, counts = group.batch.plan.files, group.batch.counts
    if counts.get("missing_files", 0) >= files:
        return "SKIPPED_MISSING"
    if files == 1 and counts.get("corrupt_files"):
        return "SKIPPED_CORRUPTED"
    skipped = ("missing_files", "corrupt_files", "superseded_files")
    return None if any(counts.get(name) for name in skipped) else "INGESTED"


def _archived(shown: Callable[[CleanedFiles, str], Any]) -> Callable[[FileGroup], Any]:
    """Tell something of how each file was cleaned; null where it was not."""

    def values(group: FileGroup) -> list[Any] | None:
        if group.status != "committed" or not group.archived.marks:
            return None
        places = zip(group.files, group.indexes, strict=True)
        number, found = group.entry.number, group.archived
        how = (found.of(file, Offset(number, index)) for file, index in places)
        return [None if each is None else shown(*each) for each in how]

    return values


def _moved_to(mark: CleanedFiles, key: str) -> str | None:
    return f"{mark.destination}/{printable_path(key)}" if mark.destination else None


def _count(name: str) -> Callable[[FileGroup], int | None]:
    return lambda group: None if group.batch is None else group.batch.counts.get(name)


def _of_file(shown: Callable[[FileCounts], Any]) -> Callable[[FileGroup], Any]:
    """Tell something of what was read of each file; null where that is not recorded."""

    def values(group: FileGroup) -> list[Any] | None:
        if group.batch is None or group.batch.results is None:
            return None
        return [None if each is None else shown(each) for each in group.read]

    return values


def _error(name: str) -> Callable[[FileGroup], Any]:
    return _of_file(lambda counts: counts.error and (getattr(counts.error, name) or None))


def _operation_time(group: FileGroup) -> datetime | None:
    return None if group.operation is None else datetime.fromisoformat(group.operation.created)


def _changed(group: FileGroup) -> list[datetime | None] | None:
    """Find when it was noticed that files have changed since their ingestion, if they have."""
    number = group.entry.number
    if number not in group.changed:
        return None
    times = group.changed[number]
    return [times.get(path_hash(file.path)) for file in group.files]


def _of_batch(name: str) -> Callable[[FileGroup], Any]:
    return lambda group: None if group.batch is None else getattr(group.batch, name)


COLUMNS: Final[tuple[FileStateColumn, ...]] = (
    FileStateColumn("path", "STRING", _paths, is_nullable=False),
    FileStateColumn(
        "size", "BIGINT", lambda group: [file.size for file in group.files], is_nullable=False
    ),
    FileStateColumn("create_time", "TIMESTAMP", _created, is_nullable=False),
    FileStateColumn(
        "discovery_time", "TIMESTAMP", lambda group: group.discovered, is_nullable=False
    ),
    FileStateColumn("processed_time", "TIMESTAMP", _of_batch("planned")),
    FileStateColumn("commit_time", "TIMESTAMP", _of_batch("committed")),
    FileStateColumn("archive_time", "TIMESTAMP", _archived(lambda mark, _: mark.time)),
    FileStateColumn("archive_mode", "STRING", _archived(lambda mark, _: mark.mode)),
    FileStateColumn("move_location", "STRING", _archived(_moved_to)),
    FileStateColumn("source_id", "STRING", lambda _: "0", is_nullable=False),
    FileStateColumn("flow_name", "STRING", lambda _: None),
    FileStateColumn("ingestion_state", "STRING", _ingestion_state),
    FileStateColumn("status", "STRING", lambda group: group.status, is_nullable=False),
    FileStateColumn("found_by", "STRING", lambda group: group.entry.found_by, is_nullable=False),
    FileStateColumn("etag", "STRING", lambda group: [file.etag or None for file in group.files]),
    FileStateColumn("entry", "BIGINT", lambda group: group.entry.number, is_nullable=False),
    FileStateColumn("index", "INT", lambda group: list(group.indexes), is_nullable=False),
    FileStateColumn(
        "batch_id", "BIGINT", lambda group: None if group.batch is None else group.batch.plan.number
    ),
    FileStateColumn("run_id", "STRING", _of_batch("run_id")),
    FileStateColumn("table_version", "BIGINT", _of_batch("table_version")),
    FileStateColumn("schema_version", "INT", _of_batch("schema_version")),
    FileStateColumn(
        "batch_files",
        "BIGINT",
        lambda group: None if group.batch is None else group.batch.plan.files,
    ),
    FileStateColumn("batch_rows", "BIGINT", _count("rows")),
    FileStateColumn("batch_rescued_rows", "BIGINT", _count("rescued_rows")),
    FileStateColumn("batch_corrupt_records", "BIGINT", _count("corrupt_records")),
    FileStateColumn("rows", "BIGINT", _of_file(lambda counts: counts.rows)),
    FileStateColumn("rescued_rows", "BIGINT", _of_file(lambda counts: counts.rescued_rows)),
    FileStateColumn("corrupt_records", "BIGINT", _of_file(lambda counts: counts.corrupt_records)),
    FileStateColumn("first_error", "STRING", _error("reason")),
    FileStateColumn("first_error_line", "BIGINT", _error("line")),
    FileStateColumn(
        "first_error_byte", "BIGINT", _of_file(lambda counts: counts.error and counts.error.byte)
    ),
    FileStateColumn("first_error_column", "STRING", _error("field")),
    FileStateColumn(
        "operation", "STRING", lambda group: group.operation and group.operation.action
    ),
    FileStateColumn("operation_time", "TIMESTAMP", _operation_time),
    FileStateColumn(
        "operation_reason",
        "STRING",
        lambda group: (group.operation and group.operation.reason) or None,
    ),
    FileStateColumn("changed_time", "TIMESTAMP", _changed),
)
"""In the order of the table."""

DDL: Final = ", ".join(
    f"`{each.name}` {each.kind}" + ("" if each.is_nullable else " NOT NULL") for each in COLUMNS
)
"""The table's columns as Spark writes them."""


def chunks(groups: Iterable[FileGroup], rows: int = BATCH_ROWS) -> Iterator[list[list[Any]]]:
    """Give the columns of so many rows, again and again; the last time of what is left."""
    found: list[list[Any]] = [[] for _ in COLUMNS]
    for group in groups:
        for start in range(0, len(group.files), rows):
            count = _extend(found, _cut(group, start, start + rows))
            if count >= rows:
                yield found
                found = [[] for _ in COLUMNS]
    if found[0]:
        yield found


def rows(groups: Iterable[FileGroup]) -> Iterator[dict[str, Any]]:
    """Give the table row by row; `create_time` is a text where `datetime` has no such year."""
    names = [each.name for each in COLUMNS]
    for columns in chunks(groups):
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            yield row | {"create_time": _moment(row["create_time"])}


def error_text(row: Mapping[str, Any]) -> str:
    """Say in words what the first error of a file is, and where; empty where there is none."""
    if not row["first_error"]:
        return ""
    line, byte, column = (row[f"first_error_{each}"] for each in ("line", "byte", "column"))
    places = [
        "" if line is None else f"line {line}",
        "" if byte is None else f"byte {byte}",
        f"column {printable_path(column)}" if column else "",
    ]
    where = ", ".join(filter(None, places))
    return f"{where}: {row['first_error']}" if where else str(row["first_error"])


def _moment(moment_us: int) -> datetime | str:
    try:
        return _EPOCH + timedelta(microseconds=moment_us)
    except OverflowError:
        return iso_time(moment_us)


def arrow_schema() -> pa.Schema:
    """Return the table's columns as Arrow has them."""
    import pyarrow as pa

    kinds = {
        "STRING": pa.string(),
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema(
        [pa.field(each.name, kinds[each.kind], nullable=each.is_nullable) for each in COLUMNS]
    )


def record_batches(groups: Iterable[FileGroup]) -> Iterator[pa.RecordBatch]:
    """Give the table as record batches."""
    import pyarrow as pa

    schema = arrow_schema()
    for columns in chunks(groups):
        arrays = [
            pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cut(group: FileGroup, start: int, stop: int) -> FileGroup:
    """Cut a part out of a group."""
    if start == 0 and stop >= len(group.files):
        return group
    return replace(group, files=group.files[start:stop], indexes=group.indexes[start:stop])


def _extend(found: Sequence[list[Any]], group: FileGroup) -> int:
    """Add the files of a group to columns; how many rows these have then."""
    for column, values in zip(COLUMNS, found, strict=True):
        given = column.values(group)
        values.extend(given if isinstance(given, list) else [given] * len(group.files))
    return len(found[0])


def cloud_files_state(  # noqa: PLR0913 - each narrows the table down
    checkpoint_location: str,
    *,
    path: str | None = None,
    status: str | Iterable[str] = (),
    batch_id: int | None = None,
    run_id: str | None = None,
    discovered_since: datetime | None = None,
    discovered_until: datetime | None = None,
    committed_since: datetime | None = None,
    committed_until: datetime | None = None,
    access: Access | None = None,
) -> pa.RecordBatchReader:
    """Read the state of a stream as a table of files, one row for each version of a file.

    Nothing is changed and no lock is taken; a stream that goes on meanwhile is shown as it was at
    this call. The columns are in `docs/reference/cloud-files-state.md`.

    Args:
        checkpoint_location: Path or URI of the state.
        path: A file, a folder, or a pattern as in a source path (`*`, `?`, `[a-c]`, `{a,b}`),
            relative to the source or with all of its URI. A pattern without a slash is one for
            names of files.
        status: `existing`, `discovered`, `planned`, `committed`, `lost`, `skipped`, `quarantined`,
            `released`, `forgotten`, or `outstanding`, which is discovered or planned; several in a
            list.
        batch_id: Files of this micro-batch.
        run_id: Files that this run has committed.
        discovered_since: Files discovered at this time or later. Times need a time zone.
        discovered_until: Files discovered before this time.
        committed_since: Files committed at this time or later.
        committed_until: Files committed before this time.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        A reader of record batches, which reads the state as it goes on: `read_all()` for a table,
        `read_pandas()` for a DataFrame, or a loop.

    Raises:
        OptionError: An argument is not valid.
        StateError: There is no state, or no such batch.
        CorruptedStateError: The state is damaged; also while the reader reads.
    """
    import pyarrow as pa

    query = FileQuery(
        path=path,
        status=(status,) if isinstance(status, str) else tuple(status),
        batch_id=batch_id,
        run_id=run_id,
        discovered_since=discovered_since,
        discovered_until=discovered_until,
        committed_since=committed_since,
        committed_until=committed_until,
    )
    files = FileStates(StateSnapshot.take(checkpoint_location, access), query, access)
    return pa.RecordBatchReader.from_batches(arrow_schema(), record_batches(files.groups()))
