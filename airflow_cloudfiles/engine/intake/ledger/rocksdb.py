"""Keep hundreds of millions of seen paths on a small machine.

In RocksDB, on a local disk: sorted, compressed, written in batches. A sorted listing is merged with
a sorted scan of the index; where few files are asked for, the scan leaps from one to the next.

Every entry of the file log is one atomic write of its files and of the mark of how far the
index goes. The write is not forced to the disk: after a power failure RocksDB comes back with some
earlier mark, and the file log has the rest.

These are its keys and values. The index can be rebuilt at any time, so a version that is not this
one, older or newer, is rebuilt and never converted.

```
m                 → {"version": 2, "entry": n, "id": "…", "files": k}   how far it goes
                    besides, once files were forgotten: "expired_entry", "expired_us"
f<path, bytes>    → <version, 8 bytes><n>                   the file as it was recorded last
c<16 bytes>       → <n>                                     a content that is ingested (format 4)
```

`n` is the number of the entry of the file log, big-endian without leading zero bytes. The version
is a hash that shows that a file is another one than before. What is in it, the identity of files
says (`cloudFiles.fileIdentity`), and each has a format of its own:

- 2: modification time, size and etag (`path`, `pathAndModificationTime`);
- 3: size and etag, or size and modification time where there is no etag (`pathAndVersion`);
- 4: as 3; besides, the first half of the SHA-256 of each content (`content`).

Paths are the bytes of the store's key, so that the index sorts as listings do, and a sorted
listing can be merged with it.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rocksdict import (
    BlockBasedOptions,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
)

from airflow_cloudfiles.engine.errors import LedgerError
from airflow_cloudfiles.engine.intake.ledger.base import (
    FORMAT_VERSION,
    VERSION_BYTES,
    WITH_CONTENTS,
    format_of,
    hash_of,
)
from airflow_cloudfiles.engine.state.operations import FORGETTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from airflow_cloudfiles.engine.files import FileEntry, FileIdentity
    from airflow_cloudfiles.engine.state.file_log import FileBatch

_log = logging.getLogger(__name__)

_STEPS_BEFORE_LEAP = 16
_WRITE_BUFFER_BYTES = 32 * 2**20
_TABLE_BYTES = 32 * 2**20
"""A snapshot uploads a table as a whole, when one of its keys is new."""
_BLOCK_BYTES = 16 * 2**10
"""What is compressed as one. Four times RocksDB's default: a twentieth less bytes, and a quarter of
the blocks, whose first keys are kept in memory for as long as the index is open."""

_T = TypeVar("_T")

MARK_KEY = b"m"
"""Key of the mark of how far the index goes."""

FILE_PREFIX = b"f"
"""First byte of the keys of files."""

AFTER_FILES = b"g"
"""The first key behind those of files."""

_CONTENT_PREFIX = b"c"
_CONTENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class IndexMark:
    """How far an index goes.

    Attributes:
        entry: The last entry of the file log that is in it.
        entry_id: The id of that entry's writing.
        files: How many files the entries up to this one hold.
        expired_entry: Old files of the entries before this one were forgotten.
        expired_us: Only files modified before this were forgotten; 0: none was.
    """

    entry: int
    entry_id: str
    files: int
    expired_entry: int = 0
    expired_us: int = 0


def path_key(path: str) -> bytes:
    """Build the key of a file."""
    return FILE_PREFIX + path.encode("utf-8", "surrogateescape")


def key_path(key: bytes) -> str:
    """Read the path of a file from its key."""
    return key[len(FILE_PREFIX) :].decode("utf-8", "surrogateescape")


def key_behind(prefix: bytes) -> bytes:
    """Build the first key behind all that start with a prefix (which does not consist of 0xff)."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def content_key(content: str) -> bytes:
    """Build the key of a content, of which the SHA-256 is given in hexadecimal digits."""
    return _CONTENT_PREFIX + bytes.fromhex(content)[:_CONTENT_BYTES]


