"""What did a run commit? Its report has the sum of what its micro-batches have noted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow_cloudfiles.engine.delta.merge.commit import MERGED
from airflow_cloudfiles.engine.delta.optimize import COMPACTED
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import newest_version
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.position import position
from airflow_cloudfiles.engine.storage import normalize_uri, open_store

_log = logging.getLogger(__name__)


def add_counts(
    report: dict[str, Any],
    spec: JobSpec,
    before: int,
    discovered: Mapping[str, Any] | None,
    *,
    has_work: bool = True,
) -> None:
    """Put what was committed into the report; a run is not failed by its bookkeeping.

    Args:
        report: Gets the counts.
        spec: The run.
        before: The last batch that was committed when the run began; -1 for none.
        discovered: What its discovery did; `None` where it made none.
        has_work: Whether there was anything to ingest.
    """
    try:
        last = position(open_store(spec.checkpoint_location)).batch if has_work else before
        report |= summary(spec, range(before + 1, last + 1))
        report["discovery"] = discovered
        report["warnings"] += _discovery_warnings(discovered or {})
    except (CloudFilesError, OSError, ValueError) as error:
        _log.warning("The counts of this run cannot be read: %s", error)


def _discovery_warnings(found: Mapping[str, Any]) -> list[str]:
    """What a person should know of a discovery."""
    listing, queue = found.get("listing") or {}, found.get("notifications") or {}
    warnings = []
    if missed := listing.get("missed_by_incremental"):
        warnings.append(
            f"{missed} new files lie where an incremental listing does not list, such as "
            f"{listing['missed_sample'][0]}."
        )
    if lost := found.get("found_by", {}).get("backfill"):
        warnings.append(f"{lost} files were found by a full listing only.")
    if poison := queue.get("poison"):
        warnings.append(f"{poison} messages were not understood and are still in the queue.")
    if failed := queue.get("failed_deletes"):
        warnings.append(f"{failed} messages could not be deleted; they come back, harmlessly.")
    return warnings


def summary(spec: JobSpec, batches: range) -> dict[str, Any]:
    """Add up what the micro-batches of this run noted; another run counts its own."""
    noted = progress.notes(spec.checkpoint_location, batches)
    done = [each for each in noted if each.run_id in {None, spec.run_id}]
    total: dict[str, int] = {}
    for batch in done:
        for key, value in batch.counts.items():
            total[key] = total.get(key, 0) + value
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": total.get("files", 0),
        "bytes": total.get("bytes", 0),
        "rows": total.get("rows", 0),
        "rescued_rows": total.get("rescued_rows", 0),
        "corrupt_records": total.get("corrupt_records", 0),
        "dropped_records": total.get("dropped_records", 0),
        **{name: total[name] for name in (*MERGED, *COMPACTED) if name in total},
        "batches": len(done),
        "batches_recovered": sum(not batch.is_new for batch in done),
        "target_version": newest_version(str(spec.target)),
        "warnings": _batch_warnings(spec, total),
    }


def _batch_warnings(spec: JobSpec, total: dict[str, int]) -> list[str]:
    """What of the input is not in the table, or is not what was discovered."""
    apart = "badrecordspath" in {name.lower() for name in spec.options}
    sentences = {
        "missing_files": "files were gone and were skipped.",
        "corrupt_files": "damaged files, or parts of large ones, were given up where the damage "
        "begins (ignoreCorruptFiles); the task's log names them.",
        "changed_files": "files had changed since they were discovered.",
        "superseded_files": "files had been overwritten before they were read (allowOverwrites): "
        "the newer versions are ingested as files of their own, those before are gone.",
        "dropped_records": "invalid records are in badRecordsPath."
        if apart
        else "invalid records were dropped (DROPMALFORMED).",
    }
    return [f"{total[key]} {what}" for key, what in sentences.items() if total.get(key)]
