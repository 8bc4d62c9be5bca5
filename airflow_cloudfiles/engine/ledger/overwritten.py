"""Which files turned out to be overwritten when they were to be read?

With `cloudFiles.allowOverwrites` every version of a file is an entry of its own, and an entry never
gives the bytes of another version. A task that meets a newer version than its entry's leaves the
file out. That newer version is somebody's entry already, or will be; so that it does not depend on
a notification that may be lost, or a listing that may be long in coming, the task leaves a note in
the state before its batch can be committed, and the next discovery inspects the file.

A note is a hint: it is deduped as every candidate is, and removed when the file is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.ledger.index_format import version_hash
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.versions import FIELD, read_note

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX = "_source/overwritten"
NOTE_VERSION = 1


def note_overwritten(state: ObjectStore, found: FileEntry) -> None:
    """Ask the next discovery to inspect a file; asking twice is asking once.

    Args:
        state: The checkpoint location.
        found: The version that is there. Another version gets a note of its own, so that removing
            one never removes the other.
    """
    key = f"{PREFIX}/{_digest(found.path)}-{version_hash(found).hex()}"
    state.put(key, json.dumps({FIELD: NOTE_VERSION, "path": found.path}).encode("ascii"))


def overwritten(state: ObjectStore) -> Iterator[tuple[str, str | None]]:
    """Give the notes: the key of each, and the path of its file; `None` for one that is damaged.

    The key has a digest of the path, which shows that it is the path that was written.

    Raises:
        IncompatibleStateError: A newer version of this package wrote one.
    """
    for note in state.list(PREFIX + "/"):
        try:
            name = state.child_uri(note.path)
            path = read_note(state.get(note.path), name=name, understood=NOTE_VERSION)["path"]
        except ObjectNotFoundError:
            continue  # another discovery was faster
        except (ValueError, KeyError, TypeError):
            path = None
        is_whole = isinstance(path, str) and note.path.startswith(f"{PREFIX}/{_digest(path)}-")
        yield note.path, path if is_whole else None


def _digest(path: str) -> str:
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def has_overwritten(state: ObjectStore) -> bool:
    """Whether there is a note."""
    return next(state.list(PREFIX + "/"), None) is not None
