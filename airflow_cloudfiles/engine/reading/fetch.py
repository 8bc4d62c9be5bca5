"""Fetch the files of a split.

Opens each file for the format that reads it. A file that changed since it was discovered is read in
its present version if that can be done consistently, and refused otherwise; where every version of
a file is an entry of its own, it is left to the entry of that version. Where files are known by
their content, the one that was discovered is missing then (`same_content` finds it elsewhere).

Where the store has etags, a small file costs one request: the read itself asks for the version that
was discovered. The version of a local file is checked before and after.

Of an archive the formats get the members, each as a file (`files_in`).

The answers of a slow store are waited for side by side.

An object store takes tens of milliseconds for each request, and takes many at once. So what
is read first of the next files of a split (all of a small file) is fetched ahead by threads, in the
order they will be read, up to a bound of bytes. Local files are read when their turn comes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileChangedError,
    FileMissingError,
    FileUnreachableError,
    FileUnreadableError,
)
from airflow_cloudfiles.engine.files import FileEntry, is_archive
from airflow_cloudfiles.engine.formats.base import Counts, OpenedFile
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.base import FirstPart
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.splits import FileRange, pack
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.base import ObjectChangedError
from airflow_cloudfiles.engine.storage.outage import ArchivedObjectError, is_transient

_log = logging.getLogger(__name__)

FirstRead = Callable[[], bytes]
FirstRange = Callable[[int], tuple[int, int]]
"""What is read first of a file of some size: where it begins, and how long it is."""
Superseded = Callable[[FileEntry], None]
"""Called with a file's version that is newer than the one that was discovered."""
END_BYTES = 2**16
"""Where a format keeps its schema at one end of its files, it is mostly within so many bytes."""
HEADS = 16
"""Files whose version is checked at once before they are cut."""
_Made = TypeVar("_Made")


@dataclass(slots=True)
class FetchCounts(Counts):
    """What was fetched so far."""

    files: int = 0
    bytes: int = 0
    missing_files: int = 0
    changed_files: int = 0
    superseded_files: int = 0
    corrupt_files: int = 0


def has_members(path: str, options: CloudFilesOptions) -> bool:
    """Tell whether a file is an archive whose members are read, rather than itself."""
    return is_archive(path) and options.format_options.reads_archives()


def files_in(file: OpenedFile, options: CloudFilesOptions) -> Iterator[OpenedFile]:
    """Yield what a format reads of a file: itself, or of an archive each of its members.

    A member can be read until the next one is asked for.

    Raises:
        FileUnreadableError: It is no archive, though its name says so, or a damaged one.
    """
    if has_members(file.entry.path, options):
        yield from extension("archive members")(file, options)
    else:
        yield file


def fetch(  # noqa: PLR0913 - what may go wrong, and what is known already
    store: ObjectStore,
    part: FileRange,
    counts: FetchCounts,
    use: Callable[[OpenedFile], Iterator[_Made]],
    *,
    ignore_missing: bool,
    ignore_corrupt: bool = False,
    first: FirstRead | None = None,
    range_of: FirstRange | None = None,
    was_refused: Callable[[FileEntry], bool] | None = None,
    superseded: Superseded | None = None,
    accepted: Superseded | None = None,
    keep_parts: bool = False,
) -> Iterator[_Made]:
    """Open one part of a file and give what is made of it.

    Args:
        store: The source.
        part: What to read.
        counts: Added to.
        use: Reads the file.
        ignore_missing: Whether a file that is gone is skipped, unless some of it was read.
        ignore_corrupt: Whether a file that `use` finds unreadable is given up; what was made of it
            before is kept.
        first: Gives what is read first if it was fetched ahead (`first_read`).
        range_of: The part of a file that is read first, by its size; default is the beginning.
        was_refused: Whether a file that is gone was refused before, so that its user has removed
            it as the error advised; it is skipped, too.
        superseded: Called with the version that is there when it is not the discovered one;
            then nothing is read. `None`: the version that is there is read.
        accepted: Called with that version, after it was read.
        keep_parts: Whether what was read of a file that is deleted meanwhile may be kept: for who
            learns from a file, and does not ingest it.

    Raises:
        FileMissingError: The file is gone (where it is known by its content: or is another), none
            of it was read, `ignore_missing` is false and it was not refused.
        FileChangedError: The file was overwritten or deleted while it was read, or since a large
            file was cut into ranges. Nothing of it was committed; trying again reads the new
            version, or finds that there is none.
        FileUnreachableError: Its storage does not answer.
        FileUnreadableError: Permission, I/O, or damaged content.
    """
    is_begun = False
    try:
        first_of = range_of or beginning
        for made in _counted(store, part, counts, use, first, first_of, superseded, accepted):
            is_begun = True
            yield made
    except ObjectChangedError as error:
        raise _overwritten(store, part) from error
    except (ObjectNotFoundError, FileNotFoundError) as error:
        reason = _why_skipped(part.file, was_refused, ignore_missing=ignore_missing)
        # Nobody can have read a part of it.
        is_untouched = part.is_whole and not is_begun
        if reason is None or not (keep_parts or is_untouched):
            raise _gone(store, part, is_in_part=is_begun or reason is not None) from error
        _log.warning("Skipped %s: %s", store.child_uri(part.file.path), reason)
        counts.missing_files += 1
    except FileUnreadableError as error:
        if not ignore_corrupt:
            raise
        _log.warning("Skipped the rest of a file, because ignoreCorruptFiles is true: %s", error)
        counts.corrupt_files += 1
    except OSError as error:
        raise _unread(store, part.file, error) from error


