"""Write small objects so that nobody overwrites another's, and a damaged one is noticed.

An object is replaced only if it is what was read: in an object store by its etag. A local disk has
none: there, whoever replaces the file holds a lock on the file itself, and looks under the lock
whether the name still is that of this file. A put gives the name to another file, so a lock on one
that was replaced meanwhile shows.

Everything durable here rests on put-if-absent. Some compatible servers take the
condition, ignore it, and let the second writer replace what the first one wrote. That shows only
when it is tried.

The last field of a sealed object is a checksum of all that comes before it:

```
{"entries": 12, "crc32": "0bb6d2a1"}
```

So a byte that has changed, or an end that is gone, is found rather than believed. Whoever reads
such an object decides what follows: a hint is passed over, anything else is an error.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    ObjectStore,
    UnsupportedRequestError,
)
from airflow_cloudfiles.engine.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """Tell whether the name still is that of the file that is open."""
    try:
        named = os.stat(path)  # noqa: PTH116 - bytes path
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


FOLDER = "_source"
"""Where the trial of a state is made: below its own folder of what it knows about its source."""

SCRATCH = "_cloudfiles_test"
"""Where a trial is made that belongs to no state. No stream reads names that begin so."""


_ELSEWHERE = (
    "The state of a stream is not safe there. Put the checkpoint location on S3, Azure Storage, "
    "Cloud Storage or a local disk, or upgrade the server to a version with conditional writes."
)


def require_conditional_put(store: ObjectStore, *, folder: str = FOLDER) -> None:
    """Prove that put-if-absent refuses the second writer, with three requests and a deletion.

    Args:
        store: Where a state is to live.
        folder: Where the object of the trial is, for some moments.

    Raises:
        StateError: The store ignores or refuses the condition: two runs at once would destroy the
            state.
        OSError: The store cannot be written, or read.
    """
    key = f"{folder}/probe-{uuid.uuid4().hex}"
    first, second = b"first", b"second"
    try:
        store.put_if_absent(key, first)  # its answer may be lost; what is there decides
    except UnsupportedRequestError as failure:
        raise StateError(
            f"The store of {store.uri} refuses If-None-Match: it does not keep two writers of one "
            f"object apart. {_ELSEWHERE}"
        ) from failure
    try:
        refused = not store.put_if_absent(key, second)
        kept = store.get(key) == first
    finally:
        store.delete(key)
    if not (refused and kept):
        raise StateError(
            f"The store of {store.uri} ignores If-None-Match: of two writers of one object, the "
            f"second replaced what the first had written. {_ELSEWHERE}"
        )


_CHECKSUM = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n}\n\Z')


def seal(value: Mapping[str, Any], *, head: bytes = b"") -> bytes:
    """Build the bytes of an object.

    Args:
        value: JSON values, at least one; none is called `crc32`.
        head: What stands before it, such as a version line; the checksum covers it.
    """
    text = head + json.dumps(value, ensure_ascii=True, indent=1).encode("ascii")[: -len("\n}")]
    return b'%b,\n "crc32": "%08x"\n}\n' % (text, zlib.crc32(text))


def unseal(content: bytes, *, head: bytes = b"") -> dict[str, Any]:
    """Read what `seal` wrote.

    Args:
        content: All of its bytes.
        head: As for `seal`; the content begins with it.

    Raises:
        ValueError: It is damaged, or something else.
    """
    found = _CHECKSUM.search(content)
    if found is None:
        msg = "it does not end with its checksum"
        raise ValueError(msg)
    text = content[: found.start()]
    if zlib.crc32(text) != int(found[1], 16) or not text.startswith(head):
        msg = "its content does not match its checksum"
        raise ValueError(msg)
    value = json.loads(text[len(head) :] + b"\n}")
    if not isinstance(value, dict):
        msg = "it is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - as for all that is not one
    return value
