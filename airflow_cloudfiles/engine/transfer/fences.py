"""How does a file log end for those who have opened its state before?

Discoverers need no lock, so one that has opened the state may append at any moment. The log ends
for it with an entry that holds no file, found by `moved`: its number is taken, so nobody appends it
or learns of a later one without meeting it, or the mark beside the log that was put there before.
Who opens the state afterwards knows by the metadata which entry it was, and passes over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.numbered_log import FENCE, NumberedLog

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.metadata_format import StreamMetadata
    from airflow_cloudfiles.engine.storage import ObjectStore


def fence(state: ObjectStore, metadata: StreamMetadata, place: str) -> int:
    """End the file log, unless its last entry does.

    The state is not in use: nobody opens it meanwhile.

    Args:
        state: The checkpoint location.
        metadata: Whose it is.
        place: Where state or source are now, for people.

    Returns:
        The number of the entry that ends it.
    """
    log = NumberedLog(
        state,
        file_log.PREFIX,
        format_version=file_log.FORMAT_VERSION,
        has_all=True,
        is_packed=True,
    )
    while True:
        latest = log.latest()
        if latest > metadata.fence and log.header(latest).get("found_by") == "moved":
            return latest
        number = latest + 1
        state.put(f"{file_log.PREFIX}/{FENCE}{number:020}", place.encode("ascii", "replace"))
        crash_point("after-fence-mark")
        header = {"files": 0, "bytes": 0, "found_by": "moved", "position": place}
        if log.append(number, header):
            crash_point("after-fence")
            return number