def _unread(store: ObjectStore, file: FileEntry, error: OSError) -> CloudFilesError:
    """Build the error of a file that could not be read."""
    if is_transient(error):
        return FileUnreachableError(
            f"{store.child_uri(file.path)} cannot be reached: {error}. Nothing of it was "
            "committed: run again when its storage answers."
        )
    if isinstance(error, ArchivedObjectError):
        return FileUnreadableError(str(error))
    reason = error.strerror or str(error)
    return FileUnreadableError(
        f"{store.child_uri(file.path)} cannot be read: {reason}. Correct its permissions "
        "or its content and run again, or remove it and set ignoreMissingFiles=true."
    )


def _why_skipped(
    file: FileEntry, was_refused: Callable[[FileEntry], bool] | None, *, ignore_missing: bool
) -> str | None:
    """Say why the stream goes on without a file that is gone; `None` when it does not."""
    if was_refused is not None and was_refused(file):
        return "it was refused for its new fields and has been removed"
    return "it is gone (ignoreMissingFiles)" if ignore_missing else None


def _counted(  # noqa: PLR0913, PLR0917 - private
    store: ObjectStore,
    part: FileRange,
    counts: FetchCounts,
    use: Callable[[OpenedFile], Iterator[_Made]],
    first: FirstRead | None,
    range_of: FirstRange,
    superseded: Superseded | None,
    accepted: Superseded | None,
) -> Iterator[_Made]:
    """Read a part in the version that was discovered, else in the present one, or not."""
    try:
        found, known = _first_of(store, part, first, range_of)
    except ObjectChangedError:
        found, known = _found(store, part.file.path), None
    is_other = found.version != part.file.version
    if is_other and part.is_whole and superseded is not None:
        superseded(found)
        _leave(store, part.file, counts)
        return
    if is_other:
        _accept_change(store, part, found, counts)
    try:
        yield from use(
            opened.StoreFile(store, found, known, range_of(found.size)[0] if known else 0)
        )
    except FileUnreadableError:
        _refuse_overwritten(store, part, found)  # perhaps that is why it is unreadable
        raise
    counts.files += part.start == 0
    counts.bytes += found.size if part.is_whole else part.size
    _refuse_overwritten(store, part, found)
    if is_other and accepted is not None:
        accepted(found)


def _leave(store: ObjectStore, file: FileEntry, counts: FetchCounts) -> None:
    """Leave a file out that was overwritten.

    Raises:
        ObjectNotFoundError: It is known by its content, which may be elsewhere.
    """
    if file.content:
        raise ObjectNotFoundError(store.child_uri(file.path))
    uri = store.child_uri(file.path)
    _log.warning("Skipped, because a newer version of it is recorded: %s", uri)
    counts.superseded_files += 1


def _first_of(
    store: ObjectStore, part: FileRange, first: FirstRead | None, range_of: FirstRange
) -> tuple[FileEntry, bytes | None]:
    """Find the version that is there, and what is read first where one request gives both.

    Raises:
        ObjectChangedError: It is not the version that was discovered.
    """
    if part.file.etag and not part.is_whole:
        return part.file, None  # every request asks for the version that was cut
    if part.file.etag:
        return part.file, first_read(store, part.file, range_of) if first is None else first()
    return _found(store, part.file.path), None


def first_read(store: ObjectStore, file: FileEntry, range_of: FirstRange) -> bytes:
    """Read what is read first of a file, in the version that was discovered.

    Raises:
        ObjectChangedError: It is another version by now.
        ObjectNotFoundError: It is gone.
    """
    return opened.piece(store, file, *range_of(file.size))


