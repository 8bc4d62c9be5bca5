"""How does a run clean its source when it has ingested something?

When all is committed, it cleans what batches before it have committed. Its table had them when the
run began, or it would not have begun. What goes wrong is a warning: the ingestion has succeeded.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.cleaning.clean import Cleaning, CleaningReport, clean
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.intake.opening import locate
from airflow_cloudfiles.engine.job.target import check_before_run
from airflow_cloudfiles.engine.messages import sentence
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
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
    """What a stream's cleaning is, with its options."""
    return Cleaning(
        location=spec.checkpoint_location,
        place=locate(spec.source, open_store(spec.checkpoint_location)),
        options=options.cleaning,
        verify=_verify,
        is_exact=options.discovery.identity == "pathAndModificationTime",
        keeps_given_up=options.ignore_corrupt_files,
        **more,
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
        check_before_run(state, record.target)
