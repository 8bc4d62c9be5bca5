"""Clean the source of a stream, after a run or by `cloudfiles clean`.

When all is committed, it cleans what batches before it have committed. Its table had them when the
run began, or it would not have begun. What goes wrong is a warning: the ingestion has succeeded.

Under the lock of jobs, and when it has seen that the table has what is committed. A plain query may
go on meanwhile: what it has committed does not change.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, StateError
from airflow_cloudfiles.engine.extensions.cleaning.clean import Cleaning, CleaningReport, clean
from airflow_cloudfiles.engine.extensions.registration.registered import RegisteredFiles
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.opening import check_cleaning, locate
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.messages import sentence
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.state.sink_log import Position
    from airflow_cloudfiles.engine.storage import ObjectStore

_SENTENCES: Final = {
    "failed": "{file} could not be removed or moved, and {is} tried again",
    "changed": "{file} {has} changed since {it} {was} ingested, and {stays}",
    "linked": "symbolic {link} {stays}",
    "taken": "{file} {stays}, because another file has that name at the destination",
    "corrupt": "{file} {stays}, because one of the same batch was given up as damaged",
    "waiting": "{file} {stays} until committed by the other streams, too",
}
_log = logging.getLogger(__name__)


def clean_after_run(
    spec: JobSpec,
    options: CloudFilesOptions,
    before: Position,
    report: dict[str, Any],
    durations: dict[str, float],
) -> None:
    """Clean what was committed before a run; the run is not failed by it.

    Args:
        spec: The run.
        options: Of its source.
        before: How far the stream was committed when the run began.
        report: Gets what was cleaned.
        durations: Gets how long it took.
    """
    clock = time.monotonic()
    found = CleaningReport(options.cleaning.mode)
    try:
        clean(task_of(spec, options, up_to=before), found)
    except Exception as error:  # noqa: BLE001 - the ingestion has succeeded, whatever it was
        expected = isinstance(error, CloudFilesError | OSError)
        _log.warning("The source was not cleaned to the end: %s", error, exc_info=not expected)
        found.warnings.append(f"The source was not cleaned to the end: {error}")
    say(found)
    report["cleaning"] = found.to_json()
    report["warnings"] = [*report.get("warnings", []), *found.warnings]
    durations["cleaning_seconds"] = round(time.monotonic() - clock, 3)


def task_of(spec: JobSpec, options: CloudFilesOptions, **more: Any) -> Cleaning:
    """Describe the cleaning of a stream, with its options.

    Raises:
        OptionError: Its table has files of the source as data files.
    """
    state = open_store(spec.checkpoint_location)
    place = locate(spec.source, state)
    _refuse_registered(RegisteredFiles(state, place.name))
    return Cleaning(
        location=spec.checkpoint_location,
        place=place,
        options=options.cleaning,
        verify=_verify,
        is_exact=options.discovery.identity == "pathAndModificationTime",
        keeps_given_up=options.ignore_corrupt_files,
        **more,
    )


def _refuse_registered(registered: RegisteredFiles) -> None:
    if registered:
        has = sentence(len(registered), "data {file}")
        raise OptionError(
            f"{registered.target} has {has} that lie in the source (cloudFiles.loadMode="
            "reference), and would be lost to it. Nothing is cleaned. Have the table write them "
            f"anew first: cloudfiles table optimize --target {registered.target} --all"
        )


def say(found: CleaningReport) -> None:
    """Say in sentences which files stay."""
    for what, text in _SENTENCES.items():
        if count := found.others[what]:
            examples = ", ".join(found.examples[what])
            found.warnings.append(f"{sentence(count, text)}: {examples}.")


def _verify(state: ObjectStore) -> None:
    """Refuse another stream whose table has lost batches; without a table, Spark's word counts."""
    record = SinkLog(state).must_have()
    if record is not None and record.target:
        target_table(record.target).check_before_run(state)


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
    options = spec.parsed()
    if not options.cleaning.is_on:
        raise OptionError(
            "cloudFiles.cleanSource is OFF or not given, so nothing is to be cleaned. Give "
            "--option cloudFiles.cleanSource=MOVE or DELETE."
        )
    state = open_store(spec.checkpoint_location)
    existing_metadata(state)
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
    target_table(target).check_before_run(state, app_id=None if app_id is None else str(app_id))
