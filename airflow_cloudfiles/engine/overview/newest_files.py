"""Give the files that came last, and what became of them.

Entries of the file log are read from the newest backwards until there are enough files, so that
a page costs the same in a stream of a million files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.intake.file_query import FileQuery
from airflow_cloudfiles.engine.intake.file_state_columns import rows
from airflow_cloudfiles.engine.intake.file_states import FileStates, StateSnapshot

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

MOST_FILES: Final = 100
"""How many files are shown at once."""
MOST_ENTRIES: Final = 200
"""So many entries are looked through for files that a query wants."""
MOST_LOOKED_AT: Final = 200_000
"""So many files, or those of one entry more: each is compared with a pattern."""


def newest_files(
    checkpoint_location: str,
    query: FileQuery | None = None,
    access: Access | None = None,
    *,
    most: int = MOST_FILES,
) -> tuple[list[Mapping[str, Any]], bool]:
    """Give the newest files of a stream that a query wants.

    Args:
        checkpoint_location: Path or URI of the state.
        query: Which files are wanted; `None` for all.
        access: How its cloud is reached.
        most: How many at most.

    Returns:
        Rows of `cloud_files_state`, the newest first; and whether the whole log was looked through,
        so that there are no others.

    Raises:
        OptionError: The query names a path that cannot be in the source.
        StateError: There is no state of files, or no such batch.
        CorruptedStateError: It is damaged.
    """
    snapshot = StateSnapshot.take(checkpoint_location, access)
    states = FileStates(snapshot, query, access)
    found: list[Mapping[str, Any]] = []
    oldest = max(0, snapshot.entries - MOST_ENTRIES)
    looked_at = 0
    for number in range(snapshot.entries - 1, oldest - 1, -1):
        of_entry = list(rows(states.groups(range(number, number + 1))))
        found += reversed(of_entry)
        if len(found) >= most:
            return found[:most], number == 0 and len(found) == most
        looked_at += states.files_of(number)
        if looked_at >= MOST_LOOKED_AT:
            return found, number == 0
    return found, oldest == 0
