"""Write and read entries of a log, and keep a million old ones in few objects.

They are copied into packs: `<log>/packs/<last>-<first>.<copy>` holds the objects of the numbers
from `first` to `last`, byte for byte and without a gap. Each pack is there twice, as the copies `a`
and `b` of the same bytes. Only when both have been read back do the objects go (`compaction`).

The bytes of a pack are those of an entry of a log:

```
v1
{"id": "pack-<first>-<last>", "lengths": […], "crc32": "…"}      how long each object is
…                                                              the objects, one after the other
```

They follow from what is in it. So whoever packs the same objects writes the same bytes.

```
v1                                                          format version of this log
{"id": "…", "created": "2026-01-31T…", …, "crc32": "…"}     header, one line of JSON
…                                                           body: the rest, may be empty
```

The checksum covers header and body, so that damage is found rather than believed.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import zlib
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.versions import json_object, older, require_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_VERSION = re.compile(rb"v([0-9]{1,9})")
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"}$')


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
        IncompatibleStateError: A newer version of this package wrote it, or a much older one.
    """
    line, body = split_entry(content, name=name, format_version=format_version)
    found = _CHECKSUM.search(line)
    if found is None:
        header = json_object(line)
        if "crc32" not in header and isinstance(header.get("id"), str):
            raise older(name)
        raise _corrupted(name, "its header has no checksum")
    signed = line[: found.start()] + b"}"
    if zlib.crc32(body, zlib.crc32(signed)) != int(found.group(1), 16):
        raise _corrupted(name, "its content does not match its checksum")
    return parse_header(line, name=name), body


def check_version(line: bytes, *, name: str, format_version: int) -> None:
    """Refuse a version line that is none, or newer than what is understood."""
    found = _VERSION.fullmatch(line)
    if found is None:
        raise _corrupted(name, "it does not begin with a version line")
    require_version(int(found.group(1)), name=name, understood=format_version)


def split_entry(content: bytes, *, name: str, format_version: int) -> tuple[bytes, bytes]:
    """Split an entry into header line and body, having checked the version line."""
    version, _, rest = content.partition(b"\n")
    check_version(version, name=name, format_version=format_version)
    line, newline, body = rest.partition(b"\n")
    if not newline:
        raise _corrupted(name, "it ends before the end of its header")
    return line, body


def parse_header(line: bytes, *, name: str) -> dict[str, Any]:
    """Parse a header line."""
    try:
        header = json.loads(line)
    except ValueError as failure:
        raise _corrupted(name, "its header is not JSON") from failure
    if not isinstance(header, dict) or not isinstance(header.get("id"), str):
        raise _corrupted(name, "its header has no id")
    header.pop("crc32", None)
    return header


def beyond_repair(what: str, *, anew: bool = False) -> CorruptedStateError:
    """Give the error of a state that only a backup can help.

    Args:
        what: What is damaged or missing, in sentences.
        anew: Whether another state, without a backup, is a way, too.
    """
    end = ", or start with a new one, which ingests everything anew" if anew else ""
    return CorruptedStateError(
        f"{what} Restore the checkpoint location as a whole from a backup{end}."
    )


def _corrupted(name: str, what: str) -> CorruptedStateError:
    return beyond_repair(
        f"{name} cannot be read: {what}. It was damaged or changed after it was written.",
        anew=True,
    )


