"""How does a run ingest what has arrived?

1. Look: what is recorded and not committed, or else what a discovery finds. Where there is nothing,
   the run ends here, and has started no Spark.
2. Start Spark in the background. Meanwhile, resolve the schema and check the table.
3. Start an available-now query from the source to the table; the tasks read, parse and
   write, so no row enters the JVM.
4. Follow it: a line whenever something moved, at least every few seconds.
5. Clean the source, if that is asked for: files of earlier runs that are due.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import Opened, opened_under
from airflow_cloudfiles.engine.job.cleaning.after_run import clean_after_run
from airflow_cloudfiles.engine.job.connect import left_runs
from airflow_cloudfiles.engine.job.connect.batch_lines import BatchLines
from airflow_cloudfiles.engine.job.connect.coming_back import Leaving, come_back, has_to_wait
from airflow_cloudfiles.engine.job.connect.left_runs import LeftRun
from airflow_cloudfiles.engine.job.connect.query import run_on_server, start_on_server
from airflow_cloudfiles.engine.job.counts import add_counts, written_schema
from airflow_cloudfiles.engine.job.query import ReadAs, follow, start_query
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import check_before_run, check_target, record_committed
from airflow_cloudfiles.engine.locks import run_lock
from airflow_cloudfiles.engine.locks.lease import free_left_behind
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.spark.source import AFTER_BATCH, LOCK_PATIENCE_SECONDS, OPENED
from airflow_cloudfiles.engine.spark.tables.expectations import check_source
from airflow_cloudfiles.engine.spark.tables.stream_writer import FIRST_BATCH, STATE
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import position_of_a_job
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import is_near
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.stream import approval, definition, evolve_ahead
from airflow_cloudfiles.engine.stream.own_locations import check_cleaning, own_locations
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.inference.tasks import Workers
    from airflow_cloudfiles.engine.intake.results import Backlog
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
) -> bool:
    """Ingest everything that was there when the run began.

    Repeating it is harmless. What was committed goes into the report also when the run then fails.

    Args:
        spec: The run.
        spark: Its Spark, not begun yet.
        report: Gets what the run did.
        durations: Gets how long its parts took, in seconds.
        workers: Who may help to read a large sample.

    Returns:
        Whether the logs of the state are to be compacted (`upkeep.is_due`).

    Raises:
        CloudFilesError: What stopped it.
    """
    location = spec.checkpoint_location
    state = open_store(location)
    server, earlier = spark.keeps_queries_on, None
    if server is not None:
        back = come_back(spec, server, report, durations)
        if back.is_settled:
            return False
        earlier = back.run
        if earlier is not None:
            spec = replace(spec, batch={"last_entry": earlier.last_entry})
            report["started"] = earlier.started
    try:
        lock = RunLock(state, JOB_KEY, run_id=spec.run_id)
        with opened_under(lock, location, timeout_seconds=LOCK_PATIENCE_SECONDS) as opened:
            if server is None or not has_to_wait(spec, server, state, report):
                is_due = _is_due(spec, state, opened)
                _ingest(
                    spec,
                    spark,
                    opened,
                    report=report,
                    durations=durations,
                    workers=workers,
                    earlier=earlier,
                )
                return is_due
    finally:
        if earlier is not None and "query" not in report:
            left_runs.delete_run(state, spec.run_id)
    return False


def _is_due(spec: JobSpec, state: ObjectStore, opened: Opened) -> bool:
    """Whether the logs are to be compacted, by what was listed to open the state."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    with reaching_state(state):
        listed = state.list if opened.ahead is None else opened.ahead.listed
        return upkeep.is_due(listed, options.upkeep.state_compact_interval)


