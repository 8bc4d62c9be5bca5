"""Ingest what a Delta table has got.

From bronze to silver: the micro-batches of a stream from the table (`batches.table_source`), in the
loop of every run. Nothing is discovered: the log of the table is the list of what is new. A run
that finds nothing new starts no Spark. Each version is read exactly once: the state has the range
of a micro-batch before it is read, and the target has its number.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.file_source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.batches.table_source import TableBatches, TableRange
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, StateConflictError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.counts import carry_out
from airflow_cloudfiles.engine.job.target import Rows, target_table
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions, table_options
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata, remains_of
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.tables.delta.lineage import COMPACTED, MERGED
from airflow_cloudfiles.engine.tables.delta.stream.commits import NOWHERE, TableBacklog, backlog
from airflow_cloudfiles.engine.tables.sink_state import application

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.session import SparkStart
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)


def ingest_table(
    spec: JobSpec, spark: SparkStart, report: dict[str, Any], durations: dict[str, float]
) -> None:
    """Ingest every version that the table had when the run began.

    Repeating it is harmless. What was committed goes into the report also when the run then fails.

    Args:
        spec: The run.
        spark: Its Spark, not begun yet.
        report: Gets what the run did.
        durations: Gets how long its parts took, in seconds.

    Raises:
        CloudFilesError: What stopped it.
    """
    if spec.batch is not None:
        raise OptionError(
            "batch is for a source of files: a run whose source is a Delta table ingests every "
            "version there is. Leave it out."
        )
    state = open_store(spec.checkpoint_location)
    lock = RunLock(state, JOB_KEY, run_id=spec.run_id)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock:
        _refuse_other_stream(state, spec.source)
        target_table(str(spec.target)).check_before_run(state)
        if application(state) is None and (remains := remains_of(state)) is not None:
            raise remains
        before = backlog(state, spec.source)
        if not before.has_work:
            _log.info("Version %s is the newest and was read: no Spark is started", before.newest)
            report |= _summary(spec, before, [])
            return
        spark.begin()
        read: list[TableRange] = []
        try:
            _carry(spec, spark, durations, read)
        finally:
            try:
                report |= _summary(spec, before, read)
            except (CloudFilesError, OSError, ValueError) as error:
                _log.warning("The counts of this run cannot be read: %s", error)


def _refuse_other_stream(state: ObjectStore, table: str) -> None:
    """Refuse the state of a stream of files: the target has its batches under the same numbers."""
    found = read_metadata(state)
    if found is not None and found.is_bound:
        raise StateConflictError(
            f"The checkpoint location {printable_path(state.uri)} belongs to the source "
            f"{printable_path(found.source)} with format {found.format}, not to the Delta table "
            f"{printable_path(table)}. Give every source a checkpoint location of its own."
        )


def _carry(
    spec: JobSpec, spark: SparkStart, durations: dict[str, float], read: list[TableRange]
) -> None:
    """Carry the micro-batches of the run to their end; `read` gets what was committed."""
    checkpoint = normalize_uri(spec.checkpoint_location)
    given = table_options(spec.options, checkpoint, spec.schema_location)
    parallelism = spark.parallelism()  # of a cluster, whose settings are known then
    source = TableBatches(
        spec.source,
        TableStreamOptions.read(given),
        checkpoint,
        settings=spark.settings(),
        parallelism=parallelism,
        read=read,
    )
    stream: dict[str, Any] = {"written": "table"}
    if spec.transform is None:
        stream["schema"] = source.schema
    carry_out(spec, spark, source, durations, Rows(source.schema, stream))


def _summary(spec: JobSpec, before: TableBacklog, read: Sequence[TableRange]) -> dict[str, Any]:
    """Summarize what the run did.

    Args:
        spec: The run.
        before: What was left before it.
        read: What each micro-batch has read that was committed.
    """
    batches = range(before.batch + 1, before.batch + 1 + len(read))
    done = run_history.notes(spec.checkpoint_location, batches)
    total = run_history.total(each.counts for each in done)
    seen = [each for each in read if each.start.version != NOWHERE]
    next_version = read[-1].end.version if read else before.next_version
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": sum(each.files for each in read),
        "bytes": sum(each.bytes for each in read),
        "rows": total.get("rows", 0),
        **{name: total[name] for name in (*MERGED, *COMPACTED) if name in total},
        "batches": len(batches),
        "batches_recovered": sum(not each.is_new for each in done),
        "first_version": _first_version(seen[0]) if seen else None,
        "last_version": _last_version(seen[-1]) if seen else None,
        "versions": (next_version or 0) - (before.next_version or 0),
        "source_version": max(before.newest, (next_version or 0) - 1),
        "next_version": next_version,
        "target_version": target_table(str(spec.target)).newest_version(),
        "warnings": [],
    }


def _first_version(read: TableRange) -> int:
    """Find the first version that a micro-batch has read; an initial snapshot has rows of all."""
    return 0 if read.start.is_initial else read.start.version


def _last_version(read: TableRange) -> int:
    """Find the last version that a micro-batch has read, at least in part."""
    return read.end.version - (read.end.index < 0)
