"""How do several threads list one key space?

Each reader lists a range of keys, merges it with what is recorded (a sorted scan of its own), and
has what is new recorded. A worker without a range takes the upper half of the one that is read
longest. Where that half begins is found by probing: a text in the middle between the reader's
position and the end of its range, and the store's answer to which key comes after it.

However the probing guesses, no key is lost: when a range `(a, z)` is cut at a text `m` whose next
key is `k`, the two parts are `(a, k)` and `(m, z)`. At worst a key is listed twice.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from airflow_cloudfiles.engine.discovery.edges import KeyOrder, KeyRange
from airflow_cloudfiles.engine.discovery.midpoints import last_text, midpoint
from airflow_cloudfiles.engine.errors import ListingError, SourceError, SourceNotFoundError
from airflow_cloudfiles.engine.files import printable_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_cloudfiles.engine.discovery.base import FoundBy, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
SERIAL_PAGES = 20
"""A listing of no more pages is read by one thread, so that it costs its pages and nothing else."""
_PAGES_BEFORE_SPLIT = 4
"""A range from which fewer pages were read since it was cut is not cut: it may be small, and a cut
costs a probe and part of a page."""
_PROBES = 12
"""After so many guesses without a key the rest of a range is taken to be small."""
_SEGMENT_KEYS = 10_000
"""After so many keys a reader looks around: what to record, what to tell, whether to stop."""
_BATCH_FILES = 100_000
"""Most files in one call of `record`. Several readers keep twice as many between them; that is what
bounds the memory."""
_RECORD_SECONDS = 10.0
"""New files wait no longer to be recorded: what is recorded need not be listed again."""


class Watcher(Protocol):
    """Is told how a listing goes on; from any of its threads, by one at a time."""

    def found(self, files: Sequence[FileEntry]) -> None:
        """Files are not recorded yet, and will be now."""

    def advanced(self, readers: Readers) -> None:
        """Some more files were listed."""


@dataclass(eq=False)
class _Reader:
    """One range that is being listed.

    Attributes:
        after: Everything up to here is listed, and recorded.
        end: Where the range ends; another worker may move it towards the beginning.
        high: Where its keys end, as far as probing has shown; `None` when that was not asked.
        position: The last key that was listed.
        unsplit: How many keys were listed since it was cut.
    """

    after: str
    end: str
    high: str | None = None
    position: str = ""
    unsplit: int = 0
    listed: int = 0
    is_read: bool = False
    is_done: bool = False
    is_being_cut: bool = False
    batch: list[FileEntry] = field(default_factory=list)
    record_at: float = field(default_factory=lambda: time.monotonic() + _RECORD_SECONDS)


class Readers:
    """Lists ranges of a source and has what is new recorded.

    Args:
        source: What is listed.
        filter: Which of its files are wanted.
        recorder: Where new files go.
        ranges: What to list.
        found_by: How the files were found.
        threads: How many workers there may be; with one, nothing is cut.
        page_size: Keys on a page of a listing.
        order: The order of the store.
        watcher: Is told how it goes.
    """

    def __init__(  # noqa: PLR0913 - it brings everything together
        self,
        source: ObjectStore,
        filter: FileFilter,  # noqa: A002 - what it is
        recorder: Recorder,
        ranges: Sequence[KeyRange],
        *,
        found_by: FoundBy,
        threads: int,
        page_size: int,
        order: KeyOrder,
        watcher: Watcher,
    ) -> None:
        self._source = source
        self._filter = filter
        self._recorder = recorder
        self._found_by = found_by
        self._threads = threads
        self._page_size = page_size
        self._order = order
        self._watcher = watcher
        self._segment_keys = min(_SEGMENT_KEYS, _PAGES_BEFORE_SPLIT * page_size)
        most = _BATCH_FILES if threads == 1 else 2 * _BATCH_FILES // threads
        self._batch_files = max(1, most - self._segment_keys)
        self._waiting = [_Reader(found.after, found.end) for found in reversed(ranges)]
        self._reading: list[_Reader] = []
        self._changed = threading.Condition()
        self._watching = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self.listed = 0
        self.new = 0
        self.ranges_done = 0
        self.ranges_begun = len(ranges)
        self.probes = 0

    def run(self) -> None:
        """List all ranges.

        Raises:
            ListingError: The source could not be listed completely; what was recorded stays so.
        """
        if len(self._waiting) > 1:
            self._start_helpers(min(self._threads, len(self._waiting)) - 1)
        try:
            self._work()
        except BaseException as failure:
            self._stop(failure)
            raise
        finally:
            for helper in self._helpers:
                helper.join()
        if self._failure is not None:
            raise self._failure

    @property
    def are_several(self) -> bool:
        """Whether files may be recorded in another order than that of their keys."""
        return bool(self._helpers)

    def unfinished(self) -> list[KeyRange]:
        """What is not listed and recorded yet, at some one moment."""
        with self._changed:
            return [KeyRange(each.after, each.end) for each in [*self._reading, *self._waiting]]

    # ── workers ──────────────────────────────────────────────────────────────────────────────────

    def _start_helpers(self, number: int) -> None:
        for _ in range(number):
            helper = threading.Thread(target=self._help, name="cloudfiles-listing", daemon=True)
            self._helpers.append(helper)
            helper.start()

    def _help(self) -> None:
        """Work in another thread; the first failure of any ends all."""
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 - raised again by `run`
            self._stop(failure)

    def _stop(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _work(self) -> None:
        while (reader := self._next()) is not None:
            self._read(reader)

    def _next(self) -> _Reader | None:
        """Give the next range to list; `None` when there is no more to do."""
        while True:
            with self._changed:
                if self._failure is not None:
                    return None
                if self._waiting:
                    reader = self._waiting.pop()
                    self._reading.append(reader)
                    return reader
                if not self._reading:
                    self._changed.notify_all()
                    return None
                victim = self._largest()
                if victim is None:
                    self._changed.wait()
                    continue
                victim.is_being_cut = True
            upper = self._cut(victim)
            if upper is not None:
                return upper

    def _largest(self) -> _Reader | None:
        """The range that has given most keys since it was last cut, and still gives."""
        enough = _PAGES_BEFORE_SPLIT * self._page_size
        open_ranges = [
            each
            for each in self._reading
            if not (each.is_being_cut or each.is_done) and each.unsplit >= enough
        ]
        return max(open_ranges, key=lambda each: each.unsplit, default=None)

    # ── cutting ──────────────────────────────────────────────────────────────────────────────────

    def _cut(self, victim: _Reader) -> _Reader | None:
        """Take the upper half of a range; `None` when there seems to be none."""
        try:
            found = self._middle(victim)
        finally:
            victim.is_being_cut = False
        with self._changed:
            victim.unsplit = 0
            if found is None or victim.is_done or not self._is_between(victim, *found):
                return None
            text, key = found
            upper = _Reader(text, victim.end, victim.high, position=text)
            victim.end = victim.high = key
            self._reading.append(upper)
            self.ranges_begun += 1
            return upper

    def _is_between(self, victim: _Reader, text: str, key: str) -> bool:
        """Whether a cut is where the reader has not been, and before the end."""
        order = self._order
        if victim.end and order(key) >= order(victim.end):
            return False
        return bool(order(text) >= order(victim.position))

    def _middle(self, victim: _Reader) -> tuple[str, str] | None:
        """Probe for a text in the middle of a range, and the key after it."""
        low = victim.position
        if victim.high is None:
            victim.high = victim.end or self._last_text(low)
        for _ in range(_PROBES):
            text = midpoint(max(low, self._filter.prefix), victim.high)
            if text is None:
                return None
            key = self._probe(text)
            if key is None or self._is_behind(key, victim.end):
                victim.high = text
            else:
                return text, key
        return None

    def _is_behind(self, key: str, end: str) -> bool:
        return bool(end) and bool(self._order(key) >= self._order(end))

    def _last_text(self, low: str) -> str:
        """Find a text that is behind all keys, and close to them, when a range has no end."""
        return last_text(low, self._filter.prefix, lambda text: self._probe(text) is not None)

    def _probe(self, text: str) -> str | None:
        """Ask for the first key after a text; `None` when there is none of ours."""
        self.probes += 1
        try:
            key = self._source.key_after(text)
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        return key if key is not None and key.startswith(self._filter.prefix) else None

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _read(self, reader: _Reader) -> None:
        """List one range to its end."""
        listing = self._source.list(
            self._filter.prefix,
            start_after=reader.after,
            end_before=reader.end,
            skip=self._filter.skip_folder,
        )
        first_end = reader.end
        while not reader.is_read and self._failure is None:
            listed = reader.listed
            files = self._segment(reader, listing, first_end)
            reader.batch.extend(self._recorder.unseen(files))
            self._record_or_wait(reader)
            self._advance(reader, reader.listed - listed)
        with self._changed:
            self._reading.remove(reader)
            if reader.is_read:
                reader.is_done = True
                self.ranges_done += 1
            else:
                self._waiting.append(reader)
            self._changed.notify_all()

    def _segment(
        self, reader: _Reader, listing: Iterator[FileEntry], first_end: str
    ) -> Iterator[FileEntry]:
        """List the next keys of a range, until its end as it is by then."""
        left, order, accepts = self._segment_keys, self._order, self._filter.accepts_in_folder
        try:
            for entry in islice(listing, left):
                if reader.end != first_end and order(entry.path) >= order(reader.end):
                    break
                left -= 1
                reader.position = entry.path
                reader.listed += 1
                if accepts(entry):
                    yield entry
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        reader.is_read = left > 0

    def _record_or_wait(self, reader: _Reader) -> None:
        """Have new files recorded, when there are many, or it is time, or there come no more.

        When none are waiting, everything up to the reader's position is recorded.
        """
        now = time.monotonic()
        is_time = reader.is_read or now >= reader.record_at
        if reader.batch and (is_time or len(reader.batch) >= self._batch_files):
            batch, reader.batch = reader.batch, []
            self._record(batch)
            reader.record_at = now + _RECORD_SECONDS
        if not reader.batch:
            reader.after = reader.position or reader.after

    def _record(self, batch: list[FileEntry]) -> None:
        with self._watching:
            self._watcher.found(batch)
        new = self._recorder.record(batch, self._found_by)
        with self._changed:
            self.new += new

    def _advance(self, reader: _Reader, listed: int) -> None:
        """Tell how far it is; let others help when it takes long."""
        with self._changed:
            self.listed += listed
            reader.unsplit += listed
            is_long = self.listed >= SERIAL_PAGES * self._page_size
            helpers = self._threads - 1 - len(self._helpers)
            self._changed.notify_all()
        if is_long and helpers > 0 and not reader.is_read:
            self._start_helpers(helpers)
        if self._watching.acquire(blocking=False):
            try:
                self._watcher.advanced(self)
            finally:
                self._watching.release()


def not_listed(source: ObjectStore, failure: OSError) -> SourceError:
    """Say that a source could not be listed, or is not there at all."""
    name = printable_path(source.uri)
    if isinstance(failure, FileNotFoundError):
        return SourceNotFoundError(
            f"The source {name} does not exist or is not a folder ({failure}). Create it, or "
            f"correct the path."
        )
    return ListingError(
        f"{name} could not be listed completely: {failure}. Files found before stay recorded; the "
        f"next run finds the others."
    )
