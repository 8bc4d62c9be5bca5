"""How does a run ingest what has arrived?

1. Look: what is recorded and not committed, or else what a discovery finds. Where there is nothing,
   the run ends here, and has started no Spark.
2. Start Spark in the background. Meanwhile, resolve the schema and check the table.
3. Start an available-now query from the source to the Delta table; the tasks read, parse and
   write, so no row enters the JVM.
4. Follow it: a line whenever something moved, at least every few seconds.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import check_target
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.widening import WideningRule, widening_rule
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.inference.workers import local_workers
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.spark.source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.stream import definition, evolve_ahead
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.inference.tasks import Workers
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

PROGRESS_SECONDS = 10
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
    with lock:
        began = time.time()
        before = _last_batch(spec)
        sink_state.check_before_run(state, str(spec.target))
        resolved: ResolvedSchema | None = None
        if read_metadata(state) is None:
            # A source that does not exist, or has nothing to infer from, binds no state.
            resolved = definition.resolve_schema(options, workers=workers)
            if resolved.created and options.discovery.include_existing_files:
                spark.begin()  # for the files that the schema was inferred from
        with closing(_opened(spec, options)) as intake:
            found = _look(intake, options, spark)
            resolved = resolved or definition.resolve_schema(options, workers=workers)
            if found.has_work:
                resolved = (
                    evolve_ahead.evolve_ahead(options, intake, resolved, local_workers())
                    or resolved
                )
        spec = replace(spec, batch={"last_entry": found.last_entry})
        report["schema_version"] = resolved.version
        columns = resolved.full_schema(options.rescued_data_column)
        zone = zone_warning(columns, options, spec.spark_conf.get(SESSION_ZONE))
        check_target(
            str(spec.target),
            to_arrow(columns),
            merge_schema=spec.merge_schema,
            widening=_widening(spec),
        )
        try:
            if found.has_work:
                _query(spark, spec, durations)
            else:
                _log.info("Nothing is new: no Spark is started")
        finally:
            _add_counts(report, spec, before, began)
            noticed = filter(None, (*resolved.warnings, zone))
            report["warnings"] = [*noticed, *report.get("warnings", [])]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run has before it.

    Attributes:
        last_entry: Last entry of the file log that it ingests; -1 for none.
        has_work: Whether there is anything to ingest, or a planned batch to finish.
    """

    last_entry: int
    has_work: bool


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
    given = options.up_to_entry
    if _has_work(intake, given):
        spark.begin()
    if given is not None:
        return _Found(given, _has_work(intake, given))
    found = intake.discover(on_recorded=spark.begin)
    progress.note_discovery(intake.state, found.to_json())
    last = intake.files.latest()
    return _Found(last, _has_work(intake, last))


def _has_work(intake: Intake, last_entry: int | None) -> bool:
    """Whether files are recorded and not committed, or a batch is planned and not committed."""
    plan = intake.plans.latest()
    if plan is not None and plan.end > intake.committed():
        return True
    up_to = None if last_entry is None else Offset(last_entry + 1, 0)
    return intake.has_outstanding(up_to=up_to)


def _query(spark: SparkStart, spec: JobSpec, durations: dict[str, float]) -> None:
    """Run the query to its end."""
    clock = time.monotonic()
    session = spark.session()
    durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
    clock = time.monotonic()
    try:
        _follow(start(session, spec), spec)
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        spark.stop_session()


def _widening(spec: JobSpec) -> WideningRule | None:
    """Whether the sink may rewrite the table."""
    return widening_rule(spec.table_options, default=False)


def start(spark: SparkSession, spec: JobSpec) -> StreamingQuery:
    """Start the available-now query of a run; its rows never enter the JVM."""
    token = split_rows.new_token()
    options = {**spec.source_options(), split_rows.SPLIT_TOKEN: token}
    reader = spark.readStream.format("cloudFiles").options(**options)
    writer = (
        reader.load(spec.source)
        .writeStream.format("deltalake")
        # With its scheme, so that Spark's checkpoint is where the rest of the state is, whatever
        # file system is Hadoop's default.
        .option("checkpointLocation", normalize_uri(spec.checkpoint_location))
        .options(**spec.sink_options(), **{split_rows.SPLIT_TOKEN: token})
        .trigger(availableNow=True)
    )
    return writer.start(str(spec.target))


def _follow(query: StreamingQuery, spec: JobSpec) -> None:
    """Wait for the end, saying how far it is; a termination signal stops the query cleanly."""
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a call to the JVM.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    opened = Intake.open(
        source=spec.source,
        format=spec.format,
        checkpoint_location=spec.checkpoint_location,
        discovery=options.discovery,
    )
    try:
        with closing(opened) as intake:
            while not query.awaitTermination(PROGRESS_SECONDS):
                left = intake.outstanding()
                _log.info("Still to ingest: %s files, %s bytes", left.files, left.bytes)
    finally:
        if stopped:
            raise RunFailedError(
                f"The run was stopped by signal {stopped[0]}. What was committed stays; run again "
                "for the rest."
            )


def _last_batch(spec: JobSpec) -> int:
    """The last micro-batch that Spark has committed; -1 before the first."""
    store = open_store(spec.checkpoint_location)
    with reaching_state(store):
        names = [file.path.rpartition("/")[2] for file in store.list("commits/")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _add_counts(report: dict[str, Any], spec: JobSpec, before: int, began: float) -> None:
    """Put what was committed into the report; a run is not failed by its bookkeeping."""
    try:
        report |= _summary(spec, before)
        found = progress.discovery_since(open_store(spec.checkpoint_location), began)
        report["discovery"] = found
        report["warnings"] += _discovery_warnings(found or {})
    except (CloudFilesError, OSError, ValueError) as error:
        _log.warning("The counts of this run cannot be read: %s", error)


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


def _summary(spec: JobSpec, before: int) -> dict[str, Any]:
    """Add up what the micro-batches of this run noted."""
    done = progress.notes(spec.checkpoint_location, range(before + 1, _last_batch(spec) + 1))
    total: dict[str, int] = {}
    for batch in done:
        for key, value in batch.counts.items():
            total[key] = total.get(key, 0) + value
    table = open_table(str(spec.target))
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": total.get("files", 0),
        "bytes": total.get("bytes", 0),
        "rows": total.get("rows", 0),
        "rescued_rows": total.get("rescued_rows", 0),
        "corrupt_records": total.get("corrupt_records", 0),
        "dropped_records": total.get("dropped_records", 0),
        "batches": len(done),
        "batches_recovered": sum(not batch.is_new for batch in done),
        "target_version": table.version() if table else None,
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
