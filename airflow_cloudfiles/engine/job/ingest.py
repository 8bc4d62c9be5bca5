"""Ingest what has arrived.

1. Look: what is recorded and not committed, or else what a discovery finds. Where there is nothing,
   the run ends here, and has started no Spark.
2. Start Spark in the background. Meanwhile, resolve the schema and check the table.
3. Carry micro-batch after micro-batch to the table (`batches.run`); the tasks read, parse and
   write, so no row enters the JVM.
4. Clean the source, if that is asked for: files of earlier runs that are due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow_cloudfiles.engine.batches.file_source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import check_cleaning, locate, opened_under
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.coming_back import QueryHandover, come_back, has_to_wait
from airflow_cloudfiles.engine.job.connect.left_query import LeftRun
from airflow_cloudfiles.engine.job.counts import add_counts, carry_out, files_of, written_schema
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import Rows, check_target, record_committed, target_table
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position_of_a_job
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.stream import approval, definition, schema_change
from airflow_cloudfiles.engine.tables.expectations import check_source
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.errors import CloudFilesError
    from airflow_cloudfiles.engine.job.connect.session import ConnectStart
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

_log = logging.getLogger(__name__)


def ingest(
    spec: JobSpec,
    spark: SparkStart,
    report: dict[str, Any],
    durations: dict[str, float],
) -> bool:
    """Ingest everything that was there when the run began.

    Repeating it is harmless. What was committed goes into the report also when the run then fails.

    Args:
        spec: The run.
        spark: Its Spark, not begun yet.
        report: Gets what the run did.
        durations: Gets how long its parts took, in seconds.

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
                    earlier=earlier,
                )
                return is_due
    finally:
        if earlier is not None and "query" not in report:
            left_query.delete_run(state, spec.run_id)
    return False


def _is_due(spec: JobSpec, state: ObjectStore, opened: OpenedState) -> bool:
    """Tell whether the logs are to be compacted, by what was listed to open the state."""
    options = spec.parsed()
    with reaching_state(state):
        listed = state.list if opened.ahead is None else opened.ahead.listed
        return upkeep.is_due(listed, options.upkeep.state_compact_interval)


def _ingest(  # noqa: PLR0913 - as `ingest`
    spec: JobSpec,
    spark: SparkStart,
    opened: OpenedState,
    *,
    report: dict[str, Any],
    durations: dict[str, float],
    earlier: LeftRun | None,
) -> None:
    """Ingest, under the lock of jobs; what remains of an earlier part of the same run."""
    options = spec.parsed()
    state = opened.open(spec.checkpoint_location)
    _check_options(spec, options, opened)
    begun = position_of_a_job(state, PlanLog(state))
    target_table(str(spec.target)).check_before_run(state, locate(spec.source, state).name)
    resolve = partial(definition.resolve_schema, options, open_state=opened.open)
    resolved: ResolvedSchema | None = None
    if read_metadata(state) is None:
        # A source that does not exist, or has nothing to infer from, binds no state.
        # Spark starts while the schema is inferred, for the files that it is inferred from.
        begin = spark.begin if options.discovery.include_existing_files else None
        resolved = resolve(on_found=begin)
    with closing(
        definition.intake_of(options, spec.checkpoint_location, spec.target, opened.open)
    ) as intake:
        intake.begin_at(begun)
        intake.check()
        before = record_committed(spec, state, intake.plans, begun)
        intake.begin_at(before)
        if options.require_approval:
            resolved = resolved or resolve()
            _refuse_undecided(intake, options, approval.undecided(options, resolved, opened.open))
        found = _look(intake, options, spark, before.batch)
        resolved = resolved or resolve()
        evolved = (
            schema_change.evolve_ahead(options, intake, resolved, opened.open)
            if found.has_work
            else None
        )
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
    rows = _rows(spec, resolved, options, report)
    zone = _zone_warning(spec, columns, options)
    if spec.transform is None:  # else the function says which columns there are, and the writer
        check_target(spec, to_arrow(columns))
    opened.end_reads()
    known = {**of_schema, "warnings": [*filter(None, (*resolved.warnings, zone))]}
    run = earlier or LeftRun(
        run_id=spec.run_id,
        before=begun.batch,  # the last one that had a record
        last_entry=found.last_entry,
        started=datetime.now(tz=UTC).isoformat(),
        discovered=found.discovered,
    )
    leaving = QueryHandover(replace(run, report=known), spec)

    def carry() -> None:
        source = files_of(spec, found.last_entry, spark.parallelism(), opened)
        carry_out(spec, spark, source, durations, rows)

    query: Callable[[], None] = carry
    if spec.leave_after_seconds is not None and spark.keeps_queries_on is not None:
        from airflow_cloudfiles.engine.job.connect.on_server import (  # noqa: PLC0415 - needs Spark
            run_on_server,
        )

        server = cast("ConnectStart", spark)
        query = partial(run_on_server, server, leaving, found.before, found.last_entry, durations)
    _run_query(query, found, leaving, report)
    if options.cleaning.is_on and found.has_work and leaving.query is None:
        extension("clean after a run")(spec, options, before, report, durations)


