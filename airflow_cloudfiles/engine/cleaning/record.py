"""How far is the source cleaned?

One small object of the state, `_source/cleaned`: the position of the file log up to which files
were cleaned, or were left for good, and the few files before it that are tried again. So each
cleaning reads what has become due since, and nothing else. It is replaced under the lock of jobs.
Without it cleaning begins anew, which costs requests and loses nothing.

The bytes are those of an entry of a numbered log. The body has a line for each file to try again:
`["path",size,modification time,"etag",commit time]`, times in microseconds since 1970.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY: Final = "_source/cleaned"
FORMAT_VERSION: Final = 1
MAX_TRIED_AGAIN: Final = 1000
"""So many files are tried again at most; the position stays where it is while there are more."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Due:
    """A file that is due.

    Attributes:
        file: The version of it that was ingested.
        committed: When its micro-batch was committed.
    """

    file: FileEntry
    committed: datetime


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How far a source is cleaned.

    Attributes:
        position: Everything before it in the file log was cleaned, left for good, or is in `again`.
        batch: The last micro-batch before it; -1 for none.
        again: Files that could not be cleaned yet.
    """

    position: Offset = START
    batch: int = -1
    again: tuple[Due, ...] = ()


def read_cleaned(state: ObjectStore) -> Cleaned:
    """Read how far the source of a stream is cleaned.

    Raises:
        CorruptedStateError: It cannot be read.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return Cleaned()
    name = state.child_uri(KEY)
    try:
        header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
        position = Offset.from_json(header["position"])
        return Cleaned(position, int(header["batch"]), _decode(body))
    except (CorruptedStateError, KeyError, TypeError, ValueError) as failure:
        raise CorruptedStateError(
            f"{name} cannot be read: it does not say how far the source is cleaned. Delete it; "
            "cleaning then begins anew, and skips what is gone."
        ) from failure


def write_cleaned(state: ObjectStore, cleaned: Cleaned) -> None:
    """Write how far the source of a stream is cleaned."""
    with reaching_state(state):
        state.put(KEY, encode_cleaned(cleaned))


def encode_cleaned(cleaned: Cleaned) -> bytes:
    """Build the bytes of the record."""
    header: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "position": cleaned.position.to_json(),
        "batch": cleaned.batch,
    }
    return encode_entry(header, _encode(cleaned.again), format_version=FORMAT_VERSION)


def _encode(again: tuple[Due, ...]) -> bytes:
    rows = (
        [
            each.file.path,
            each.file.size,
            each.file.modification_time_us,
            each.file.etag,
            (each.committed - _EPOCH) // timedelta(microseconds=1),
        ]
        for each in again
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")


def _decode(body: bytes) -> tuple[Due, ...]:
    return tuple(_due(json.loads(line)) for line in body.splitlines())


def _due(value: object) -> Due:
    match value:
        case [str(path), int(size), int(time_us), str(etag), int(committed_us)]:
            committed = _EPOCH + timedelta(microseconds=committed_us)
            return Due(FileEntry(path, size, time_us, etag), committed)
    msg = f"not a file: {value!r}"
    raise ValueError(msg)
