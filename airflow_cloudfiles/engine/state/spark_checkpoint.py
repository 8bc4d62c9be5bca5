"""Read the files of Spark's own checkpoint, tell whether they are whole and how far Spark has come.

Their forms (`OffsetSeqLog`, `CommitLog`, `StreamMetadata` of Spark 4): a line `v1`; a line of JSON;
in `offsets/<b>` a line for each source of the query, `-` for one that has given nothing yet.
`metadata` is one JSON object. On a local disk Hadoop writes `.<name>.crc` beside a file and
refuses a file that does not match it. Nothing of it is synced: a power failure may cut off any
of them, or leave it empty.

Read from Spark's own checkpoint, in the state or mirrored there: the offset of the last batch that
its commit log names. Where the power failed and that offset is gone, the plan log has it too.

Keep Spark's own checkpoint of a query from one source, without Spark.

The plan log of a run from a Delta table is what Spark writes for a query: `offsets/<n>` before
anything of micro-batch `n` is read, `commits/<n>` when the table has it. Each is created with
put-if-absent, and survives a power failure. So a run goes on where a query has ended or was killed,
and a query where a run did. The newest entries are kept, as Spark keeps them.
"""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateLockedError,
)
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put

OFFSETS = "offsets"
COMMITS = "commits"
METADATA = "metadata"
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
"""An entry of the commit log of a query without state."""
KEPT_BATCHES = 100
"""How many micro-batches Spark keeps in its logs (`spark.sql.streaming.minBatchesToRetain`)."""
_VERSION = re.compile(r"v[1-9][0-9]{0,3}")
_CHECKSUM_HEADER = b"crc\0"
_ID = re.compile(rb'"id"\s*:\s*"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')


class SourceOffset(Protocol):
    """Where a source is; its JSON is its line in the offset log."""

    def to_json(self) -> Mapping[str, Any]:
        """Encode it as Spark's offset log has it."""


@dataclass(frozen=True, slots=True)
class SparkOffsets:
    """One entry of Spark's offset log.

    Attributes:
        settings: Its line of metadata: watermark, time, and what of the configuration must not
            change.
        sources: How many sources the query has; `None` in a format that is not known here.
        ours: Our offset, where ours is the only source.
    """

    settings: str
    sources: int | None
    ours: Offset | None


