"""How far has a stream read an event log?

All files of the stream in the entries before its position are recorded. The position is in the same
entry of the file log as the files that it comes with; and, for a stream whose files are few among
the events of the bucket, in `_source/events.json`, which is written after each reading that got
further. A position that is too small costs reading again what is recorded; so the file may be
stale, and where it is lost, the source is listed.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY = "_source/events.json"
FORMAT_VERSION = 1
_TEXT = re.compile(r"events:([0-9a-f]{32}):([0-9]{1,18})", re.ASCII)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventPosition:
    """A place in an event log.

    Attributes:
        log: The id of the log.
        number: The entry to read next.
    """

    log: str
    number: int

    def __str__(self) -> str:
        """As an entry of the file log has it."""
        return f"events:{self.log}:{self.number}"


def load_position(state: ObjectStore, files: FileLog, log: str) -> int | None:
    """Read how far the stream has read a log; `None` when nothing says so.

    Args:
        state: The checkpoint location.
        files: Its file log.
        log: The id of the event log.

    Raises:
        StateError: The state cannot be read.
    """
    newest = files.known()
    found = [_of_text(files.summary(newest).position)] if newest >= 0 else []
    found.append(_of_file(state))
    return max((each.number for each in found if each and each.log == log), default=None)


def save_position(state: ObjectStore, position: EventPosition) -> None:
    """Write how far the stream has read; all before it is recorded.

    Raises:
        StateError: It cannot be written.
    """
    with reaching_state(state):
        value = {FIELD: FORMAT_VERSION, "log": position.log, "number": position.number}
        state.put(KEY, seal(value))


def _of_text(text: str | None) -> EventPosition | None:
    found = _TEXT.fullmatch(text or "")
    return None if found is None else EventPosition(found[1], int(found[2]))


def _of_file(state: ObjectStore) -> EventPosition | None:
    with reaching_state(state):
        try:
            content = state.get(KEY)
        except ObjectNotFoundError:
            return None
    try:
        value = unseal(content)
        if value[FIELD] == FORMAT_VERSION:
            return EventPosition(str(value["log"]), int(value["number"]))
    except (ValueError, TypeError, KeyError) as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning("%s cannot be read (%s). The source is listed in full.", name, failure)
    return None
