"""Encode and decode `_source/metadata.json`.

No input or output: `metadata` reads and writes them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateMovedError
from airflow_cloudfiles.engine.files import FileIdentity, printable_path
from airflow_cloudfiles.engine.state.packs import beyond_repair, check_version
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import json_object, older

FORMAT_VERSION = 5
"""The newest that is understood: rows of a batch may be in a quarantine table."""
WITH_OPERATIONS = 4
"""That of a state whose file log may have operations on single files."""
BY_CONTENT = 3
"""That of a state in which files are known by their content; its logs may be in packs."""
WITH_PACKS = 2
"""That of a state whose logs may be in packs."""
FIRST_VERSION = 1
"""That of a state with nothing of these."""
_NOT_IN_USE = b"v9"
"""The version line of a state that is not in use yet, or no more (`StateStanding`): older versions
of this package refuse it by name."""
StateStanding = Literal["unbound", "moved", "incoming", "relocating", "restarting"]
"""`unbound`: no file is recorded yet, so another source may take the location. `moved`: the state
is at another location. `incoming`: it is being brought here, and not whole yet. `relocating`: its
source is being relocated. `restarting`: it is being removed, so that the stream starts over."""

_SAID: dict[StateStanding, str] = {
    "incoming": "that is being brought here from {} and is not whole yet. Repeat the command that "
    "does it (cloudfiles state move, or import).",
    "moved": "that was moved to {}. Use that as the checkpoint location. If it was not moved "
    "whole, repeat cloudfiles state move.",
    "relocating": "whose source is being relocated to {}. Repeat cloudfiles state relocate.",
    "restarting": "that is being removed, for its stream to start over into {}. Repeat cloudfiles "
    "state start-over.",
}


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
        fence: The newest entry that ended the file log for those who had opened the state before
            its source was relocated; -1 for none.
        is_bound: Whether a file is recorded, so that no other source may take the location.
        is_new: Whether this call wrote the metadata: it is the very first start.
    """

    stream_id: str
    source: str
    format: str
    format_version: int = FIRST_VERSION
    include_existing_files: bool = True
    started_us: int | None = None
    file_identity: FileIdentity = "path"
    fence: int = -1
    is_bound: bool = True
    is_new: bool = field(default=False, compare=False)

    @property
    def has_operations(self) -> bool:
        """Whether the file log may have operations on single files."""
        return self.format_version >= WITH_OPERATIONS

    @property
    def has_quarantine(self) -> bool:
        """Whether rows of its batches may be in a quarantine table (`extensions.row_rules`)."""
        return self.format_version >= FORMAT_VERSION


def encode_metadata(metadata: StreamMetadata) -> bytes:
    """Build the bytes of the metadata file."""
    if not metadata.is_bound:
        return encode_standing("unbound", metadata)
    return seal(to_json(metadata), head=b"v%d\n" % metadata.format_version)


def encode_standing(
    standing: StateStanding, metadata: StreamMetadata | None, place: str | None = None
) -> bytes:
    """Build the bytes of the metadata file of a state that is not in use.

    Args:
        standing: Why not.
        metadata: Whose it is, or will be; `None` for one that is `incoming`.
        place: Where a moved one is now; what an incoming one comes from; the new source; the
            table that is filled anew.
    """
    value: dict[str, Any] = {"standing": standing}
    if place is not None:
        value["place"] = place
    if metadata is not None:
        value |= {"formatVersion": metadata.format_version, **to_json(metadata)}
        if standing != "unbound" and not metadata.is_bound:
            value["isBound"] = False
    return seal(value, head=_NOT_IN_USE + b"\n")


class _StoredFields(msgspec.Struct, rename="camel", omit_defaults=True):
    """What is stored of a stream beside the version; the id becomes the name of a folder."""

    stream_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    source: str
    format: str
    include_existing_files: bool = True
    started_us: int | None = None
    file_identity: FileIdentity = "path"
    fence: int = -1


def to_json(metadata: StreamMetadata) -> dict[str, Any]:
    """Give what is stored of a stream beside the version."""
    is_all = metadata.include_existing_files
    stored = _StoredFields(
        metadata.stream_id,
        metadata.source,
        metadata.format,
        is_all,
        None if is_all else metadata.started_us,
        metadata.file_identity,
        metadata.fence,
    )
    found: dict[str, Any] = msgspec.to_builtins(stored)
    return found


def decode_metadata(content: bytes, *, name: str) -> StreamMetadata:
    """Read the bytes of the metadata file.

    Raises:
        StateMovedError: The state is at another location, or not whole yet.
        IncompatibleStateError: A newer version of this package wrote it.
        CorruptedStateError: It is damaged.
    """
    standing, place, found = decode_standing(content, name=name)
    if standing is not None and (said := _SAID.get(standing)):
        raise StateMovedError(f"{name} is of a state {said.format(printable_path(place))}")
    if found is None:
        raise damaged(name)
    return found


def decode_standing(
    content: bytes, *, name: str
) -> tuple[StateStanding | None, str, StreamMetadata | None]:
    """Read the bytes of the metadata file, whether the state is in use or not.

    Returns:
        Why it is not in use, `None` if it is; the place that belongs to that; whose the state is.
    """
    line, newline, _ = content.partition(b"\n")
    _refuse_older(content, name)
    if line != _NOT_IN_USE:
        check_version(line, name=name, format_version=FORMAT_VERSION)
    try:
        value = unseal(content, head=line + newline)
    except ValueError as failure:
        _refuse_older(content[len(line + newline) :], name)
        raise damaged(name) from failure
    if line != _NOT_IN_USE:
        return None, "", replace(from_json(value, name=name), format_version=int(line[1:]))
    match value:
        case {"standing": "incoming", "place": str(place)}:
            return "incoming", place, None
        case {
            "standing": "moved" | "relocating" | "restarting" as standing,
            "place": str(place),
            "formatVersion": int(version),
        }:
            is_bound = value.get("isBound") is not False
            found = from_json(value, name=name)
            return standing, place, replace(found, format_version=version, is_bound=is_bound)
        case {"standing": "unbound", "formatVersion": int(version)}:
            found = from_json(value, name=name)
            return "unbound", "", replace(found, format_version=version, is_bound=False)
    raise damaged(name)


def _refuse_older(text: bytes, name: str) -> None:
    """Refuse metadata that are whole but for a checksum, as they had none once."""
    value = json_object(text)
    if "crc32" in value or "standing" in value:
        return
    with suppress(CorruptedStateError):
        from_json(value, name=name)
        raise older(name)


def from_json(value: Any, *, name: str) -> StreamMetadata:
    """Read what `to_json` gave.

    Raises:
        CorruptedStateError: It is something else.
    """
    try:
        stored = msgspec.convert(value, _StoredFields)
    except msgspec.ValidationError as failure:
        raise damaged(name) from failure
    return StreamMetadata(
        **msgspec.structs.asdict(stored),
        format_version=BY_CONTENT if stored.file_identity == "content" else FIRST_VERSION,
    )


def damaged(name: str) -> CorruptedStateError:
    """Build the error of metadata that cannot be read."""
    return beyond_repair(
        f"{name} cannot be read: it does not name the source of this checkpoint location.",
        anew=True,
    )
