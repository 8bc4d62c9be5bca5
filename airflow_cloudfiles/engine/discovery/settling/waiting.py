"""Which files were found and have to be looked at again, because they had just changed?

Notes in the state, `_source/waiting/<id>.json`, each with some files. A note is written before the
message that brought its files is acknowledged, and before a listing that has passed them counts as
made. So nothing that waits depends on being found once more.

Notes have names of their own and are never changed: whoever has looked at the files of some writes
a new one of what still waits, and removes them then. Two that do so at once, or one that is killed
in between, leave a file in two notes; it is recorded once, as every candidate is.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import FoundBy
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX = "_source/waiting"
NOTE_VERSION = 1
NOTE_FILES = 10_000
"""Most files of one note."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnsettledFile:
    """A file that has to be looked at again.

    Attributes:
        file: The version that was seen.
        seen_us: When that was, by the clock of its store, in microseconds since 1970.
        found_by: How it was found.
    """

    file: FileEntry
    seen_us: int
    found_by: FoundBy


def keep_waiting(state: ObjectStore, files: Iterable[UnsettledFile]) -> None:
    """Note files; when it returns, the notes are durable.

    Raises:
        StateError: The state cannot be written.
    """
    left = iter(files)
    while some := tuple(islice(left, NOTE_FILES)):
        with reaching_state(state):
            state.put(f"{PREFIX}/{uuid.uuid4().hex}.json", _encode(some))


def load_waiting(state: ObjectStore) -> dict[str, list[UnsettledFile]]:
    """Read the notes: the files of each, by its key.

    One that is damaged is removed, after seeing to it that the next listing is a full one: that
    finds its files again.

    Raises:
        StateError: The state cannot be read.
        IncompatibleStateError: A newer version of this package wrote one.
    """
    found: dict[str, list[UnsettledFile]] = {}
    with reaching_state(state):
        for note in list(state.list(PREFIX + "/")):
            try:
                found[note.path] = _decode(state.get(note.path), state.child_uri(note.path))
            except ObjectNotFoundError:
                continue  # another discovery was faster
            except (ValueError, KeyError, TypeError):
                name = printable_path(state.child_uri(note.path))
                _log.warning("%s does not say which files wait. All files are listed.", name)
                state.delete(LISTING)
                state.delete(note.path)
    return found


def forget_notes(state: ObjectStore, keys: Iterable[str]) -> None:
    """Remove notes whose files are recorded, gone, or in another note.

    Raises:
        StateError: The state cannot be written.
    """
    with reaching_state(state):
        for key in keys:
            state.delete(key)


def _encode(files: Iterable[UnsettledFile]) -> bytes:
    """Write what `_decode` reads."""
    entries = [
        {
            "path": each.file.path,
            "size": each.file.size,
            "modification_time_us": each.file.modification_time_us,
            "etag": each.file.etag,
            "seen_us": each.seen_us,
            "found_by": each.found_by,
        }
        for each in files
    ]
    return seal({FIELD: NOTE_VERSION, "files": entries})


def _decode(content: bytes, name: str) -> list[UnsettledFile]:
    """Read what `_encode` wrote."""
    fields = fields_of(unseal(content), name=printable_path(name), understood=NOTE_VERSION)
    return [_waiting(each) for each in fields["files"]]


def _waiting(given: Mapping[str, Any]) -> UnsettledFile:
    path, size, time = given["path"], given["size"], given["modification_time_us"]
    file = FileEntry(str(path), int(size), int(time), str(given["etag"]))
    return UnsettledFile(file, int(given["seen_us"]), cast("FoundBy", str(given["found_by"])))
