"""Tell files that were deleted from a source that is away.

`ignoreMissingFiles` gives up files that were deleted. Before a task does, it looks at what is
around them: a batch that is gone as a whole is an outage (`storage.outage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from airflow_cloudfiles.engine.discovery.filters import is_hidden
from airflow_cloudfiles.engine.errors import FileUnreachableError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.base import is_tree, is_version
from airflow_cloudfiles.engine.storage.outage import absence

LOOKS = 16
"""Files that are looked for side by side."""
MOST_FOLDERS = 100
"""Folders of a batch in which another file is looked for."""


def check_root(store: ObjectStore, *, is_in_use: bool = False) -> None:
    """Check that the root of a source is there.

    Args:
        store: The source.
        is_in_use: Whether it must hold a file, too, that may be input.

    Raises:
        FileUnreachableError: It is not, or cannot be listed.
    """
    why = absence(store, holds=_may_be_input if is_in_use else None)
    if why is not None:
        raise _away(why)


def check_deleted(
    store: ObjectStore, gone: Sequence[FileEntry], batch: Callable[[], Iterable[FileEntry]]
) -> None:
    """Check that files which are about to be given up were deleted.

    Args:
        store: The source.
        gone: The files.
        batch: Gives all files of their micro-batch.

    Raises:
        FileUnreachableError: Their storage is away, or was; nothing tells that they were deleted.
    """
    check_root(store, is_in_use=True)
    try:
        with ThreadPoolExecutor(LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            back = any(pool.map(partial(_is_there, store), gone))
        if back:
            raise _away(f"{store.child_uri(gone[0].path)} and others were gone for a moment")
        if is_tree(store) and not any(_is_there(store, file) for file in batch()):
            _check_folders(store, gone)
    except OSError as failure:
        raise _away(f"{printable_path(store.uri)} does not answer ({failure})") from failure


def _check_folders(store: ObjectStore, gone: Sequence[FileEntry]) -> None:
    """Check that some folder of a batch that is gone as a whole holds another file.

    Raises:
        FileUnreachableError: None does, as where a disk below the source is not mounted.
    """
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in gone)
    for folder in islice(folders, MOST_FOLDERS):
        prefix = f"{folder}/" if folder else ""
        if any(_may_be_input(each.path) for each in store.list(prefix, ordered=False)):
            return
    first = store.child_uri(gone[0].path)
    raise _away(f"All files of a micro-batch are gone, such as {first}, and so is all beside them")


def _may_be_input(key: str) -> bool:
    """Whether a file shows that the source is there: a mount point may hold a hidden mark."""
    return not any(map(is_hidden, key.split("/")))


def _is_there(store: ObjectStore, file: FileEntry) -> bool:
    """Whether there is something to read: of a file that is known by it, the same content."""
    found = store.head(file.path)
    return found is not None and (not file.content or is_version(found, file))


def _away(what: str) -> FileUnreachableError:
    return FileUnreachableError(
        f"{what}, as where a disk is not mounted or a server is not ready. No file was given up, "
        "and nothing was committed: run again when the storage is back. If the files were deleted, "
        "set ignoreMissingFiles=true and leave them out with cloudfiles file skip, or run again "
        "when another file has arrived beside them."
    )
