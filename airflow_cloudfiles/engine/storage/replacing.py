"""How is an object replaced only if it still is what was read?

In an object store by its etag. A local disk has none: there, whoever replaces the file holds a lock
on the file itself, and looks under the lock whether the name still is that of this file. A put
gives the name to another file, so a lock on one that was replaced meanwhile shows.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
)
from airflow_cloudfiles.engine.storage.local import LocalStore

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.base import ObjectStore

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def replace_if_same(store: ObjectStore, key: str, before: bytes, after: bytes) -> bool:
    """Replace an object if its content is what the caller has read.

    Of any number of callers with the same `before`, one replaces it. All of them use this function:
    a plain `put` asks nobody.

    Args:
        store: The store.
        key: Of a small object.
        before: What it must hold.
        after: Its new content, another one than `before`.

    Returns:
        Whether it was replaced. After a lost answer it may be false although it was: read again.

    Raises:
        StateError: The file system does not know locks.
        OSError: The store cannot be read or written.
    """
    if isinstance(store, LocalStore):
        return _replace_file(store, key, before, after)
    found = store.head(key)
    if found is None:
        return False
    try:
        content = store.get_range(key, 0, max(found.size, 1), etag=found.etag)
    except (ObjectNotFoundError, ObjectChangedError):
        content = None
    if content == before and store.put_if_match(key, after, found.etag):
        return True
    # What was fetched before is not true any more: the caller reads again.
    getattr(store, "forget_object", lambda _: None)(key)
    return False


def _replace_file(store: LocalStore, key: str, before: bytes, after: bytes) -> bool:
    path = os.fsencode(store.local_path(key))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        _lock(descriptor, store)
        if not _has_name(descriptor, path) or store.get(key) != before:
            return False
        store.put(key, after)
    finally:
        os.close(descriptor)
    return True


def _lock(descriptor: int, store: LocalStore) -> None:
    """Wait for the lock, which others hold for a moment only."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as failure:
        if failure.errno not in _NO_LOCKS:
            raise
        msg = f"The file system of {store.uri} has no file locks: {failure.strerror}."
        raise StateError(msg) from failure


def _has_name(descriptor: int, path: bytes) -> bool:
    """Whether the name still is that of the file that is open."""
    try:
        named = os.stat(path)  # noqa: PTH116 - bytes path
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))
