"""Which files does the index forget, and why is none of them ingested again?

With `cloudFiles.maxFileAge` files that were modified too long ago are not input, however they are
found. So nobody asks the index for them, and it forgets them: entry by entry of the file log, the
oldest first. The log itself forgets nothing.

The index notes the time before which files may be missing in it. An index that has forgotten more
than the option leaves out is built anew from the log: when the option was raised or removed, or
when a clock was wrong. A stream without the option, and whoever else must know every file, have an
index of their own (`opening`).
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.ledger.base import catch_up
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.ledger.base import Ledger
    from airflow_cloudfiles.engine.state.file_log import FileLog

MARGIN_US: Final = 24 * 3600 * 1_000_000
"""So much older than the option says is what the index forgets: clocks of machines differ."""
RUN_SECONDS: Final = 5.0
"""How long a discovery goes on forgetting; the next one continues."""
_log = logging.getLogger(__name__)


def suffices(expired_us: int, oldest_us: int | None) -> bool:
    """Whether an index has all files that can still be asked for.

    Args:
        expired_us: Files modified before this may be missing in it; 0 if none is.
        oldest_us: Files modified before this are not input; `None` if all are.
    """
    return expired_us == 0 or (oldest_us is not None and expired_us <= oldest_us)


def catch_up_whole(ledger: Ledger, files: FileLog, oldest_us: int | None) -> None:
    """Bring a ledger to the end of the file log; one that has forgotten too much begins anew."""
    if not suffices(ledger.expired_us, oldest_us):
        _log.info("The index of seen files lacks some that maxFileAge allows. Rebuilding it.")
        ledger.clear()
    catch_up(ledger, files)


def forget_old(
    ledger: Ledger, files: FileLog, oldest_us: int | None, *, seconds: float = RUN_SECONDS
) -> int:
    """Let the index forget files that are not input any more for their age.

    Killed at any point, it has forgotten the files of some entries, and knows which.

    Args:
        ledger: Caught up; nobody records meanwhile.
        files: The file log it indexes.
        oldest_us: Files modified before this are not input; `None` if all are.
        seconds: After so long no further entry is begun.

    Returns:
        How many files were forgotten.
    """
    if oldest_us is None:
        return 0
    before_us, until = oldest_us - MARGIN_US, time.monotonic() + seconds
    first, forgotten = ledger.expired_us == 0, 0
    while ledger.expired_entry <= ledger.caught_up:
        number = ledger.expired_entry
        try:
            is_old = _is_older(files.summary(number).created, before_us)
            if not is_old or time.monotonic() >= until:
                break
            batch = files.read(number)
        except (StateError, OSError) as failure:
            _log.warning("The index of seen files forgets no more: %s", failure)
            break
        forgotten += ledger.forget(number, batch, before_us)
    if forgotten and first:
        _log.warning(
            "The index of seen files forgets what was modified before %s (cloudFiles.maxFileAge). "
            "A file that is written again under an old name after that counts as a new file and "
            "is ingested, whatever cloudFiles.allowOverwrites is.",
            datetime.fromtimestamp(before_us / 1_000_000, UTC).isoformat(timespec="seconds"),
        )
    if forgotten:
        _log.info("The index of seen files has forgotten %s", counted(forgotten, "old file"))
    return forgotten


def _is_older(created: str, before_us: int) -> bool:
    """Whether an entry was written before a time; one that does not say when was not."""
    try:
        written = datetime.fromisoformat(created)
    except ValueError:
        return False
    written = written if written.tzinfo else written.replace(tzinfo=UTC)
    return written.timestamp() * 1_000_000 < before_us
