"""Write a state to one file, and make it a state again.

Exported under the locks: the file log up to an entry, and whatever else there is. Imported so that
there is a state or none: the metadata of a location that is being filled say so, and are replaced
when all else is there and was read back.

A zip file. Members are called by their number, so no name in it is ever used as a path. The last
one, `manifest.json`, has the key, size and SHA-256 of each object. An archive comes from anywhere:
what does not fit the manifest, keys that no state has, links, encrypted members and such as grow
more than a hundredfold are refused before anything is written. Nothing in it is evaluated.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.extensions.transfer.move import (
    LOCKS,
    claim,
    is_part,
    no_state,
    parts_of,
    write_part,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import locked
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    decode_metadata,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same
from airflow_cloudfiles.engine.storage.uri import local_path
from airflow_cloudfiles.engine.versions import as_record, require_version

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

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
            members = [as_record(each, Member) for each in value["objects"]]
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


class RangeReader(io.RawIOBase):
    """The bytes of an object as a file that is read in parts."""

    def __init__(self, store: ObjectStore, key: str, size: int, etag: str) -> None:
        super().__init__()
        self._store, self._key, self._size = store, key, size
        self._etag = etag or None
        self._place = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
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


MAX_OBJECT_BYTES: Final = 1 << 30
"""The largest archive that is written as one object of a store."""
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What exporting or importing did.

    Attributes:
        checkpoint_location: The state.
        archive: The file.
        source: What the state knows its source by.
        stream_id: Its id.
        objects: How many objects.
        bytes: Their size, before compression.
    """

    checkpoint_location: str
    archive: str
    source: str
    stream_id: str
    objects: int
    bytes: int


def export_state(
    checkpoint_location: str,
    to: str,
    *,
    access: Access | None = None,
    to_access: Access | None = None,
) -> TransferResult:
    """Write the state of a stream into an archive.

    Files that are recorded meanwhile are not in it. The state is not changed.

    Args:
        checkpoint_location: The state.
        to: Path or URI of the archive, which must not exist.
        access: How the store of the state is reached; `None` for the environment's own chain.
        to_access: How that of the archive is.

    Raises:
        StateLockedError: A run is working on the state.
        StateError: There is no state, or something cannot be read or written.
        OptionError: There is a file already, or the name is that of a folder.
    """
    state = open_store(checkpoint_location, access)
    with reaching_state(state):
        metadata = read_metadata(state)
        if metadata is None:
            raise no_state(state)
        with locked(state) as may_go_on, _created(to, to_access) as target:
            entries = FileLog(state).latest() + 1
            about = {
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "checkpointLocation": state.uri,
                "source": metadata.source,
                "streamId": metadata.stream_id,
                "entries": entries,
            }
            members = write_archive(target, _objects(state, entries), about)
            crash_point("before-export-ends")
            may_go_on()
    return _archived(state.uri, to, metadata, members)


def _objects(state: ObjectStore, entries: int) -> Iterator[tuple[str, bytes]]:
    for entry in parts_of(state, entries=entries):
        with contextlib.suppress(ObjectNotFoundError):  # a note that was dealt with meanwhile
            yield entry.path, state.get(entry.path)
    metadata = read_metadata(state)  # last: bound, if the log has an entry
    assert metadata is not None  # noqa: S101 - it was there, and is never removed
    yield KEY, encode_metadata(metadata)


