"""Carry the micro-batches of a run to their end, stop at a signal, and count what was committed."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.file_source import FileBatches
from airflow_cloudfiles.engine.batches.run import (
    BatchSource,
    PlannedBatch,
    run_batches,
    write_by_tasks,
)
from airflow_cloudfiles.engine.discovery.events import NO_FILE
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.stream_logs import oldest, source_metrics
from airflow_cloudfiles.engine.job.spec import MOST_DDL, JobSpec
from airflow_cloudfiles.engine.job.target import Rows, new_writer, target_table
from airflow_cloudfiles.engine.messages import counted, cut, plural, sentence
from airflow_cloudfiles.engine.options.row_rules import VIOLATIONS
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.sink_log import newest_batch, position
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState, side_by_side
from airflow_cloudfiles.engine.tables import expectations
from airflow_cloudfiles.engine.tables.delta.lineage import COMPACTED, MERGED, REGISTERED, REPLACED
from airflow_cloudfiles.engine.types import simple_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.job.session import SparkStart
    from airflow_cloudfiles.engine.options.row_rules import RowRule
    from airflow_cloudfiles.engine.storage import ObjectStore


_log = logging.getLogger(__name__)


def written_schema(columns: StructType) -> dict[str, str]:
    """Describe the schema of the rows that a run writes for its report, unless it is very long."""
    ddl = simple_ddl(columns)
    return {"schema": ddl} if len(ddl) <= MOST_DDL else {}


def add_counts(  # noqa: PLR0913 - what a run knows of itself
    report: dict[str, Any],
    spec: JobSpec,
    before: int,
    last_entry: int,
    discovered: Mapping[str, Any] | None,
    *,
    newest_found: str | None = None,
    has_work: bool = True,
    is_complete: bool = False,
) -> None:
    """Put what was committed into the report; a run is not failed by its bookkeeping.

    Args:
        report: Gets the counts.
        spec: The run.
        before: The last batch that was committed when the run began; -1 for none.
        last_entry: The last entry of the file log that it was to ingest.
        discovered: What its discovery did; `None` where it made none.
        newest_found: When that entry was written, if the run knows.
        has_work: Whether there was anything to ingest.
        is_complete: Whether all of it is known to be ingested.
    """
    try:
        state = open_store(spec.checkpoint_location)
        done, last = _done(spec, state, before) if has_work else ([], before)
        report |= summary(spec, done)
        end = Offset(last_entry + 1, 0) if is_complete else position(state).end
        report |= _backlog(state, end, last_entry, discovered)
        report["position"] = {
            "last_batch": last,
            "entries": last_entry + 1,
            "newest_found": newest_found,
        }
        report["discovery"] = discovered
        report["warnings"] += _discovery_warnings(discovered or {})
    except (CloudFilesError, OSError, ValueError) as error:
        _log.warning("The counts of this run cannot be read: %s", error)


def _done(
    spec: JobSpec, state: ObjectStore, before: int
) -> tuple[list[run_history.BatchDone], int]:
    """Read what the batches since the run began have noted; of one batch, in one round trip.

    Returns:
        The notes, and the last batch that is committed.
    """
    noted = partial(run_history.notes, spec.checkpoint_location)
    first, last = side_by_side(state, lambda: noted((before + 1,)), lambda: newest_batch(state))
    return ([*first, *noted(range(before + 2, last + 1))], last) if last > before else ([], before)


def _backlog(
    state: ObjectStore, end: Offset, last_entry: int, discovered: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Count what the run leaves of what it had before it, in Auto Loader's words (B116)."""
    log, head = FileLog(state), max(end, Offset(last_entry + 1, 0))
    waiting = ((discovered or {}).get("notifications") or {}).get("approximate_size_after")
    left = replace(source_metrics(log, end, head), queue_size=waiting)
    since = oldest(log, end, head) if left.files else None
    return {"metrics": left.to_json(), "oldest_outstanding": since}


