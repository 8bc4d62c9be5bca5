"""How are the answers of a slow store waited for side by side?

An object store takes tens of milliseconds for each request, and takes many at once. So what
is read first of the next files of a split (all of a small file) is fetched ahead by threads, in the
order they will be read, up to a bound of bytes. Local files are read when their turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from airflow_cloudfiles.engine.reading.fetch import FirstRange, FirstRead, beginning, first_read
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import ObjectStore

THREADS = 16
"""Requests in flight a task."""
AHEAD_BYTES = 64 * 2**20
"""Most bytes that are fetched and not read yet."""


def fetched_ahead(
    store: ObjectStore, parts: Sequence[FileRange], range_of: FirstRange = beginning
) -> Generator[tuple[FileRange, FirstRead | None]]:
    """Give the parts in order, each with what gives its first bytes; `None` where none are asked.

    Args:
        store: The source.
        parts: What will be read.
        range_of: The part of a file that is read first, by its size.

    Whatever a request raises is raised when its result is asked for.
    """
    if not any(map(_is_worth_it, parts)):
        yield from ((part, None) for part in parts)
        return
    waiting: deque[tuple[FileRange, Future[bytes] | None]] = deque()
    coming = iter(parts)
    held = 0
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cloudfiles-fetch")
    try:
        while True:
            while held < AHEAD_BYTES and (part := next(coming, None)) is not None:
                future = (
                    pool.submit(first_read, store, part.file, range_of)
                    if _is_worth_it(part)
                    else None
                )
                waiting.append((part, future))
                held += _cost(part, range_of)
            if not waiting:
                return
            part, future = waiting.popleft()
            yield part, None if future is None else future.result
            held -= _cost(part, range_of)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _is_worth_it(part: FileRange) -> bool:
    """Only whole files of stores with etags: those are far away, and opened with one request."""
    return bool(part.file.etag) and part.is_whole


def _cost(part: FileRange, range_of: FirstRange) -> int:
    return range_of(part.file.size)[1] + 2**12
