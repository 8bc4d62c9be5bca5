"""Keep what each micro-batch did, and how the runs of the past went.

A run leaves what it was asked to do and how it went: `_runs/<run id>.json` and
`_reports/<run id>.json`. Nothing is decided by them. They go when they are old and not among the
newest, but for the newest specification of an ingesting run, whose options a replay takes.

What the newest ingesting run has come to is besides in one small object, `_source/summary.json`, so
that a list of streams costs one request each.

A note a batch, written beside the state when the sink has committed it (`_source/batches/<b>`).
The run's report is their sum. Notes inform; nothing is decided by them.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    RunFailedError,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import sentence
from airflow_cloudfiles.engine.state.packs import Packs
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.outage import reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of, require_version

RUNS_PREFIX = "_runs"
REPORTS_PREFIX = "_reports"
REPORT_VERSION = 1
SPEC_VERSION = 1
LEFT_RUNS_PREFIX = "_source/left_runs"
KEPT_RUNS = 100
"""So many of the newest stay, however old they are."""
MOST_AT_ONCE = 1000
"""One sweep removes at most so many of each folder."""
SUMMARY = "_source/summary.json"
SUMMARY_VERSION = 1
_OF_REPORT = (
    "run_id", "kind", "outcome", "started", "ended", "files", "bytes", "rows", "rescued_rows",
    "corrupt_records", "violations", "quarantined_rows", "dropped_rows",
    "schema_version", "target_version", "durations", "metrics", "oldest_outstanding", "position",
)  # fmt: skip
"""What a summary has of the report of its run, besides warnings and error."""
_OF_ERROR = ("class", "code", "message")
_MOST_TEXT = 1000
_MOST_WARNINGS = 5
_ONE_IN = 100
_log = logging.getLogger(__name__)


def encode_report(report: Mapping[str, Any]) -> bytes:
    """Build the bytes of a report."""
    return seal({FIELD: REPORT_VERSION, **report})


def decode_report(content: bytes, *, name: str) -> dict[str, Any]:
    """Read what `encode_report` wrote.

    Raises:
        ValueError: It is damaged.
        IncompatibleStateError: The driver has a newer version of this package.
    """
    same = "Install the same version of the package here and on the Spark side."
    return fields_of(unseal(content), name=name, understood=REPORT_VERSION, what_to_do=same)


def sweeps(run_id: str) -> bool:
    """Tell whether a run removes old ones: one in a hundred does, by its id.

    To know when that was done last would be a request in each run.
    """
    return zlib.crc32(run_id.encode()) % _ONE_IN == 0


def write_report(store: ObjectStore, key: str, report: Mapping[str, Any]) -> None:
    """Write the report of a run, and beside it the summary of the stream if the run ingested.

    That the summary cannot be written is no reason to fail.

    Args:
        store: The state.
        key: Of the report.
        report: The report.
    """
    content = encode_report(report)
    writes = [lambda: store.put(key, content)]
    if report["kind"] == "ingest":
        writes.append(lambda: _write_summary(store, report))
    at_once(store, writes)


def _write_summary(store: ObjectStore, report: Mapping[str, Any]) -> None:
    said = {name: report[name] for name in _OF_REPORT if name in report}
    said["warnings"] = [each[:_MOST_TEXT] for each in report.get("warnings", ())[:_MOST_WARNINGS]]
    if error := report.get("error"):
        said["error"] = {name: str(error[name])[:_MOST_TEXT] for name in _OF_ERROR}
    try:
        store.put(SUMMARY, seal({FIELD: SUMMARY_VERSION, **said}))
    except OSError as failure:
        _log.warning(
            "The summary of the stream could not be written, which loses nothing: %s", failure
        )


def read_summary(store: ObjectStore) -> dict[str, Any] | None:
    """Read what the newest ingesting run has come to, as its report has it, with one request.

    It is a hint: others may have recorded or committed something since.

    Returns:
        `None` where there is none, or none that can be read here, which is logged.

    Raises:
        StateError: The state cannot be read.
    """
    content = read_if_there(store, SUMMARY)
    if content is None:
        return None
    name = printable_path(store.child_uri(SUMMARY))
    try:
        return fields_of(unseal(content), name=name, understood=SUMMARY_VERSION)
    except (ValueError, IncompatibleStateError) as failure:
        _log.warning("%s is not used: %s", name, failure)
        return None


def read_report(state: ObjectStore, run_id: str) -> dict[str, Any] | None:
    """Read the report of a run; `None` when it has left none.

    Raises:
        RunFailedError: It is damaged.
        IncompatibleStateError: The driver has a newer version of this package.
        StateError: The state cannot be read.
    """
    key = f"{REPORTS_PREFIX}/{run_id}.json"
    name = printable_path(state.child_uri(key))
    try:
        with reaching_state(state):
            return decode_report(state.get(key), name=name)
    except ObjectNotFoundError:
        return None
    except ValueError as failure:
        raise RunFailedError(
            f"The report {name} cannot be read: {failure}. It was damaged after it was written. "
            "Run again: what the run has committed stays."
        ) from failure


def newest_ingest(state: ObjectStore) -> tuple[str, dict[str, Any]] | None:
    """Read the specification of the newest run that ingested.

    Returns:
        Its key and what it holds; `None` when there was no such run.

    Raises:
        CorruptedStateError: One that is as new is damaged, so nobody knows which it is.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    for key, spec in _ingests(state, list(state.list(f"{RUNS_PREFIX}/"))):
        name = printable_path(state.child_uri(key))
        if spec is not None:
            require_version(spec.get(FIELD, 1), name=name, understood=SPEC_VERSION)
            return key, spec
        raise CorruptedStateError(
            f"The specification {name} of a run was damaged after it was written, so its options "
            "are not known. Restore it from a backup, or delete it: then those of the run before "
            "it count."
        )
    return None


