"""How does a state become one file, and a file a state again?

Exported under the locks: the file log up to an entry, and whatever else there is. Imported so that
there is a state or none: the metadata of a location that is being filled say so, and are replaced
when all else is there and was read back.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same, require_conditional_put
from airflow_cloudfiles.engine.storage.uri import local_path
from airflow_cloudfiles.engine.transfer.archive import (
    Member,
    RangeReader,
    StateArchive,
    write_archive,
)
from airflow_cloudfiles.engine.transfer.contents import (
    LOCKS,
    locked,
    parts_of,
    require_empty,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

MAX_OBJECT_BYTES: Final = 1 << 30
"""The largest archive that is written as one object of a store."""
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What exporting or importing did.

    Attributes:
        checkpoint_location: The state.
        archive: The file.
        source: What the state knows its source by.
        stream_id: Its id.
        objects: How many objects.
        bytes: Their size, before compression.
    """

    checkpoint_location: str
    archive: str
    source: str
    stream_id: str
    objects: int
    bytes: int


def export_state(
    checkpoint_location: str,
    to: str,
    *,
    access: Access | None = None,
    to_access: Access | None = None,
) -> TransferResult:
    """Write the state of a stream into an archive.

    Files that are recorded meanwhile are not in it. The state is not changed.

    Args:
        checkpoint_location: The state.
        to: Path or URI of the archive, which must not exist.
        access: How the store of the state is reached; `None` for the environment's own chain.
        to_access: How that of the archive is.

    Raises:
        StateLockedError: A run is working on the state.
        StateError: There is no state, or something cannot be read or written.
        OptionError: There is a file already, or the name is that of a folder.
    """
    state = open_store(checkpoint_location, access)
    with reaching_state(state):
        metadata = read_metadata(state)
        if metadata is None:
            raise StateError(
                f"There is no state in {printable_path(state.uri)}. Give the checkpoint location "
                "of a cloudFiles stream."
            )
        with locked(state) as may_go_on, _created(to, to_access) as target:
            entries = FileLog(state).latest() + 1
            about = {
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "checkpointLocation": state.uri,
                "source": metadata.source,
                "streamId": metadata.stream_id,
                "entries": entries,
            }
            members = write_archive(target, _objects(state, entries), about)
            crash_point("before-export-ends")
            may_go_on()
    return _archived(state.uri, to, metadata, members)


def _objects(state: ObjectStore, entries: int) -> Iterator[tuple[str, bytes]]:
    for entry in parts_of(state, entries=entries):
        with contextlib.suppress(ObjectNotFoundError):  # a note that was dealt with meanwhile
            yield entry.path, state.get(entry.path)
    metadata = read_metadata(state)  # last: bound, if the log has an entry
    assert metadata is not None  # noqa: S101 - it was there, and is never removed
    yield KEY, encode_metadata(metadata)


