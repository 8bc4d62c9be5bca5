"""How far has Spark come?

Read from Spark's own checkpoint, in the state or mirrored there: the offset of the last batch that
its commit log names.
"""

from __future__ import annotations

import json

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore


def committed_offset(state: ObjectStore) -> Offset:
    """Give the position up to which Spark has committed.

    Returns:
        The end of the last committed batch; `START` when none was committed.

    Raises:
        CorruptedStateError: Spark's checkpoint cannot be understood.
    """
    batch = max(_batch_numbers(state, "commits"), default=None)
    return START if batch is None else _source_offset(state, f"offsets/{batch}")


def _batch_numbers(state: ObjectStore, folder: str) -> list[int]:
    """Numbers of the files in one of Spark's logs; its checksums and temporary files are none."""
    names = (entry.path.removeprefix(folder + "/") for entry in state.list(folder + "/"))
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def _source_offset(state: ObjectStore, key: str) -> Offset:
    """Read our offset from a file of Spark's offset log.

    Its lines are a version, a line of metadata, and one line for each source of the query, `-` for
    a source that has given nothing yet.
    """
    name = state.child_uri(key)
    try:
        lines = state.get(key).decode("utf-8", "replace").splitlines()
    except ObjectNotFoundError as failure:
        msg = (
            f"Spark's checkpoint has committed a batch whose offsets are missing: {name}. Restore "
            f"the checkpoint location as a whole from a backup."
        )
        raise CorruptedStateError(msg) from failure
    if not lines or lines[0] != "v1":
        msg = f"{name} has a format that this version does not know: {lines[:1]}."
        raise IncompatibleStateError(msg)
    for line in lines[2:]:
        offset = _offset_of(line)
        if offset is not None:
            return offset
    if all(line == "-" for line in lines[2:]):
        return START
    msg = f"{name} holds no offset of a cloudFiles source; the checkpoint is another query's."
    raise CorruptedStateError(msg)


def _offset_of(line: str) -> Offset | None:
    """Read one source's line; `None` when it is not ours."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    match value:
        case {"entry": int(entry), "index": int(index)}:
            return Offset(entry, index)
    return None
