"""Come back to the driver that an earlier try of a task has submitted.

In cluster deploy mode the driver is a process of the cluster. A worker that is lost, or killed
with the `spark-submit` that it follows, takes nothing of it along. The next try follows that driver
to its report instead of submitting a second one, which would only meet its lock.

1. Before a driver is submitted, an empty object named after its run says that nobody has its report
   yet. Whoever gets the report removes it.
2. A later try looks for that object of each earlier try. With a report beside it, the report is the
   result. Without one, the lock of the jobs says whether that driver is at work: then it is waited
   for, until its report is there, or its lock is free.
3. A driver that has not started yet, or ended without a report, is submitted anew. Should both
   start, one of them meets the lock of the other and ends. Nothing is ingested twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from airflow_cloudfiles.engine.errors import RunFailedError, StateLockedError, from_record
from airflow_cloudfiles.engine.job.launch import Run, launch
from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.run_history import read_report
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.access import Access
from airflow_cloudfiles.engine.storage.outage import reaching_state

SUBMITTED_PREFIX: Final = "_source/submitted"
POLL_SECONDS: Final = 5.0
"""Between two looks at a driver that is at work: a request or three."""
_SAY_EACH_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class SubmittedRun:
    """A run of a driver in the cluster, or of the earlier try that was found there.

    Args:
        run: The run that was submitted; `None` to follow the earlier one.
        submit: Submits a run, if the earlier one is gone.
        state: The checkpoint location.
        run_id: Which run is followed.
        on_log: Called with lines for the log.
    """

    def __init__(
        self,
        run: Run | None,
        submit: Callable[[], Run],
        state: ObjectStore,
        run_id: str,
        on_log: Callable[[str], None],
    ) -> None:
        self._run = run
        self._submit = submit
        self._state = state
        self._run_id = run_id
        self._on_log = on_log
        # One for all looks: that a holder's lease has expired shows in time.
        self._lock = RunLock(state, JOB_KEY)
        self._killed = threading.Event()
        self._report: Mapping[str, Any] | None = None

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What the run has reported, also when it failed; `None` before its end."""
        return self._report if self._run is None else self._run.report

    def wait(self) -> dict[str, Any]:
        """Wait for the driver in the cluster, and return its report.

        Raises:
            CloudFilesError: What the run failed with; `RunFailedError` when it left no report.
        """
        if self._run is None:
            found = self._follow()
            if found is not None:
                self._report = found
                _received(self._state, self._run_id)
                if found.get("outcome") != "succeeded":
                    raise from_record(found.get("error", {}))
                return found
            self._on_log(f"The driver of {self._run_id} is gone without a report: submitting anew.")
            _received(self._state, self._run_id)
            self._run = self._submit()
        try:
            return self._run.wait()
        finally:
            if self._run.report is not None:
                _received(self._state, str(self._run.report.get("run_id")))

    def kill(self) -> None:
        """End `spark-submit`; the driver in the cluster goes on, and is the cluster's to end."""
        self._killed.set()
        if self._run is not None:
            self._run.kill()

    def _follow(self) -> dict[str, Any] | None:
        """Wait for the report of the earlier driver; `None` when it is gone without one.

        Raises:
            RunFailedError: `kill` was called.
        """
        said = -_SAY_EACH_SECONDS
        while (report := read_report(self._state, self._run_id)) is None:
            if _is_free(self._lock):
                return read_report(self._state, self._run_id)
            if time.monotonic() - said >= _SAY_EACH_SECONDS:
                self._on_log(
                    f"The driver of an earlier try, {self._run_id}, is at work in the cluster: "
                    "waiting for its report."
                )
                said = time.monotonic()
            if self._killed.wait(POLL_SECONDS):
                raise RunFailedError(
                    f"No task waits for the driver {self._run_id} any more. It goes on in the "
                    "cluster. Nothing is lost: run again to follow it."
                )
        return report


FollowedRun: TypeAlias = Run | SubmittedRun
"""A run that somebody waits for."""


def submit(
    spec: JobSpec,
    how: SparkSubmit,
    *,
    on_log: Callable[[str], None],
    access: Access | None = None,
    earlier: Sequence[str] = (),
) -> SubmittedRun:
    """Submit a driver in cluster deploy mode, or follow that of an earlier try.

    Args:
        spec: What to do.
        how: With `deploy_mode="cluster"`.
        on_log: Called with lines for the log, in the thread that calls `wait`.
        access: How the state is reached from here; the driver has an identity of its own.
        earlier: The ids of the runs of earlier tries, the newest first.

    Raises:
        CloudFilesError: As of `launch`.
    """
    state = open_store(spec.checkpoint_location, access)

    def anew() -> Run:
        with reaching_state(state):
            state.put(_key(spec.run_id), b"")
        return launch(spec, how, on_log=on_log, access=access)

    found = _at_work_or_reported(state, earlier)
    if found is None:
        return SubmittedRun(anew(), anew, state, spec.run_id, on_log)
    return SubmittedRun(None, anew, state, found, on_log)


def _at_work_or_reported(state: ObjectStore, earlier: Sequence[str]) -> str | None:
    """Find the newest earlier run that nobody collected, reported or still running."""
    for run_id in earlier:
        with reaching_state(state):
            is_open = state.head(_key(run_id)) is not None
        if not is_open:
            continue
        if read_report(state, run_id) is not None:
            return run_id
        lock = RunLock(state, JOB_KEY)
        if lock.noted_run() == run_id and not _is_free(lock):
            return run_id
        if read_report(state, run_id) is not None:  # it has ended between the two looks
            return run_id
    return None


def _is_free(lock: RunLock) -> bool:
    """Tell whether a lock is free, as far as it shows by now."""
    try:
        lock.acquire()
    except StateLockedError:
        return False
    lock.release()
    return True


def _received(state: ObjectStore, run_id: str) -> None:
    """Note that somebody has the report of a run."""
    try:
        state.delete(_key(run_id))
    except OSError as failure:
        _log.warning(
            "%s could not be removed. A retry of this task would take that report for its own: %s",
            state.child_uri(_key(run_id)),
            failure,
        )


def _key(run_id: str) -> str:
    return f"{SUBMITTED_PREFIX}/{run_id}"
