"""Compute what identifies the bytes of a file.

Two files have the same content when the SHA-256 of their bytes is the same. Of the checksums that
stores have, only a SHA-256 that the store itself has computed over the whole object is taken in its
place: S3 has it of objects that were uploaded with that checksum, in one part. An MD5 or a CRC can
be made the same on purpose or by chance, an etag of S3 is no MD5 where a KMS key encrypts, and the
Content-MD5 of Azure is what the writer said.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    ObjectStore,
    is_version,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry

PIECE_BYTES: Final = 8 * 2**20
"""What is read, and kept in memory, at a time. A file of more bytes is worth a HEAD before."""
_DIGEST_BYTES: Final = 32


def content_of(store: ObjectStore, file: FileEntry) -> str:
    """Read a version of a file, and give the SHA-256 of its bytes in hexadecimal digits.

    Every byte is of that version: a store with etags is asked for it with each request, and a local
    file is looked at once more behind the last one.

    Args:
        store: Where it is.
        file: From `list` or `head`.

    Raises:
        ObjectNotFoundError: There is no such file.
        ObjectChangedError: It is another version by now.
        OSError: It cannot be read.
    """
    known = _known_to_store(store, file) if file.etag and file.size > PIECE_BYTES else None
    return known or _computed(store, file)


def _computed(store: ObjectStore, file: FileEntry) -> str:
    digest, position = hashlib.sha256(), 0
    while position < file.size:
        length = min(PIECE_BYTES, file.size - position)
        piece = store.get_range(file.path, position, length, etag=file.etag or None)
        if len(piece) != length:
            break
        digest.update(piece)
        position += length
    if not file.etag or not file.size:
        found = store.head(file.path)
        if found is None:
            raise ObjectNotFoundError(store.child_uri(file.path))
        if not is_version(found, file):
            raise ObjectChangedError(store.child_uri(file.path))
    if position < file.size:
        raise ConnectionError(
            f"the answer broke off: {store.child_uri(file.path)} has {file.size} bytes, and the "
            f"part from byte {position} on came short"
        )
    return digest.hexdigest()


def _known_to_store(store: ObjectStore, file: FileEntry) -> str | None:
    """Find the SHA-256 that the store has of a version, if it has one, with one request."""
    found = store.fingerprint(file.path)
    if found is None or not is_version(found.entry, file):
        return None
    given = dict(found.checksums).get("ChecksumSHA256", "")
    try:
        digest = base64.b64decode(given, validate=True)
    except binascii.Error:
        return None
    return digest.hex() if len(digest) == _DIGEST_BYTES else None
