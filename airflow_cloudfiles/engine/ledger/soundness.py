"""Does what a state holds fit together?

Entries of the file log that are gone take their files with them: nothing ingests them, and a new
entry under an old number is one that the stream believes to have ingested. So a state whose file
log has lost entries is refused, every time, before anything is appended to it. What shows it:

- a gap in the numbers of the entries, or of the plans (`NumberedLog`);
- a plan, or the end of what is committed, that points beyond the end of the log;
- a snapshot of the index that covers entries beyond the end;
- the mark `_source/head.json`: how long the log was when a discovery last recorded something;
- the local index of this machine (`catch_up`).

None of these is changed by the refusal.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.ledger import snapshots
from airflow_cloudfiles.engine.state.position import position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import aside
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.state.position import Position
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)

HEAD = "_source/head.json"
"""The mark. It may be deleted at any time, and then shows nothing."""
HEAD_VERSION = 1


def check_whole(
    state: ObjectStore, files: FileLog, plans: PlanLog, committed: Position | None = None
) -> None:
    """Refuse a state whose file log has lost entries.

    Any number of processes may append meanwhile: what points into the log is read before its end.

    Args:
        state: The checkpoint location.
        files: Its file log.
        plans: Its plan log.
        committed: How far it is committed, if the caller knows.

    Raises:
        CorruptedStateError: Entries are missing; names them, what shows it, and what to do.
    """
    for what, end in _known_ends(state, plans, committed):
        # Asked for again only where what is known of the log does not suffice.
        head = files.known_head() if end <= files.known_head() else files.head()
        if end > head:
            last = end.entry - (end.index == 0)
            missing = [str(head.entry), str(last)] if last > head.entry else [str(head.entry)]
            raise CorruptedStateError(
                f"The file log in {printable_path(state.uri)} has lost its newest entries: "
                f"{what} refers to entry {last}, but the log ends at {head.to_json()}. Missing: "
                f"_source/files/ {' to '.join(missing)}. Their files would never be ingested. "
                "Put them back, or restore the checkpoint location as a whole from a backup. See "
                "docs/how-to/recover.md."
            )


def mark_head(state: ObjectStore, files: FileLog) -> None:
    """Remember how long the file log is. A write that is lost makes the mark show less, not wrong.

    Args:
        state: The checkpoint location.
        files: Its file log.
    """
    content = seal({FIELD: HEAD_VERSION, "entries": files.known_head().entry})

    def write() -> None:
        try:
            state.put(HEAD, content)
        except OSError as failure:
            _log.warning("The mark of the length of the file log could not be written: %s", failure)

    aside(state, HEAD, write)


def _known_ends(
    state: ObjectStore, plans: PlanLog, known: Position | None
) -> Iterator[tuple[str, Offset]]:
    """Where the log ends at least, and what shows it."""
    latest = plans.latest()
    if latest is not None:
        yield f"the plan of batch {latest.number}", latest.end
    try:
        committed = (known or position(state, plans)).end
    except (CorruptedStateError, IncompatibleStateError):
        committed = START  # whoever needs it reports what is wrong with it
    yield "the last committed batch", committed
    for entry in snapshots.covered(state):
        yield "a snapshot of the index", Offset(entry + 1, 0)
    yield f"the mark {HEAD}", Offset(_marked(state), 0)


def _marked(state: ObjectStore) -> int:
    name = printable_path(state.child_uri(HEAD))
    try:
        with reaching_state(state):
            content = state.get(HEAD)
        mark = fields_of(unseal(content), name=name, understood=HEAD_VERSION)
        return int(mark["entries"])
    except ObjectNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as failure:
        _log.warning("%s cannot be read and is passed over: %s.", name, failure)
        return 0