def numbers(spark: ObjectStore, log: str) -> list[int]:
    """Numbers of the entries of one of the two logs, in order; checksums and drafts are none."""
    names = (entry.path.removeprefix(f"{log}/") for entry in spark.list(f"{log}/"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_offsets(spark: ObjectStore, batch: int) -> SparkOffsets | None:
    """Read the offsets of a batch; `None` when they are gone, or not whole."""
    lines = _lines(spark, f"{OFFSETS}/{batch}")
    if lines is None:
        return None
    if lines[0] != "v1":
        return SparkOffsets("", None, None)
    if len(lines) < 3 or _object(lines[1]) is None:  # noqa: PLR2004 - version, settings, a source
        return None
    sources = lines[2:]
    if any(line != "-" and not _is_json(line) for line in sources):
        return None
    ours = offset_of(sources[0]) if len(sources) == 1 else None
    return SparkOffsets(lines[1], len(sources), ours)


def require_offsets(spark: ObjectStore, batch: int) -> tuple[str, list[str]]:
    """Read the offsets of a batch, which must be there, and whole.

    Returns:
        The line of settings, and a line for each source.

    Raises:
        CorruptedStateError: They are gone, or not as they were written.
        IncompatibleStateError: A newer version of Spark wrote them.
    """
    key = f"{OFFSETS}/{batch}"
    name = spark.child_uri(key)
    try:
        content = spark.get(key)
    except ObjectNotFoundError as failure:
        raise beyond_repair(
            f"Spark's checkpoint has committed a batch whose offsets are missing: {name}."
        ) from failure
    if isinstance(spark, LocalStore) and not is_as_written(spark, key, content):
        # Elsewhere Hadoop writes no checksums.
        msg = f"{name} does not match its checksum. Restore it from a backup."
        raise CorruptedStateError(msg)
    first, *rest = content.decode("utf-8", "replace").splitlines() or [""]
    if not _VERSION.fullmatch(first):
        msg = f"{name} is cut off or damaged. Restore it from a backup."
        raise CorruptedStateError(msg)
    if first != "v1":
        msg = (
            f"{name} has the version {first!r} of Spark's log, and this version of "
            "the package understands v1. Upgrade the package here."
        )
        raise IncompatibleStateError(msg)
    return (rest[0] if rest else ""), rest[1:]


def is_committed(spark: ObjectStore, batch: int) -> bool:
    """Tell whether its entry of the commit log is there, and whole."""
    lines = _lines(spark, f"{COMMITS}/{batch}")
    return lines is not None and len(lines) > 1 and _object(lines[1]) is not None


def query_id(spark: ObjectStore) -> tuple[str | None, bool]:
    """Read the id of the query.

    Returns:
        The id, as far as it can be read; and whether the file is whole.
    """
    content = _content(spark, METADATA)
    if content is None:
        return None, False
    found = _ID.search(content)
    value = _object(content.decode("utf-8", "replace"))
    is_whole = value is not None and isinstance(value.get("id"), str)
    return found and found[1].decode(), is_whole and is_as_written(spark, METADATA, content)


def replace(spark: ObjectStore, key: str, content: bytes) -> None:
    """Write a file of the checkpoint; it has no checksum then, which Hadoop does not ask for."""
    spark.delete(_checksum_key(key))
    spark.put(key, content)


def remove(spark: ObjectStore, key: str) -> None:
    """Remove a file of the checkpoint and its checksum."""
    spark.delete(key)
    spark.delete(_checksum_key(key))


def create(spark: ObjectStore, key: str, content: bytes) -> bool:
    """Write a file of the checkpoint unless it is there (`ObjectStore.put_if_absent`)."""
    if isinstance(spark, LocalStore):  # of a file that a power failure took, and its checksum not
        spark.delete(_checksum_key(key))
    return spark.put_if_absent(key, content)


def encode_offsets(settings: str, offset: SourceOffset) -> bytes:
    """Build an entry of the offset log of a query whose only source is ours."""
    return f"v1\n{settings}\n{json.dumps(offset.to_json())}".encode()


def new_settings(before: str = "") -> str:
    """Read the settings of a batch of a query without state.

    Args:
        before: Those of the batch before, from which what must not change is taken over. Where
            there is none, Spark takes it from its session.
    """
    now_ms = time.time_ns() // 10**6
    known = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}, **(_object(before) or {})}
    value = {**known, "batchTimestampMs": now_ms}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encode_query_id(query_id: str) -> bytes:
    """Build the content of `metadata`."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def offset_of(line: str) -> Offset | None:
    """Read one source's line; `None` when it is not ours."""
    match _object(line):
        case {"entry": int(entry), "index": int(index)}:
            return Offset(entry, index)
    return None


def _lines(spark: ObjectStore, key: str) -> list[str] | None:
    """Read the lines of an entry that is whole, as its checksum and first line show."""
    content = _content(spark, key)
    if content is None or not is_as_written(spark, key, content):
        return None
    lines = content.decode("utf-8", "replace").split("\n")
    return lines if _VERSION.fullmatch(lines[0]) else None


def _content(spark: ObjectStore, key: str) -> bytes | None:
    try:
        return spark.get(key)
    except ObjectNotFoundError:
        return None


def is_as_written(spark: ObjectStore, key: str, content: bytes) -> bool:
    """Tell whether Hadoop would read a file: it matches its checksum, or has no usable one.

    Args:
        spark: Where the checkpoint is.
        key: Of the file.
        content: All of it.
    """
    found = _content(spark, _checksum_key(key))
    if found is None or len(found) < 8 or not found.startswith(_CHECKSUM_HEADER):  # noqa: PLR2004
        return True
    step = int.from_bytes(found[4:8], "big")
    if step <= 0:
        return True
    parts = (content[at : at + step] for at in range(0, len(content), step))
    return found[8:] == b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def _checksum_key(key: str) -> str:
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def offset_of_batch(state: ObjectStore, batch: int) -> Offset:
    """Give the position at which a batch ends that Spark has committed.

    Raises:
        CorruptedStateError: Spark's checkpoint cannot be understood.
    """
    try:
        return _source_offset(state, batch)
    except (CorruptedStateError, IncompatibleStateError):
        # Gone or cut off: the next run rebuilds it from the plan log, so that is what counts.
        is_whole = read_offsets(state, batch) is not None
        plan = None if is_whole else PlanLog(state).get(batch)
        if plan is None:
            raise
        return plan.end


def last_committed_batch(state: ObjectStore) -> int | None:
    """Give the number of the last micro-batch that Spark has committed; `None` for none."""
    with reaching_state(state):
        return max(numbers(state, COMMITS), default=None)


