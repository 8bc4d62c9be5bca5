"""Keep a state from growing with the number of runs.

Old entries of its logs are packed, as are old notes of batches and of changed files
(`state.compaction`), and what runs of the past have left is swept (`state.run_history`). All of it
is done under the locks of the state, by a run that has written its report, or by
`cloudfiles state compact`.

Whether anything is due, a run sees in the listings that it has made to open the state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from airflow_cloudfiles.engine.errors import CloudFilesError, StateError, StateLockedError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.ledger.changed import ChangedFolder
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state import (
    file_log,
    file_results,
    plan_log,
    run_history,
    sink_log,
)
from airflow_cloudfiles.engine.state.compaction import (
    GRACE_SECONDS,
    Compaction,
    CompactionResult,
    Folder,
    PackedFolder,
    work_of,
)
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import locked
from airflow_cloudfiles.engine.state.metadata import allow_packs, read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state

TOLD_ENTRIES = 1000
"""So many plans that are objects of their own a plain query tells of when it starts."""
MOST_PACKS = 4
"""How many packs of each log a run makes, merges and clears at most."""
_log = logging.getLogger(__name__)


def is_due(listed: Callable[[str], Iterable[FileEntry]], least: int) -> bool:
    """Tell whether there is work for `compact`, by listings that were made anyway.

    Args:
        listed: Gives the listing of a folder.
        least: `cloudFiles.stateCompactInterval`; 0: never.
    """
    if least == 0:
        return False
    folders = _logs(listed)
    times = (entry.modification_time_us for each in folders for entry in each.loose.values())
    now_us = max(times, default=0)  # it is not earlier
    return any(work_of(each, now_us, least=least) for each in folders)


def is_due_of_table(state: ObjectStore, least: int) -> bool:
    """Tell the same for a stream from a Delta table, whose state has records of batches alone."""
    prefix = f"{sink_log.PREFIX}/"
    with reaching_state(state):
        found = list(state.list(prefix))
    return is_due(lambda folder: found if folder == prefix else (), least)


def tell_if_large(plans: PlanLog, uri: str) -> None:
    """Say in the log that the state of a plain query could be smaller; asks nobody.

    A plain query does not compact its state: its checkpoint is Spark's, which may be at work
    elsewhere when it ends.

    Args:
        plans: The plan log, as far as it has been read.
        uri: The checkpoint location.
    """
    count = plans.unpacked
    if count >= TOLD_ENTRIES:
        _log.warning(
            "The state in %s has %d plans, each an object of its own. While no query runs, pack "
            "what is old with: cloudfiles state compact --checkpoint-location %s",
            printable_path(uri),
            count,
            printable_path(uri),
        )


def after_run(
    checkpoint_location: str, *, compacts: bool, least: int, sweeps: bool, retention_seconds: float
) -> None:
    """Do a part of what is due; that it cannot be done is logged, and the run has succeeded.

    Args:
        checkpoint_location: The state.
        compacts: Whether logs are compacted.
        least: As for `is_due`.
        sweeps: Whether the runs of the past, and the notes of changed files, are swept.
        retention_seconds: How long something of a run stays.
    """
    if not compacts and not sweeps:
        return
    state = open_store(checkpoint_location)
    done = CompactionResult()
    try:
        with locked(state) as may_go_on, reaching_state(state):
            if compacts:
                given: dict[str, Any] = {"least": least, "grace_seconds": GRACE_SECONDS}
                _pass(state, _numbered(state), done, may_go_on, most=MOST_PACKS, **given)
            if sweeps:
                now_us = state.clock_us()
                done.expired = run_history.sweep(state, now_us, retention_seconds)
                _pass(state, [ChangedFolder(state, now_us)], done, may_go_on)
    except StateLockedError:
        _log.info("The state is compacted another time: a run is working on it")
    except (CloudFilesError, LookupError) as failure:
        _log.warning("The state could not be compacted, which loses nothing: %s", failure)
    _log.info(
        "Kept the state small: %s packed, %s removed that packs hold, %d expired",
        counted(done.packed, "entry"),
        counted(done.removed, "object"),
        done.expired,
    )


def compact(
    state: ObjectStore,
    *,
    retention_seconds: float,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
) -> CompactionResult:
    """Do all that is due.

    What is packed now is removed by a later call, when `grace_seconds` have passed.

    Args:
        state: The checkpoint location.
        retention_seconds: How long something of a run stays.
        grace_seconds: How long what is packed stays besides.
        dry_run: Only tell what the first pass would do.

    Raises:
        StateLockedError: A run is working on the state.
        CorruptedStateError: The state is damaged or has lost entries; nothing was removed that is
            not in a pack.
        StateError: There is no state of files, or it cannot be read or written.
    """
    if read_metadata(state) is None and not _is_of_table(state):
        raise StateError(
            f"There is no state in {printable_path(state.uri)}: nothing was discovered with it "
            "yet. Give the checkpoint location of a cloudFiles stream, or of runs from a table."
        )
    done = CompactionResult()
    with locked(state) as may_go_on, reaching_state(state):
        has_more = True
        while has_more:
            folders: list[PackedFolder[Any]] = [*_numbered(state)]
            folders.append(ChangedFolder(state, state.clock_us()))
            given: dict[str, Any] = {"least": 1, "grace_seconds": grace_seconds}
            found = _pass(state, folders, done, may_go_on, tells=dry_run, **given)
            has_more = found and not dry_run
        done.expired = run_history.sweep(
            state, state.clock_us(), retention_seconds, dry_run=dry_run
        )
    return done


def _is_of_table(state: ObjectStore) -> bool:
    """Tell whether a state has records of batches."""
    with reaching_state(state):
        return next(state.list(f"{sink_log.PREFIX}/"), None) is not None


def _pass(  # noqa: PLR0913 - what a pass needs
    state: ObjectStore,
    folders: Iterable[PackedFolder[Any]],
    done: CompactionResult,
    may_go_on: Callable[[], None],
    *,
    most: int | None = None,
    tells: bool = False,
    **given: Any,
) -> bool:
    """Do what is due in each folder once (`work_of`), or tell of it; return whether it was any."""
    now_us = state.clock_us()
    is_marked, before = False, replace(done)
    for folder in folders:
        work = work_of(folder, now_us, **given)
        compaction = Compaction(state, folder, may_go_on, done)
        if tells:
            compaction.tell(work)
            continue
        if work.remove and isinstance(folder, Folder) and folder.is_log and not is_marked:
            if read_metadata(state) is not None:  # runs from a table have none
                allow_packs(state)
            is_marked = True
        try:
            compaction.run(work, most=most)
        except ObjectNotFoundError as failure:
            raise StateError(
                f"{failure} was removed while the state was compacted, by somebody who does not "
                "obey its lock. What was removed by this run is in packs. Run again."
            ) from failure
    return before != done


def _numbered(state: ObjectStore) -> list[Folder]:
    """List what grows with the batches; refuse a state that has lost entries."""
    check_whole(state, FileLog(state), PlanLog(state))
    notes = [
        Folder.of(prefix, state.list(f"{prefix}/"), width=0, is_log=False)
        for prefix in (run_history.PREFIX, file_results.PREFIX)
    ]
    return [*_logs(state.list), *notes]


def _logs(listed: Callable[[str], Iterable[FileEntry]]) -> list[Folder]:
    """List the logs that grow with the batches."""
    found = [
        Folder.of(prefix, listed(f"{prefix}/")) for prefix in (file_log.PREFIX, plan_log.PREFIX)
    ]
    epochs: dict[str, list[FileEntry]] = {}
    for entry in listed(f"{sink_log.PREFIX}/"):
        epoch = entry.path.removeprefix(f"{sink_log.PREFIX}/").partition("/")[0]
        if epoch.isascii() and epoch.isdigit():
            epochs.setdefault(epoch, []).append(entry)
    found += [Folder.of(f"{sink_log.PREFIX}/{epoch}", each) for epoch, each in epochs.items()]
    return found