def _discovery_warnings(found: Mapping[str, Any]) -> list[str]:
    """List what a person should know of a discovery."""
    listing, queue = found.get("listing") or {}, found.get("notifications") or {}
    warnings = []
    if missed := listing.get("missed_by_incremental"):
        where = "new {file} {is} where an incremental listing does not look, such as"
        warnings.append(f"{sentence(missed, where)} {listing['missed_sample'][0]}.")
    if lost := found.get("found_by", {}).get("backfill"):
        warnings.append(sentence(lost, "{file} {was} found by a full listing only."))
    if poison := queue.get("poison"):
        text = "{message} {was} not understood and {is} still in the queue."
        warnings.append(sentence(poison, text))
    announced = queue or found.get("file_events") or {}
    if gone := announced.get("ignored", {}).get(NO_FILE):
        text = "{file} {was} announced and {is} not there, such as"
        warnings.append(f"{sentence(gone, text)} {announced['not_there'][0]}.")
    if failed := queue.get("failed_deletes"):
        text = "{message} could not be deleted, and will come back, harmlessly."
        warnings.append(sentence(failed, text))
    if changed := found.get("changed_files"):
        first = found["changed"][0]
        text = "{file} {has} changed since {it} {was} ingested; the table has what {it} {was} then."
        again = f" {first['path']}: {first['change']}. To ingest it again: {first['replay']}"
        warnings.append(sentence(changed, text) + again)
    return warnings


def summary(spec: JobSpec, noted: Sequence[run_history.BatchDone]) -> dict[str, Any]:
    """Add up what the micro-batches of this run noted; another run counts its own."""
    done = [each for each in noted if each.run_id in {None, spec.run_id}]
    total = run_history.total(each.counts for each in done)
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": total.get("files", 0),
        "bytes": total.get("bytes", 0),
        "rows": total.get("rows", 0),
        "rescued_rows": total.get("rescued_rows", 0),
        "corrupt_records": total.get("corrupt_records", 0),
        "dropped_records": total.get("dropped_records", 0),
        **({"error_cells": total["error_cells"]} if total.get("error_cells") else {}),
        **_of_rules(spec.table_options.row_rules, total),
        **_lost(done, total),
        **{
            name: total[name]
            for name in (*MERGED, *COMPACTED, *REGISTERED, REPLACED)
            if name in total
        },
        "batches": len(done),
        "batches_recovered": sum(not batch.is_new for batch in done),
        "target_version": target_table(str(spec.target)).newest_version(),
        "warnings": [
            *_batch_warnings(spec, total),
            *_violated(spec.table_options.row_rules, total),
            *_unexpected(spec, done),
        ],
    }


def _of_rules(rules: Sequence[RowRule], total: Mapping[str, int]) -> dict[str, Any]:
    """Count what rules for rows have found, and what became of it, if there are any."""
    if not rules:
        return {}
    names = ("quarantined_rows", "dropped_rows")
    return {
        "violations": {each.name: total.get(f"{VIOLATIONS}{each.name}", 0) for each in rules},
        **{name: total.get(name, 0) for name in names},
    }


def _violated(rules: Sequence[RowRule], total: Mapping[str, int]) -> list[str]:
    """List which rules rows violate, and what became of these."""
    done = {"warn": "kept", "drop": "dropped", "quarantine": "quarantined", "fail": "refused"}
    return [
        f"{counted(count, 'row')} {plural(count, 'does', 'do')} not meet {each.option} "
        f"({cut(each.predicate)}), and {plural(count, 'is', 'are')} {done[each.action]}."
        for each in rules
        if (count := total.get(f"{VIOLATIONS}{each.name}", 0))
    ]


def _lost(done: Sequence[run_history.BatchDone], total: Mapping[str, int]) -> dict[str, Any]:
    """Count what was gone when it was to be read, and name the first of it."""
    names = [uri for batch in done for uri in batch.missing][: run_history.MOST_MISSING]
    gone = total.get("missing_files", 0)
    return {"missing_files": gone, **({"missing": names} if names else {})}


