"""Remember since when nothing has arrived in a stream, and who was notified of that.

By the newest entry of the file log that has files that were found: the state knows it whatever
process has found them. Whoever tells people notes behind which entry it has, so that a silence is
notified of once; a file that arrives ends it, and the next silence is another one.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import KEY as METADATA
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

PREFIX: Final = "_source/silence"
NOTE_VERSION: Final = 1
MOST_ENTRIES: Final = 64
"""So many of the newest entries are looked through; those of operations are no arrivals."""
_ARRIVALS: Final = frozenset({"listing", "notification", "backfill", "duplicate"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastArrival:
    """When something arrived last.

    Attributes:
        entry: The entry of the file log that has it; -1 where nothing has arrived yet.
        at: When it was recorded; where nothing has arrived yet, when the state was begun.
    """

    entry: int
    at: datetime

    def seconds(self) -> float:
        """Return how long ago that was, in seconds."""
        return max(0.0, (datetime.now(tz=UTC) - self.at).total_seconds())


def last_arrival(state: ObjectStore) -> LastArrival | None:
    """Find out when something arrived last, reading headers of entries only.

    Args:
        state: The checkpoint location.

    Returns:
        When; `None` where there is no state yet.

    Raises:
        StateUnreachableError: The store does not answer.
        CorruptedStateError: The file log is damaged.
    """
    with reaching_state(state):
        log = FileLog(state)
        newest = log.latest()
        for number in range(newest, max(-1, newest - MOST_ENTRIES), -1):
            entry = log.summary(number)
            is_last = number == newest - MOST_ENTRIES + 1 > 0
            if (entry.found_by in _ARRIVALS and entry.files) or is_last:
                return LastArrival(number, datetime.fromisoformat(entry.created))
        begun = state.head(METADATA)
    if begun is None:
        return None
    started = datetime.fromtimestamp(0, tz=UTC) + timedelta(microseconds=begun.modification_time_us)
    return LastArrival(-1, started)


def was_notified(state: ObjectStore, who: str, arrival: LastArrival) -> bool:
    """Tell whether a task has notified people of a silence; a damaged note says nothing.

    Args:
        state: The checkpoint location.
        who: The name of the task.
        arrival: The last one.

    Raises:
        IncompatibleStateError: A newer version of this package wrote the note.
        StateUnreachableError: The store does not answer.
    """
    key = _key(who)
    name = printable_path(state.child_uri(key))
    try:
        with reaching_state(state):
            found = fields_of(unseal(state.get(key)), name=name, understood=NOTE_VERSION)
    except ObjectNotFoundError:
        return False
    except (CorruptedStateError, ValueError) as failure:
        _log.warning("%s cannot be read, and says nothing: %s", name, failure)
        return False
    return found.get("after_entry") == arrival.entry


def note_notified(state: ObjectStore, who: str, arrival: LastArrival) -> None:
    """Note that a task has notified people of the silence behind an arrival.

    Args:
        state: The checkpoint location.
        who: As for `was_notified`.
        arrival: As for `was_notified`.

    Raises:
        StateUnreachableError: The store does not answer. The next look notifies again.
    """
    note = {FIELD: NOTE_VERSION, "who": who, "after_entry": arrival.entry}
    with reaching_state(state):
        state.put(_key(who), seal(note))


def _key(who: str) -> str:
    return f"{PREFIX}/{hashlib.sha256(who.encode('utf-8', 'surrogatepass')).hexdigest()}"
