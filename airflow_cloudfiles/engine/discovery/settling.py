"""Let files wait until they are whole, and look at them again.

With `cloudFiles.minFileAge` a file is taken when it has been still for so long, with
`cloudFiles.completionMarker` when its marker is there, with both when both hold. Every way of
finding files hands its candidates to a `Recorder`; that asks here, so all ways wait alike.

An object of an archive (`cloudFiles.onArchivedFile`) waits for being restored. That changes neither
its time nor its etag, so no listing and no message says so: it is noted, and asked for.

How long a file has been still, the clock of its store says, which is asked before anything is
listed or received: a file may seem to be younger than it is, never older. The clock of this machine
has no part in it. Where a file's time lies in the future, its time says nothing: it is taken when
its version has been the same for so long.

A young file is noted in the state before `of_listing` ends or `of_record` returns. A
file without its marker needs no note: where there is a queue, the marker's event brings it, and
where there is none, all listings are full.

A batch read and an inference cannot let a file wait and come back to it. They leave it out, and say
which files they have left out.

The notes are objects of the state, `_source/waiting/<id>.json`, each with some files. A note is
written before the message that brought its files is acknowledged, and before a listing that has
passed them counts as made. So nothing that waits depends on being found once more.

Notes have names of their own and are never changed: whoever has looked at the files of some writes
a new one of what still waits, and removes them then. Two that do so at once, or one that is killed
in between, leave a file in two notes; it is recorded once, as every candidate is.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import FoundBy, Recorder, head_of
from airflow_cloudfiles.engine.discovery.filters import FileFilter, ListedFiles
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.ranges import order_of
from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError, is_version
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, as_record, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.listing.edges import KeyOrder
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX = "_source/waiting"
NOTE_VERSION = 1
NOTE_FILES = 10_000
"""Most files of one note."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnsettledFile:
    """A file that has to be looked at again.

    Attributes:
        file: The version that was seen.
        seen_us: When that was, by the clock of its store, in microseconds since 1970.
        found_by: How it was found.
    """

    file: FileEntry
    seen_us: int
    found_by: FoundBy


def keep_waiting(state: ObjectStore, files: Iterable[UnsettledFile]) -> None:
    """Note files; when it returns, the notes are durable.

    Raises:
        StateError: The state cannot be written.
    """
    left = iter(files)
    while some := tuple(islice(left, NOTE_FILES)):
        with reaching_state(state):
            state.put(f"{PREFIX}/{uuid.uuid4().hex}.json", _encode(some))


def load_waiting(state: ObjectStore) -> dict[str, list[UnsettledFile]]:
    """Read the notes: the files of each, by its key.

    One that is damaged is removed, after seeing to it that the next listing is a full one: that
    finds its files again.

    Raises:
        StateError: The state cannot be read.
        IncompatibleStateError: A newer version of this package wrote one.
    """
    found: dict[str, list[UnsettledFile]] = {}
    with reaching_state(state):
        for note in list(state.list(PREFIX + "/")):
            try:
                found[note.path] = _decode(state.get(note.path), state.child_uri(note.path))
            except ObjectNotFoundError:
                continue  # another discovery was faster
            except (ValueError, KeyError, TypeError):
                name = printable_path(state.child_uri(note.path))
                _log.warning("%s does not say which files wait. All files are listed.", name)
                state.delete(LISTING)
                state.delete(note.path)
    return found


def forget_notes(state: ObjectStore, keys: Iterable[str]) -> None:
    """Remove notes whose files are recorded, gone, or in another note.

    Raises:
        StateError: The state cannot be written.
    """
    with reaching_state(state):
        for key in keys:
            state.delete(key)


def _encode(files: Iterable[UnsettledFile]) -> bytes:
    """Write what `_decode` reads."""
    entries = [
        {
            "path": each.file.path,
            "size": each.file.size,
            "modification_time_us": each.file.modification_time_us,
            "etag": each.file.etag,
            "seen_us": each.seen_us,
            "found_by": each.found_by,
        }
        for each in files
    ]
    return seal({FIELD: NOTE_VERSION, "files": entries})


def _decode(content: bytes, name: str) -> list[UnsettledFile]:
    """Read what `_encode` wrote."""
    fields = fields_of(unseal(content), name=printable_path(name), understood=NOTE_VERSION)
    return [_waiting(each) for each in fields["files"]]


def _waiting(given: Mapping[str, Any]) -> UnsettledFile:
    file = as_record(given, FileEntry)
    return UnsettledFile(file, int(given["seen_us"]), cast("FoundBy", str(given["found_by"])))


