"""Begin a stream again from nothing: its state is removed, and no row of a table.

1. Refuse it while someone runs, and for a table that has rows of this stream.
2. The state is out of use: its metadata say that it starts over.
3. Remove what it has: the file log, plans, records, reports, schemas, Spark's checkpoint.
4. Remove the metadata. The next run begins a new stream, and ingests all that is in the source.

Killed between 2 and 4, the state refuses every run and says to repeat the command, which goes on.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    OptionError,
    StateConflictError,
)
from airflow_cloudfiles.engine.extensions.transfer.move import LOCKS, is_part, no_state
from airflow_cloudfiles.engine.files import START, printable_path
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.schema import log_entry as names
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.state import metadata
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import locked
from airflow_cloudfiles.engine.state.metadata_format import decode_standing, encode_standing
from airflow_cloudfiles.engine.state.sink_log import SinkLog, position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.state.metadata_format import StreamMetadata
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

_CHECKSUM: Final = ".metadata.crc"
"""Of Spark's `metadata` on a disk; with it there, Spark refuses to write another."""
_STOP_SECONDS: Final = 5.0
"""So long a query's planning process may keep its lock when the query was stopped."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedOver:
    """What starting over removed, or would.

    Attributes:
        checkpoint_location: URI of the state, printable.
        source: Of the stream: all that is in it will be ingested.
        files: How many files were recorded; `None` where its logs are damaged, or half removed.
        batches: How many micro-batches were committed; `None` as that.
        former_target: The table that has their rows, and keeps them; `None` where no sink of this
            package has written one.
        target: The table that the stream fills from now on.
        objects: How many objects were removed, schemas included.
        bytes: Their size.
        is_done: Whether they were, or only counted.
    """

    checkpoint_location: str
    source: str
    files: int | None
    batches: int | None
    former_target: str | None
    target: str
    objects: int
    bytes: int
    is_done: bool


def start_over(
    checkpoint_location: str,
    *,
    target: str | None = None,
    schema_location: str | None = None,
    dry_run: bool = False,
    access: Access | None = None,
) -> StartedOver:
    """Begin a stream again from nothing; repeat the call until it succeeds.

    The state is removed: which files were ingested, the versions of the schema, the reports of
    runs. No file of the source, and nothing of a table is removed. The next run infers the schema
    anew and ingests everything that is in the source then; files that were cleaned from it are
    gone.

    Args:
        checkpoint_location: The state.
        target: The table that the stream fills from now on: another one, or the place of one that
            was deleted.
        schema_location: Where the schema log is, if elsewhere; it is removed, too.
        dry_run: Only count what would be removed.
        access: How the clouds are reached; `None` for the environment's own chain.

    Raises:
        OptionError: No target was given.
        StateLockedError: A run is working on the state.
        StateConflictError: The target has rows of this stream, which would be there twice; a table
            or the source lies in a folder of the state; or the schema log is another stream's.
        StateMovedError: The state was moved, or is not whole.
        StateError: There is no state.
        SinkError: The target cannot be opened, or is something else.
    """
    state = open_store(checkpoint_location, access)
    schemas = None if schema_location is None else open_store(schema_location, access)
    with reaching_state(state):
        content, stream = _owner(state)
        files, batches, former_target = _known(state)
        if not target:
            has = "" if former_target is None else f" {former_target} has its rows, and keeps them."
            raise OptionError(
                f"Say which table the stream in {printable_path(state.uri)} is to fill when it "
                f"starts over (target).{has} Give another one, or delete that one first."
            )
        _require_other_rows(state, stream, target)
        if schemas is not None:
            _require_own_schemas(schemas, stream, access)
        parts = [*_parts(state), *(() if schemas is None else schemas.list("_schemas/"))]
        _require_no_data(state, parts, (stream.source, target))
        found = StartedOver(
            checkpoint_location=printable_path(state.uri),
            source=printable_path(stream.source),
            files=files,
            batches=batches,
            former_target=former_target,
            target=printable_path(target),
            objects=len(parts),
            bytes=sum(each.size for each in parts),
            is_done=not dry_run,
        )
        if not dry_run:
            _remove(state, schemas, content, encode_standing("restarting", stream, target))
    if found.is_done:
        _log.info(
            "Removed the state in %s: %s. No row of %s was removed.",
            found.checkpoint_location,
            counted(found.objects, "object"),
            found.former_target or "a table",
        )
    return found


def _known(state: ObjectStore) -> tuple[int | None, int | None, str | None]:
    """Count files and batches of a state, and find its table, as far as it is not damaged."""
    target = files = batches = None
    with suppress(CorruptedStateError):
        record = SinkLog(state).newest()
        target = None if record is None else printable_path(record.target) or None
    with suppress(CorruptedStateError):
        log = FileLog(state)
        found = files_and_bytes(log, START, log.head())[0]
        files, batches = found, position(state).batch + 1
    return files, batches, target


def _owner(state: ObjectStore) -> tuple[bytes, StreamMetadata]:
    """Read whose state it is, also one that has begun to start over."""
    try:
        content = state.get(metadata.KEY)
    except ObjectNotFoundError:
        raise no_state(state) from None
    standing, _, found = decode_standing(content, name=state.child_uri(metadata.KEY))
    if standing != "restarting":
        found = metadata.existing_metadata(state)  # raises for one that is elsewhere
    if found is None:
        raise no_state(state)
    return content, found


def _require_other_rows(state: ObjectStore, stream: StreamMetadata, target: str) -> None:
    """Refuse a table that has rows of the stream."""
    table = target_table(target)
    origin = metadata.origin(state, stream.source)
    if table.has(stream.stream_id, 0) or table.newest_of_origin(origin, besides=None) is not None:
        folder = target_of(target).folder
        is_above = folder is not None and open_store(folder).key_of(stream.source)
        keep = f" without {printable_path(stream.source)}, which lies in its folder" * bool(
            is_above
        )
        raise StateConflictError(
            f"{printable_path(target)} has rows of this stream, and each would be there twice: "
            f"starting over removes no row. Delete the table first{keep}, or give another one as "
            "target."
        )


def _require_own_schemas(
    schemas: ObjectStore, stream: StreamMetadata, access: Access | None
) -> None:
    """Refuse a schema log of another source."""
    versions = SchemaHistory(schemas.uri, access=access).versions()
    owner = versions[-1].source if versions else stream.source
    if stream.source not in {owner, *names.names_of(schemas)}:
        raise StateConflictError(
            f"The schema log in {printable_path(schemas.uri)} is of the source "
            f"{printable_path(owner)}, and the stream reads {printable_path(stream.source)}. Give "
            "the schema location of this stream."
        )


def _require_no_data(state: ObjectStore, parts: Iterable[FileEntry], places: Iterable[str]) -> None:
    """Refuse a state in whose folders a table, or the source, lies."""
    folders = (target_of(each).folder for each in places)
    keys = (None if each is None else state.key_of(each) for each in folders)
    below = next((each for each in keys if each and _is_part(f"{each}/x")), None)
    table = next((each.path for each in parts if "/_delta_log/" in each.path), below)
    if table is not None:
        raise StateConflictError(
            f"{printable_path(state.child_uri(table))} is in a folder of the state, and would be "
            "removed with it. Nothing was removed. Move it, or remove the state yourself."
        )


def _is_part(key: str) -> bool:
    return key.startswith("_source/") or key == _CHECKSUM or is_part(key)


def _parts(state: ObjectStore) -> Iterator[FileEntry]:
    """List what a state is made of, hints and copies of the index too, but for metadata, locks."""
    for entry in state.list(ordered=False):
        if _is_part(entry.path) and entry.path not in {metadata.KEY, *LOCKS}:
            yield entry


def _remove(state: ObjectStore, schemas: ObjectStore | None, content: bytes, sealed: bytes) -> None:
    with locked(state, timeout_seconds=_STOP_SECONDS) as may_go_on:
        is_sealed = content == sealed or replace_if_same(state, metadata.KEY, content, sealed)
        if not is_sealed:
            raise StateConflictError(
                f"The state in {printable_path(state.uri)} was changed by somebody else. Run again."
            )
        crash_point("after-restart-seal")
        if schemas is not None:
            for entry in schemas.list("_schemas/"):
                schemas.delete(entry.path)
        for entry in list(_parts(state)):
            may_go_on()
            state.delete(entry.path)
            crash_point("after-part-of-restart")
        may_go_on()
        state.delete(metadata.KEY)
        crash_point("after-restart")
