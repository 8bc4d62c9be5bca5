"""How does a run ingest what has arrived?

1. Look: what is recorded and not committed, or else what a discovery finds. Where there is nothing,
   the run ends here, and has started no Spark.
2. Start Spark in the background. Meanwhile, resolve the schema and check the table.
3. Start an available-now query from the source to the table; the tasks read, parse and
   write, so no row enters the JVM.
4. Follow it: a line whenever something moved, at least every few seconds.
"""

from __future__ import annotations

import logging
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.delta.merge.commit import MERGED
from airflow_cloudfiles.engine.delta.optimize import COMPACTED
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.metrics import source_metrics
from airflow_cloudfiles.engine.intake.opening import opened_at_once
from airflow_cloudfiles.engine.job.connect.batch_lines import BatchLines
from airflow_cloudfiles.engine.job.connect.query import run_on_server, start_on_server
from airflow_cloudfiles.engine.job.following import follow
from airflow_cloudfiles.engine.job.query import start_query
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import check_before_run, check_target, newest_version
from airflow_cloudfiles.engine.locks import run_lock
from airflow_cloudfiles.engine.locks.lease import free_left_behind
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.spark.source import AFTER_BATCH, LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.spark.tables.stream_writer import FIRST_BATCH, STATE
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import Position, position, position_of_a_job
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.stream import definition, evolve_ahead
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.inference.tasks import Workers
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

_END_SECONDS = 5.0
_FEW_ENTRIES = 8
"""Up to so many entries of the file log are counted: each may cost a request."""
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_log = logging.getLogger(__name__)