def first_range(options: CloudFilesOptions, *, schema_only: bool = False) -> FirstRange:
    """Choose what is read first of the files of a format: all of a small one, for its rows.

    Args:
        options: The options of the source.
        schema_only: Whether only the schema is wanted, which some formats keep in one place.
    """
    own = options.format_options
    return _FIRST[own.SCHEMA_FROM if schema_only else own.ROWS_FROM]


def beginning(size: int) -> tuple[int, int]:
    """Choose the range: a small file as a whole, or the beginning of a large one."""
    return 0, min(size, opened.BLOCK_BYTES)


def _all_or_end(size: int) -> tuple[int, int]:
    return (0, size) if size <= opened.BLOCK_BYTES else _end(size)


def _end(size: int) -> tuple[int, int]:
    return max(0, size - END_BYTES), min(size, END_BYTES)


def _header(size: int) -> tuple[int, int]:
    return 0, min(size, END_BYTES)


_FIRST: Final[Mapping[FirstPart, FirstRange]] = {
    "beginning": beginning,
    "header": _header,
    "end": _end,
    "all or end": _all_or_end,
}


def packed(
    store: ObjectStore, files: Sequence[FileEntry], *, parallelism: int, can_cut: bool
) -> list[tuple[FileRange, ...]]:
    """Cut files into splits (`pack`), but none that is gone or another version: it is read whole.

    Cut by the size it had, it would be refused at every try, and its batch is planned for ever.
    """
    found = pack(files, parallelism=parallelism, can_cut=can_cut)
    cut = dict.fromkeys(part.file for ranges in found for part in ranges if not part.is_whole)
    if not cut:
        return found
    with ThreadPoolExecutor(HEADS, thread_name_prefix="cloudfiles-head") as pool:
        is_same = pool.map(partial(_is_same, store), cut)
        changed = frozenset(file for file, same in zip(cut, is_same, strict=True) if not same)
    if not changed:
        return found
    return pack(files, parallelism=parallelism, can_cut=can_cut, whole=changed)


def _is_same(store: ObjectStore, file: FileEntry) -> bool:
    """Tell whether a file is the version that was discovered, as far as its store knows."""
    try:
        found = store.head(file.path)
    except OSError:  # reading it will report what is wrong
        return True
    return found is not None and found.version == file.version


def _found(store: ObjectStore, path: str) -> FileEntry:
    """Describe the file as it is now."""
    found = store.head(path)
    if found is None:
        raise ObjectNotFoundError(path)
    return found


def _refuse_overwritten(store: ObjectStore, part: FileRange, found: FileEntry) -> None:
    """Refuse a file that differs after reading: what was read may be a mixture.

    One that was deleted meanwhile was read to its end.
    """
    after = None if found.etag else store.head(part.file.path)
    if after is not None and after.version != found.version:
        raise _overwritten(store, part)


def _overwritten(store: ObjectStore, part: FileRange) -> FileChangedError:
    return FileChangedError(
        f"{store.child_uri(part.file.path)} was overwritten while it was being read. Nothing "
        "of it was committed: run again. Write files under another name and rename them when "
        "they are complete."
    )


def _gone(store: ObjectStore, part: FileRange, *, is_in_part: bool) -> CloudFilesError:
    """Build the error of a deleted file; try again if others may have read parts of it."""
    uri = store.child_uri(part.file.path)
    if is_in_part:
        return FileChangedError(
            f"{uri} was deleted while it was being read. Nothing of it was committed: run again."
        )
    return FileMissingError(
        f"{uri} was discovered but is gone. Put it back, or set ignoreMissingFiles=true to skip it."
    )


def _accept_change(
    store: ObjectStore, part: FileRange, found: FileEntry, counts: FetchCounts
) -> None:
    """Go on with a file that is not the version that was discovered, if it is read as a whole."""
    uri = store.child_uri(part.file.path)
    if not part.is_whole:
        raise FileChangedError(
            f"{uri} changed after it was split into ranges ({part.file.size} bytes then, "
            f"{found.size} now). Nothing of it was committed: run again."
        )
    _log.warning(
        "%s changed since it was discovered (%s bytes then, %s now); its current content is read",
        uri,
        part.file.size,
        found.size,
    )
    counts.changed_files += 1


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
    waiting: deque[tuple[FileRange, Future[bytes] | None, int]] = deque()
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
                cost = range_of(part.file.size)[1] + 2**12
                waiting.append((part, future, cost))
                held += cost
            if not waiting:
                return
            part, future, cost = waiting.popleft()
            yield part, None if future is None else future.result
            held -= cost
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _is_worth_it(part: FileRange) -> bool:
    """Accept only whole files of stores with etags: those are far away, opened with one request."""
    return bool(part.file.etag) and part.is_whole
