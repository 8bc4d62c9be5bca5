"""List one key space in several threads, for little more than one thread needs.

Each reader lists a range of keys, merges it with what is recorded (a sorted scan of its own), and
has what is new recorded. A worker without a range takes the upper part of the one that is read
longest. Where that part begins is found by trying (`cutting.py`), and each try costs one request at
most. After ten pages one try is allowed, after twenty another: so a listing costs a tenth more than
its pages at most, however the keys are spread. The first pages are read by one thread.

However the guesses turn out, no key is lost: when a range `(a, z)` is cut at a string `m` whose
next key is `k`, the two parts are `(a, k)` and `(m, z)`. At worst a key is listed twice.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from airflow_cloudfiles.engine.discovery.listing.edges import (
    KeyBisector,
    KeyOrder,
    KeyRange,
    check_order,
)
from airflow_cloudfiles.engine.errors import (
    ListingError,
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import UnorderedListingError, key_bytes
from airflow_cloudfiles.engine.storage.outage import is_transient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_cloudfiles.engine.discovery.base import FoundBy, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
PAGES_PER_CUT = 10
"""So many pages must have been listed for each try to cut a range."""
_PAGES_BEFORE_SPLIT = 4
"""A range from which fewer pages were read since it was cut is not cut: it may be small."""
_SEGMENT_KEYS = 10_000
"""After so many keys a reader checks what to record, what to report, and whether to stop."""
_BATCH_FILES = 100_000
"""Most files in one call of `record`. Several readers keep twice as many between them; that is what
bounds the memory."""
_RECORD_SECONDS = 10.0
"""New files wait no longer to be recorded: what is recorded need not be listed again."""


class Watcher(Protocol):
    """Receives the progress of a listing; from any of its threads, by one at a time."""

    def found(self, files: Sequence[FileEntry]) -> None:
        """Files are not recorded yet, and will be now."""

    def advanced(self, readers: Readers) -> None:
        """Note that some more files were listed."""


@dataclass(eq=False)
class _RangeListing:
    """One range that is being listed.

    Attributes:
        after: Everything up to here is listed, and recorded.
        end: Where the range ends; another worker may move it towards the beginning.
        high: A string behind its keys, as far as tries have shown; empty for none.
        position: The last key that was listed.
        unsplit: How many keys were listed since it was cut.
        listing: Its keys from the beginning, where they are being listed already.
    """

    after: str
    end: str
    high: str = ""
    position: str = ""
    listing: Iterator[FileEntry] | None = None
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
        order: The order of the store; `None` when it has none: then one thread lists the whole.
        is_order_certain: Whether that order needs no check before a range is cut.
        watcher: Receives the progress.
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
        order: KeyOrder | None,
        is_order_certain: bool,
        watcher: Watcher,
    ) -> None:
        self._source = source
        self._filter = filter
        self._recorder = recorder
        self._found_by = found_by
        self._threads = threads if order is not None else 1
        self._page_size = page_size
        self._is_ordered = order is not None
        self._order: KeyOrder = order or key_bytes
        self._middle = KeyBisector(recorder.known, filter.prefix, self._order)
        self._first = ""
        self._watcher = watcher
        self._segment_keys = min(_SEGMENT_KEYS, _PAGES_BEFORE_SPLIT * page_size)
        most = _BATCH_FILES if self._threads == 1 else 2 * _BATCH_FILES // threads
        self._batch_files = max(1, most - self._segment_keys)
        self._waiting = [_RangeListing(found.after, found.end) for found in reversed(ranges)]
        self._reading: list[_RangeListing] = []
        self._changed = threading.Condition()
        self._watching = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self.listed = 0
        self.new = 0
        self.ranges_done = 0
        self.ranges_begun = len(ranges)
        self.tries = 0
        self.is_order_certain = is_order_certain

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
        """Return what is not yet listed and recorded at one moment; without an order, all of it."""
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

    def _next(self) -> _RangeListing | None:
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
                self.tries += 1
            upper = self._cut(victim)
            if upper is not None:
                return upper

    def _largest(self) -> _RangeListing | None:
        """Find the range that gave most keys since its last cut, if a try is allowed."""
        if (self.tries + 1) * PAGES_PER_CUT * self._page_size > self.listed:
            return None
        enough = _PAGES_BEFORE_SPLIT * self._page_size
        open_ranges = [
            each
            for each in self._reading
            if not (each.is_being_cut or each.is_done) and each.unsplit >= enough
        ]
        return max(open_ranges, key=lambda each: each.unsplit, default=None)

    # ── cutting ──────────────────────────────────────────────────────────────────────────────────

    def _cut(self, victim: _RangeListing) -> _RangeListing | None:
        """Take the upper part of a range; `None` when there seems to be none."""
        upper = None
        with being_listed(self._source):
            if self._is_cuttable(victim.position):
                upper = self._upper(victim)
        with self._changed:
            victim.is_being_cut = False  # not before: its end must be the one that was listed to
            victim.unsplit = 0
            if upper is None or victim.is_done or not self._is_between(victim, *upper):
                return None
            text, key, listing = upper
            reader = _RangeListing(text, victim.end, victim.high, position=text, listing=listing)
            victim.end = victim.high = key
            self._reading.append(reader)
            self.ranges_begun += 1
            return reader

    def _upper(self, victim: _RangeListing) -> tuple[str, str, Iterator[FileEntry]] | None:
        """Try to cut: give a string, the first key after it, and the listing that begins there."""
        text = self._middle.guess(self._first, victim.position, victim.end, victim.high)
        if text is None:
            with self._changed:
                self.tries -= 1
            return None
        listing = self._list(text, victim.end)
        first = next(listing, None)
        if first is None:
            victim.high = text
            return None
        return text, first.path, chain((first,), listing)

    def _is_between(
        self, victim: _RangeListing, text: str, key: str, _: Iterator[FileEntry]
    ) -> bool:
        """Tell whether a cut is where the reader has not been, and before the end."""
        order = self._order
        if victim.end and order(key) >= order(victim.end):
            return False
        return bool(order(text) >= order(victim.position))

    def _is_cuttable(self, key: str) -> bool:
        """Tell whether the store keeps its order; a first request checks, in place of a try.

        Between keys that are in no folder there is nothing to see, and nothing is cut.
        """
        if not self.is_order_certain and "/" in key:
            self.is_order_certain = check_order(self._source, key, is_there=True)
            return False
        return self.is_order_certain

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _read(self, reader: _RangeListing) -> None:
        """List one range to its end."""
        listing = reader.listing or self._list(reader.after, reader.end)
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

    def _list(self, after: str, end: str) -> Iterator[FileEntry]:
        """List a range from its beginning."""
        return self._source.list(
            self._filter.prefix,
            start_after=after,
            end_before=end,
            skip=self._filter.skip_folder,
            ordered=self._is_ordered,
        )

    def _segment(
        self, reader: _RangeListing, listing: Iterator[FileEntry], first_end: str
    ) -> Iterator[FileEntry]:
        """List the next keys of a range, until its end as it is by then."""
        left, order, accepts = self._segment_keys, self._order, self._filter.accepts_in_folder
        with being_listed(self._source):
            for entry in islice(listing, left):
                if reader.end != first_end and order(entry.path) >= order(reader.end):
                    break
                left -= 1
                self._first = self._first or entry.path
                reader.position = entry.path
                reader.listed += 1
                if accepts(entry):
                    yield entry
        reader.is_read = left > 0

    def _record_or_wait(self, reader: _RangeListing) -> None:
        """Have new files recorded, when there are many, or it is time, or there come no more.

        When none are waiting, everything up to the reader's position is recorded.
        """
        now = time.monotonic()
        is_time = reader.is_read or now >= reader.record_at
        if reader.batch and (is_time or len(reader.batch) >= self._batch_files):
            batch, reader.batch = reader.batch, []
            self._record(batch)
            reader.record_at = now + _RECORD_SECONDS
        if not reader.batch and self._is_ordered:
            reader.after = reader.position or reader.after

    def _record(self, batch: list[FileEntry]) -> None:
        with self._watching:
            self._watcher.found(batch)
        new = self._recorder.record(batch, self._found_by)
        with self._changed:
            self.new += new

    def _advance(self, reader: _RangeListing, listed: int) -> None:
        """Report how far it is; let others help when it takes long."""
        with self._changed:
            self.listed += listed
            reader.unsplit += listed
            is_long = self.listed >= PAGES_PER_CUT * self._page_size
            helpers = self._threads - 1 - len(self._helpers)
            self._changed.notify_all()
        if is_long and helpers > 0 and not reader.is_read:
            self._start_helpers(helpers)
        if self._watching.acquire(blocking=False):
            try:
                self._watcher.advanced(self)
            finally:
                self._watching.release()


def order_of(source: ObjectStore) -> KeyOrder | None:
    """Find the order of a store; `None` where it is not known, and no range can be cut.

    Raises:
        SourceError: The account, which is asked for it once, did not answer.
    """
    with being_listed(source):
        order: KeyOrder | None = getattr(source, "key_order", key_bytes)
    return order


@contextmanager
def being_listed(source: ObjectStore) -> Iterator[None]:
    """Say what it means that a source cannot be listed.

    Raises:
        UnorderedListingError: It keeps no order, which is for the caller to deal with.
        SourceError: It could not be listed, or is not there at all.
    """
    try:
        yield
    except UnorderedListingError:
        raise
    except OSError as failure:
        raise not_listed(source, failure) from failure


def not_listed(source: ObjectStore, failure: OSError) -> SourceError:
    """Give the error of a source that could not be listed, or is not there at all."""
    name = printable_path(source.uri)
    if isinstance(failure, FileNotFoundError):
        return SourceNotFoundError(
            f"The source {name} does not exist or is not a folder ({failure}). Create it, or "
            f"correct the path."
        )
    reason = str(failure).rstrip(".")
    if not is_transient(failure):
        return SourceAccessError(
            f"{name} cannot be listed: {reason}. Files found before stay recorded. Correct the "
            f"permissions, the name or the address; the next run finds the others."
        )
    return ListingError(
        f"{name} could not be listed completely: {reason}. Files found before stay recorded; the "
        f"next run finds the others."
    )