def sweep(
    state: ObjectStore, now_us: int, retention_seconds: float, *, dry_run: bool = False
) -> int:
    """Remove what runs of the past have left.

    Args:
        state: The checkpoint location.
        now_us: The time by its clock.
        retention_seconds: How old something must be.
        dry_run: Only count.

    Returns:
        How many objects.
    """
    before_us = now_us - int(retention_seconds * 1_000_000)
    specs = list(state.list(f"{RUNS_PREFIX}/"))
    keys = _expired(specs, before_us)
    if keys:
        newest = next((key for key, spec in _ingests(state, specs) if spec is not None), None)
        keys = [key for key in keys if newest is None or key != newest]
    for prefix in (REPORTS_PREFIX, LEFT_RUNS_PREFIX):
        keys += _expired(list(state.list(f"{prefix}/")), before_us)
    if not dry_run:
        at_once(state, [partial(state.delete, key) for key in keys])
    return len(keys)


def _expired(entries: Sequence[FileEntry], before_us: int) -> list[str]:
    """List the oldest of a folder, but for the newest `KEPT_RUNS`."""
    old = _by_age(entries)[:-KEPT_RUNS]
    return [each.path for each in old if each.modification_time_us < before_us][:MOST_AT_ONCE]


def _ingests(
    state: ObjectStore, specs: Sequence[FileEntry]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Give the specifications of ingesting runs, the newest first; `None` for a damaged one."""
    for entry in reversed(_by_age(specs)):
        try:
            spec = unseal(state.get(entry.path))
        except ObjectNotFoundError:
            continue  # another sweep was faster
        except ValueError as failure:
            _log.warning("%s cannot be read: %s", entry.path, failure)
            yield entry.path, None
            continue
        if spec.get("kind") == "ingest":
            yield entry.path, spec


def _by_age(entries: Iterable[FileEntry]) -> list[FileEntry]:
    return sorted(entries, key=lambda entry: (entry.modification_time_us, entry.path))


PREFIX = "_source/batches"
NOTE_VERSION = 1
MOST_MISSING = 100
"""Files that were gone, which a note names."""
_SHOWN = {
    "files": "{file}",
    "registered_files": "registered",
    "copied_files": "copied",
    "rows": "{row}",
    "rescued_rows": "rescued",
    "corrupt_records": "corrupt",
    "quarantined_rows": "quarantined",
    "dropped_rows": "dropped",
    "replaced_rows": "replaced",
    "inserted_rows": "inserted",
    "updated_rows": "updated",
    "deleted_rows": "deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A committed micro-batch.

    Attributes:
        batch_id: Its number.
        table_version: Version of the table that holds it.
        is_new: False when an earlier, killed run had committed it already.
        schema_version: Version of the schema it was read with; -1 for a given schema.
        counts: rows, rescued_rows, corrupt_records, dropped_records, files, bytes, missing_files,
            changed_files, superseded_files, corrupt_files; of a merge besides inserted_rows,
            updated_rows, deleted_rows, superseded_rows; `no_value_in.<column>`, the rows, where an
            expected column (`expect.requiredColumns`) has no value in any of them; and
            `violations.<rule>`, the rows that violate a rule, quarantined_rows and dropped_rows,
            none of which is among rows; registered_files and copied_files; and replaced_rows, the
            former rows of its files that its commit has removed.
        run_id: The run that committed it; `None` in notes of versions that did not write it.
        missing: URIs of files of the batch that were gone and skipped; of `MOST_MISSING` at most.
    """

    batch_id: int
    table_version: int
    is_new: bool
    schema_version: int | None
    counts: dict[str, int] = field(default_factory=dict)
    run_id: str | None = None
    missing: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Format the batch as one line of a log."""
        before = "" if self.is_new else " (was there already)"
        version = f"table version {self.table_version}{before}"
        return f"Batch {self.batch_id}: {in_words(self.counts)}; {version}"


def in_words(counts: Mapping[str, Any], *, besides: Collection[str] = ()) -> str:
    """List the counts of a batch, or of the report of a run, that it has."""
    shown = ((counts.get(key), what) for key, what in _SHOWN.items() if key not in besides)
    return ", ".join(sentence(int(count), what) for count, what in shown if count is not None)


_FIELDS = frozenset(each.name for each in fields(BatchDone))


def note(state: str, done: BatchDone) -> None:
    """Write the note of a batch; a batch committed again overwrites its note."""
    said = asdict(done)
    if not done.missing:  # as of most batches
        del said["missing"]
    else:
        said["missing"] = [printable_path(uri) for uri in done.missing]
    body = seal({FIELD: NOTE_VERSION, **said})
    store = open_store(state)
    with reaching_state(store):
        store.put(f"{PREFIX}/{done.batch_id}", body)


def notes(state: str, batch_ids: Iterable[int]) -> list[BatchDone]:
    """Read the notes of some batches; one that was never written is left out."""
    store = open_store(state)
    found = at_once(store, [partial(note_of, store, batch_id) for batch_id in batch_ids])
    return [done for done in found if done is not None]


def note_of(store: ObjectStore, batch_id: int, packs: Packs | None = None) -> BatchDone | None:
    """Read the note of a batch; `None` when there is none. What it says beyond is passed over.

    One that is damaged says nothing, which is logged: a job has the counts in its record, too.

    Args:
        store: The state.
        batch_id: Number of the batch.
        packs: Where old notes are; `None`: it is among the newest.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    key = f"{PREFIX}/{batch_id}"
    name = printable_path(store.child_uri(key))
    try:
        content = _content(store, key, batch_id, packs)
        if content is None:
            return None
        loaded = fields_of(unseal(content), name=name, understood=NOTE_VERSION)
        return BatchDone(**{key: value for key, value in loaded.items() if key in _FIELDS})
    except (CorruptedStateError, ValueError, TypeError) as failure:
        _log.warning("%s cannot be read, and says nothing of its batch: %s", name, failure)
        return None


def _content(store: ObjectStore, key: str, batch_id: int, packs: Packs | None) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None if packs is None else packs.read(batch_id)


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up the counts of some batches."""
    found: dict[str, int] = {}
    for each in counts:
        for key, value in each.items():
            found[key] = found.get(key, 0) + value
    return found
