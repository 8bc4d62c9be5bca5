"""Whose state is this?

`_source/metadata.json` is written once, by the first discovery. It ties a checkpoint location to
one source and one format, and gives the stream the id under which its ledger is cached and its
batches are committed to a target.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateConflictError
from airflow_cloudfiles.engine.files import FILE_IDENTITIES, FileIdentity, printable_path
from airflow_cloudfiles.engine.state.entry_format import check_version
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.clock import now_us
from airflow_cloudfiles.engine.storage.conditional import require_conditional_put
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.uri import refuse_directory_bucket

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "_source/metadata.json"
FORMAT_VERSION = 3
"""The newest that is understood: files are known by their content, and logs may be in packs."""
_WITH_PACKS = 2
"""That of a state whose logs may be in packs."""
_FIRST_VERSION = 1
"""That of a state without packs."""


@dataclass(frozen=True, slots=True)
class StreamMetadata:
    """Who a checkpoint location belongs to.

    Attributes:
        stream_id: Random, fixed for the life of the state.
        source: Canonical URI of the folder the files land in.
        format: `cloudFiles.format`.
        format_version: Version of the layout below the checkpoint location.
        include_existing_files: `cloudFiles.includeExistingFiles` of the very first start, which
            decides for ever (B88).
        file_identity: `content` where files are known by that, since the very first start. What
            else `cloudFiles.fileIdentity` says may change, and is not recorded: `path`.
        started_us: Where existing files are left out: when that was, by the clock of the source, in
            microseconds since 1970.
        is_new: Whether this call wrote the metadata: it is the very first start.
    """

    stream_id: str
    source: str
    format: str
    format_version: int = _FIRST_VERSION
    include_existing_files: bool = True
    started_us: int | None = None
    file_identity: FileIdentity = "path"
    is_new: bool = field(default=False, compare=False)


def open_metadata(  # noqa: PLR0913 - what a first start decides
    state: ObjectStore,
    source_uri: str,
    format: str,  # noqa: A002 - Auto Loader's name
    *,
    include_existing_files: bool = True,
    file_identity: FileIdentity = "path",
    clock_us: Callable[[], int] = now_us,
) -> StreamMetadata:
    """Take a checkpoint location for a source, or check that it is this source's.

    Of any number of callers at once, one decides what is written; the others check against it.

    Args:
        state: The checkpoint location.
        source_uri: Canonical URI of the source.
        format: `cloudFiles.format`.
        include_existing_files: Written down when the location is new, else without effect.
        file_identity: By what files are known; `content` is written down when the location is new.
        clock_us: The clock of the source, asked once: when the location is new and existing files
            are left out.

    Raises:
        StateConflictError: It belongs to another source or format, or either it or the caller
            knows files by their content.
        IncompatibleStateError: A newer version of this package wrote it.
        CorruptedStateError: The metadata cannot be read.
        StateError: The location cannot be written, or not by conditional writes.
        UnsupportedOptionError: It lists its objects in no order.
    """
    found = read_metadata(state)
    if found is None and _has_log(state):
        # Another first discovery may just have begun; it writes its metadata before anything else.
        found = read_metadata(state)
        if found is None:
            raise _damaged(state.child_uri(KEY))
    if found is None:
        by_content = file_identity == "content"
        mine = StreamMetadata(
            uuid.uuid4().hex,
            source_uri,
            format,
            format_version=FORMAT_VERSION if by_content else _FIRST_VERSION,
            file_identity="content" if by_content else "path",
            include_existing_files=include_existing_files,
            started_us=None if include_existing_files else clock_us(),
        )
        if not isinstance(state, LocalStore):
            with reaching_state(state):
                require_conditional_put(state)
        with reaching_state(state):
            is_mine = state.put_if_absent(KEY, encode_metadata(mine))
        found = read_metadata(state) or mine
        # After a lost answer, the retry is refused because of our own object: the id decides.
        found = replace(found, is_new=is_mine or found.stream_id == mine.stream_id)
    if isinstance(state, LocalStore) and not found.is_new:
        state.sync_folder(KEY.rpartition("/")[0])  # its writer may have been killed before it did
    if (found.source, found.format) != (source_uri, format):
        msg = (
            f"The checkpoint location {printable_path(state.uri)} belongs to the source "
            f"{printable_path(found.source)} with format {found.format}, not to "
            f"{printable_path(source_uri)} with format {format}. Give every source a checkpoint "
            f"location of its own."
        )
        raise StateConflictError(msg)
    _check_identity(state, found, file_identity)
    return found


def _check_identity(state: ObjectStore, found: StreamMetadata, wanted: FileIdentity) -> None:
    """Refuse to begin, or to end, knowing files by their content.

    Entries that were written without it do not say which contents they have. What entries say of
    paths, times and etags they say in every state: so all other identities may follow each other.
    """
    if (found.file_identity == "content") == (wanted == "content"):
        return
    name = printable_path(state.uri)
    if wanted == "content":
        raise StateConflictError(
            f"cloudFiles.fileIdentity=content was asked for, but the state {name} was begun "
            "without it, and does not say which contents it has ingested. Remove the option, or "
            "give a new checkpointLocation, which ingests everything anew."
        )
    raise StateConflictError(
        f"The state {name} was begun with cloudFiles.fileIdentity=content, but {wanted} was asked "
        "for. Set cloudFiles.fileIdentity=content, or give a new checkpointLocation, which ingests "
        "everything anew."
    )


def _has_log(state: ObjectStore) -> bool:
    with reaching_state(state):
        return next(state.list("_source/files/"), None) is not None


def read_metadata(state: ObjectStore) -> StreamMetadata | None:
    """Read who a checkpoint location belongs to; `None` when it is new."""
    refuse_directory_bucket(state.uri)
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return None
    return decode_metadata(content, name=state.child_uri(KEY))


def has_packs(state: ObjectStore) -> bool:
    """Whether entries of the logs may be in packs alone."""
    found = read_metadata(state)
    return found is not None and found.format_version >= _WITH_PACKS


def allow_packs(state: ObjectStore) -> None:
    """Note that entries of the logs may be in packs, for versions that do not look there.

    Done before the first entry is removed that is in a pack.

    Raises:
        CorruptedStateError: The metadata cannot be read, or is not what was written.
    """
    found = read_metadata(state)
    if found is None:
        raise _damaged(state.child_uri(KEY))
    if found.format_version >= _WITH_PACKS:
        return
    with reaching_state(state):
        state.put(KEY, encode_metadata(replace(found, format_version=_WITH_PACKS)))
    if read_metadata(state) != replace(found, format_version=_WITH_PACKS):
        raise _damaged(state.child_uri(KEY))


def encode_metadata(metadata: StreamMetadata) -> bytes:
    """Build the bytes of the metadata file."""
    value: dict[str, Any] = {
        "streamId": metadata.stream_id,
        "source": metadata.source,
        "format": metadata.format,
    }
    if not metadata.include_existing_files:
        value["includeExistingFiles"] = False
        if metadata.started_us is not None:
            value["startedUs"] = metadata.started_us
    if metadata.file_identity != "path":
        value["fileIdentity"] = metadata.file_identity
    text = json.dumps(value, ensure_ascii=True, indent=2)
    return f"v{metadata.format_version}\n{text}\n".encode("ascii")


def decode_metadata(content: bytes, *, name: str) -> StreamMetadata:
    """Read the bytes of the metadata file."""
    version, _, text = content.partition(b"\n")
    check_version(version, name=name, format_version=FORMAT_VERSION)
    try:
        value: dict[str, Any] = json.loads(text)
        fields = (value["streamId"], value["source"], value["format"])
        include_existing = value.get("includeExistingFiles", True)
        started_us = value.get("startedUs")
        identity = value.get("fileIdentity", "path")
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise _damaged(name) from failure
    are_strings = all(isinstance(field, str) for field in fields)
    if not are_strings or not _is_id(fields[0]) or not isinstance(include_existing, bool):
        raise _damaged(name)
    if type(started_us) is not int and started_us is not None:
        raise _damaged(name)
    if identity not in FILE_IDENTITIES:
        raise _damaged(name)
    return StreamMetadata(
        *fields,
        format_version=int(version[1:]),
        include_existing_files=include_existing,
        started_us=started_us,
        file_identity=identity,
    )


def _is_id(text: str) -> bool:
    """Whether a stream id can be what `uuid4().hex` gives; it becomes a directory name."""
    return len(text) == 32 and all(char in "0123456789abcdef" for char in text)  # noqa: PLR2004


def _damaged(name: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"{name} cannot be read: it does not name the source of this checkpoint location. "
        f"Restore the checkpoint location as a whole from a backup, or start with a new one, which "
        f"ingests everything anew."
    )