FOLDER = "packs"
FORMAT_VERSION = 1
COPIES = ("a", "b")
TRUSTED_SECONDS = 600.0
"""How long a listing of packs is believed: what they hold is removed a day later only."""
_CACHED = 2
_NAME = re.compile(rf"{FOLDER}/([0-9]{{20}})-([0-9]{{20}})\.([ab])", re.ASCII)
_DAMAGE = (CorruptedStateError, IncompatibleStateError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Pack:
    """Which numbers a pack holds.

    Attributes:
        first: The first one.
        last: The last one (inclusive).
    """

    first: int
    last: int

    def __len__(self) -> int:
        """How many objects it holds."""
        return self.last - self.first + 1

    @property
    def numbers(self) -> range:
        """The numbers."""
        return range(self.first, self.last + 1)

    def has(self, other: Pack) -> bool:
        """Tell whether it holds all that another pack holds, and is not that one."""
        return self != other and self.first <= other.first and other.last <= self.last

    def key(self, copy: str) -> str:
        """Name a copy in the folder of its log."""
        return f"{FOLDER}/{self.last:020}-{self.first:020}.{copy}"


def parse_name(name: str) -> tuple[Pack, str] | None:
    """Read the name of an object in the folder of a log: its pack and copy, if it is one."""
    found = _NAME.fullmatch(name)
    if found is None or int(found[2]) > int(found[1]):
        return None
    return Pack(int(found[2]), int(found[1])), found[3]


def widest(packs: Iterable[Pack]) -> list[Pack]:
    """Leave out the packs that a larger one holds; in the order of their numbers."""
    kept: list[Pack] = []
    for pack in sorted(set(packs), key=lambda each: (each.first, -each.last)):
        if not kept or pack.last > kept[-1].last:
            kept.append(pack)
    return kept


def encode_pack(pack: Pack, objects: Sequence[bytes]) -> bytes:
    """Build the bytes of a pack."""
    header = {"id": _id(pack), "lengths": [len(each) for each in objects]}
    return encode_entry(header, b"".join(objects), format_version=FORMAT_VERSION)


def decode_pack(content: bytes, pack: Pack, *, name: str) -> list[bytes]:
    """Take the bytes of a pack apart.

    Raises:
        CorruptedStateError: It is damaged, or another pack.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
    lengths = header.get("lengths")
    is_whole = (
        header["id"] == _id(pack)
        and isinstance(lengths, list)
        and len(lengths) == len(pack)
        and all(type(each) is int and each >= 0 for each in lengths)
        and sum(lengths) == len(body)
    )
    if not is_whole or not isinstance(lengths, list):
        raise CorruptedStateError(
            f"{name} does not hold the entries {pack.first} to {pack.last}. Restore it from a "
            "backup, or the checkpoint location as a whole."
        )
    return [body[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


class Packs:
    """The packs of one folder, for its readers; several threads may use it.

    Args:
        store: The checkpoint location.
        prefix: The folder.

    Attributes:
        known: The packs that were met last, in the order of their numbers; none is in another.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._guard = threading.RLock()
        self.known: Sequence[Pack] = ()
        self._all: list[Pack] = []
        self._listed: float | None = None
        self._read: OrderedDict[Pack, list[bytes]] = OrderedDict()

    def meet(self, names: Iterable[str]) -> None:
        """Take the packs of a listing of the folder; other names are passed over.

        Args:
            names: Below the folder.
        """
        found = {each[0] for each in map(parse_name, names) if each is not None}
        with self._guard:
            self._all = sorted(found)
            self.known = widest(found)
            self._listed = time.monotonic()

    def refresh(self) -> None:
        """List the packs."""
        self.meet(self._names())

    def goes_to(self, number: int) -> bool:
        """Ask whether a pack holds a number or a later one."""
        packs = (each[0] for each in map(parse_name, self._names()) if each is not None)
        return any(pack.last >= number for pack in packs)

    def has(self, number: int) -> bool:
        """Tell whether a pack that was met holds a number, without a request."""
        return self._pack_of(number) is not None

    def read(self, number: int) -> bytes | None:
        """Read an object out of a pack; `None` when no pack holds it.

        Raises:
            CorruptedStateError: Both copies of its pack are damaged.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        with self._guard:
            if not self.has(number) and self._is_old():
                self.refresh()
            if not self.has(number):
                return None
            found = self._from_known(number)
            if found is None:  # a larger one has taken its place
                self.refresh()
                found = self._from_known(number)
            return found

    def _from_known(self, number: int) -> bytes | None:
        """Read an object out of the largest pack that has it; out of a smaller one if need be."""
        pack = self._pack_of(number)
        if pack is None:
            return None
        try:
            objects = self._objects(pack)
        except CorruptedStateError:
            for other in self._all:
                if pack.has(other) and number in other.numbers:
                    found = self._objects(other)
                    if found is not None:
                        return found[number - other.first]
            raise
        return None if objects is None else objects[number - pack.first]

    def _names(self) -> Iterator[str]:
        for entry in self._store.list(f"{self._prefix}/{FOLDER}/"):
            yield entry.path.removeprefix(f"{self._prefix}/")

    def _is_old(self) -> bool:
        return self._listed is None or time.monotonic() - self._listed > TRUSTED_SECONDS

    def _pack_of(self, number: int) -> Pack | None:
        # They are in order, and so are their ends.
        place = bisect_left(self.known, number, key=attrgetter("last"))
        found = self.known[place] if place < len(self.known) else None
        return found if found is not None and found.first <= number else None

    def _objects(self, pack: Pack) -> list[bytes] | None:
        if pack in self._read:
            self._read.move_to_end(pack)
            return self._read[pack]
        objects = read_pack(self._store, self._prefix, pack)
        if objects is not None:
            self._read[pack] = objects
            while len(self._read) > _CACHED:
                self._read.popitem(last=False)
        return objects


def read_pack(store: ObjectStore, prefix: str, pack: Pack) -> list[bytes] | None:
    """Read a pack: the copy that is whole.

    Returns:
        Its objects; `None` when neither copy is there.

    Raises:
        CorruptedStateError: A copy is damaged, and the other one is damaged or missing.
        IncompatibleStateError: A newer version of this package wrote both.
    """
    failure: Exception | None = None
    for copy in COPIES:
        key = f"{prefix}/{pack.key(copy)}"
        try:
            return decode_pack(store.get(key), pack, name=store.child_uri(key))
        except ObjectNotFoundError:
            continue
        except _DAMAGE as damage:
            failure = damage
            _log.warning("%s The other copy is read.", damage)
    if isinstance(failure, IncompatibleStateError):
        raise failure
    if failure is not None:
        keys = " and ".join(store.child_uri(f"{prefix}/{pack.key(copy)}") for copy in COPIES)
        raise CorruptedStateError(
            f"Both copies of a pack of old entries cannot be read: {keys}. They were damaged or "
            "removed after they were written. Restore one of them, or the checkpoint location as a "
            "whole, from a backup."
        ) from failure
    return None


def _id(pack: Pack) -> str:
    return f"pack-{pack.first}-{pack.last}"