def _check_options(spec: JobSpec, options: CloudFilesOptions, opened: OpenedState) -> None:
    """Refuse options that do not go with this source or this table.

    Raises:
        OptionError: There are some.
    """
    if options.cleaning.is_on:
        check_cleaning(options, spec.target, open_state=opened.open)
    check_source(spec.table_options, options)
    spec.check_follows(options)
    if options.load_mode != "copy":
        extension("check registration")(spec, options)


def _zone_warning(spec: JobSpec, columns: StructType, options: CloudFilesOptions) -> str | None:
    """Warn of a time zone of the session that a run names, which its rows do not have."""
    named = spec.spark_conf.get(SESSION_ZONE)
    return None if named is None else zone_warning(columns, options, named)


def _rows(
    spec: JobSpec, resolved: ResolvedSchema, options: CloudFilesOptions, report: dict[str, Any]
) -> Rows:
    """Describe the rows of a run; with a function, the report has the schema of its result."""
    columns = resolved.full_schema(options)
    if spec.transform is None:
        return Rows(columns, {"written": "files"})
    report.pop("schema", None)
    stream = {
        "written": "function",
        "schema_version": resolved.version,
        "rescued": options.rescued_data_column,
    }
    return Rows(columns, stream, lambda found: report.update(written_schema(found)))


def _run_query(
    query: Callable[[], None], found: _Found, leaving: QueryHandover, report: dict[str, Any]
) -> None:
    """Run the query, if there is work for one, and count what was committed unless it goes on."""
    is_complete = False
    try:
        if found.has_work:
            query()
        else:
            _log.info("Nothing is new: no Spark is started")
        is_complete = True
    finally:
        if leaving.query is not None:
            leaving.reported(report)
        else:
            run = leaving.run
            add_counts(
                report,
                leaving.spec,
                run.before,
                run.last_entry,
                run.discovered,
                newest_found=found.newest_found,
                has_work=found.has_work or run.before < found.before,
                is_complete=is_complete,
            )
            report["warnings"] = [*run.report["warnings"], *report.get("warnings", [])]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run has before it.

    Attributes:
        before: Last committed batch; -1 for none.
        last_entry: Last entry of the file log that it ingests; -1 for none.
        has_work: Whether there is anything to ingest, or a planned batch to finish.
        discovered: What its discovery did (`DiscoveryResult.to_json`); `None` where it made none.
        newest_found: When the last entry was written; `None` where there is none.
    """

    before: int
    last_entry: int
    has_work: bool
    discovered: dict[str, Any] | None = None
    newest_found: str | None = None


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
        return _Found(before, given, has_work, newest_found=_written(intake, given))
    found = intake.discover(on_recorded=spark.begin).to_json()
    head = intake.known_head()
    has_work = has_work or (head > known and intake.has_work(up_to=head))
    last = head.entry - 1
    return _Found(before, last, has_work, found, _written(intake, last))


def _written(intake: Intake, entry: int) -> str | None:
    """Give when an entry was written that the file log is known to have; the newest was met."""
    is_known = 0 <= entry < intake.known_head().entry
    return intake.files.summary(entry).created if is_known else None


def _refuse_undecided(
    intake: Intake, options: CloudFilesOptions, waits: CloudFilesError | None
) -> None:
    """End the run while a change of the schema waits for a decision, after it has discovered."""
    if waits is None:
        return
    if options.up_to_entry is None:  # messages of a queue do not wait for ever
        intake.discover()
    raise waits