def _ingest(  # noqa: PLR0913 - as `ingest`
    spec: JobSpec,
    spark: SparkStart,
    opened: Opened,
    *,
    report: dict[str, Any],
    durations: dict[str, float],
    workers: Workers | None,
    earlier: LeftRun | None,
) -> None:
    """Ingest, under the lock of jobs; what remains of an earlier part of the same run."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    state = open_store(spec.checkpoint_location)
    check_cleaning(options, spec.target)
    check_source(spec.table_options, options)
    begun = position_of_a_job(state, PlanLog(state))
    check_before_run(state, str(spec.target))
    resolved: ResolvedSchema | None = None
    if read_metadata(state) is None:
        # A source that does not exist, or has nothing to infer from, binds no state.
        # Spark starts while the schema is inferred, for the files that it is inferred from.
        begin = spark.begin if options.discovery.include_existing_files else None
        resolved = definition.resolve_schema(options, workers=workers, on_found=begin)
    with closing(_opened(spec, options)) as intake:
        intake.begin_at(begun)
        intake.check()
        before = record_committed(spec, intake.plans, begun)
        intake.begin_at(before)
        if options.require_approval:
            resolved = resolved or definition.resolve_schema(options, workers=workers)
            _refuse_undecided(intake, options, resolved)
        found = _look(intake, options, spark, before.batch)
        resolved = resolved or definition.resolve_schema(options, workers=workers)
        evolved = None
        if found.has_work:
            evolved = evolve_ahead.evolve_ahead(options, intake, resolved, spark.local_workers())
    # A run that comes back may have evolved the schema before it left its query.
    has_evolved = evolved or (earlier is not None and earlier.report.get("evolved_ahead"))
    resolved = evolved or resolved
    spec = replace(spec, batch={"last_entry": found.last_entry})
    columns = resolved.full_schema(options)
    of_schema = {
        "schema_version": resolved.version,
        **written_schema(columns),
        "evolved_ahead": bool(has_evolved),
    }
    report |= of_schema
    if spec.transform is not None:
        found = replace(found, read_as=_read_as(resolved, options, report))
    zone = zone_warning(columns, options, spec.spark_conf.get(SESSION_ZONE))
    if spec.transform is None:  # else the function says which columns there are, and the writer
        check_target(spec, to_arrow(columns))
    opened.end_reads()
    known = {**of_schema, "warnings": [*filter(None, (*resolved.warnings, zone))]}
    run = replace(earlier or _as_run(spec, found, begun.batch), report=known)
    leaving = Leaving(run, spark.identify, spec)
    _run_query(spark, found, leaving, opened, report=report, durations=durations)
    if options.cleaning.is_on and found.has_work and leaving.query is None:
        clean_after_run(spec, options, before, report, durations)


def _read_as(
    resolved: ResolvedSchema, options: CloudFilesOptions, report: dict[str, Any]
) -> ReadAs:
    """How the files are read for a function; the report has the schema of what that returns."""
    report.pop("schema", None)
    return ReadAs(
        schema=resolved.full_schema(options),
        version=resolved.version,
        rescued=options.rescued_data_column,
        on_written=lambda columns: report.update(written_schema(columns)),
    )


def _as_run(spec: JobSpec, found: _Found, before: int) -> LeftRun:
    """What there is to say of a run, should it leave its query.

    `before` is the last batch that had a record when it began.
    """
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
    opened: Opened,
    *,
    report: dict[str, Any],
    durations: dict[str, float],
) -> None:
    """Run the query, if there is work for one, and count what was committed unless it goes on."""
    is_complete = False
    try:
        if found.has_work:
            _query(spark, durations, found, leaving, opened)
        else:
            _log.info("Nothing is new: no Spark is started")
        is_complete = True
    finally:
        if leaving.query is not None:
            leaving.reported(report)
        else:
            _end(report, leaving, found, is_complete=is_complete)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run has before it.

    Attributes:
        before: Last committed batch; -1 for none.
        last_entry: Last entry of the file log that it ingests; -1 for none.
        has_work: Whether there is anything to ingest, or a planned batch to finish.
        one_batch: What there is, if it is little enough for one micro-batch.
        discovered: What its discovery did (`Discovered.to_json`); `None` where it made none.
        read_as: How the files are read, where a function is given their rows.
    """

    before: int
    last_entry: int
    has_work: bool
    one_batch: Backlog | None
    discovered: dict[str, Any] | None = None
    read_as: ReadAs | None = None


def _opened(spec: JobSpec, options: CloudFilesOptions) -> Intake:
    locations = (spec.checkpoint_location, spec.target)
    return Intake.open(
        source=spec.source,
        format=spec.format,
        checkpoint_location=spec.checkpoint_location,
        exclude=own_locations(options, *locations),
        discovery=options.discovery,
    )


def _look(intake: Intake, options: CloudFilesOptions, spark: SparkStart, before: int) -> _Found:
    """Discover, unless the run was given what to ingest; start Spark as soon as there is work.

    `before` is the last committed batch.
    """
    given = options.up_to_entry
    known = intake.known_head() if given is None else Offset(given + 1, 0)
    if given is None and known == START:
        known = intake.head()
    has_work = intake.has_work(up_to=known)
    if has_work:
        spark.begin()
    if given is not None:
        one_batch = _one_batch(intake, options, known) if has_work else None
        return _Found(before, given, has_work, one_batch)
    found = intake.discover(on_recorded=spark.begin).to_json()
    progress.note_discovery(intake.state, found)
    head = intake.known_head()
    has_work = has_work or (head > known and intake.has_work(up_to=head))
    one_batch = _one_batch(intake, options, head) if has_work else None
    return _Found(before, head.entry - 1, has_work, one_batch, found)


def _refuse_undecided(intake: Intake, options: CloudFilesOptions, resolved: ResolvedSchema) -> None:
    """End the run while a change of the schema waits for a decision, after it has discovered."""
    waits = approval.undecided(options, resolved)
    if waits is None:
        return
    if options.up_to_entry is None:  # messages of a queue do not wait for ever
        progress.note_discovery(intake.state, intake.discover().to_json())
    raise waits


