"""Leave the query of a run on a server, and come back to it.

A run that may leave (`JobSpec.leave_after_seconds`) starts its query, follows it for that long, and
then ends without releasing its session: the query goes on. Whoever asks the server finds out when
it has ended, and runs the same specification again. That run

1. ends at once when its query goes on after all, or when another run's does: there is something to
   wait for;
2. else has the query's error, or its success, and the counts of what it has committed;
3. or runs what remains, when the query was stopped before its end.

No lock is held in between. Another run of the stream asks the server, too: it leaves a query that
somebody waits for alone. The query itself holds the run lock, so that no query of another server
comes between. Nothing is lost or doubled if all of this fails: the sink's records say what is
committed, as for every run.

The sink logs a line for each micro-batch, where it runs. On a server that is another machine's log,
so the driver writes the same lines from the notes that the sink leaves in the state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SparkUnreachableError,
    StateLockedError,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery, LeftRun, QueryState
from airflow_cloudfiles.engine.job.counts import add_counts
from airflow_cloudfiles.engine.job.spark_command import SparkConnect
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position_of_a_job
from airflow_cloudfiles.engine.storage import ObjectStore, open_store


class BatchLines:
    """Logs each micro-batch of a run once.

    Args:
        spec: The run.
        first: Number of its first micro-batch.

    Attributes:
        next_batch: Number of the first micro-batch that is not in the log.
    """

    def __init__(self, spec: JobSpec, first: int) -> None:
        self._state = spec.checkpoint_location
        self.next_batch = first

    def log_new(self) -> None:
        """Log what was committed since the last call; that it cannot be read stops no run."""
        try:
            while found := run_history.notes(self._state, (self.next_batch,)):
                self.next_batch += 1
                _log.info("%s", found[0].line())
        except OSError as error:
            _log.debug("The notes of the micro-batches cannot be read: %s", error)


_log = logging.getLogger(__name__)


class StreamingQueryFailure(Exception):  # noqa: N818 - Spark's word
    """What a query that was left has failed with, when it is no error of ours."""


@dataclass(frozen=True, slots=True)
class LeftQueryResult:
    """What a run has found of the query that it had left.

    Attributes:
        is_settled: Whether the run has nothing left to do, its report being complete.
        run: Else what it had left, of which something remains; `None` for a run that begins.
    """

    is_settled: bool = False
    run: LeftRun | None = None


def come_back(
    spec: JobSpec, server: SparkConnect, report: dict[str, Any], durations: dict[str, float]
) -> LeftQueryResult:
    """Find out what has become of the query that this run has left, if it has left one.

    It needs no lock: it reads what is committed, and deletes what only this run has written.

    Args:
        spec: The run.
        server: Where its query is.
        report: Gets the counts of what was committed, also when this raises.
        durations: Gets how long the parts of the run took.

    Raises:
        CloudFilesError: What the query has failed with; or the server does not answer.
        SparkUnreachableError: The server has lost the query before its end.
        StreamingQueryFailure: An error of Spark's.
    """
    state = open_store(spec.checkpoint_location)
    run = left_query.read_run(state, spec.run_id)
    query = None if run is None or run.query is None else left_query.started(server, run.query)
    if run is None or query is None:
        return LeftQueryResult(run=None if run is None else replace(run, query=None))
    run = replace(run, query=query)
    found = left_query.state_of(server, query)
    if found is QueryState.ACTIVE:
        _log.info("The query goes on")
        left_query.write_run(state, run)
        report["query"] = _watched(query, is_own=True)
        return LeftQueryResult(is_settled=True)
    text = left_query.failure_of(server, query) if found is QueryState.ENDED else None
    failure = _as_error(text)
    now = position_of_a_job(state, PlanLog(state))
    BatchLines(spec, run.next_line).log_new()
    if isinstance(failure, StateLockedError) and now.batch > run.after_batch:
        failure = None  # another query was at work, as `run_on_server` has it
    is_complete = now.end >= run.end
    if failure is None and not is_complete and found is QueryState.UNKNOWN:
        failure = SparkUnreachableError(
            f"The Spark Connect server {server.address} has lost the query of this run, or was "
            "restarted. What was committed stays; run again for the rest."
        )
    if failure is None and not is_complete:
        _log.info("The query was stopped before its end; what remains is run now")
        run = replace(run, query=None, next_line=now.batch + 1)
        left_query.write_run(state, run)
        return LeftQueryResult(run=run)
    _conclude(spec, server, run, report, durations)
    if failure is not None:
        raise failure
    return LeftQueryResult(is_settled=True)


def has_to_wait(
    spec: JobSpec, server: SparkConnect, state: ObjectStore, report: dict[str, Any]
) -> bool:
    """Tell whether a query that another run has left goes on; call it under the lock of jobs.

    Args:
        spec: The run.
        server: Where it would start its own.
        state: The checkpoint location.
        report: Gets the query to wait for.

    Raises:
        StateLockedError: It goes on, and this run cannot leave.
        CloudFilesError: The server does not answer.
    """
    other = left_query.newest_query(state)
    if other is None:
        return False
    query = None if other.query is None else left_query.started(server, other.query)
    if query is None or left_query.state_of(server, query) is not QueryState.ACTIVE:
        left_query.forget_query(state)
        return False
    if spec.leave_after_seconds is None:
        raise StateLockedError(
            f"The query of the run {other.run_id}, which waits without a driver, is at work on the "
            f"checkpoint location {printable_path(state.uri)}. Wait until it has ended, or end "
            "that run."
        )
    _log.info("The query of the run %s goes on; this run waits for it", other.run_id)
    report["query"] = _watched(query, is_own=other.run_id == spec.run_id)
    return True


@dataclass(slots=True)
class QueryHandover:
    """Writes down what is needed to come back to a query.

    Attributes:
        run: What is known of the run.
        spec: The run's.
        query: The query, once it was left.
    """

    run: LeftRun
    spec: JobSpec
    query: LeftQuery | None = None

    def started(self, after_batch: int, session: LeftQuery) -> None:
        """Note behind which batch a query starts, and in which session.

        So others find it where this driver is killed before it knows the query.
        """
        moment = datetime.now(tz=UTC).isoformat()
        self.run = replace(self.run, after_batch=after_batch, query_started=moment)
        self.note(session, after_batch + 1, {})

    def note(self, query: LeftQuery, next_line: int, durations: Mapping[str, float]) -> None:
        """Write down which query runs."""
        noted = replace(self.run, query=query, next_line=next_line, durations=dict(durations))
        left_query.write_run(open_store(self.spec.checkpoint_location), noted)
        self.run = noted

    def leave(self, query: LeftQuery, next_line: int, durations: Mapping[str, float]) -> None:
        """Leave a query that goes on."""
        self.note(query, next_line, durations)
        self.query = self.run.query
        _log.info("The query goes on without this driver")

    def forget(self) -> None:
        """Delete what was written down of a query that has ended."""
        self.run = replace(self.run, query=None)
        left_query.delete_run(open_store(self.spec.checkpoint_location), self.spec.run_id)

    def reported(self, report: dict[str, Any]) -> None:
        """Say in the report which query was left."""
        if self.query is not None:
            report["query"] = _watched(self.query, is_own=True)


def _conclude(
    spec: JobSpec,
    server: SparkConnect,
    run: LeftRun,
    report: dict[str, Any],
    durations: dict[str, float],
) -> None:
    """Complete the report of a run whose query has ended, and remove what is left of it."""
    noticed = run.report.get("warnings", [])
    report |= {"started": run.started, "schema_version": run.report.get("schema_version")}
    known = ("schema", "evolved_ahead")
    report |= {name: run.report[name] for name in known if name in run.report}
    durations |= run.durations
    if run.query_started:
        since = datetime.now(tz=UTC) - datetime.fromisoformat(run.query_started)
        durations["query_seconds"] = round(max(0.0, since.total_seconds()), 3)
    add_counts(report, spec, run.before, run.last_entry, run.discovered)
    report["warnings"] = [*noticed, *report.get("warnings", [])]
    left_query.delete_run(open_store(spec.checkpoint_location), spec.run_id)
    if run.query is not None:
        try:
            left_query.release(server, run.query)
        except CloudFilesError as failure:
            _log.debug("The session ends by itself: %s", failure)


def _as_error(text: str | None) -> Exception | None:
    """Find what a query has failed with: an error of ours where its text has one."""
    if text is None:
        return None
    return errors.from_text(text) or StreamingQueryFailure(text)


def _watched(query: LeftQuery, *, is_own: bool) -> dict[str, Any]:
    return {**asdict(query), "is_own": is_own}