def encode_entry_number(number: int) -> bytes:
    """Build the part of a file's value that names its entry."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def decode_entry_number(value: bytes) -> int:
    """Read the part of a value that names an entry."""
    return int.from_bytes(value, "big")


def decode_value(value: bytes) -> int:
    """Read the number of the entry of a file from its value."""
    return decode_entry_number(value[VERSION_BYTES:])


def encode_mark(mark: IndexMark, index_format: int = FORMAT_VERSION) -> bytes:
    """Build the value of the mark."""
    place: dict[str, int | str] = {"entry": mark.entry, "id": mark.entry_id, "files": mark.files}
    if mark.expired_us:
        place |= {"expired_entry": mark.expired_entry, "expired_us": mark.expired_us}
    return json.dumps({"version": index_format, **place}).encode("ascii")


def decode_mark(value: bytes, index_format: int = FORMAT_VERSION) -> IndexMark | None:
    """Read the mark; `None` when it is of another format, so that the index must be rebuilt."""
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    match fields:
        case {"version": found, "entry": int(entry), "id": str(entry_id), "files": int(files)}:
            expired = fields.get("expired_entry", 0), fields.get("expired_us", 0)
            is_valid = entry >= 0 and all(type(each) is int and each >= 0 for each in expired)
            is_mine = is_valid and found == index_format
            return IndexMark(entry, entry_id, files, *expired) if is_mine else None
    return None


class RocksDBLedger:
    """A `Ledger` in a RocksDB directory, which it owns; opening creates it.

    Args:
        directory: The directory; nothing else may be in it. `clear` goes on in another one beside
            it.
        identity: By what files are known; an index for another format is begun anew.

    Attributes:
        index_format: Of its bytes.
        on_close: Called when it was closed for good, as by who keeps a lock for it.

    Raises:
        LedgerError: It cannot be opened: damaged, or in use.
    """

    def __init__(self, directory: Path, identity: FileIdentity = "path") -> None:
        self._directory = directory
        self.index_format = format_of(identity)
        self._hash = hash_of(self.index_format)
        self._database: Rdict | None = None
        self._mark: IndexMark | None = None
        self.on_close: Callable[[], None] = lambda: None
        self._open()

    @property
    def caught_up(self) -> int:
        """Number of the last entry in the index; -1 for none."""
        return -1 if self._mark is None else self._mark.entry

    @property
    def caught_up_id(self) -> str:
        """Id of the writing of that entry."""
        return "" if self._mark is None else self._mark.entry_id

    @property
    def files(self) -> int:
        """How many files these entries hold."""
        return 0 if self._mark is None else self._mark.files

    @property
    def expired_entry(self) -> int:
        """Old files of the entries before this one were forgotten."""
        return 0 if self._mark is None else self._mark.expired_entry

    @property
    def expired_us(self) -> int:
        """Files modified before this may be missing; 0: none is."""
        return 0 if self._mark is None else self._mark.expired_us

    def unseen(
        self,
        entries: Iterable[FileEntry],
        *,
        versions: bool = False,
        changed: Callable[[FileEntry], None] | None = None,
    ) -> Iterator[FileEntry]:
        """Give the files that are in no entry.

        Raises:
            LedgerError: The index turns out to be damaged.
        """
        scan, version_hash = _Scan(self._call(lambda database: database.iter())), self._hash
        for entry in entries:
            key = path_key(entry.path)
            is_known = scan.at_or_after(key) == key
            if not is_known or (versions and scan.version() != version_hash(entry)):
                yield entry
            elif changed is not None and scan.version() != version_hash(entry):
                changed(entry)

    def entry_of_content(self, content: str) -> int | None:
        """Give the entry whose file is ingested for a content; `None` for none.

        Raises:
            LedgerError: The index turns out to be damaged.
        """
        value = self._call(lambda database: database.get(content_key(content)))
        return None if value is None else decode_entry_number(value)

    def entry_of(self, path: str) -> int | None:
        """Give the newest entry that has a file.

        Raises:
            LedgerError: The index turns out to be damaged.
        """
        value = self._call(lambda database: database.get(path_key(path)))
        return None if value is None else decode_value(value)

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Give the paths of all files with a prefix, in their order; lazy.

        Raises:
            LedgerError: The index turns out to be damaged.
        """
        scan = _Scan(self._call(lambda database: database.iter()))
        first = path_key(prefix)
        key = scan.at_or_after(first)
        while key.startswith(first):
            yield key_path(key)
            key = scan.at_or_after(key + b"\0")

    def last(self, prefix: str = "", *, before: str | None = None) -> str | None:
        """Give the greatest path with a prefix (and less than `before`, when given)."""
        first = path_key(prefix)
        end = key_behind(first)
        if before is not None:
            end = min(end, path_key(before))
        key = _Scan(self._call(lambda database: database.iter())).before(end)
        return key_path(key) if key.startswith(first) else None

    def first_after(self, path: str) -> str | None:
        """Give the least path that is greater than a text."""
        scan = _Scan(self._call(lambda database: database.iter()))
        key = scan.at_or_after(path_key(path) + b"\0")
        return None if key >= AFTER_FILES else key_path(key)

    def back(self, path: str, steps: int) -> str | None:
        """Give the path `steps` places before another; `None` when there are fewer."""
        key = _Scan(self._call(lambda database: database.iter())).before(path_key(path), steps)
        return key_path(key) if key.startswith(FILE_PREFIX) else None

    def record(self, number: int, entry_id: str, batch: FileBatch) -> None:
        """Add an entry of the file log: its files and the mark, in one atomic write."""
        if number != self.caught_up + 1:
            msg = f"entry {number} does not follow entry {self.caught_up}"
            raise ValueError(msg)
        expired = self.expired_entry, self.expired_us
        mark = IndexMark(number, entry_id, self.files + len(batch.files), *expired)
        write = WriteBatch(raw_mode=True)
        entry_number = encode_entry_number(number)
        for file in batch.files:
            if batch.found_by in FORGETTING:
                write.delete(path_key(file.path))
                if self.index_format == WITH_CONTENTS and file.content:
                    write.delete(content_key(file.content))
            else:
                write.put(path_key(file.path), self._hash(file) + entry_number)
        if self.index_format == WITH_CONTENTS:
            for content in batch.ingested_contents():
                write.put(content_key(content), entry_number)
        write.put(MARK_KEY, encode_mark(mark, self.index_format))
        self._call(lambda database: database.write(write))
        self._mark = mark

    def forget(self, number: int, batch: FileBatch, before_us: int) -> int:
        """Remove old files of an entry, and note that, in one atomic write."""
        if self._mark is None or number > self._mark.entry:
            msg = f"entry {number} is not in the index"
            raise ValueError(msg)
        keys: list[Any] = [
            path_key(each.path) for each in batch.files if each.modification_time_us < before_us
        ]
        found: Any = self._call(lambda database: database.get(keys)) if keys else []
        gone = [
            key
            for key, value in zip(keys, found, strict=True)
            if value is not None and decode_value(value) == number
        ]
        expired_us = max(self.expired_us, before_us)
        mark = replace(self._mark, expired_entry=number + 1, expired_us=expired_us)
        write = WriteBatch(raw_mode=True)
        for key in gone:
            write.delete(key)
        write.put(MARK_KEY, encode_mark(mark, self.index_format))
        self._call(lambda database: database.write(write))
        self._mark = mark
        return len(gone)

    def save(self) -> Path:
        """Copy the index into a directory beside its own, by hard links where it can."""
        copy = self._directory.with_name(f"{self._directory.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        self._call(lambda database: Checkpoint(database).create_checkpoint(str(copy)))
        return copy

    def clear(self) -> None:
        """Delete the directory and begin with an empty one beside it.

        A scan that did not end, as the failure keeps alive that an index is cleared for, holds the
        lock of the old one.
        """
        self._close_database()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = self._directory.with_name(uuid.uuid4().hex)
        self._open()

    def close(self) -> None:
        """Release the directory; closing twice does nothing.

        An index that cannot be written to the end is no reason to fail: nothing is lost by it.
        """
        self._close_database()
        self.on_close()

    def _close_database(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        try:
            database.close()
        except Exception as failure:  # noqa: BLE001 - RocksDB raises nothing more specific
            _log.warning("%s", self._unusable(failure))

    def _open(self) -> None:
        """Open the database and read the mark; one of another version is begun anew."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._database = Rdict(str(self._directory), options=_options())
        except Exception as failure:  # RocksDB raises nothing more specific
            raise self._unusable(failure) from failure
        value = self._call(lambda database: database.get(MARK_KEY))
        self._mark = None if value is None else decode_mark(value, self.index_format)
        is_foreign = self._mark is None and self._call(lambda database: _has_files(database.iter()))
        if is_foreign:
            self.clear()

    def _call(self, ask: Callable[[Rdict], _T]) -> _T:
        """Ask the database; whatever it raises makes the index unusable."""
        if self._database is None:
            msg = f"The index in {self._directory} is closed."
            raise LedgerError(msg)
        try:
            return ask(self._database)
        except Exception as failure:  # RocksDB raises nothing more specific
            raise self._unusable(failure) from failure

    def _unusable(self, failure: Exception) -> LedgerError:
        return LedgerError(
            f"The index of seen files in {self._directory} cannot be used: {failure}. It is a "
            f"cache and can be deleted; make sure that its disk is not full, or set "
            f"CLOUDFILES_CACHE_DIR to a directory on another local disk."
        )


class _Scan:
    """A scan of the files in the index; quick for keys in ascending order."""

    def __init__(self, iterator: RdictIter) -> None:
        self._iterator = iterator
        self._asked = b""
        self._current = b""

    def at_or_after(self, key: bytes) -> bytes:
        """Move to the first key that is not before the given one."""
        steps = 0 if key >= self._asked > b"" else _STEPS_BEFORE_LEAP
        self._asked = key
        while steps < _STEPS_BEFORE_LEAP:
            if self._current >= key:
                return self._current
            self._iterator.next()
            self._current = self._key(AFTER_FILES)
            steps += 1
        self._iterator.seek(key)
        self._current = self._key(AFTER_FILES)
        return self._current

    def before(self, key: bytes, steps: int = 1) -> bytes:
        """Give the key some places before the given one; empty when there are fewer."""
        iterator = self._iterator
        iterator.seek_for_prev(key)
        if self._key(b"") != key:
            steps -= 1
        while steps > 0 and iterator.valid():
            iterator.prev()
            steps -= 1
        return self._key(b"")

    def version(self) -> bytes:
        """Version of the file at the scan's place."""
        value: bytes = self._iterator.value()
        return value[:VERSION_BYTES]

    def _key(self, beyond: bytes) -> bytes:
        """Key at the scan's place, or what stands for its end.

        A scan that cannot go on must not be taken for one at its end.
        """
        if self._iterator.valid():
            key: bytes = self._iterator.key()
            return key
        try:
            self._iterator.status()
        except Exception as failure:  # RocksDB raises nothing more specific
            msg = f"The index of seen files is damaged: {failure}. It will be rebuilt."
            raise LedgerError(msg) from failure
        return beyond


def _has_files(iterator: RdictIter) -> bool:
    """Tell whether the database has any file."""
    iterator.seek_to_first()
    return bool(iterator.valid())


def _options() -> Options:
    """Raw bytes, little memory, no history of its own log files."""
    blocks = BlockBasedOptions()
    blocks.set_block_size(_BLOCK_BYTES)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.zstd())
    options.set_target_file_size_base(_TABLE_BYTES)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(2)
    options.set_paranoid_checks(True)
    return options
