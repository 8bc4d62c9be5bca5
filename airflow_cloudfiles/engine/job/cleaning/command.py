"""How does `cloudfiles clean` clean the source of a stream, also of a query of its own?

Under the lock of jobs, and when it has seen that the table has what is committed. A plain query may
go on meanwhile: what it has committed does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.cleaning.clean import CleaningReport, clean
from airflow_cloudfiles.engine.cleaning.destination import check_cleaning
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.cleaning.after_run import say, task_of
from airflow_cloudfiles.engine.job.target import check_before_run
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.storage import ObjectStore


def clean_source(spec: JobSpec) -> dict[str, Any]:
    """Carry out `cloudfiles clean`.

    Keys of `spec.clean`: `dry_run`; `app_id`, the application id of the table's commits if it is
    not the stream's own; `trust_checkpoint`, not to look whether a table has the batches.

    Returns:
        `CleaningReport`, for the report.

    Raises:
        OptionError: The options do not say what to do.
        LostBatchesError: The table lacks batches.
        StateError: There is no state, or no table to look at.
        StateLockedError: A run is working on the state.
    """
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    if not options.cleaning.is_on:
        raise OptionError(
            "cloudFiles.cleanSource is OFF or not given, so nothing is to be cleaned. Give "
            "--option cloudFiles.cleanSource=MOVE or DELETE."
        )
    state = open_store(spec.checkpoint_location)
    if read_metadata(state) is None:
        raise StateError(
            f"There is no state of a cloudFiles source in {printable_path(state.uri)}. Name the "
            "checkpoint location of the stream."
        )
    check_cleaning(options, spec.target)
    is_dry_run = bool(spec.clean.get("dry_run"))
    found = CleaningReport(options.cleaning.mode, is_dry_run)
    with RunLock(state, JOB_KEY, run_id=spec.run_id):
        _require_batches(spec, state)
        clean(task_of(spec, options, is_dry_run=is_dry_run), found)
    say(found)
    return found.to_json()


def _require_batches(spec: JobSpec, state: ObjectStore) -> None:
    """Refuse to clean what is committed unless a table has it, or nobody can know."""
    log = SinkLog(state)
    record = log.must_have()  # raises in the middle of a replay
    if record is None or spec.clean.get("trust_checkpoint"):
        return
    target, app_id = spec.target or record.target, spec.clean.get("app_id")
    if not target:
        raise StateError(
            f"The state {printable_path(state.uri)} does not say which table has its batches. Name "
            "it with --target; or, if the query writes elsewhere than to a Delta or Iceberg table, "
            "take Spark's commits for proof with --trust-checkpoint."
        )
    if app_id:
        sink_state.check_before_run(state, target, str(app_id))
    else:
        check_before_run(state, target)