@contextlib.contextmanager
def _created(to: str, access: Access | None) -> Iterator[IO[bytes]]:
    """Give a file to write; it gets its name when the block ends without an error."""
    uri = normalize_uri(to)
    if not uri.startswith("file:"):
        with tempfile.TemporaryFile() as spooled:
            yield spooled
            _upload(spooled, uri, access)
        return
    path = Path(local_path(uri))
    if path.exists():
        raise _exists(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError as failure:
            raise _exists(uri) from failure
    finally:
        draft.unlink(missing_ok=True)


def _upload(spooled: IO[bytes], uri: str, access: Access | None) -> None:
    size = spooled.seek(0, io.SEEK_END)
    if size > MAX_OBJECT_BYTES:
        raise StateError(
            f"The archive has {size} bytes, more than the {MAX_OBJECT_BYTES} that are written as "
            "one object. Export to a local file and upload that, or use cloudfiles state move."
        )
    spooled.seek(0)
    folder, _, name = uri.rpartition("/")
    store, content = open_store(folder, access), spooled.read()
    if not store.put_if_absent(name, content) and store.get(name) != content:
        raise _exists(uri)


def _exists(uri: str) -> OptionError:
    return OptionError(f"{printable_path(uri)} exists. Give the name of a new file.")


def import_state(
    archive: str,
    checkpoint_location: str,
    *,
    access: Access | None = None,
    archive_access: Access | None = None,
) -> TransferResult:
    """Make a state of an archive; repeat the call until it succeeds.

    Args:
        archive: Path or URI of what `export_state` has written.
        checkpoint_location: A location that has nothing, or a part of this archive.
        access: How the store of the state is reached; `None` for the environment's own chain.
        archive_access: How that of the archive is.

    Raises:
        StateError: The archive is damaged, or has what no state has; nothing was written. Or the
            location is not empty.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    state = open_store(checkpoint_location, access)
    with _opened(archive, archive_access) as found, reaching_state(state):
        for _ in found.objects():  # all of it is read before anything is written
            pass
        whole = found.metadata()
        own = _claim(found, archive)
        metadata = _claimed(state, own, whole)
        crash_point("after-import-claim")
        if metadata is None:
            _fill(state, found, own)
            crash_point("before-import-ends")
            replace_if_same(state, KEY, own, whole)
        metadata = read_metadata(state)
    assert metadata is not None  # noqa: S101 - it was there, and is never removed
    return _archived(state.uri, archive, metadata, found.members)


def _claim(found: StateArchive, name: str) -> bytes:
    last = printable_path(name).rpartition("/")[2]
    return encode_standing("incoming", None, f"{last}, SHA-256 {found.digest}")


def _claimed(state: ObjectStore, own: bytes, whole: bytes) -> StreamMetadata | None:
    """Claim an empty location, unless an earlier try did; gives what is there when it is whole."""
    there = claim(state, own, "An import")
    if there == whole:
        return read_metadata(state)
    if there != own:
        raise StateError(
            f"{printable_path(state.uri)} is not empty: there is {KEY}, and not of this archive. "
            "An import needs a location that has nothing. Choose another, or empty it."
        )
    return None


def _fill(state: ObjectStore, found: StateArchive, own: bytes) -> None:
    keys = {member.key for member in found.members}
    for entry in state.list(ordered=False):
        if entry.path not in keys and entry.path not in LOCKS:
            raise StateError(
                f"{printable_path(state.uri)} is not empty: there is "
                f"{printable_path(entry.path)}, which the archive has not. Empty it."
            )
    for key, content in found.objects():
        if key == KEY:
            continue
        write_part(state, key, content, claimed=own, what_to_do="Run again.")
        crash_point("after-part-of-import")


@contextlib.contextmanager
def _opened(archive: str, access: Access | None) -> Iterator[StateArchive]:
    uri = normalize_uri(archive)
    folder, _, key = uri.rpartition("/")
    store = open_store(folder, access)
    with reaching_state(store):
        entry = store.head(key)
        if entry is None:
            raise StateError(f"There is no file {printable_path(uri)}. Give an exported archive.")
        raw = RangeReader(store, key, entry.size, entry.etag)
        with io.BufferedReader(raw, _BUFFER_BYTES) as source:
            yield StateArchive(source, printable_path(uri))


def _archived(
    state: str, archive: str, metadata: StreamMetadata, members: list[Member]
) -> TransferResult:
    return TransferResult(
        checkpoint_location=state,
        archive=normalize_uri(archive),
        source=metadata.source,
        stream_id=metadata.stream_id,
        objects=len(members),
        bytes=sum(member.size for member in members),
    )
