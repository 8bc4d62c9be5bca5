"""Sum up a stream for a person: a small table in a notebook, lines elsewhere.

Everything is read from its state: nothing is locked, written or discovered.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import SinkError, StateError
from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus, stream_status
from airflow_cloudfiles.engine.files import START, printable_path
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes
from airflow_cloudfiles.engine.messages import counted, printable, short_time, size_text
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.packs import Packs
from airflow_cloudfiles.engine.state.sink_log import SinkLog, position
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.tables.delta.opening import open_table
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.schema.history import SchemaEntry
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

MOST_BATCHES: Final = 1000
"""The rows of so many of the newest micro-batches are added up."""
_NULLS: Final = "null_count._rescued_data"
_log = logging.getLogger(__name__)
_CELL: Final = "text-align: left; vertical-align: top; white-space: pre-wrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A stream, for a person. A notebook shows it as a table, `print` as lines.

    Attributes:
        checkpoint_location: URI of its state, printable.
        status: How it is, and what waits for whom.
        source: URI of its source, printable, and the format of its files.
        files: How many files it has recorded, those that wait included.
        batches: How many micro-batches are committed.
        rows: Rows that jobs have committed, in `MOST_BATCHES` of the newest micro-batches at most;
            after plain queries, of which it counts none, those that the table has. `None` where
            neither is known.
        rescued_rows: Those of them with rescued data.
        corrupt_records: Records that could not be read; `None` where nobody counted them.
        target: The table that it writes to, printable; `None` where no sink of this package does.
        committed: When the newest was committed: ISO 8601, UTC; `None` before the first, and where
            no sink of this package has written it.
        schema_version: The newest version of its schema; `None` where it has no schema log.
        columns: How many columns that has, nested ones included.
    """

    checkpoint_location: str
    status: StreamStatus
    source: str = ""
    files: int = 0
    batches: int = 0
    rows: int | None = None
    rescued_rows: int = 0
    corrupt_records: int | None = None
    target: str | None = None
    committed: str | None = None
    schema_version: int | None = None
    columns: int = 0

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield what there is to say, with a head for each."""
        overview = self.status.overview
        yield "stream", self.checkpoint_location
        yield "status", f"{self.status.standing}: {self.status.sentence}".rstrip(": ")
        if overview is not None:
            waiting = counted(overview.outstanding_files, "file")
            more = "" if overview.is_counted else " or more"
            yield "source", self.source
            yield (
                "files",
                f"{self.files:,} in {counted(self.batches, 'micro-batch', 'micro-batches')}",
            )
            yield "waits", f"{waiting}{more}, {size_text(overview.outstanding_bytes)}"
        if self.target is not None:
            yield "table", self.target
        if self.rows is not None:
            recent = f", of the newest {MOST_BATCHES:,} batches" * (self.batches > MOST_BATCHES)
            yield "rows", f"{self.rows:,}{recent}"
            yield "rescued", counted(self.rescued_rows, "row")
        if self.corrupt_records is not None:
            yield "corrupt", counted(self.corrupt_records, "record")
        if self.committed is not None:
            yield "newest batch", f"{self.batches - 1}, committed {short_time(self.committed)} UTC"
        if self.status.newest is not None:
            run = self.status.newest
            yield (
                "newest run",
                f"{short_time(run.started)} UTC {run.outcome}: {counted(run.rows, 'row')}",
            )
        if self.schema_version is not None:
            columns = counted(self.columns, "column")
            yield "schema", f"version {self.schema_version}, {columns}"

    def __str__(self) -> str:
        return "\n".join(f"{head:13} {printable(text)}" for head, text in self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Write the table that a notebook shows; what comes from files and names is escaped."""
        return html_table(self.lines())


def html_table(rows: Iterable[Sequence[str]], *, has_heads: bool = False) -> str:
    """Write a table for a notebook; all cells are escaped.

    Args:
        rows: Of texts; the first of each is its head.
        has_heads: Whether the first row has the heads instead.
    """

    def cell(tag: str, text: str) -> str:
        return f'<{tag} style="{_CELL}">{html.escape(printable(text))}</{tag}>'

    lines = [
        "".join(
            cell("th" if (number == 0 if has_heads else place == 0) else "td", text)
            for place, text in enumerate(row)
        )
        for number, row in enumerate(rows)
    ]
    return f"<table><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def stream_summary(
    checkpoint_location: str,
    *,
    schema_location: str | None = None,
    access: Access | None = None,
) -> StreamSummary:
    """Sum up a stream from its state, whether or not it is at work.

    What it costs grows with the entries of its file log and with its micro-batches, of which
    `MOST_BATCHES` are read.

    Args:
        checkpoint_location: Path or URI of the state.
        schema_location: Where the schema log is, if elsewhere.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        The summary; of a state that cannot be read, its `status` says why.
    """
    state = open_store(checkpoint_location, access)
    name = printable_path(state.uri)
    status = stream_status(checkpoint_location, access, schema_location=schema_location)
    if status.overview is None:
        return StreamSummary(checkpoint_location=name, status=status)
    committed, log, record = position(state), FileLog(state), SinkLog(state).newest()
    notes = _notes(state, committed.batch)
    counts = run_history.total(each.counts for each in notes)
    known = {
        name: counts.get(name, 0) for name in ("rows", "rescued_rows", "corrupt_records") if notes
    }
    stream = existing_metadata(state)
    entry = _newest_version(schema_location or checkpoint_location, access)
    target = record.target or None if record is not None else None
    return StreamSummary(
        checkpoint_location=name,
        status=status,
        source=f"{printable_path(stream.source)} ({stream.format})",
        files=files_and_bytes(log, START, log.head())[0],
        batches=committed.batch + 1,
        target=None if target is None else printable_path(target),
        committed=record.created or None if record is not None else None,
        schema_version=None if entry is None else entry.version,
        columns=0 if entry is None else len(paths_of(entry.data_schema)),
        **(known or _of_table(target)),
    )


def _of_table(target: str | None) -> dict[str, int]:
    """Count the rows that a table has, and those with rescued data, by the statistics of its log.

    Nothing where there is no Delta table, or its statistics do not tell.
    """
    try:
        folder = None if target is None else target_of(target).folder
        table = None if folder is None else open_table(folder)
    except SinkError as failure:
        _log.warning("The rows of the table cannot be counted: %s", failure)
        return {}
    if table is None or "deletionVectors" in (table.protocol().writer_features or ()):
        return {}
    actions = table.get_add_actions(flatten=True)
    rows = actions.column("num_records").to_pylist()
    has_column = _NULLS in actions.schema.names
    nulls = actions.column(_NULLS).to_pylist() if has_column else rows
    if None in rows or None in nulls:
        return {}
    return {"rows": sum(rows), "rescued_rows": sum(rows) - sum(nulls)}


def _notes(state: ObjectStore, last: int) -> list[run_history.BatchDone]:
    packs = Packs(state, run_history.PREFIX)
    numbers = range(max(0, last + 1 - MOST_BATCHES), last + 1)
    read = [partial(run_history.note_of, state, number, packs) for number in numbers]
    return [each for each in at_once(state, read) if each is not None]


def _newest_version(location: str, access: Access | None) -> SchemaEntry | None:
    """Read the newest version of the schema; `None` where there is none."""
    try:
        return SchemaHistory(location, access=access).show()
    except StateError:
        return None
