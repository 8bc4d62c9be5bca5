"""How is something written down so that it happened exactly once?

A numbered log: immutable entries `<prefix>/<n>`, each created with put-if-absent. Whoever creates
number `n` wins; the others read it and try `n + 1`. The answer to a put can be lost, and a client's
own retry is then refused because of its own object; so every writing carries an
id, and after anything but a plain yes the entry is read back and the id decides.

The bytes of an entry:

```
v1                                                          format version of this log
{"id": "…", "created": "2026-01-31T…", …, "crc32": "…"}     header, one line of JSON
…                                                           body: the rest, may be empty
```

The checksum covers header and body, so that damage is found rather than believed.
"""

from __future__ import annotations

import functools
import json
import re
import uuid
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.uri import refuse_directory_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERSION = re.compile(rb"v([0-9]{1,9})")
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"}$')
_HEADER_BYTES = 65536


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a numbered log.

    Attributes:
        number: Its number, from 0.
        header: What its writer put on the header line, with `id` and `created`.
        body: The rest.
    """

    number: int
    header: Mapping[str, Any]
    body: bytes

    @property
    def id(self) -> str:
        """The id of the writing: no two writings have the same."""
        return str(self.header["id"])


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _reaching(
    call: Callable[Concatenate[NumberedLog, _P], _T],
) -> Callable[Concatenate[NumberedLog, _P], _T]:
    """Let a method raise a `StateError` for what its store raises."""

    @functools.wraps(call)
    def reaching(log: NumberedLog, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with reaching_state(log._store):  # noqa: SLF001 - a method of it
            return call(log, *args, **kwargs)

    return reaching


class NumberedLog:
    """An append-only log of numbered entries in a store.

    Args:
        store: Where it lives.
        prefix: Folder of the entries.
        format_version: The version written, and the newest that is understood.
        width: Numbers are padded with zeros to this width; 0 for plain numbers.
        has_all: Whether every entry from 0 to the newest must be there, which `latest` sees to.

    Attributes:
        written: The entry that this object appended last, if its store has said so at once.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        *,
        format_version: int = 1,
        width: int = 20,
        has_all: bool = False,
    ) -> None:
        refuse_directory_bucket(store.uri)
        self._store = store
        self._prefix = prefix
        self._format_version = format_version
        self._width = width
        self._has_all = has_all
        self._known_latest = -1
        self.written: LogEntry | None = None

    @_reaching
    def append(self, number: int, header: Mapping[str, Any], body: bytes = b"") -> bool:
        """Create entry `number`, unless it is there.

        Args:
            number: One more than `latest()`.
            header: JSON values; `id`, `created` and `crc32` are added.
            body: Any bytes.

        Returns:
            Whether the entry is this writing. False: another writer has the number.

        Raises:
            StateError: What the store raised, when the entry is not there afterwards. Nothing is
                known to have happened; reading the log again shows it.
        """
        writing = uuid.uuid4().hex
        stamp = {"id": writing, "created": datetime.now(UTC).isoformat(timespec="microseconds")}
        header = {**stamp, **header}
        content = encode_entry(header, body, format_version=self._format_version)
        try:
            created = self._store.put_if_absent(self._key(number), content)
        except Exception:
            if not self._exists(number):
                raise
            created = False
        self.written = LogEntry(number, header, body) if created else None
        if not created:
            self._sync_names()
        won = created or self.read(number).id == writing
        self._known_latest = max(self._known_latest, number)
        return won

    @_reaching
    def read(self, number: int) -> LogEntry:
        """Read an entry.

        Raises:
            CorruptedStateError: It is missing, damaged, or not an entry.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        found = self.find(number)
        if found is None:
            raise self._missing(number)
        return found

    def find(self, number: int) -> LogEntry | None:
        """Read an entry with one request; `None` when it is not there.

        Raises:
            CorruptedStateError: It is damaged, or not an entry.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        try:
            content = self._store.get(self._key(number))
        except ObjectNotFoundError:
            return None
        header, body = decode_entry(
            content, name=self.name(number), format_version=self._format_version
        )
        return LogEntry(number, header, body)

    @_reaching
    def header(self, number: int) -> Mapping[str, Any]:
        """Read only the header of an entry; the checksum is not checked.

        Raises:
            CorruptedStateError: The entry is missing or has no header.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        header = self.peek(number)
        return header.header if isinstance(header, LogEntry) else header

    def peek(self, number: int) -> LogEntry | Mapping[str, Any]:
        """Read what one small request gives of an entry: all of it, or the header of a large one.

        Raises:
            CorruptedStateError: The entry is missing or damaged, or has no header. The checksum of
                a large one is not checked.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        try:
            start = self._store.get_range(self._key(number), 0, _HEADER_BYTES)
        except ObjectNotFoundError as failure:
            raise self._missing(number) from failure
        name, version = self.name(number), self._format_version
        if len(start) < _HEADER_BYTES:
            return LogEntry(number, *decode_entry(start, name=name, format_version=version))
        line, _ = _split(start, name=name, format_version=version)
        return _parse_header(line, name=name)

    @_reaching
    def latest(self) -> int:
        """Give the number of the newest entry; -1 when the log is empty.

        The first call lists the log. Later calls only ask for the numbers that would follow,
        for entries are added at the end and nowhere else.

        Raises:
            CorruptedStateError: An entry before the newest is gone.
        """
        before = self._known_latest
        if self._known_latest < 0:
            numbers = self.numbers()
            if self._has_all:
                self._refuse_gaps(numbers)
            self._known_latest = max(numbers, default=-1)
        else:
            while self._exists(self._known_latest + 1):
                self._known_latest += 1
        if self._known_latest > before:
            self._sync_names()
        return self._known_latest

    @property
    def known_latest(self) -> int:
        """The newest number that `latest` or `append` has met; -1 for none."""
        return self._known_latest

    def known(self) -> int:
        """The newest number that this object has met; asks only if it has met none."""
        return self._known_latest if self._known_latest >= 0 else self.latest()

    @_reaching
    def numbers(self, after: int = -1) -> list[int]:
        """List the numbers of the entries after a number, in order; other files are no entries."""
        prefix = self._prefix + "/"
        from_name = self._key(after) if self._width and after >= 0 else ""
        names = (
            entry.path.removeprefix(prefix)
            for entry in self._store.list(prefix, start_after=from_name)
        )
        found = (int(name) for name in names if self._is_number(name))
        return sorted(number for number in found if number > after)

    def name(self, number: int) -> str:
        """Give the URI of an entry, for messages."""
        return self._store.child_uri(self._key(number))

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:0{self._width or 1}d}"

    def _sync_names(self) -> None:
        """Make durable what others have appended, before anything is built on it.

        On a disk, whoever created an entry may have been killed before its name was synced.
        """
        if isinstance(self._store, LocalStore):
            self._store.sync_folder(self._prefix)

    def _is_number(self, name: str) -> bool:
        digits = name.isascii() and name.isdigit()
        return digits and f"{int(name):0{self._width or 1}d}" == name

    def _exists(self, number: int) -> bool:
        return self._store.head(self._key(number)) is not None

    def _refuse_gaps(self, numbers: list[int]) -> None:
        """Refuse a log of which an entry is gone.

        A listing that went on while entries were added may lack one that is there, and have one
        that came later; so each is asked for.
        """
        gaps = sorted(set(range(max(numbers, default=-1))) - set(numbers))
        gone = next((number for number in gaps if not self._exists(number)), None)
        if gone is not None:
            raise self._missing(gone)

    def _missing(self, number: int) -> CorruptedStateError:
        return CorruptedStateError(
            f"{self.name(number)} is missing, though other entries or the stream's own checkpoint "
            f"refer to it. Restore the checkpoint location as a whole from a backup, or start "
            f"with a new one, which ingests everything anew."
        )


