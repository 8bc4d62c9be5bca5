"""Show a stream: its newest runs and files, where it is and what waits for it.

Runs are shown from their reports, of which a state keeps thousands: one listing, and a request for
each report that is shown. What the newest ingestion has come to is besides in a summary: one
request.

Entries of the file log are read from the newest backwards until there are enough files, so that
a page costs the same in a stream of a million files.

Nothing is locked, written or discovered. What it costs does not grow
with the files of the stream, nor with its runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import (
    FilesQuarantinedError,
    IncompatibleStateError,
    SchemaProposedError,
    TableEvolvedError,
    UnknownFieldException,
    section_of,
)
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.intake.file_state_columns import rows
from airflow_cloudfiles.engine.intake.file_states import FileQuery, FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes, oldest
from airflow_cloudfiles.engine.messages import few, plural
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.run_history import (
    REPORTS_PREFIX,
    decode_report,
    in_words,
    read_summary,
)
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

_MOST_OUTSTANDING: Final = 500
"""The outstanding files of so many entries are counted; each may cost a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOverview:
    """A stream of files, as its state shows it.

    Attributes:
        last_batch: The last micro-batch that is committed; -1 before the first.
        entries: How many entries the file log has.
        newest_found: When the newest file was found: ISO 8601, UTC; `None` before the first.
        outstanding_files: Files that are found and not committed.
        outstanding_bytes: Their size.
        oldest_outstanding: When the oldest of them was found; `None` where there is none.
        is_counted: Whether all of them were counted.
    """

    last_batch: int
    entries: int
    newest_found: str | None
    outstanding_files: int
    outstanding_bytes: int
    oldest_outstanding: str | None
    is_counted: bool


def stream_overview(state: ObjectStore) -> StreamOverview:
    """Look at a stream.

    Args:
        state: The checkpoint location.

    Raises:
        StateError: There is no state of files, or it cannot be read.
        CorruptedStateError: It is damaged.
    """
    existing_metadata(state)  # raises where there is none
    log = FileLog(state)
    committed = position(state)
    head = log.head()
    last = min(head, Offset(committed.end.entry + _MOST_OUTSTANDING, 0))
    files, size = files_and_bytes(log, committed.end, last)
    return StreamOverview(
        last_batch=committed.batch,
        entries=head.entry,
        newest_found=log.summary(head.entry - 1).created if head.entry else None,
        outstanding_files=files,
        outstanding_bytes=size,
        oldest_outstanding=oldest(log, committed.end, last) if files else None,
        is_counted=last == head,
    )


@dataclass(frozen=True, slots=True)
class IngestionSummary:
    """How a stream was when its newest ingesting run ended.

    Attributes:
        ended: When that was: ISO 8601, UTC.
        newest: The run.
        overview: Its files, of those that the run had before it; `None` where the run did not come
            to them, or the source is a table.
    """

    ended: str
    newest: RunSummary
    overview: StreamOverview | None


def ingestion_summary(state: ObjectStore) -> IngestionSummary | None:
    """Read the summary of a stream, with one request.

    Args:
        state: The checkpoint location.

    Returns:
        `None` where there is none, or none that can be read.

    Raises:
        StateError: The state cannot be read.
    """
    report = read_summary(state)
    if report is None:
        return None
    try:
        newest, overview = _summary(report), _overview_of(report)
        _ = _time(newest.started)
        return IngestionSummary(str(_time(report["ended"])), newest, overview)
    except (KeyError, TypeError, ValueError) as failure:
        _log.warning("The summary in %s is not used: %r", printable_path(state.uri), failure)
        return None


def _overview_of(report: Mapping[str, Any]) -> StreamOverview | None:
    if "metrics" not in report or "position" not in report:
        return None
    metrics, at = report["metrics"], report["position"]
    return StreamOverview(
        last_batch=int(at["last_batch"]),
        entries=int(at["entries"]),
        newest_found=_time(at["newest_found"]),
        outstanding_files=int(metrics["numFilesOutstanding"]),
        outstanding_bytes=int(metrics["numBytesOutstanding"]),
        oldest_outstanding=_time(report["oldest_outstanding"]),
        is_counted=metrics["isBacklogComputationComplete"] == "true",
    )


def _time(value: str | None) -> str | None:
    """Check a time of a summary, which pages compute with.

    Raises:
        ValueError: It is no time, or has no zone.
    """
    if value is not None and datetime.fromisoformat(value).tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return value


MOST_FILES: Final = 100
"""How many files are shown at once."""
MOST_ENTRIES: Final = 200
"""So many entries are looked through for files that a query wants."""
MOST_LOOKED_AT: Final = 200_000
"""So many files, or those of one entry more: each is compared with a pattern."""


def newest_files(
    checkpoint_location: str,
    query: FileQuery | None = None,
    access: Access | None = None,
    *,
    most: int = MOST_FILES,
) -> tuple[list[Mapping[str, Any]], bool]:
    """Give the newest files of a stream that a query wants.

    Args:
        checkpoint_location: Path or URI of the state.
        query: Which files are wanted; `None` for all.
        access: How its cloud is reached.
        most: How many at most.

    Returns:
        Rows of `cloud_files_state`, the newest first; and whether the whole log was looked through,
        so that there are no others.

    Raises:
        OptionError: The query names a path that cannot be in the source.
        StateError: There is no state of files, or no such batch.
        CorruptedStateError: It is damaged.
    """
    snapshot = StateSnapshot.take(checkpoint_location, access)
    states = FileStates(snapshot, query, access)
    found: list[Mapping[str, Any]] = []
    oldest = max(0, snapshot.entries - MOST_ENTRIES)
    looked_at = 0
    for number in range(snapshot.entries - 1, oldest - 1, -1):
        of_entry = list(rows(states.groups(range(number, number + 1))))
        found += reversed(of_entry)
        if len(found) >= most:
            return found[:most], number == 0 and len(found) == most
        looked_at += states.files_of(number)
        if looked_at >= MOST_LOOKED_AT:
            return found, number == 0
    return found, oldest == 0