_CHUNK = 10_000
_SAMPLE_FILES = 5
_INSPECTORS = 16
_NOTES_TO_KEEP = 8
"""More notes than these are brought into one, also when nothing else has changed."""
YOUNG = "minFileAge"
UNMARKED = "completionMarker"
ARCHIVED = "onArchivedFile"


@dataclass(slots=True)
class WaitingReport:
    """The files that a discovery has found and not taken yet.

    Attributes:
        reasons: How many wait, by the option they wait for.
        sample: The first of them, at most five.
        settles_in_seconds: In how long the first of the young ones is old enough, unless it
            changes; `None` where none is young.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)
    settles_in_seconds: float | None = None

    @property
    def files(self) -> int:
        """How many wait."""
        return self.reasons.total()

    def add(self, reason: str, path: str) -> None:
        """Count one."""
        self.reasons[reason] += 1
        if len(self.sample) < _SAMPLE_FILES:
            self.sample.append(printable_path(path))

    def __str__(self) -> str:
        """Format it for logs."""
        parts = [f"{count} for cloudFiles.{reason}" for reason, count in self.reasons.items()]
        soonest = ""
        if self.settles_in_seconds is not None:
            soonest = f". The first is old enough in {self.settles_in_seconds:.0f} s"
        names = ", ".join(self.sample)
        return f"{counted(self.files, 'file')} not taken yet: {', '.join(parts)} ({names}){soonest}"

    def to_json(self) -> dict[str, Any]:
        """Encode it for reports."""
        return {
            "files": self.files,
            "reasons": dict(self.reasons),
            "sample": list(self.sample),
            "settles_in_seconds": self.settles_in_seconds,
        }


class UnsettledFiles:
    """What one discovery lets wait. Safe to use from several threads.

    Args:
        source: The source.
        state: The checkpoint location; `None`: nothing is noted, so what waits is only left out.
        options: `minFileAge`, `completionMarker`, `onArchivedFile`.
        file_filter: Which files are input, and the markers that listings have passed.
        is_existing: Tells which archived files need not wait, since they are never ingested.

    Raises:
        ListingError: The store does not report its time.
    """

    def __init__(
        self,
        source: ObjectStore,
        state: ObjectStore | None,
        options: DiscoveryOptions,
        file_filter: FileFilter,
        is_existing: Callable[[FileEntry], bool] = lambda _: False,
    ) -> None:
        policy = options.on_archived_file
        self._leaves_archived = policy == "wait" or (policy == "skip" and state is None)
        self._is_existing = is_existing
        self._source = source
        self._state = state
        self._filter = file_filter
        self._versions = options.sees_overwrites
        age = options.min_file_age_seconds
        self._age_us = None if age is None else round(age * 1_000_000)
        self._now_us = 0 if age is None else _clock_us(source)
        self._began = time.monotonic()
        looks_again = age is not None or self._leaves_archived
        self._notes = load_waiting(state) if looks_again and state is not None else {}
        every = sorted(chain.from_iterable(self._notes.values()), key=lambda each: each.seen_us)
        self._noted = {each.file.path: each for each in every}  # as it was seen last
        self._young: dict[str, UnsettledFile] = {}
        self._archived: dict[str, None] = {}
        self._unmarked: dict[str, None] = {}
        self._checked: set[FileEntry] = set()
        self._lock = threading.Lock()

    # ── candidates ───────────────────────────────────────────────────────────────────────────────

    def of_listing(self, files: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Leave out those of some new files that are not whole; lazy, as a listing is.

        When it has ended, those that have to be looked at again are noted.

        Raises:
            ListingError: The source does not answer.
            StateError: The state cannot be written.
        """
        self._filter.passed.take()
        waiting: list[UnsettledFile] = []
        still: Iterator[FileEntry]
        if self._filter.marker is None:
            still = (file for file in files if self._is_still(file, waiting, "listing"))
        else:
            still = self._marked_still(files, waiting)
        for file in still:
            with self._lock:
                self._checked.add(file)
            yield file
        self._keep(waiting)

    def of_record(self, files: Sequence[FileEntry], found_by: FoundBy) -> list[FileEntry]:
        """Leave out those of some candidates that are not whole.

        When it returns, those that have to be looked at again are noted.

        Raises:
            ListingError: The source does not answer.
            StateError: The state cannot be written.
        """
        with self._lock:
            checked = self._checked.intersection(files)
            self._checked -= checked
        left = [file for file in files if file not in checked]
        waiting: list[UnsettledFile] = []
        marked = self._with_markers(left, ListedFiles())
        still = {file for file in marked if self._is_still(file, waiting, found_by)}
        self._keep(waiting)
        return [file for file in files if file in checked or file in still]

    def _marked_still(
        self, files: Iterable[FileEntry], waiting: list[UnsettledFile]
    ) -> Iterator[FileEntry]:
        """Yield those that are still and whose markers are there, some thousands at a time."""
        left = iter(files)
        while chunk := list(islice(left, _CHUNK)):
            marked = self._with_markers(chunk, self._filter.passed.take())
            yield from (file for file in marked if self._is_still(file, waiting, "listing"))

    # ── age ──────────────────────────────────────────────────────────────────────────────────────

    def _is_still(self, file: FileEntry, waiting: list[UnsettledFile], found_by: FoundBy) -> bool:
        """Tell whether a file has been still for long enough; if not, add it to those that wait."""
        is_archived = self._must_be_restored(file)
        if not is_archived and self._left_us(file) <= 0:
            return True
        noted = self._noted.get(file.path)
        if noted is None or noted.file != file:
            seen_us = self._now_us + round((time.monotonic() - self._began) * 1_000_000)
            noted = UnsettledFile(file, seen_us, found_by)
            waiting.append(noted)
        with self._lock:
            if is_archived:
                self._archived[file.path] = None
            else:
                self._young[file.path] = noted
        return False

    def _must_be_restored(self, file: FileEntry) -> bool:
        """Tell whether a file waits for being restored."""
        return bool(file.archived_in) and self._leaves_archived and not self._is_existing(file)

    def _left_us(self, file: FileEntry, noted: UnsettledFile | None = None) -> int:
        """Compute how long a file still has to wait; 0 or less: no longer."""
        if self._age_us is None:
            return 0
        since_us, noted = file.modification_time_us, noted or self._noted.get(file.path)
        if since_us > self._now_us and noted is not None and is_version(file, noted.file):
            since_us = noted.seen_us
        return self._age_us - (self._now_us - since_us)

    def _keep(self, waiting: Sequence[UnsettledFile]) -> None:
        if waiting and self._state is not None:
            crash_point("before-waiting-note")
            keep_waiting(self._state, waiting)
            crash_point("after-waiting-note")

    # ── markers ──────────────────────────────────────────────────────────────────────────────────

    def _with_markers(self, files: Sequence[FileEntry], passed: ListedFiles) -> Sequence[FileEntry]:
        """Select the files whose markers are there, in their order.

        Raises:
            ListingError: The source does not answer.
        """
        marker = self._filter.marker
        if marker is None or not files:
            return files
        wanted = dict.fromkeys(key for file in files for key in marker.markers_of(file.path))
        order = self._order
        there: dict[str, FileEntry | None] = {
            key: passed.markers.get(key)
            for key in wanted
            if key in passed.markers or (order is not None and passed.is_absent(key, order))
        }
        self._inspect([key for key in wanted if key not in there], there)
        found = []
        for file in files:
            markers = [there[key] for key in marker.markers_of(file.path)]
            if any(each is not None and self._is_of(each, file) for each in markers):
                found.append(file)
                self._unmarked.pop(file.path, None)
            else:
                self._unmarked[file.path] = None
        return found

    def _inspect(self, keys: Sequence[str], there: dict[str, FileEntry | None]) -> None:
        """Look at markers, several at once."""
        if not keys:
            return
        with ThreadPoolExecutor(_INSPECTORS, thread_name_prefix="cloudfiles-markers") as pool:
            there.update(zip(keys, pool.map(partial(head_of, self._source), keys), strict=True))

    def _is_of(self, marker: FileEntry, file: FileEntry) -> bool:
        """Tell whether a marker is of this version of a file.

        Where only the first version of a file is taken, it is. Where others are, one that is older
        than the file is of the version before. Some stores give whole seconds.
        """
        whole_second = file.modification_time_us // 1_000_000 * 1_000_000
        return not self._versions or marker.modification_time_us >= whole_second

    @property
    def _order(self) -> KeyOrder | None:
        """In which order keys are listed; `None` where that is not certain."""
        is_promised = bool(getattr(self._source, "is_order_promised", True))
        return order_of(self._source) if is_promised else None

    # ── what was noted ───────────────────────────────────────────────────────────────────────────

    def look_again(self, recorder: Recorder, is_recorded: Callable[[FileEntry], bool]) -> None:
        """Record what is noted and has been still for long enough; note anew what has not.

        Killed anywhere, it leaves each file that waits in a note.

        Args:
            recorder: Where files go.
            is_recorded: Whether a file is in the file log.

        Raises:
            ListingError: The source does not answer.
            StateError: The state cannot be read or written.
        """
        if not self._notes or self._state is None:
            return
        left = [each for each in self._noted.values() if not is_recorded(each.file)]
        due = [each for each in left if self._left_us(each.file) <= 0]
        later = [each for each in left if self._left_us(each.file) > 0]
        there = {file.path: file for file in self._present([each.file.path for each in due])}
        archived = {path for path, file in there.items() if self._must_be_restored(file)}
        later += [each for each in due if each.file.path in archived]
        for found_by in dict.fromkeys(each.found_by for each in due):
            some = (each.file.path for each in due if each.found_by == found_by)
            taken = [there[path] for path in some if path in there and path not in archived]
            for file in taken:  # of which a listing may have said that it is archived
                self._archived.pop(file.path, None)
            recorder.record(taken, found_by)
        crash_point("after-waiting-record")
        is_same = len(later) == sum(map(len, self._notes.values()))
        if not is_same or len(self._notes) > _NOTES_TO_KEEP:
            keep_waiting(self._state, later)
            crash_point("after-waiting-note")
            forget_notes(self._state, self._notes)
        with self._lock:
            self._archived.update(dict.fromkeys(archived))
            for each in later:
                if each.file.path not in self._archived:
                    self._young.setdefault(each.file.path, each)

    def has_settled(self, is_recorded: Callable[[FileEntry], bool]) -> bool:
        """Tell whether something that is noted can be taken now; change nothing.

        Args:
            is_recorded: Whether a file is in the file log.

        Raises:
            ListingError: The source does not answer.
        """
        due = (each.file for each in self._noted.values() if self._left_us(each.file) <= 0)
        left = (file.path for file in due if not is_recorded(file))
        while paths := list(islice(left, _INSPECTORS)):
            found = self._present(paths)
            if any(self._is_due(each) for each in self._with_markers(found, ListedFiles())):
                return True
        return False

    def _is_due(self, file: FileEntry) -> bool:
        """Tell whether a file that is there can be taken; count it where it is archived."""
        if self._must_be_restored(file):
            self._archived[file.path] = None
            return False
        return self._left_us(file) <= 0

    def _present(self, paths: Sequence[str]) -> list[FileEntry]:
        """List the files as they are now, without those that are gone or not input any more."""
        there: dict[str, FileEntry | None] = {}
        self._inspect(paths, there)
        return [each for each in there.values() if each is not None and self._filter.accepts(each)]

    # ── report ───────────────────────────────────────────────────────────────────────────────────

    def report(self) -> WaitingReport:
        """Say what has been found and waits."""
        found = WaitingReport()
        with self._lock:
            young, unmarked = list(self._young.values()), list(self._unmarked)
            archived = list(self._archived)
        for each in young:
            found.add(YOUNG, each.file.path)
        for path in unmarked:
            found.add(UNMARKED, path)
        for path in archived:
            found.add(ARCHIVED, path)
        if young:
            passed = time.monotonic() - self._began
            left = min(self._left_us(each.file, each) for each in young) / 1_000_000
            found.settles_in_seconds = round(max(0.0, left - passed), 3)
        return found