@contextlib.contextmanager
def _created(to: str, access: Access | None) -> Iterator[IO[bytes]]:
    """Give a file to write; it gets its name when the block ends without an error."""
    uri = normalize_uri(to)
    if not uri.startswith("file:"):
        with tempfile.TemporaryFile() as spooled:
            yield spooled
            _upload(spooled, uri, access)
        return
    path = Path(local_path(uri))
    if path.exists():
        raise _exists(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError as failure:
            raise _exists(uri) from failure
    finally:
        draft.unlink(missing_ok=True)


def _upload(spooled: IO[bytes], uri: str, access: Access | None) -> None:
    size = spooled.seek(0, io.SEEK_END)
    if size > MAX_OBJECT_BYTES:
        raise StateError(
            f"The archive has {size} bytes, more than the {MAX_OBJECT_BYTES} that are written as "
            "one object. Export to a local file and upload that, or use cloudfiles state move."
        )
    spooled.seek(0)
    folder, _, name = uri.rpartition("/")
    store, content = open_store(folder, access), spooled.read()
    if not store.put_if_absent(name, content) and store.get(name) != content:
        raise _exists(uri)


def _exists(uri: str) -> OptionError:
    return OptionError(f"{printable_path(uri)} exists. Give the name of a new file.")


def import_state(
    archive: str,
    checkpoint_location: str,
    *,
    access: Access | None = None,
    archive_access: Access | None = None,
) -> TransferResult:
    """Make a state of an archive; repeat the call until it succeeds.

    Args:
        archive: Path or URI of what `export_state` has written.
        checkpoint_location: A location that has nothing, or a part of this archive.
        access: How the store of the state is reached; `None` for the environment's own chain.
        archive_access: How that of the archive is.

    Raises:
        StateError: The archive is damaged, or has what no state has; nothing was written. Or the
            location is not empty.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    state = open_store(checkpoint_location, access)
    with _opened(archive, archive_access) as found, reaching_state(state):
        for _ in found.objects():  # all of it is read before anything is written
            pass
        whole = found.metadata()
        metadata = _claimed(state, found, archive, whole)
        crash_point("after-import-claim")
        if metadata is None:
            claim = _claim(found, archive)
            _fill(state, found, claim)
            crash_point("before-import-ends")
            replace_if_same(state, KEY, claim, whole)
        metadata = read_metadata(state)
    assert metadata is not None  # noqa: S101 - it was just written
    return _archived(state.uri, archive, metadata, found.members)


def _claim(found: StateArchive, name: str) -> bytes:
    last = printable_path(name).rpartition("/")[2]
    return encode_standing("incoming", None, f"{last}, SHA-256 {found.digest}")


def _claimed(
    state: ObjectStore, found: StateArchive, name: str, whole: bytes
) -> StreamMetadata | None:
    """Claim an empty location, unless an earlier try did; gives what is there when it is whole."""
    claim = _claim(found, name)
    try:
        there = state.get(KEY)
    except ObjectNotFoundError:
        require_empty(state, "An import")
        if not isinstance(state, LocalStore):
            require_conditional_put(state)
        state.put_if_absent(KEY, claim)
        there = state.get(KEY)
    if there == whole:
        return read_metadata(state)
    if there != claim:
        raise StateError(
            f"{printable_path(state.uri)} is not empty: there is {KEY}, and not of this archive. "
            "An import needs a location that has nothing. Choose another, or empty it."
        )
    return None


def _fill(state: ObjectStore, found: StateArchive, claim: bytes) -> None:
    keys = {member.key for member in found.members}
    for entry in state.list(ordered=False):
        if entry.path not in keys and entry.path not in LOCKS:
            raise StateError(
                f"{printable_path(state.uri)} is not empty: there is "
                f"{printable_path(entry.path)}, which the archive has not. Empty it."
            )
    for key, content in found.objects():
        if key == KEY:
            continue
        if not state.put_if_absent(key, content):
            there = state.get(key)
            if there != content and state.get(KEY) == claim:
                replace_if_same(state, key, there, content)
        if state.get(key) != content:
            raise StateError(f"{state.child_uri(key)} is not what was written there. Run again.")
        crash_point("after-part-of-import")


@contextlib.contextmanager
def _opened(archive: str, access: Access | None) -> Iterator[StateArchive]:
    uri = normalize_uri(archive)
    folder, _, key = uri.rpartition("/")
    store = open_store(folder, access)
    with reaching_state(store):
        entry = store.head(key)
        if entry is None:
            raise StateError(f"There is no file {printable_path(uri)}. Give an exported archive.")
        raw = RangeReader(store, key, entry.size, entry.etag)
        with io.BufferedReader(raw, _BUFFER_BYTES) as source:
            yield StateArchive(source, printable_path(uri))


def _archived(
    state: str, archive: str, metadata: StreamMetadata, members: list[Member]
) -> TransferResult:
    return TransferResult(
        checkpoint_location=state,
        archive=normalize_uri(archive),
        source=metadata.source,
        stream_id=metadata.stream_id,
        objects=len(members),
        bytes=sum(member.size for member in members),
    )
