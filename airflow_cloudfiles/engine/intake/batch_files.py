"""Name some files of a micro-batch in few characters.

By their places in the range of the plan, which is the same for ever: an error that crosses the JVM
as a text can name hundreds of files in it, where their paths would be cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.plan_log import PlanLog

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

MOST_CHARACTERS: Final = 4000
"""How long a name may be. Of files beyond that, it has the first."""


def name_files(state: ObjectStore, batch: int, paths: Collection[str]) -> str:
    """Name files of a batch.

    Args:
        state: The checkpoint location.
        batch: Number of the batch, which is planned.
        paths: The files, relative to the source; one that the batch does not have is left out.

    Returns:
        The number of the batch and the places of the files, such as `7:0-3,5`; empty for none.
    """
    if not paths:
        return ""
    places = [place for place, path in _paths(state, batch) if path in paths]
    text = ",".join(_ranges(places))
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS].rpartition(",")[0]
    return f"{batch}:{text}" if text else ""


def files_named(state: ObjectStore, name: str) -> tuple[int, list[str]]:
    """Give the batch and the paths of the files that `name_files` has named.

    Raises:
        CorruptedStateError: It names none; or the state cannot be read.
    """
    number, _, text = name.partition(":")
    try:
        batch = int(number)
        parts = [part.partition("-") for part in text.split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    except ValueError as error:
        raise CorruptedStateError(f"{name!r} names no files of a batch.") from error
    found = (path for place, path in _paths(state, batch) if any(place in each for each in ranges))
    return batch, list(dict.fromkeys(found))


def _paths(state: ObjectStore, batch: int) -> Iterator[tuple[int, str]]:
    """Yield the files in the range of a batch, also those that an operation has left out of it."""
    plan, files = PlanLog(state).at(batch), FileLog(state)
    place = count()
    for number in range(plan.start.entry, plan.end.entry + 1):
        first = plan.start.index if number == plan.start.entry else 0
        stop = plan.end.index if number == plan.end.entry else None
        if stop == 0 or not files.summary(number).is_ingested:
            continue
        yield from ((next(place), file.path) for file in files.read(number).files[first:stop])


def _ranges(places: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(places), lambda each: each[1] - each[0]):
        run = [place for _, place in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
