"""Carry out an operation on files, and put those aside that a micro-batch was refused for.

The newest run says which table the stream writes and how it is written; for a query of one's own,
the record of its newest batch, or whoever asks.

Files are put aside with `expect.onViolation`. The committing process cannot: a query is at work,
and has the locks that an operation takes. It names the files in its error. When the query has ended
and the locks are free, the driver does what a person would do, with the operation that is there.
Killed before that, it has recorded nothing, and the next try refuses the same batch for the same
files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ExpectationError,
    FilesQuarantinedError,
    OptionError,
    SinkError,
)
from airflow_cloudfiles.engine.extensions.file_operations.operate import (
    OperationRequest,
    OperationResult,
    operate,
)
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule
from airflow_cloudfiles.engine.intake.opening import root_of
from airflow_cloudfiles.engine.intake.stream_logs import files_named
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.messages import few, sentence
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.options.metadata_columns import FILE_PATH, STRUCT
from airflow_cloudfiles.engine.reading.file_columns import file_path
from airflow_cloudfiles.engine.state.locks.run_lock import end_releases
from airflow_cloudfiles.engine.state.metadata import existing_metadata, read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.run_history import newest_ingest
from airflow_cloudfiles.engine.state.sink_log import SinkLog, position_of_a_job
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables import sink_state
from airflow_cloudfiles.engine.tables.delta.opening import open_table, table_schema
from airflow_cloudfiles.engine.tables.delta.write.former_rows import (
    FormerRows,
    is_path_column,
    require_rows,
)
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.operations import Action

_APPEND: Final = (
    "To have the files ingested beside their former rows, which are there twice then, use append "
    "(--append)."
)


def operate_on_files(  # noqa: PLR0913 - what can be asked of a stream's files
    checkpoint_location: str,
    action: Action,
    paths: str | Iterable[str],
    *,
    reason: str = "",
    pattern: bool = False,
    append: bool = False,
    target: str | None = None,
    path_column: str | None = None,
    txn_app_id: str | None = None,
    operation_id: str = "",
    dry_run: bool = False,
) -> OperationResult:
    """Have files of a stream ingested again, left out, put aside, or forgotten.

    It may be killed at any moment, and be repeated: until the next run that does nothing more, and
    with an `operation_id` never. If it cannot be done to one of the files, it is done to none. No
    run may be at work. The next run acts on it.

    - `replay`: they are ingested again, whatever version they are. Their former rows are removed in
      the same commit of the Delta table.
    - `skip`: they were not ingested yet, and are never.
    - `quarantine`: as `skip`, until they are released. Also in the midst of a batch that fails.
    - `release`: what was skipped or quarantined is ingested.
    - `forget`: the stream does not know them any more. What is still there is found as new.

    Args:
        checkpoint_location: Path or URI of the state.
        action: One of these.
        paths: Of files: relative to the source, or URIs; written exactly as they are named.
        reason: Why, for people; at most 1000 characters. `cloud_files_state` shows it.
        pattern: Whether the paths are patterns, or folders, as for `cloud_files_state`. They mean
            the files to which the action applies.
        append: Of a replay: former rows stay, so they are there twice.
        target: The table, where no run of a job has written it.
        path_column: Of a replay: the column of the table that has the URI of a row's file, such as
            `source_file` or `_metadata.file_path`; by default what `cloudFiles.metadataColumns`
            says.
        txn_app_id: Of a query of one's own: its `txnAppId`, if it has one.
        operation_id: A name of this operation: it is done once to a file under this name.
        dry_run: Only look, and say what would be done.

    Returns:
        What was done, and to which files there was nothing to do.

    Raises:
        OptionError: An argument is not valid, or a path names no file of the stream.
        StateError: It cannot be done to one of the files; nothing was done to any.
        StateLockedError: A run is working on the state.
        FileMissingError: A file that is to be ingested is gone from the source.
        SinkError: Former rows cannot be replaced in the table.
    """
    asked = OperationRequest(
        action=action,
        paths=(paths,) if isinstance(paths, str) else tuple(paths),
        reason=reason,
        pattern=pattern,
        append=append,
        key=operation_id,
        dry_run=dry_run,
    )
    table = StreamTarget(
        checkpoint_location, target=target, path_column=path_column, txn_app_id=txn_app_id
    )
    return operate(checkpoint_location, asked, table)


class StreamTarget:
    """The table that a stream writes.

    Args:
        checkpoint_location: The state.
        target: The table; `None` for the one that the state knows.
        path_column: The column that has the URI of a row's file.
        txn_app_id: The application id of the stream's commits, where it is not its own.
    """

    def __init__(
        self,
        checkpoint_location: str,
        *,
        target: str | None = None,
        path_column: str | None = None,
        txn_app_id: str | None = None,
    ) -> None:
        self._state = open_store(checkpoint_location)
        self._given = target
        self._path_column = path_column
        self._app_id = txn_app_id

    def has_batch(self, batch: int) -> bool | None:
        """Tell whether the table has a micro-batch; `None` if it is unknown which table that is."""
        log = SinkLog(self._state)
        if log.find(batch) is not None:
            return True
        target, app_id = self._target(), self._app_id or sink_state.application(self._state)
        if target is None or app_id is None:
            return None
        return target_table(target).has(app_id, batch)

    def path_column(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Give the column by which the former rows of files are found, and look for them.

        Raises:
            OptionError: The table, or its column, has to be named.
            StateConflictError: A query numbers its batches otherwise than the plan log.
            SinkError: Rows cannot be replaced in the table.
        """
        target, run = self._target(), self._run()
        if target is None:
            raise OptionError(
                "Nothing in the state says which table the stream writes, whose former rows are to "
                f"be replaced: name it (--target). {_APPEND}"
            )
        instead = f"Delete them yourself first. {_APPEND}"
        target_of(target).require_delta("Former rows are replaced", instead)
        if run is not None and MergeRule.of(run.table_options) is not None:
            raise SinkError(
                f"Former rows are not replaced in {target}, because the stream merges: a row may "
                "be made of several files. With append (--append) the rows of the files are merged "
                "again."
            )
        position_of_a_job(self._state, PlanLog(self._state))
        table = open_table(target)
        if table is None:
            raise SinkError(f"There is no Delta table {target}, whose rows are to be replaced.")
        column = self._column(target, run)
        metadata = read_metadata(self._state)
        assert metadata is not None  # noqa: S101 - it was read under the lock
        root = root_of(metadata.source)
        files = frozenset(file_path(root, path) for path in paths)
        require_rows(table, target, FormerRows(column, files))
        return column

    def _column(self, target: str, run: JobSpec | None) -> tuple[str, ...]:
        columns = table_schema(target)
        if self._path_column is not None:
            given = tuple(self._path_column.split("."))
            named = [(self._path_column,), given]
        else:
            named = [*_asked_for(run), (STRUCT, FILE_PATH), (FILE_PATH,)]
        for each in named:
            if is_path_column(columns, each):
                return each
        what = "" if self._path_column is None else f" {dotted(named[-1])}"
        raise SinkError(
            f"{target} has no column{what} with the URI of the file that a row came from, so "
            "former rows cannot be replaced. cloudFiles.metadataColumns adds one to rows that are "
            "ingested from then on; an existing one is named by path_column (--path-column). "
            f"{_APPEND}"
        )

    def _target(self) -> str | None:
        run = self._run()
        if self._given is not None or run is not None:
            return self._given or (None if run is None else run.target)
        record = SinkLog(self._state).newest()
        return None if record is None else record.target or None

    def _run(self) -> JobSpec | None:
        """Read the newest run of a job."""
        found = newest_ingest(self._state)
        return None if found is None else JobSpec.from_json(json.dumps(found[1]))


def _asked_for(run: JobSpec | None) -> list[tuple[str, ...]]:
    """List the columns with the URI of a file that the options of a run ask for."""
    if run is None:
        return []
    return [each.path_field for each in run.parsed().metadata_columns if each.path_field]


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
        return ExpectationError(
            f"{failure.message} They could not be quarantined: {error}",
            retry=isinstance(error, OSError) or error.is_retryable,
        )
    if not done.files:
        return failure
    aside = sentence(len(done.files), "{file} {is} quarantined for that")
    return FilesQuarantinedError(
        f"{_what(failure)}. {aside}: {few(done.files, most=3, characters=1000)}. The next run "
        f"commits batch {batch} without. `cloudfiles file list` shows what is quarantined, and "
        "`cloudfiles file release` has it ingested when it is corrected."
    )


def _quarantine(spec: JobSpec, failure: ExpectationError) -> tuple[int, OperationResult]:
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
    """Say what was refused and why, without what to do."""
    return failure.message.partition(". Correct the files")[0]