MOST_RUNS: Final = 60
"""How many runs are shown at once."""
_COUNTS: Final = ("files", "bytes", "rows", "rescued_rows", "corrupt_records")
HEALING: Final = frozenset(
    each.code for each in (UnknownFieldException, TableEvolvedError, FilesQuarantinedError)
)
"""Codes of errors that are put right when they are raised, where a retry helps."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, as its report has it.

    Attributes:
        run_id: Its id.
        kind: `ingest`, `infer` or `promote`.
        started: When it began: ISO 8601, UTC.
        outcome: `succeeded`, `failed`, or `waiting` for a query that goes on without its driver.
        files: Files that it has committed.
        bytes: Their size.
        rows: Rows that it has committed.
        rescued_rows: Those of them with rescued data.
        corrupt_records: Records that could not be read.
        others: What else it counts, in words: rows that were replaced, or files registered.
        schema_version: The version that it read with; `None` where it had none.
        target_version: The newest version of the table then; `None` where there was none.
        seconds: How long it took; `None` where it does not say.
        error: The class of what it failed for; empty where it did not.
        code: Of that class, which has its section in the documentation; empty as that.
        message: What it failed for, in words that say what to do.
        heals: Whether what it failed for was put right by then, so that the next run goes on: the
            schema log had the evolved schema, or the files to blame were put aside.
        is_healed: Whether the next run that ingested has succeeded, besides.
        warnings: For people.
    """

    run_id: str
    kind: str
    started: str
    outcome: str
    files: int = 0
    bytes: int = 0
    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    others: str = ""
    schema_version: int | None = None
    target_version: int | None = None
    seconds: float | None = None
    error: str = ""
    code: str = ""
    message: str = ""
    heals: bool = False
    is_healed: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether it ended because a change of the schema waits for a decision."""
        return self.code == SchemaProposedError.code

    @property
    def shown(self) -> str:
        """What became of it, in one word."""
        return "healed" if self.is_healed else "asked" if self.asked else self.outcome

    @property
    def healed_by(self) -> str:
        """What was put right when it failed, in words; empty where nothing was."""
        if not self.heals:
            return ""
        if self.code == FilesQuarantinedError.code:
            return "the files that were to blame are quarantined"
        if self.code == TableEvolvedError.code:
            return "the table that it reads has another schema"
        fields = UnknownFieldException(self.message).fields
        if not fields:
            return "the schema has wider types"
        return f"the schema has the new {plural(len(fields), 'field')} {few(fields)}"

    @property
    def section(self) -> str:
        """The code of the error and where its section is; empty where the report has no code."""
        return section_of(self.code) if self.code else ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The newest runs.

    Attributes:
        newest: The newest first.
        kept: How many reports the state keeps.
    """

    newest: tuple[RunSummary, ...]
    kept: int


def newest_runs(state: ObjectStore, most: int = MOST_RUNS) -> Runs:
    """Read the newest reports of a state.

    Args:
        state: The checkpoint location.
        most: How many at most.

    Returns:
        The runs; a report that cannot be read is left out, and the log says so.
    """
    found = sorted(
        state.list(f"{REPORTS_PREFIX}/"),
        key=lambda each: (each.modification_time_us, each.path),
        reverse=True,
    )
    runs = at_once(state, [partial(_read, state, each.path) for each in found[:most]])
    newest = sorted((each for each in runs if each), key=lambda each: each.started, reverse=True)
    return Runs(tuple(_with_healed(newest)), len(found))


def _with_healed(newest: Sequence[RunSummary]) -> Iterator[RunSummary]:
    """Yield runs, the newest first, those marked that have healed."""
    later = ""
    for run in newest:
        yield replace(run, is_healed=True) if run.heals and later == "succeeded" else run
        if run.kind == "ingest":
            later = "succeeded" if run.heals and later == "succeeded" else run.outcome


def _read(state: ObjectStore, key: str) -> RunSummary | None:
    try:
        return _summary(decode_report(state.get(key), name=key))
    except ObjectNotFoundError:  # it has expired meanwhile
        return None
    except (ValueError, TypeError, IncompatibleStateError) as failure:
        _log.warning("The report %s cannot be read: %s", key, failure)
        return None


def _summary(report: Mapping[str, Any]) -> RunSummary:
    """Summarize a report for display; a table as the source has no files."""
    error = report.get("error") or {}
    seconds = (report.get("durations") or {}).get("total_seconds")
    counts: dict[str, Any] = {name: int(report.get(name) or 0) for name in _COUNTS}
    return RunSummary(
        run_id=str(report.get("run_id", "")),
        kind=str(report.get("kind", "")),
        started=str(report.get("started", "")),
        outcome=str(report.get("outcome", "")),
        schema_version=_number(report.get("schema_version")),
        target_version=_number(report.get("target_version")),
        seconds=None if seconds is None else float(seconds),
        error=str(error.get("class", "")),
        code=str(error.get("code", "")),
        message=str(error.get("message", "")),
        heals=error.get("code") in HEALING and error.get("is_retryable") is True,
        warnings=tuple(str(each) for each in report.get("warnings") or ()),
        others=in_words(report, besides=_COUNTS),
        **counts,
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
