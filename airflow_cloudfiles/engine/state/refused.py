"""Keep which files a stream refused for their new fields.

In `failOnNewColumns` the stream goes on when the file that it named is removed (B52). That file is
part of a planned micro-batch, and a planned file that is gone is an error otherwise; so the task
that refuses a file notes that in the state, before it fails. The note is for the version of the
file that was discovered, and is only read when a file is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.versions import FIELD, read_note

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "_source/refused"
NOTE_VERSION = 1
_log = logging.getLogger(__name__)


def note_refused(state: str, files: Iterable[FileEntry], fields: Mapping[str, object]) -> None:
    """Note that files were refused; noting it again changes nothing.

    That it cannot be noted is logged: the stream fails for the new fields in any case, and the file
    then has to be there, or `ignoreMissingFiles` has to be set.

    Args:
        state: URI of the state.
        files: The files, in the versions that were discovered.
        fields: The new fields that they were refused for.
    """
    store = open_store(state)
    for file in files:
        try:
            store.put(_key(file), _encode(file, fields))
        except OSError as failure:
            path = printable_path(file.path)
            _log.warning("The note that %s was refused could not be written: %s", path, failure)


def was_refused(state: str, file: FileEntry) -> bool:
    """Tell whether this version of a file was refused, so that the stream goes on without it.

    Raises:
        IncompatibleStateError: A newer version of this package wrote the note.
    """
    store, key = open_store(state), _key(file)
    try:
        content = store.get(key)
    except ObjectNotFoundError:
        return False
    with contextlib.suppress(ValueError):  # a note that was cut off is one, too
        read_note(content, name=store.child_uri(key), understood=NOTE_VERSION)
    return True


def _encode(file: FileEntry, fields: Iterable[str]) -> bytes:
    note = {
        FIELD: NOTE_VERSION,
        "path": printable_path(file.path),
        "fields": sorted(fields),
    }
    return (json.dumps(note, indent=1) + "\n").encode("ascii")


def _key(file: FileEntry) -> str:
    """Return where the note of a version of a file is."""
    version = f"\n{file.size}\n{file.modification_time_us}\n{file.etag}"
    name = (file.path + version).encode("utf-8", "surrogatepass")
    return f"{PREFIX}/{hashlib.sha256(name).hexdigest()}"
