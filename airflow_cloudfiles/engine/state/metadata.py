"""Say whose state this is.

`_source/metadata.json` is written by the first discovery. It ties a checkpoint location to one
source and one format, and gives the stream the id under which its ledger is cached and its batches
are committed to a target.

Until a file is recorded it is unbound: another source may take the location. Entry 0 of the file
log decides, for it is created once: its header names the stream that recorded it, whoever has
replaced the metadata meanwhile. Then the metadata is written a last time, bound.

Refuse to begin a state where an earlier one has been.

A state without its metadata and its file log is a new one, and ingests everything. A backup that
was restored in part, or a clean-up that took `_source/` or some of it, looks like that. So whatever
only a stream in use leaves is a sign that the log is missing, in the state and in the table, whose
commits note the place of the state and its source (`origin`).
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.files import FileIdentity, printable_path
from airflow_cloudfiles.engine.state.metadata_format import (
    BY_CONTENT,
    FIRST_VERSION,
    FORMAT_VERSION,
    WITH_OPERATIONS,
    WITH_PACKS,
    StreamMetadata,
    damaged,
    decode_metadata,
    encode_metadata,
    from_json,
    to_json,
)
from airflow_cloudfiles.engine.state.packs import parse_header, split_entry
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, decode_report
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.base import now_us
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same, require_conditional_put
from airflow_cloudfiles.engine.storage.uri import refuse_source_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MOST_REPORTS = 100
_IN_USE = (
    "_source/batches/",
    "_source/files/",
    "_source/head.json",
    "_source/operations/",
    "_source/plans/",
    "_source/replays/",
    "_source/sink/",
    "_source/snapshots/",
)
"""What is written when a file is recorded, or later."""


def origin(state: ObjectStore, source: str) -> str:
    """Name a place of a state and its source, for the commits of its stream.

    Args:
        state: The checkpoint location.
        source: What the state knows its source by.
    """
    text = f"{state.uri}\n{source}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def remains_of(state: ObjectStore) -> CorruptedStateError | None:
    """Look for remains in a location without metadata.

    Returns:
        The error that says what there is of an earlier state; `None` for nothing.
    """
    with reaching_state(state):
        names = (entry.path for entry in state.list("_source/"))
        found = next((name for name in names if name.startswith(_IN_USE)), None)
        found = found or _report_of_batches(state)
    if found is None:
        return None
    return without_log(state, f"{printable_path(state.child_uri(found))} is there")


def without_log(state: ObjectStore, what: str) -> CorruptedStateError:
    """Give the error of a state that has no log of its files any more.

    Args:
        state: The checkpoint location.
        what: What shows that it had one, as a clause.
    """
    name = printable_path(state.uri)
    return CorruptedStateError(
        f"The checkpoint location {name} lacks its metadata and file log (_source/metadata.json, "
        f"_source/files/), although {what}: it was in use before, and ingesting everything anew "
        "would double rows. Restore the checkpoint location as a whole from a backup. To ingest "
        "everything anew, give another checkpoint location, and a new table. See "
        "docs/how-to/recover.md."
    )


def _report_of_batches(state: ObjectStore) -> str | None:
    """Give the key of a report of a run that committed something."""
    entries = list(islice(state.list(f"{REPORTS_PREFIX}/"), 10 * MOST_REPORTS))
    entries.sort(key=lambda entry: entry.modification_time_us, reverse=True)
    keys = [entry.path for entry in entries[:MOST_REPORTS]]
    have = at_once(state, [partial(_has_batches, state, key) for key in keys])
    return next((key for key, has in zip(keys, have, strict=True) if has), None)


def _has_batches(state: ObjectStore, key: str) -> bool:
    try:
        report = decode_report(state.get(key), name=key)
    except (ObjectNotFoundError, ValueError, CorruptedStateError):
        return False
    return report.get("kind") == "ingest" and bool(report.get("batches"))


KEY = "_source/metadata.json"
FIRST_ENTRY = f"_source/files/{0:020}"
"""The first entry of the file log."""
STREAM = "stream"
"""The field in the header of the first entry that names its stream."""
_HEADER_BYTES = 65536
_TRIES = 20
_log = logging.getLogger(__name__)


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

    A location that has no recorded file is taken from another source. Of any number of callers at
    once, one decides what is written; the others check against it. Who holds unbound metadata
    passes them to its `FileLog`, which finds out whose the location has become.

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
    mine = StreamMetadata(
        uuid.uuid4().hex,
        source_uri,
        format,
        format_version=BY_CONTENT if file_identity == "content" else FIRST_VERSION,
        include_existing_files=include_existing_files,
        file_identity="content" if file_identity == "content" else "path",
        is_bound=False,
    )
    found = read_metadata(state)
    if found is None and (remains := remains_of(state)) is not None:
        # Another first discovery may just have begun; it writes its metadata before anything else.
        found = read_metadata(state)
        if found is None:
            raise remains
    if found is None:
        found = _take(state, _started(mine, clock_us))
    if isinstance(state, LocalStore) and not found.is_new:
        state.sync_folder(KEY.rpartition("/")[0])  # its writer may have been killed before it did
    if found.is_bound or _begin_alike(found, mine):
        return _required(found, mine, state)
    return _take_over(state, _started(mine, clock_us))


def _started(mine: StreamMetadata, clock_us: Callable[[], int]) -> StreamMetadata:
    """Note when the very first start is, where that matters."""
    return mine if mine.include_existing_files else replace(mine, started_us=clock_us())


def _take(state: ObjectStore, mine: StreamMetadata) -> StreamMetadata:
    """Take a location that nobody has; gives whose it is then."""
    if not isinstance(state, LocalStore):
        with reaching_state(state):
            require_conditional_put(state)
    with reaching_state(state):
        is_mine = state.put_if_absent(KEY, encode_metadata(mine))
    found = read_metadata(state) or mine
    # After a lost answer, the retry is refused because of our own object: the id decides.
    return replace(found, is_new=is_mine or found.stream_id == mine.stream_id)


def _take_over(state: ObjectStore, mine: StreamMetadata) -> StreamMetadata:
    """Take a location from a source of which no file is recorded; its id stays.

    Raises:
        StateConflictError: A file is recorded by now, or other sources take it all the time.
    """
    for _ in range(_TRIES):
        with reaching_state(state):
            before = state.get(KEY)
        found = read_metadata(state)
        if found is None or found.is_bound or _begin_alike(found, mine):
            break
        after = replace(mine, stream_id=found.stream_id)
        with reaching_state(state):
            if replace_if_same(state, KEY, before, encode_metadata(after)):
                _log.warning(
                    "%s takes the checkpoint location %s, which was begun for %s: no file of that "
                    "is recorded",
                    printable_path(mine.source),
                    printable_path(state.uri),
                    printable_path(found.source),
                )
                return replace(after, is_new=True)
    return _required(read_metadata(state) or mine, mine, state)


def _are_same(found: StreamMetadata, mine: StreamMetadata) -> bool:
    return (found.source, found.format) == (mine.source, mine.format)


def _begin_alike(found: StreamMetadata, mine: StreamMetadata) -> bool:
    """Tell whether an unbound state was begun for what it is begun for now."""
    return _are_same(found, mine) and found.file_identity == mine.file_identity


def _required(found: StreamMetadata, mine: StreamMetadata, state: ObjectStore) -> StreamMetadata:
    """Give what was found, if it is of this source and format."""
    if _are_same(found, mine):
        _check_identity(state, found, mine.file_identity)
        return found
    raise StateConflictError(
        f"The checkpoint location {printable_path(state.uri)} belongs to the source "
        f"{printable_path(found.source)} with format {found.format}, not to "
        f"{printable_path(mine.source)} with format {mine.format}. Give every source a checkpoint "
        f"location of its own."
    )


def require_owner(
    state: ObjectStore, mine: StreamMetadata, header: Mapping[str, Any]
) -> StreamMetadata:
    """Check that the first entry of the file log is of a stream that began unbound; bind it.

    Args:
        state: The checkpoint location.
        mine: What the stream has opened.
        header: Of the first entry.

    Raises:
        StateConflictError: Another source, or another start of this one, recorded the first file.
    """
    owner = _owner(header, mine, state.child_uri(FIRST_ENTRY))
    _required(owner, mine, state)
    if owner != replace(mine, is_bound=True):
        raise StateConflictError(
            f"Another first start of {printable_path(mine.source)} has recorded the first files in "
            f"{printable_path(state.uri)}, with another cloudFiles.includeExistingFiles. Run again."
        )
    bind(state, owner)
    return owner


def bind(state: ObjectStore, owner: StreamMetadata) -> None:
    """Write the metadata of the stream that recorded the first entry, unless that was done."""
    for _ in range(_TRIES):
        with reaching_state(state):
            before = state.get(KEY)
            found = decode_metadata(before, name=state.child_uri(KEY))
            if found.is_bound:
                return
            bound = replace(_as_new(owner, found), is_bound=True)
            if replace_if_same(state, KEY, before, encode_metadata(bound)):
                return


def _as_new(owner: StreamMetadata, found: StreamMetadata) -> StreamMetadata:
    """Build an owner with the version that was found, where that is newer: operations raise it."""
    newest = max(owner.format_version, found.format_version)
    return replace(owner, format_version=newest)


def as_header(metadata: StreamMetadata) -> dict[str, Any]:
    """Give what the header of the first entry says of its stream."""
    return {STREAM: to_json(metadata)}


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
        f"The state {name} was begun with cloudFiles.fileIdentity=content, which was not asked for "
        "now. Set cloudFiles.fileIdentity=content, or give a new checkpointLocation, which ingests "
        "everything anew."
    )


def read_metadata(state: ObjectStore) -> StreamMetadata | None:
    """Read who a checkpoint location belongs to; `None` when it is new."""
    refuse_source_only(state.uri)
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return None
    found = decode_metadata(content, name=state.child_uri(KEY))
    return found if found.is_bound else _by_first_entry(state, found)


def existing_metadata(state: ObjectStore) -> StreamMetadata:
    """Read who a checkpoint location belongs to that must be there.

    Raises:
        StateError: There is no state.
    """
    found = read_metadata(state)
    if found is None:
        raise StateError(
            f"There is no state in {printable_path(state.uri)}: nothing was discovered with it "
            "yet. Give the checkpoint location of a cloudFiles stream."
        )
    return found


def _by_first_entry(state: ObjectStore, found: StreamMetadata) -> StreamMetadata:
    """Give the stream that recorded the first entry, if there is one; else the unbound one."""
    name = state.child_uri(FIRST_ENTRY)
    try:
        with reaching_state(state):
            start = state.get_range(FIRST_ENTRY, 0, _HEADER_BYTES)
    except ObjectNotFoundError:
        return found
    line, _ = split_entry(start, name=name, format_version=FIRST_VERSION)
    return _owner(parse_header(line, name=name), found, name)


def _owner(header: Mapping[str, Any], found: StreamMetadata, name: str) -> StreamMetadata:
    """Give the stream that a header names; where it names none, whose metadata there are."""
    if STREAM not in header:
        return replace(found, is_bound=True)
    return _as_new(from_json(header[STREAM], name=name), found)


def has_packs(state: ObjectStore) -> bool:
    """Tell whether entries of the logs may be in packs alone."""
    found = read_metadata(state)
    return found is not None and found.format_version >= WITH_PACKS


def allow_packs(state: ObjectStore) -> None:
    """Note that entries of the logs may be in packs, for versions that do not look there.

    Done before the first entry is removed that is in a pack.

    Raises:
        CorruptedStateError: The metadata cannot be read, or is not what was written.
    """
    _raise_version(state, WITH_PACKS)


def allow_operations(state: ObjectStore) -> None:
    """Note that the file log may have operations, for versions that do not know them.

    Done before the first one is appended. Raises as `allow_packs`.
    """
    _raise_version(state, WITH_OPERATIONS)


def has_quarantine(state: ObjectStore) -> bool:
    """Tell whether rows of the stream's batches may be in a quarantine table."""
    found = read_metadata(state)
    return found is not None and found.has_quarantine


def allow_quarantine(state: ObjectStore) -> None:
    """Note that rows may be in a quarantine table, for versions that do not look there.

    Done before the first is put there. Raises as `allow_packs`.
    """
    _raise_version(state, FORMAT_VERSION)


def _raise_version(state: ObjectStore, version: int) -> None:
    found = read_metadata(state)
    if found is None:
        raise damaged(state.child_uri(KEY))
    if found.format_version >= version:
        return
    if found.is_bound:  # by its first entry, at least
        bind(state, found)
    with reaching_state(state):
        before = state.get(KEY)
        replace_if_same(state, KEY, before, encode_metadata(replace(found, format_version=version)))
    if read_metadata(state) != replace(found, format_version=version):
        raise damaged(state.child_uri(KEY))
