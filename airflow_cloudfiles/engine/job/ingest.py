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
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import opened_at_once
from airflow_cloudfiles.engine.job.connect import left_runs
from airflow_cloudfiles.engine.job.connect.batch_lines import BatchLines
from airflow_cloudfiles.engine.job.connect.coming_back import Leaving, come_back, has_to_wait
from airflow_cloudfiles.engine.job.connect.left_runs import LeftRun
from airflow_cloudfiles.engine.job.connect.query import run_on_server, start_on_server
from airflow_cloudfiles.engine.job.counts import add_counts
from airflow_cloudfiles.engine.job.query import start_query
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import check_before_run, check_target
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
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import position_of_a_job
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

PROGRESS_SECONDS = 10
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
    state = open_store(spec.checkpoint_location)
    server, earlier = spark.keeps_queries_on, None
    if server is not None:
        back = come_back(spec, server, report, durations)
        if back.is_settled:
            return
        earlier = back.run
        if earlier is not None:
            spec = replace(spec, batch={"last_entry": earlier.last_entry})
            report["started"] = earlier.started
    try:
        lock = RunLock(state, JOB_KEY)
        lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
        with lock:
            if server is None or not has_to_wait(spec, server, state, report):
                _ingest(
                    spec,
                    spark,
                    report=report,
                    durations=durations,
                    workers=workers,
                    earlier=earlier,
                )
    finally:
        if earlier is not None and "query" not in report:
            left_runs.delete_run(state, spec.run_id)


def _ingest(  # noqa: PLR0913 - as `ingest`
    spec: JobSpec,
    spark: SparkStart,
    *,
    report: dict[str, Any],
    durations: dict[str, float],
    workers: Workers | None,
    earlier: LeftRun | None,
) -> None:
    """Ingest, under the lock of jobs; what remains of an earlier part of the same run."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    with ExitStack() as reads:
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
        known = {
            "schema_version": resolved.version,
            "warnings": [*filter(None, (*resolved.warnings, zone))],
        }
        run = replace(earlier or _as_run(spec, before.batch, found), report=known)
        leaving = Leaving(run, spark.identify, spec)
        _run_query(spark, found, leaving, before=before.batch, report=report, durations=durations)


def _as_run(spec: JobSpec, before: int, found: _Found) -> LeftRun:
    """What there is to say of a run, should it leave its query."""
    return LeftRun(
        run_id=spec.run_id,
        before=before,
        last_entry=found.last_entry,
        started=datetime.now(tz=UTC).isoformat(),
        discovered=found.discovered,
    )


def _run_query(  # noqa: PLR0913 - the parts of a run
    spark: SparkStart,
    found: _Found,
    leaving: Leaving,
    *,
    before: int,
    report: dict[str, Any],
    durations: dict[str, float],
) -> None:
    """Run the query, if there is work for one, and count what was committed unless it goes on."""
    try:
        if found.has_work:
            _query(spark, durations, before, leaving, is_one_batch=found.is_one_batch)
        else:
            _log.info("Nothing is new: no Spark is started")
    finally:
        run = leaving.run
        if leaving.query is not None:
            leaving.reported(report)
        else:
            has_work = found.has_work or run.before < before
            add_counts(report, leaving.spec, run.before, run.discovered, has_work=has_work)
            report["warnings"] = [*run.report["warnings"], *report.get("warnings", [])]


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
    durations: dict[str, float],
    before: int,
    leaving: Leaving,
    *,
    is_one_batch: bool,
) -> None:
    """Run the query to its end, or leave it; `before` is the last committed batch."""
    spec = leaving.spec
    clock = time.monotonic()
    session = spark.session(is_one_batch=is_one_batch)
    durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
    clock = time.monotonic()
    try:
        if spark.is_elsewhere:
            lines = BatchLines(spec, before + 1)

            def begin(after_batch: int) -> StreamingQuery:
                leaving.started(after_batch)
                return start_on_server(session, spec, spark.temporary, after_batch)

            leave = partial(leaving.leave, durations=durations)
            run_on_server(
                begin, partial(_follow, spec=spec, lines=lines, leave=leave), spec, before
            )
        else:
            _follow(start(session, spec, after_batch=before), spec)
    except BaseException:
        leaving.query = None
        raise
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        if leaving.query is not None:
            spark.leave_session()
        else:
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


def _follow(
    query: StreamingQuery,
    spec: JobSpec,
    lines: BatchLines | None = None,
    leave: Callable[[StreamingQuery, int], None] | None = None,
) -> None:
    """Wait for the end, saying how far it is; a termination signal stops the query cleanly."""
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a call to the JVM.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    try:
        wait: Any = query.awaitTermination  # Spark takes fractions of a second, too
        if wait(spec.leave_after_seconds or PROGRESS_SECONDS):
            return
        if leave is not None and lines is not None and spec.leave_after_seconds is not None:
            lines.log_new()
            leave(query, lines.next_batch)
            lines = None
            return
        with closing(_opened(spec, options)) as intake:
            while not query.awaitTermination(PROGRESS_SECONDS):
                if lines is not None:
                    lines.log_new()
                left = intake.outstanding()
                _log.info("Still to ingest: %s files, %s bytes", left.files, left.bytes)
    finally:
        if lines is not None:
            lines.log_new()
        if stopped:
            raise RunFailedError(
                f"The run was stopped by signal {stopped[0]}. What was committed stays; run again "
                "for the rest."
            )
