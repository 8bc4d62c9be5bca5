"""How is what is compressed decompressed?

By its first bytes, whatever its name says; a text never begins like that. A name that promises a
compression which the content does not have is refused: it was cut, or is something else.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import IO, Final, cast

from airflow_cloudfiles.engine.errors import FileUnreadableError

DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)
"""What reading a damaged stream raises besides `OSError`."""
MARKS: Final = (b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
"""First bytes that only compressed files have."""


def decompressed(stream: IO[bytes], head: bytes, uri: str) -> IO[bytes]:
    """Open what is compressed, by its first bytes.

    Args:
        stream: The file's own bytes, from its beginning.
        head: Some of its first bytes.
        uri: The file, for errors.

    Raises:
        FileUnreadableError: Its name promises another content.
    """
    lower = uri.lower()
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh") and lower.endswith(".bz2"):
        return bz2.BZ2File(stream)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(stream)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa  # noqa: PLC0415 - only files in zstd pay for it

        return pa.input_stream(stream, compression="zstd")  # type: ignore[no-any-return]
    if head:
        _refuse_misnamed(lower, uri)
    return stream


def damaged(uri: str, error: Exception) -> FileUnreadableError:
    """The error of a file whose compressed content is not valid."""
    return FileUnreadableError(
        f"{uri} is damaged or truncated: its compressed content ends early or is invalid "
        f"({error}). Replace it and run again, or remove it and set ignoreMissingFiles=true."
    )


def refuse_compressed(chunk: bytes, uri: str) -> None:
    """Refuse the first bytes of a file that is cut, if its name did not say it is compressed."""
    if chunk.startswith(MARKS):
        raise FileUnreadableError(
            f"{uri} is compressed but its name does not say so, and it is too large to be read by "
            "one task. Name it with the ending .gz, .xz or .zst."
        )


def _refuse_misnamed(lower: str, uri: str) -> None:
    """Refuse a name that promises a compression that the content does not have, or is not read."""
    ending = lower[lower.rfind(".") :]
    if ending in {".gz", ".bz2", ".zst", ".xz"}:
        raise FileUnreadableError(
            f"{uri} is damaged: its name ends in {ending} but its content is not of that kind. "
            "Replace it, or name it for what it is."
        )
    if ending in {".deflate", ".lz4", ".snappy", ".zip"}:
        raise FileUnreadableError(
            f"{uri}: compression {ending} is not in this version, which reads gzip, bzip2, xz "
            "and zstd. Compress the file in one of these."
        )
