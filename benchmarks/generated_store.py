"""A source of a hundred million files that takes no room: its keys are computed.

The names are those of a landing zone by day and hour, a thousand files in each folder. So a listing
goes through the pages of the real one, and a page costs what computing it costs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.flat import Fetch, ListedObject, Page
from airflow_cloudfiles.engine.storage.flat_store import FlatStore

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES_A_FOLDER = 1000
FIRST_HOUR = datetime(2020, 1, 1, tzinfo=UTC)
_FIRST_US = int(FIRST_HOUR.timestamp()) * 1_000_000
_SPACING_US = 3_600_000


class GeneratedStore(FlatStore):
    """The part of an `ObjectStore` that discovery needs, over computed keys.

    Args:
        files: How many files there are, in the order of their keys.
        late: So many of them, spread evenly, have a late neighbour: a file behind it.
    """

    def __init__(self, files: int, *, late: int = 0) -> None:
        super().__init__("memory://generated", page_size=1000)
        self.files = files
        self._step = max(1, files // late) if late else 0

    def is_folder(self) -> bool:
        """Tell that the root can be listed."""
        return True

    def head(self, key: str) -> FileEntry | None:
        """Inspect a file."""
        self._requests.add("head")
        at = bisect_left(range(self.files), key, key=_key)
        is_there = at < self.files and _key(at) == key
        return FileEntry(key, *_version(at)) if is_there else None

    def clock_us(self) -> int:
        """Give a time after all files."""
        return _FIRST_US + (self.files + 1) * _SPACING_US

    def entries(self, first: int, count: int) -> list[FileEntry]:
        """Give some files as a listing does."""
        return [FileEntry(_key(at), *_version(at)) for at in range(first, first + count)]

    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:  # noqa: ARG002
        def fetch(start_after: str, mark: int | None) -> Page:
            self._requests.add("list")
            begin = mark
            if begin is None:
                begin = bisect_right(range(self.files), max(start_after, prefix), key=_key)
                if start_after and self._is_late(begin - 1):
                    begin -= 1  # its late neighbour may be what follows
            end = min(begin + size, self.files)
            return Page(self._listed(begin, end), end if end < self.files else None)

        return fetch

    def _listed(self, begin: int, end: int) -> Iterator[ListedObject]:
        for at in range(begin, end):
            key = _key(at)
            yield ListedObject(key, *_version(at))
            if self._is_late(at):
                yield ListedObject(f"{key}.late.json", *_version(at))

    def _is_late(self, at: int) -> bool:
        return bool(self._step) and at >= 0 and at % self._step == self._step // 2


def _key(number: int) -> str:
    return f"{_folder(number // FILES_A_FOLDER)}/part-{number:09}.json"


@lru_cache(maxsize=64)
def _folder(hours: int) -> str:
    hour = FIRST_HOUR + timedelta(hours=hours)
    return f"day={hour:%Y-%m-%d}/hour={hour:%H}"


def _version(number: int) -> tuple[int, int, str]:
    """Size, modification time and etag; whoever hashes them gets bytes that do not compress."""
    return 1000 + number % 997, _FIRST_US + number * _SPACING_US, f"{number:032x}"
