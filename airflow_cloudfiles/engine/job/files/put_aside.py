"""How are the files put aside for which a micro-batch was refused (`expect.onViolation`)?

The committing process cannot: a query is at work, and has the locks that an operation takes. It
names the files in its error. When the query has ended and the locks are free, the driver does what
a person would do, with the operation that is there. Killed before that, it has recorded nothing,
and the next try refuses the same batch for the same files.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ExpectationError,
    FilesQuarantinedError,
)
from airflow_cloudfiles.engine.intake.batch_files import files_named
from airflow_cloudfiles.engine.intake.opening import root_of
from airflow_cloudfiles.engine.job.files.operate import operate_on_files
from airflow_cloudfiles.engine.locks.run_lock import end_releases
from airflow_cloudfiles.engine.messages import few, sentence
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.file_operations import Operated
    from airflow_cloudfiles.engine.job.spec import JobSpec

_REASON_CHARACTERS: Final = 900
_log = logging.getLogger(__name__)


def put_aside(spec: JobSpec, failure: CloudFilesError) -> CloudFilesError:
    """Quarantine the files that an error names, if it is one that does.

    Args:
        spec: The run, whose query has ended.
        failure: What it failed with.

    Returns:
        What it fails with: `FilesQuarantinedError` if the next try goes on without the files;
        otherwise what was given, which is retryable if quarantining them is.
    """
    if not isinstance(failure, ExpectationError) or not failure.blamed:
        return failure
    try:
        batch, done = _quarantine(spec, failure)
    except (CloudFilesError, OSError) as error:
        _log.warning("The files could not be quarantined: %s", error)
        again = ExpectationError(f"{failure.message} They could not be quarantined: {error}")
        again.is_retryable = isinstance(error, OSError) or error.is_retryable
        return again
    if not done.files:
        return failure
    aside = sentence(len(done.files), "{file} {is} quarantined for that")
    return FilesQuarantinedError(
        f"{_what(failure)}. {aside}: {few(done.files, most=3, characters=1000)}. The next run "
        f"commits batch {batch} without. `cloudfiles file list` shows what is quarantined, and "
        "`cloudfiles file release` has it ingested when it is corrected."
    )


def _quarantine(spec: JobSpec, failure: ExpectationError) -> tuple[int, Operated]:
    """Do what a person would do."""
    end_releases()
    state = open_store(spec.checkpoint_location)
    batch, paths = files_named(state, failure.blamed)
    source = open_store(root_of(existing_metadata(state).source))
    return batch, operate_on_files(
        spec.checkpoint_location,
        "quarantine",
        [source.child_uri(path) for path in paths],
        reason=_what(failure)[:_REASON_CHARACTERS],
        target=None if spec.target is None else str(spec.target),
    )


def _what(failure: ExpectationError) -> str:
    """What was refused and why, without what to do."""
    return failure.message.partition(". Correct the files")[0]
