"""Read the footers of Parquet files, and nothing else of them.

A footer takes one request, or a second one where it is longer than what was asked for: a hundredth
of the file, within bounds. Requests to a store with etags ask for the version that was discovered,
and several of them are under way; a local file is looked at before. What cannot be read so is left
to who copies the file, and tells what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.fetch import FirstRead, fetched_ahead
from airflow_cloudfiles.engine.reading.opened import piece
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import ObjectStore

_LEAST, _MOST = 2**13, 2**16
"""Bytes that are asked for at the end of a file, and of a large one."""
_LARGEST: Final = 2**24
"""A longer footer is not read here."""
_MAGIC: Final = b"PAR1"
_TAIL: Final = 8
"""Bytes behind the footer: its length, and the magic ones."""
_SIGNATURE: Final = 28
"""Bytes behind the metadata, in the footer, of a file with encrypted columns."""


def tail_of(size: int) -> tuple[int, int]:
    """Choose what is asked for of a file: where it begins, and how long it is."""
    length = min(size, max(_LEAST, min(_MOST, size // 100)))
    return size - length, length


def footers(
    store: ObjectStore, ranges: Sequence[FileRange]
) -> Iterator[tuple[FileRange, pq.FileMetaData | str]]:
    """Yield the footers of files, in their order; a text says why there is none.

    Args:
        store: The source.
        ranges: The files; of those that are cut no footer is read.
    """
    parts = fetched_ahead(store, ranges, tail_of)
    with closing(parts):
        for part, first in parts:
            yield part, _footer(store, part, first)


def _footer(store: ObjectStore, part: FileRange, first: FirstRead | None) -> pq.FileMetaData | str:
    if not part.is_whole:
        return "it is cut into parts"
    if part.file.size <= len(_MAGIC) + _TAIL:
        return "it is empty"
    try:
        tail = _read(store, part.file) if first is None else first()
        if tail is None:
            return "it has changed since it was discovered"
        return _parsed(store, part.file, tail)
    except LookupError:  # what a store raises where the version is not there
        return "it has changed since it was discovered"
    except (OSError, pa.ArrowException, ValueError) as error:
        return f"its end cannot be read ({type(error).__name__})"


def _read(store: ObjectStore, file: FileEntry) -> bytes | None:
    """Read the end of a file whose store has no etags; `None` for another version."""
    found = store.head(file.path)
    if found is None or found.version != file.version:
        return None
    return store.get_range(file.path, *tail_of(file.size))


def _parsed(store: ObjectStore, file: FileEntry, tail: bytes) -> pq.FileMetaData | str:
    if not tail.endswith(_MAGIC):
        return "it does not end as a Parquet file in plain text does"
    size = int.from_bytes(tail[-_TAIL : -len(_MAGIC)], "little")
    if size > min(_LARGEST, file.size - _TAIL - len(_MAGIC)):
        return f"its footer is {size} bytes long"
    missing = size + _TAIL - len(tail)
    if missing > 0:
        tail = piece(store, file, file.size - size - _TAIL, missing) + tail
    whole = pa.py_buffer(_MAGIC + tail[-_TAIL - size :])
    metadata = pq.read_metadata(pa.BufferReader(whole))
    if size - metadata.serialized_size == _SIGNATURE:
        return "columns of it are encrypted"
    return metadata
