"""What is in the archive of a state, and what is refused?

A zip file. Members are called by their number, so no name in it is ever used as a path. The last
one, `manifest.json`, has the key, size and SHA-256 of each object. An archive comes from anywhere:
what does not fit the manifest, keys that no state has, links, encrypted members and such as grow
more than a hundredfold are refused before anything is written. Nothing in it is evaluated.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.state.metadata import KEY
from airflow_cloudfiles.engine.state.metadata_format import decode_metadata
from airflow_cloudfiles.engine.transfer.contents import is_part
from airflow_cloudfiles.engine.versions import require_version

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

KIND: Final = "airflow-provider-cloudfiles state"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
MOST_GROWTH: Final = 100
"""How many times larger than in the archive an object may be."""
_SLACK_BYTES: Final = 4096
_MAX_MANIFEST_BYTES: Final = 1 << 28
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_UNREADABLE = (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error)


@dataclass(frozen=True, slots=True)
class Member:
    """An object of the state.

    Attributes:
        key: Relative to the checkpoint location.
        size: In bytes.
        sha256: Of its content.
    """

    key: str
    size: int
    sha256: str


def write_archive(
    target: IO[bytes], objects: Iterable[tuple[str, bytes]], about: dict[str, Any]
) -> list[Member]:
    """Write an archive.

    Args:
        target: Where it goes.
        objects: Keys and contents.
        about: What people may want to know, as JSON.

    Returns:
        What it holds.
    """
    members: list[Member] = []
    with zipfile.ZipFile(target, "w", allowZip64=True) as archive:
        for key, content in objects:
            _add(archive, f"{len(members):08}", content)
            members.append(Member(key, len(content), hashlib.sha256(content).hexdigest()))
        manifest = {
            "kind": KIND,
            "version": VERSION,
            **about,
            "objects": [asdict(member) for member in members],
        }
        _add(archive, MANIFEST, json.dumps(manifest, ensure_ascii=True, indent=1).encode("ascii"))
    return members


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a member, compressed unless it would shrink so much that reading refuses it."""
    member = zipfile.ZipInfo(name, _TIME)
    packed = len(zlib.compress(content))
    is_small = len(content) <= packed * (MOST_GROWTH // 2) + _SLACK_BYTES
    archive.writestr(member, content, zipfile.ZIP_DEFLATED if is_small else zipfile.ZIP_STORED)


class StateArchive:
    """An archive that is read.

    Args:
        source: Its bytes; seekable.
        name: What to call it in an error.

    Attributes:
        members: What it holds, by their numbers.
        digest: SHA-256 of its manifest, which has the digests of all else.

    Raises:
        StateError: It is none, damaged, or has something that no state has.
        IncompatibleStateError: A newer version of this package wrote it.
    """

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._name = name
        try:
            self._zip = zipfile.ZipFile(source)
        except _UNREADABLE as failure:
            raise self._refused(f"it is not a zip file, or not whole ({failure})") from failure
        self._size = source.seek(0, io.SEEK_END)
        self._infos = self._checked(self._zip.infolist())
        text = self._read(MANIFEST)
        self.digest = hashlib.sha256(text).hexdigest()
        self.members = self._manifest(text)

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Read all objects, each compared with its digest.

        Raises:
            StateError: One is damaged.
        """
        for number, member in enumerate(self.members):
            content = self._read(f"{number:08}")
            if hashlib.sha256(content).hexdigest() != member.sha256:
                raise self._refused(f"the content of {member.key} does not match its digest")
            yield member.key, content

    def metadata(self) -> bytes:
        """Read the metadata of the state, which say whose it is.

        Raises:
            StateError: They are damaged, or of a state that is not in use.
        """
        number = [member.key for member in self.members].index(KEY)
        content = self._read(f"{number:08}")
        decode_metadata(content, name=f"{KEY} in {self._name}")
        return content

    def _checked(self, found: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        """Refuse members that no archive of a state has, by what is said of them."""
        infos = {info.filename: info for info in found}
        wanted = {MANIFEST, *(f"{number:08}" for number in range(len(found) - 1))}
        if len(infos) != len(found) or set(infos) != wanted:
            odd = sorted(set(infos) ^ wanted)[:1]
            raise self._refused(f"its members are not those of an archive of a state: {odd}")
        for info in found:
            mode = info.external_attr >> 16
            if info.flag_bits & 1 or (mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode)):
                raise self._refused(f"the member {info.filename} is encrypted, or no file")
            if info.file_size > info.compress_size * MOST_GROWTH + _SLACK_BYTES:
                raise self._refused(
                    f"the member {info.filename} has {info.file_size} bytes in "
                    f"{info.compress_size}, which is more than {MOST_GROWTH} times as many"
                )
        places = sorted((each.header_offset, each.compress_size) for each in found)
        ends = [*places[1:], (self._size, 0)]
        if any(start + size > end for (start, size), (end, _) in zip(places, ends, strict=True)):
            raise self._refused("its members overlap")
        if infos[MANIFEST].file_size > _MAX_MANIFEST_BYTES:
            raise self._refused("its manifest is too large")
        return infos

    def _read(self, name: str) -> bytes:
        """Read a member, no more of it than was announced."""
        info = self._infos[name]
        try:
            with self._zip.open(info) as member:
                content = member.read(info.file_size + 1)
        except _UNREADABLE as failure:
            raise self._refused(f"the member {name} is damaged ({failure})") from failure
        if len(content) != info.file_size:
            raise self._refused(f"the member {name} has not the size that was announced")
        return content

    def _manifest(self, text: bytes) -> list[Member]:
        try:
            value = json.loads(text)
            if value["kind"] != KIND or not isinstance(value["version"], int):
                raise self._refused("it is no archive of a state")
            upgrade = "Upgrade the package here."
            require_version(
                value["version"], name=self._name, understood=VERSION, what_to_do=upgrade
            )
            members = [_member(each) for each in value["objects"]]
        except (ValueError, TypeError, KeyError, RecursionError) as failure:
            raise self._refused("its manifest cannot be read") from failure
        self._check_keys(members)
        return members

    def _check_keys(self, members: list[Member]) -> None:
        if len(members) != len(self._infos) - 1:
            raise self._refused("its manifest does not name all of its members")
        for number, member in enumerate(members):
            if not is_part(member.key):
                raise self._refused(f"{member.key!r} is not the name of a part of a state")
            size = self._infos[f"{number:08}"].file_size
            if member.size != size or _DIGEST.fullmatch(member.sha256) is None:
                raise self._refused(f"what its manifest says of {member.key} does not fit")
        keys = sorted(member.key for member in members)
        if KEY not in keys:
            raise self._refused(f"it lacks {KEY}")
        if any(one == two or two.startswith(one + "/") for one, two in pairwise(keys)):
            raise self._refused("two of its objects have one name")

    def _refused(self, why: str) -> StateError:
        return StateError(
            f"{self._name} cannot be imported: {why}. Nothing was written. Export the state anew, "
            "or copy the archive again."
        )


def _member(value: Any) -> Member:
    match value:
        case {"key": str(key), "size": int(size), "sha256": str(sha256)}:
            return Member(key, size, sha256)
    msg = f"not an object: {value!r}"
    raise ValueError(msg)


class RangeReader(io.RawIOBase):
    """The bytes of an object as a file that is read in parts."""

    def __init__(self, store: ObjectStore, key: str, size: int, etag: str) -> None:
        super().__init__()
        self._store, self._key, self._size = store, key, size
        self._etag = etag or None
        self._place = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Give the place."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read some bytes."""
        length = min(len(buffer), self._size - self._place)
        if length <= 0:
            return 0
        found = self._store.get_range(self._key, self._place, length, etag=self._etag)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)