def _unexpected(spec: JobSpec, done: Sequence[run_history.BatchDone]) -> list[str]:
    """List which batches are in the table although they are not as expected."""
    batches = [(each.batch_id, each.counts) for each in done]
    return [*filter(None, [expectations.warnings_of(spec.table_options, batches)])]


def _batch_warnings(spec: JobSpec, total: dict[str, int]) -> list[str]:
    """List what of the input is not in the table, or is not what was discovered."""
    apart = "badrecordspath" in {name.lower() for name in spec.options}
    sentences = {
        "missing_files": "{file} {was} gone and {was} skipped.",
        "corrupt_files": "damaged {file}, or {part} of large ones, {was} given up where the damage "
        "begins (ignoreCorruptFiles); the task's log has the names.",
        "changed_files": "{file} had changed since {it} {was} discovered.",
        "superseded_files": "{file} had been overwritten before {it} {was} read: a newer version "
        "is ingested as a file of its own, the one before is gone.",
        "error_cells": "{cell} with an error such as #N/A {is} null.",
        "dropped_records": "invalid {record} {is} in badRecordsPath."
        if apart
        else "invalid {record} {was} dropped (DROPMALFORMED).",
    }
    return [sentence(total[key], text) for key, text in sentences.items() if total.get(key)]


def files_of(
    spec: JobSpec, last_entry: int, parallelism: int, known: OpenedState | None = None
) -> FileBatches:
    """Open the micro-batches of a run whose source is files.

    Args:
        spec: The run.
        last_entry: Last entry of the file log that the run ingests.
        parallelism: How many tasks can run at a time.
        known: As for `FileBatches`.
    """
    return FileBatches(
        spec.parsed(),
        spec.checkpoint_location,
        up_to=Offset(last_entry + 1, 0),
        parallelism=parallelism,
        known=known,
    )


def carry_out(
    spec: JobSpec,
    spark: SparkStart,
    source: BatchSource,
    durations: dict[str, float],
    rows: Rows,
) -> None:
    """Ingest what a run has before it, with its function if it has one.

    Args:
        spec: The run.
        spark: Its Spark, which is stopped in the end.
        source: What the micro-batches are made of.
        durations: Gets how long it has waited for Spark, and how long the rest took, in seconds.
        rows: What there is to say of its rows.

    Raises:
        CloudFilesError: As of `carry`.
    """
    clock, waited = time.monotonic(), spark.waited_seconds
    try:
        if spec.transform is None:
            with spark.executor() as executor:
                writer = partial(new_writer, spec, **rows.stream)
                carry(source, partial(write_by_tasks, executor, source, writer))
        else:
            from airflow_cloudfiles.engine.job.transformed_batches import (  # noqa: PLC0415 - needs Spark
                TransformedBatches,
            )

            carry(source, TransformedBatches(spec, spark.session, source, rows))
    finally:
        durations["spark_start_seconds"] = spark.waited_seconds
        waited = spark.waited_seconds - waited  # a cluster is asked before what it can do at once
        durations["query_seconds"] = round(time.monotonic() - clock - waited, 3)
        spark.stop_session()


def carry(source: BatchSource, write: Callable[[PlannedBatch], None]) -> None:
    """Ingest what a run has before it; a termination signal ends that.

    Args:
        source: What the micro-batches are made of.
        write: Writes and commits one.

    Raises:
        RunFailedError: A signal has stopped it.
        CloudFilesError: What it failed with. What was committed stays.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        raise stopped_by(number)

    def check() -> None:
        if stopped:  # where the error of the signal was caught on its way
            raise stopped_by(stopped[0])

    signal.signal(signal.SIGTERM, stop)
    run_batches(source, write, check=check)


def stopped_by(number: int) -> RunFailedError:
    """Give the error of a run that a signal has stopped."""
    return RunFailedError(
        f"The run was stopped by signal {number}. What was committed stays; run again for the rest."
    )