def encode_entry(header: Mapping[str, Any], body: bytes, *, format_version: int) -> bytes:
    """Build the bytes of an entry."""
    line = json.dumps(header, ensure_ascii=True).encode("ascii")
    crc = zlib.crc32(body, zlib.crc32(line))
    return b'v%d\n%b, "crc32": "%08x"}\n%b' % (format_version, line[:-1], crc, body)


def decode_entry(content: bytes, *, name: str, format_version: int) -> tuple[dict[str, Any], bytes]:
    """Take the bytes of an entry apart.

    Args:
        content: All of its bytes.
        name: What to call it in an error.
        format_version: The newest version that is understood.

    Returns:
        The header and the body.

    Raises:
        CorruptedStateError: Not an entry, or damaged.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    line, body = _split(content, name=name, format_version=format_version)
    found = _CHECKSUM.search(line)
    if found is None:
        raise _corrupted(name, "its header has no checksum")
    signed = line[: found.start()] + b"}"
    if zlib.crc32(body, zlib.crc32(signed)) != int(found.group(1), 16):
        raise _corrupted(name, "its content does not match its checksum")
    return _parse_header(line, name=name), body


def check_version(line: bytes, *, name: str, format_version: int) -> None:
    """Refuse a version line that is none, or newer than what is understood."""
    found = _VERSION.fullmatch(line)
    if found is None:
        raise _corrupted(name, "it does not begin with a version line")
    version = int(found.group(1))
    if version > format_version or version < 1:
        msg = (
            f"{name} has format version {version}; this version of airflow-provider-cloudfiles "
            f"understands versions up to {format_version}. Upgrade the package here, or use a new "
            f"checkpoint location."
        )
        raise IncompatibleStateError(msg)


def _split(content: bytes, *, name: str, format_version: int) -> tuple[bytes, bytes]:
    """Split an entry into header line and body, having checked the version line."""
    version, _, rest = content.partition(b"\n")
    check_version(version, name=name, format_version=format_version)
    line, newline, body = rest.partition(b"\n")
    if not newline:
        raise _corrupted(name, "it ends before the end of its header")
    return line, body


def _parse_header(line: bytes, *, name: str) -> dict[str, Any]:
    """Parse a header line."""
    try:
        header = json.loads(line)
    except ValueError as failure:
        raise _corrupted(name, "its header is not JSON") from failure
    if not isinstance(header, dict) or not isinstance(header.get("id"), str):
        raise _corrupted(name, "its header has no id")
    header.pop("crc32", None)
    return header


def _corrupted(name: str, what: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"{name} cannot be read: {what}. It was damaged or changed after it was written. Restore "
        f"the checkpoint location as a whole from a backup, or start with a new one, which "
        f"ingests everything anew."
    )
