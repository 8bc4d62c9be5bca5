"""Archives of all kinds, made of members."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterable

import pyarrow as pa

Members = Iterable[tuple[str, bytes]]


def zip_of(members: Members, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Make a zip archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return sink.getvalue()


def tar_of(members: Members, mode: str = "w:", kind: int = tarfile.PAX_FORMAT) -> bytes:
    """Make a tar."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode=mode, format=kind) as archive:  # type: ignore[call-overload]
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def _zstd(members: Members) -> bytes:
    return bytes(pa.compress(tar_of(members), codec="zstd", asbytes=True))


KINDS: dict[str, Callable[[Members], bytes]] = {
    ".zip": zip_of,
    ".ZIP": lambda members: zip_of(members, zipfile.ZIP_STORED),
    ".tar": tar_of,
    ".gnu.tar": lambda members: tar_of(members, kind=tarfile.GNU_FORMAT),
    ".ustar.tar": lambda members: tar_of(members, kind=tarfile.USTAR_FORMAT),
    ".tar.gz": lambda members: tar_of(members, "w:gz"),
    ".tgz": lambda members: tar_of(members, "w:gz"),
    ".tar.bz2": lambda members: tar_of(members, "w:bz2"),
    ".tar.xz": lambda members: tar_of(members, "w:xz"),
    ".tar.zst": _zstd,
}
"""What makes an archive, by the end of its name."""