def _one_batch(intake: Intake, options: CloudFilesOptions, end: Offset) -> Backlog | None:
    """What is recorded up to here, if the read limits let one micro-batch have all of it."""
    if end.entry - intake.committed().entry > _FEW_ENTRIES:
        return None
    left, limit = intake.outstanding(up_to=end), options.read_limit
    most_bytes = left.bytes if limit.max_bytes is None else limit.max_bytes
    is_one = left.files <= (limit.max_files or left.files) and left.bytes <= most_bytes
    return left if is_one else None


def _query(
    spark: SparkStart,
    durations: dict[str, float],
    found: _Found,
    leaving: Leaving,
    opened: Opened,
) -> None:
    """Run the query to its end, or leave it."""
    spec, before, one_batch = leaving.spec, found.before, found.one_batch
    clock = time.monotonic()
    session = spark.session(is_one_batch=one_batch is not None)
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
                begin,
                partial(_follow, spec=spec, left=one_batch, lines=lines, leave=leave),
                spec,
                before,
            )
        else:
            query = start(session, spec, after_batch=before, opened=opened, read_as=found.read_as)
            _follow(query, spec, one_batch)
    except BaseException:
        leaving.query = None
        raise
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        if leaving.query is not None:
            spark.leave_session()
        else:
            spark.stop_session()


def _free_run_lock(state: ObjectStore) -> None:
    """Free the lock of the planning process, which Spark ends before it can do so itself.

    The operating system does that on a disk. In an object store, the next run would have to wait
    for the lease to lapse, on another machine than this one.
    """
    try:
        free_left_behind(state, run_lock.KEY, patience_seconds=_END_SECONDS)
    except OSError as failure:
        _log.warning("The run lock was not released, and expires by itself: %s", failure)


def start(
    spark: SparkSession,
    spec: JobSpec,
    *,
    after_batch: int = -1,
    opened: Opened | None = None,
    read_as: ReadAs | None = None,
) -> StreamingQuery:
    """Start the available-now query of a run; without a function, no row enters the JVM.

    Spark keeps its checkpoint of the query in an empty folder of this process, which is removed at
    its end: the state has all that is in it.

    Args:
        spark: The session, with `cloudFiles` registered.
        spec: The run.
        after_batch: The last committed batch of the stream; -1 for none.
        opened: The state; the planning process gets what was read of it.
        read_as: How the files are read, where a function is given their rows.
    """
    # A cluster's configuration may name a class that writes to its object store only.
    spark.conf.unset(_CHECKPOINT_FILES)
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=handoff.process_folder())
    of_source = {AFTER_BATCH: str(after_batch)}
    known = None if opened is None else opened.to_hand_over()
    if known is not None:
        of_source[OPENED] = handoff.new_token()
        handoff.put(of_source[OPENED], known)
    return start_query(
        spark,
        spec,
        # With its scheme, whatever file system is Hadoop's default.
        f"file:{checkpoint}",
        of_source=of_source,
        of_sink={
            STATE: normalize_uri(spec.checkpoint_location),
            FIRST_BATCH: str(after_batch + 1),
        },
        read_as=read_as,
    )


def _follow(
    query: StreamingQuery,
    spec: JobSpec,
    left: Backlog | None,
    lines: BatchLines | None = None,
    leave: Callable[[StreamingQuery, int], None] | None = None,
) -> None:
    """Wait for the end, saying how far it is, or leave the query.

    `left` is what there is to ingest, if it is one micro-batch: then nobody is asked meanwhile.
    """
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    with ExitStack() as opened:
        intake: Intake | None = None

        def say() -> None:
            nonlocal intake
            if intake is None and left is None:  # a short query needs none
                intake = opened.enter_context(closing(_opened(spec, options)))
            if lines is not None:
                lines.log_new()
            now = left if intake is None else intake.outstanding()
            if now is not None:
                _log.info(
                    "Still to ingest: %s, %s",
                    counted(now.files, "file"),
                    counted(now.bytes, "byte"),
                )

        try:
            if lines is None or leave is None or spec.leave_after_seconds is None:
                follow(query, say)
            else:
                go = partial(_leave, query, lines, leave)
                follow(query, say, leave=go, leave_after_seconds=spec.leave_after_seconds)
        finally:
            if lines is not None:
                lines.log_new()


def _leave(
    query: StreamingQuery, lines: BatchLines, leave: Callable[[StreamingQuery, int], None]
) -> None:
    lines.log_new()
    leave(query, lines.next_batch)


def _end(report: dict[str, Any], leaving: Leaving, found: _Found, *, is_complete: bool) -> None:
    """Begin to free what a query has left behind, and read what it did."""
    run, spec = leaving.run, leaving.spec
    state = open_store(spec.checkpoint_location)
    if found.has_work and not is_near(state):
        run_lock.free_aside(partial(_free_run_lock, state))
    add_counts(
        report,
        spec,
        run.before,
        run.last_entry,
        run.discovered,
        has_work=found.has_work or run.before < found.before,
        is_complete=is_complete,
    )
    report["warnings"] = [*run.report["warnings"], *report.get("warnings", [])]