def _source_offset(state: ObjectStore, batch: int) -> Offset:
    """Read our offset from Spark's offset log; `-` is a source that has given nothing yet."""
    _, sources = require_offsets(state, batch)
    for line in sources:
        offset = offset_of(line)
        if offset is not None:
            return offset
    if sources and all(line == "-" for line in sources):
        return START
    name = state.child_uri(f"{OFFSETS}/{batch}")
    msg = f"{name} holds no offset of a cloudFiles source; the checkpoint is another query's."
    raise CorruptedStateError(msg)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is.

    Attributes:
        committed: The newest micro-batch that was committed; -1 for none.
        planned: The newest one that was planned.
    """

    committed: int
    planned: int


def progress_of(state: ObjectStore) -> QueryProgress:
    """Read how far a query is.

    Where the entry of a commit is lost, the plan of the next batch says that it was committed. The
    newest batch may be taken for uncommitted then: it is run again, and the table knows it.
    """
    return _progress(*_numbers(state))


class QueryCheckpoint:
    """The checkpoint of one query, in the hands of a run that has the lock of its state.

    Args:
        state: The checkpoint location.
    """

    def __init__(self, state: ObjectStore) -> None:
        self._state = state
        self._commits: list[int] = []
        self._offsets: list[int] = []
        self._settings = ""

    def open(self) -> QueryProgress:
        """Read how far the query is; a new one gets its id.

        Raises:
            CorruptedStateError: Its id, or the plan of a batch that was committed, is gone.
            StateError: The store does not keep two writers apart.
            StateUnreachableError: It does not answer.
        """
        with reaching_state(self._state):
            self._commits, self._offsets = _numbers(self._state)
            if self._state.head(METADATA) is None:
                if self._commits or self._offsets:
                    raise self._corrupted(f"{METADATA} is missing")
                require_conditional_put(self._state)
                new = encode_query_id(str(uuid.uuid4()))
                create(self._state, METADATA, new)
        found = _progress(self._commits, self._offsets)
        if found.committed > found.planned:
            raise self._corrupted(f"{OFFSETS}/{found.committed} is missing")
        return found

    def end_of(self, batch: int) -> dict[str, Any]:
        """Find where a micro-batch ends, by its plan.

        Raises:
            CorruptedStateError: The plan is gone or damaged, or that of a query from several
                sources.
            IncompatibleStateError: A newer version of Spark wrote it.
        """
        with reaching_state(self._state):
            settings, sources = require_offsets(self._state, batch)
        try:
            [source] = sources
            found = json.loads(source)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._corrupted(f"{OFFSETS}/{batch} is not that of a query from one source")
        self._settings = settings
        return found

    def plan(self, batch: int, end: SourceOffset) -> None:
        """Record where a micro-batch ends.

        Raises:
            StateLockedError: Another run has planned it meanwhile.
            StateUnreachableError: The state does not answer.
        """
        key = f"{OFFSETS}/{batch}"
        self._settings = new_settings(self._settings)
        content = encode_offsets(self._settings, end)
        with reaching_state(self._state):
            # The answer to a put may be lost, so what is there is read back after a no.
            created = create(self._state, key, content)
            if not created and self._state.get(key) != content:
                raise StateLockedError(
                    f"Another run or query has planned batch {batch} of the checkpoint location "
                    f"{printable_path(self._state.uri)} meanwhile. Stop it, and run again."
                )
        self._offsets.append(batch)

    def commit(self, batch: int) -> None:
        """Record that the table has a micro-batch, and remove entries that are old.

        Raises:
            StateUnreachableError: The state does not answer.
        """
        with reaching_state(self._state):
            create(self._state, f"{COMMITS}/{batch}", COMMIT)
            self._commits.append(batch)
            for log, numbers in ((OFFSETS, self._offsets), (COMMITS, self._commits)):
                while numbers[0] < batch - KEPT_BATCHES:
                    remove(self._state, f"{log}/{numbers.pop(0)}")

    def _corrupted(self, what: str) -> CorruptedStateError:
        return CorruptedStateError(
            f"The checkpoint of the query in {printable_path(self._state.uri)} is damaged: {what}. "
            "Restore the checkpoint location as a whole, together with the table, from a backup, "
            "or start with a new one (docs/how-to/recover.md)."
        )


def _numbers(state: ObjectStore) -> tuple[list[int], list[int]]:
    # In this order: a run that goes on meanwhile writes offsets before commits.
    commits = numbers(state, COMMITS)
    return commits, numbers(state, OFFSETS)


def _progress(commits: list[int], offsets: list[int]) -> QueryProgress:
    planned = max(offsets, default=-1)
    return QueryProgress(max([*commits, planned - 1, -1]), planned)