def ingest(
    spec: JobSpec,
    spark: SparkStart,
    report: dict[str, Any],
    durations: dict[str, float],
    workers: Workers | None,
) -> None:
    """Ingest everything that was there when the run began.

    Repeating it is harmless. What was committed goes into the report also when the run then fails.

    Args:
        spec: The run.
        spark: Its Spark, not begun yet.
        report: Gets what the run did.
        durations: Gets how long its parts took, in seconds.
        workers: Who may help to read a large sample.

    Raises:
        CloudFilesError: What stopped it.
    """
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    state = open_store(spec.checkpoint_location)
    lock = RunLock(state, JOB_KEY)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock, ExitStack() as reads:
        end_reads = reads.enter_context(opened_at_once(spec.checkpoint_location, under_lock=True))
        state = open_store(spec.checkpoint_location)
        before = position_of_a_job(state, PlanLog(state))
        check_before_run(state, str(spec.target))
        resolved: ResolvedSchema | None = None
        if read_metadata(state) is None:
            # A source that does not exist, or has nothing to infer from, binds no state.
            # Spark starts while the schema is inferred, for the files that it is inferred from.
            begin = spark.begin if options.discovery.include_existing_files else None
            resolved = definition.resolve_schema(options, workers=workers, on_found=begin)
        with closing(_opened(spec, options)) as intake:
            intake.begin_at(before)
            found = _look(intake, options, spark)
            resolved = resolved or definition.resolve_schema(options, workers=workers)
            if found.has_work:
                resolved = (
                    evolve_ahead.evolve_ahead(options, intake, resolved, spark.local_workers())
                    or resolved
                )
        spec = replace(spec, batch={"last_entry": found.last_entry})
        report["schema_version"] = resolved.version
        columns = resolved.full_schema(options.rescued_data_column)
        zone = zone_warning(columns, options, spec.spark_conf.get(SESSION_ZONE))
        check_target(spec, to_arrow(columns))
        end_reads()
        try:
            if found.has_work:
                _query(spark, spec, durations, before.batch, is_one_batch=found.is_one_batch)
            else:
                _log.info("Nothing is new: no Spark is started")
        finally:
            _add_counts(report, spec, before, found)
            noticed = filter(None, (*resolved.warnings, zone))
            report["warnings"] = [*noticed, *report.get("warnings", [])]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run has before it.

    Attributes:
        last_entry: Last entry of the file log that it ingests; -1 for none.
        has_work: Whether there is anything to ingest, or a planned batch to finish.
        is_one_batch: Whether it is little enough for one micro-batch.
        discovered: What its discovery did (`Discovered.to_json`); `None` where it made none.
    """

    last_entry: int
    has_work: bool
    is_one_batch: bool
    discovered: dict[str, Any] | None = None


def _opened(spec: JobSpec, options: CloudFilesOptions) -> Intake:
    locations = (spec.checkpoint_location, spec.target)
    return Intake.open(
        source=spec.source,
        format=spec.format,
        checkpoint_location=spec.checkpoint_location,
        exclude=definition.own_locations(options, *locations),
        discovery=options.discovery,
    )


def _look(intake: Intake, options: CloudFilesOptions, spark: SparkStart) -> _Found:
    """Discover, unless the run was given what to ingest; start Spark as soon as there is work."""
    intake.check()
    given = options.up_to_entry
    known = intake.known_head() if given is None else Offset(given + 1, 0)
    if given is None and known == START:
        known = intake.head()
    has_work = intake.has_work(up_to=known)
    if has_work:
        spark.begin()
    if given is not None:
        return _Found(given, has_work, has_work and _is_one_batch(intake, options, known))
    found = intake.discover(on_recorded=spark.begin).to_json()
    progress.note_discovery(intake.state, found)
    head = intake.known_head()
    has_work = has_work or (head > known and intake.has_work(up_to=head))
    is_one_batch = has_work and _is_one_batch(intake, options, head)
    return _Found(head.entry - 1, has_work, is_one_batch, found)


def _is_one_batch(intake: Intake, options: CloudFilesOptions, end: Offset) -> bool:
    """Whether the read limits let one micro-batch have everything that is recorded up to here."""
    if end.entry - intake.committed().entry > _FEW_ENTRIES:
        return False
    left, limit = intake.outstanding(up_to=end), options.read_limit
    most_bytes = left.bytes if limit.max_bytes is None else limit.max_bytes
    return left.files <= (limit.max_files or left.files) and left.bytes <= most_bytes


def _query(
    spark: SparkStart,
    spec: JobSpec,
    durations: dict[str, float],
    before: int,
    *,
    is_one_batch: bool,
) -> None:
    """Run the query to its end; `before` is the last committed batch."""
    clock = time.monotonic()
    session = spark.session(is_one_batch=is_one_batch)
    durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
    clock = time.monotonic()
    try:
        if spark.is_elsewhere:
            run_on_server(
                partial(start_on_server, session, spec, spark.temporary),
                partial(_follow, spec=spec, lines=BatchLines(spec, before + 1)),
                spec,
                before,
            )
        else:
            _follow(start(session, spec, after_batch=before), spec)
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        spark.stop_session()
        _free_run_lock(open_store(spec.checkpoint_location))


def _free_run_lock(state: ObjectStore) -> None:
    """Free the lock of the planning process, which Spark ends before it can do so itself.

    The operating system does that on a disk. In an object store, the next run would have to wait
    for the lease to lapse, on another machine than this one.
    """
    if isinstance(state, LocalStore | MemoryStore):
        return
    try:
        free_left_behind(state, run_lock.KEY, patience_seconds=_END_SECONDS)
    except OSError as failure:
        _log.warning("The run lock was not released, and expires by itself: %s", failure)


def start(spark: SparkSession, spec: JobSpec, *, after_batch: int = -1) -> StreamingQuery:
    """Start the available-now query of a run; its rows never enter the JVM.

    Spark keeps its checkpoint of the query in an empty folder of this process, which is removed at
    its end: the state has all that is in it.

    Args:
        spark: The session, with `cloudFiles` registered.
        spec: The run.
        after_batch: The last committed batch of the stream; -1 for none.
    """
    # A cluster's configuration may name a class that writes to its object store only.
    spark.conf.unset(_CHECKPOINT_FILES)
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=handoff.process_folder())
    return start_query(
        spark,
        spec,
        # With its scheme, whatever file system is Hadoop's default.
        f"file:{checkpoint}",
        of_source={AFTER_BATCH: str(after_batch)},
        of_sink={
            STATE: normalize_uri(spec.checkpoint_location),
            FIRST_BATCH: str(after_batch + 1),
        },
    )


def _follow(query: StreamingQuery, spec: JobSpec, lines: BatchLines | None = None) -> None:
    """Wait for the end, saying how far it is; a termination signal stops the query cleanly."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    with ExitStack() as opened:
        intake: Intake | None = None

        def say() -> None:
            nonlocal intake
            if intake is None:  # a short query needs none
                intake = opened.enter_context(closing(_opened(spec, options)))
            if lines is not None:
                lines.log_new()
            left = intake.outstanding()
            _log.info("Still to ingest: %s files, %s bytes", left.files, left.bytes)

        try:
            follow(query, say)
        finally:
            if lines is not None:
                lines.log_new()


def _add_counts(report: dict[str, Any], spec: JobSpec, before: Position, found: _Found) -> None:
    """Put what was committed into the report; a run is not failed by its bookkeeping."""
    try:
        state = open_store(spec.checkpoint_location)
        end = position(state) if found.has_work else before
        report |= _summary(spec, range(before.batch + 1, end.batch + 1))
        report["metrics"] = _metrics(state, end.end, found)
        report["discovery"] = found.discovered
        report["warnings"] += _discovery_warnings(found.discovered or {})
    except (CloudFilesError, OSError, ValueError) as error:
        _log.warning("The counts of this run cannot be read: %s", error)


def _metrics(state: ObjectStore, end: Offset, found: _Found) -> dict[str, str]:
    """What the run leaves of what it had before it, in Auto Loader's words (B116)."""
    head = max(end, Offset(found.last_entry + 1, 0))
    waiting = ((found.discovered or {}).get("notifications") or {}).get("approximate_size_after")
    return replace(source_metrics(FileLog(state), end, head), queue_size=waiting).to_json()


def _discovery_warnings(found: dict[str, Any]) -> list[str]:
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


def _summary(spec: JobSpec, batches: range) -> dict[str, Any]:
    """Add up what the micro-batches of this run noted."""
    done = progress.notes(spec.checkpoint_location, batches)
    total = progress.total(done)
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