def _clock_us(source: ObjectStore) -> int:
    """Read the clock of the store.

    Raises:
        ListingError: It does not answer.
    """
    try:
        return source.clock_us()
    except OSError as failure:
        name = printable_path(source.uri)
        raise ListingError(f"{name} does not report its time: {failure} Run again.") from failure


def _left_out(
    source: ObjectStore, wanted: FileFilter, options: DiscoveryOptions
) -> UnsettledFiles | None:
    return UnsettledFiles(source, None, options, wanted) if options.leaves_out else None


class WholeFiles:
    """Lists the files of a source that are whole, and can be read.

    Args:
        source: The source.
        wanted: Which of its files are input.
        options: `minFileAge`, `completionMarker`, `onArchivedFile`.

    Raises:
        ListingError: The store does not report its time.
    """

    def __init__(self, source: ObjectStore, wanted: FileFilter, options: DiscoveryOptions) -> None:
        self._listing = DirectoryListing(source, wanted)
        self._settling = _left_out(source, wanted, options)

    def discover(self) -> Iterator[FileEntry]:
        """List them, as `DirectoryListing.discover` does."""
        found = self._listing.discover()
        return found if self._settling is None else self._settling.of_listing(found)

    def left_out(self) -> WaitingReport:
        """Say what was listed so far and is not whole."""
        return WaitingReport() if self._settling is None else self._settling.report()
