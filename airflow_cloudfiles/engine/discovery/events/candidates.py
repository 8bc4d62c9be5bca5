"""Which file below the source does an event announce?

An event names a place in a bucket. It is a candidate when that place, rewritten by
`cloudFiles.pathRewrites`, is below the source. A queue may carry the events of a whole bucket, so
others are no mistake.

The store is asked where the event does not suffice: a rename has no size, some servers send no
etag; another version is recognized by the values of the store, which a listing sees too; a mounted
bucket has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from airflow_cloudfiles.engine.discovery.events.base import FileEvent
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import ObjectStore, check_key
from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.markers import CompletionMarker
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions

_CLOUDS = ("s3://", "abfss://", "gs://")


class Wanted(Protocol):
    """Which files are wanted."""

    @property
    def marker(self) -> CompletionMarker | None:
        """What says that a file is whole, if that is asked for."""

    def accepts(self, entry: FileEntry) -> bool:
        """Whether a file is."""


class Found(NamedTuple):
    """A wanted file, and the event that announced it, or the folder it is in."""

    event: FileEvent
    file: FileEntry


class Candidates:
    """Turns events into files of a source.

    Args:
        source: The source.
        filter: Which of its files are wanted.
        options: `path_rewrites` and `identity`.

    Attributes:
        outside: How many events were of places that are not below the source.
        rejected: How many files were not wanted.
        ignored: How many events were of no file after all, by reason.
    """

    def __init__(
        self,
        source: ObjectStore,
        filter: Wanted,  # noqa: A002 - what it is
        options: DiscoveryOptions,
    ) -> None:
        self._source = source
        self._filter = filter
        self._root = source.uri.rstrip("/") + "/"
        self._in_cloud = source.uri.startswith(_CLOUDS)
        self._always_look = options.sees_overwrites or not self._in_cloud
        self._rewrites = sorted(
            ((old.rstrip("/"), normalize_uri(new)) for old, new in options.path_rewrites),
            key=lambda each: len(each[0]),
            reverse=True,
        )
        self.outside = 0
        self.rejected = 0
        self.ignored: Counter[str] = Counter()

    @property
    def source_name(self) -> str:
        """URI of the source."""
        return self._source.uri

    def of(self, events: Sequence[FileEvent], pool: Executor) -> Iterator[FileEntry]:
        """Give the wanted files of `found`."""
        return (each.file for each in self.found(events, pool))

    def found(self, events: Sequence[FileEvent], pool: Executor) -> Iterator[Found]:
        """Give the wanted files that events announce; lazy, as a folder may hold millions.

        Args:
            events: In any order; a file may occur more than once.
            pool: Inspects several files at once.

        Raises:
            OSError: The store did not answer.
        """
        placed: list[tuple[str, FileEvent]] = []
        for event in events:
            location = self._rewritten(event)
            if event.is_folder:
                yield from self._wanted((event, file) for file in self._in_folder(location))
                continue
            key = self._key(location)
            if key is None:
                self.outside += 1
            elif key.endswith("/") and not event.size:
                self.ignored["mark of a folder"] += 1
            elif self._filter.marker is not None and self._filter.marker.is_marker(key):
                marked = self._marked(key, self._filter.marker)
                yield from self._wanted((event, file) for file in marked)
            else:
                placed.append((key, event))
        inspected = pool.map(self._entry, placed)
        announced = (event for _, event in placed)
        yield from self._wanted(zip(announced, inspected, strict=True))

    def _marked(self, key: str, marker: CompletionMarker) -> Iterator[FileEntry | None]:
        """Give the files that a completion marker stands for, as the store has them."""
        if marker.is_of_folder:
            return self._source.list(key[: len(key) - len(marker.pattern)], ordered=False)
        return iter((self._source.head(marker.file_of(key)),))

    def _wanted(self, files: Iterable[tuple[FileEvent, FileEntry | None]]) -> Iterator[Found]:
        for event, file in files:
            if file is None:
                self.ignored["no such file"] += 1
            elif self._filter.accepts(file):
                yield Found(event, file)
            else:
                self.rejected += 1

    def _rewritten(self, event: FileEvent) -> str:
        """Replace the longest prefix that one of the rewrites names; a prefix ends with a name."""
        for old, new in self._rewrites:
            for spelling in (event.location, *event.spellings):
                if spelling == old or spelling.startswith(f"{old}/"):
                    return new + spelling[len(old) :]
        return event.location

    def _key(self, location: str) -> str | None:
        """Give the key below the source, or none. The text is compared: keys are opaque."""
        key = location.removeprefix(self._root)
        if not key or key == location:
            return None
        if not self._in_cloud:  # a mount: a key must not climb out of it
            try:
                check_key(key)
            except ValueError:
                return None
        return key

    def _in_folder(self, location: str) -> Iterator[FileEntry]:
        """List a folder that was renamed: the source, a part of it, or what the source is in."""
        folder = location.rstrip("/") + "/"
        if self._root.startswith(folder):
            return self._source.list()
        key = self._key(folder)
        if key is None:
            self.outside += 1
            return iter(())
        return self._source.list(key)

    def _entry(self, placed: tuple[str, FileEvent]) -> FileEntry | None:
        key, event = placed
        etag = event.etag if self._in_cloud else ""
        announced = FileEntry(key, event.size or 0, event.time_us, etag)
        is_whole = event.size is not None and etag
        if self._always_look or not is_whole or event.incomplete or event.doubtful:
            found = self._source.head(key)
            if found is None and event.doubtful:
                return None
            return found or announced  # one that is gone: the reader decides (ignoreMissingFiles)
        return announced
