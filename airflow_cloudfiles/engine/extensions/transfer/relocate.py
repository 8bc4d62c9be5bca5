"""Let a stream go on when its files were moved, once it is clear which they are.

Files are known by their paths relative to the source. Where these stay, all that a state says stays
true for another bucket, or another folder:

1. Compare: which recorded files are at the new place, which are not, which are new.
2. The state is out of use: its metadata name the new source.
3. The file log ends for whoever has opened the state before (`fences`).
4. Where files are known by their versions, those at the new place are recorded as `existing`.
5. The schema log gets the new name of its source.
6. The metadata are written with the new source.

Killed between 2 and 6, the state refuses every run and says to repeat the command, which goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.base import head_of
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.errors import OptionError, StateError, StateMovedError
from airflow_cloudfiles.engine.extensions.registration.registered import RegisteredFiles
from airflow_cloudfiles.engine.extensions.transfer.move import fence, no_state
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.ledger.base import Ledger, catch_up
from airflow_cloudfiles.engine.intake.ledger.opening import open_ledger
from airflow_cloudfiles.engine.intake.opening import SourcePath, name_of
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.schema import log_entry as names
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import locked
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    decode_standing,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same

_EXAMPLES = 5
_BATCH_FILES = 10_000


@dataclass(slots=True)
class Survey:
    """What was found at the new place.

    Attributes:
        present: Recorded files that are there.
        missing: Recorded files that are not.
        new: Files that are there and not recorded; `None` where only a sample was looked at.
        other_versions: Of those present: they have another size, time or etag than was recorded.
        examples: The first of the missing ones.
    """

    present: int = 0
    missing: int = 0
    new: int | None = 0
    other_versions: int = 0
    examples: list[str] = field(default_factory=list)


def survey(ledger: Ledger, store: ObjectStore, place: SourcePath, own: Iterable[str]) -> Survey:
    """Compare all that is recorded with a listing of the new place.

    Args:
        ledger: An index of the file log, caught up.
        store: The new place.
        place: Which of its files are meant.
        own: Locations that are not input.

    Raises:
        SourceNotFoundError: The new place does not exist.
        ListingError: It cannot be listed.
    """
    found = Survey(new=0)
    present: set[str] = set()
    for batch in listed(store, place, own):
        unknown = {entry.path for entry in ledger.unseen(batch)}
        changed = {entry.path for entry in ledger.unseen(batch, versions=True)}
        found.new = (found.new or 0) + len(unknown)
        found.other_versions += len(changed - unknown)
        present.update(entry.path for entry in batch if entry.path not in unknown)
    found.present = len(present)
    for path in ledger.paths():
        if path not in present:
            found.missing += 1
            if len(found.examples) < _EXAMPLES:
                found.examples.append(printable_path(path))
    return found


def sample(files: FileLog, store: ObjectStore, count: int) -> Survey:
    """Look for some of the recorded files at the new place, each with one request.

    Args:
        files: The file log.
        store: The new place.
        count: How many.

    Raises:
        ListingError: The new place does not answer.
    """
    found = Survey(new=None)
    for entry in _picked(files, count):
        there = head_of(store, entry.path)
        if there is None:
            found.missing += 1
            found.examples[_EXAMPLES - 1 :] = [printable_path(entry.path)]
            continue
        found.present += 1
        recorded = (entry.size, entry.modification_time_us, entry.etag)
        if (there.size, there.modification_time_us, there.etag) != recorded:
            found.other_versions += 1
    return found


def listed(store: ObjectStore, place: SourcePath, own: Iterable[str]) -> Iterator[list[FileEntry]]:
    """List what is at the new place, cut into parts."""
    keys = [store.key_of(location) for location in own]
    wanted = FileFilter(store.uri, place.pattern, DiscoveryOptions(), keys)
    files = DirectoryListing(store, wanted).discover()
    while batch := list(islice(files, _BATCH_FILES)):
        yield batch


def _picked(files: FileLog, count: int) -> Iterator[FileEntry]:
    """Pick files by chance, each as likely as any other, with few entries in memory at once."""
    sizes = [files.summary(number).files for number in range(files.latest() + 1)]
    total = sum(sizes)
    picked = sorted(random.sample(range(total), min(count, total)))
    start = 0
    for number, size in enumerate(sizes):
        here = [index - start for index in picked if start <= index < start + size]
        if here:
            entries = files.read(number).files
            yield from (entries[index] for index in here)
        start += size


@dataclass(frozen=True, slots=True)
class RelocationResult:
    """What relocating a source did, or would do.

    Attributes:
        is_done: Whether the state has the new source.
        old_source: What it knew its source by.
        new_source: What it knows it by now.
        known_and_there: Recorded files that are at the new place: they are not ingested again.
        known_and_missing: Recorded files that are not there.
        missing_examples: The first of these.
        new: Files there that are not recorded: the next run ingests them. `None` with a sample.
        other_versions: Of those there: another size, time or etag than was recorded.
        adopted: How many of these versions were recorded as known.
    """

    is_done: bool
    old_source: str
    new_source: str
    known_and_there: int
    known_and_missing: int
    missing_examples: tuple[str, ...]
    new: int | None
    other_versions: int
    adopted: int = 0


def relocate_source(  # noqa: PLR0913 - what there is to decide
    checkpoint_location: str,
    source: str,
    *,
    dry_run: bool = False,
    sample: int | None = None,
    allow_missing: bool = False,
    allow_overwrites: bool = False,
    schema_location: str | None = None,
) -> RelocationResult:
    """Let a stream go on with its files at another place; repeat the call until it succeeds.

    Rows that were written keep the `_metadata.file_path` that they have.

    Args:
        checkpoint_location: The state.
        source: Where the files are now, under the same relative paths; with the pattern that
            the stream has, if it has one.
        dry_run: Only compare.
        sample: Look for so many recorded files instead of listing the new place.
        allow_missing: Go on although recorded files are not there.
        allow_overwrites: For a stream with `cloudFiles.allowOverwrites`: the versions at the new
            place are recorded as known. Otherwise it would ingest every copied file again.
        schema_location: `cloudFiles.schemaLocation`, if the stream has one.

    Raises:
        StateLockedError: A run is working on the state.
        StateError: There is no state, files wait to be ingested, or recorded files are missing.
        SourceNotFoundError: The new place does not exist.
        OptionError: The new source is the old one, or has another pattern.
    """
    state = open_store(checkpoint_location)
    with reaching_state(state), locked(state) as may_go_on:
        one = _Relocation(state, source, may_go_on, schema_location or state.uri)
        found = one.compare(sample)
        if dry_run:
            return one.result(found)
        if found.missing and not allow_missing:
            there = counted(found.missing + found.present, "recorded file")
            raise StateError(
                f"{found.missing} of {there} {plural(found.missing, 'is', 'are')} not in "
                f"{printable_path(source)}, such as {', '.join(found.examples)}. Correct the "
                "source or copy them. If they are gone on purpose, say so: --allow-missing."
            )
        return one.run(found, adopt=allow_overwrites)


class _Relocation:
    """One try to relocate the source of a state."""

    def __init__(
        self,
        state: ObjectStore,
        source: str,
        may_go_on: Callable[[], None],
        schema_location: str,
    ) -> None:
        self._state = state
        self._may_go_on = may_go_on
        root, pattern = split_pattern(source)
        root = normalize_uri(root)
        self._place = SourcePath(root, pattern, name_of(root, pattern))
        self._old = self._metadata()
        if split_pattern(self._old.source)[1] != pattern:
            raise OptionError(
                f"The stream reads {printable_path(self._old.source)}, so its new source needs the "
                f"same pattern, or none, like that. {printable_path(source)} has another one."
            )
        if self._old.source == self._place.name:
            raise OptionError(f"{printable_path(source)} is the source that the state has.")
        self._store = open_store(root)
        self._schemas = open_store(schema_location)
        self._own = (state.uri, schema_location)
        self._files = FileLog(state)
        self._require_finished()
        self._require_unregistered()

    def compare(self, count: int | None) -> Survey:
        if count is not None:
            return sample(self._files, self._store, count)
        ledger = self._ledger()
        try:
            return survey(ledger, self._store, self._place, self._own)
        finally:
            ledger.close()

    def run(self, found: Survey, *, adopt: bool) -> RelocationResult:
        sealed = encode_standing("relocating", self._old, self._place.name)
        before = self._state.get(KEY)
        if before != sealed and not replace_if_same(self._state, KEY, before, sealed):
            raise StateError(f"{self._state.child_uri(KEY)} was changed meanwhile. Run again.")
        crash_point("after-relocation-seal")
        number = fence(self._state, self._old, self._place.name)
        adopted = self._adopt() if adopt else 0
        crash_point("after-adopted-versions")
        names.add_name(self._schemas, self._old.source, self._place.name)
        crash_point("before-relocation-ends")
        self._may_go_on()
        new = encode_metadata(replace(self._old, source=self._place.name, fence=number))
        replace_if_same(self._state, KEY, sealed, new)
        if self._state.get(KEY) != new:
            raise StateError(f"{self._state.child_uri(KEY)} was changed meanwhile. Run again.")
        return replace(self.result(found), is_done=True, adopted=adopted)

    def result(self, found: Survey) -> RelocationResult:
        return RelocationResult(
            is_done=False,
            old_source=self._old.source,
            new_source=self._place.name,
            known_and_there=found.present,
            known_and_missing=found.missing,
            missing_examples=tuple(found.examples),
            new=found.new,
            other_versions=found.other_versions,
        )

    def _metadata(self) -> StreamMetadata:
        """Whose the state is; also where a try has put it out of use."""
        name = self._state.child_uri(KEY)
        try:
            content = self._state.get(KEY)
        except ObjectNotFoundError as failure:
            raise no_state(self._state) from failure
        standing, place, found = decode_standing(content, name=name)
        if standing == "relocating" and found is not None:
            if place == self._place.name:
                return found
            raise StateMovedError(
                f"The source of {name} is being relocated to {printable_path(place)}. Finish that "
                "first, with that source."
            )
        metadata = read_metadata(self._state)
        if metadata is None or not metadata.is_bound:
            raise StateError(
                f"{printable_path(self._state.uri)} holds no file yet: run the stream with its new "
                "source, and it takes the state."
            )
        return metadata

    def _require_finished(self) -> None:
        """Refuse where files wait: their versions are those of the old place."""
        end, plan = position(self._state).end, PlanLog(self._state).latest()
        left, _ = files_and_bytes(self._files, end, self._files.head())
        if left or (plan is not None and plan.end > end):
            raise StateError(
                f"{counted(left, 'recorded file')} of {printable_path(self._old.source)} "
                f"{plural(left, 'waits', 'wait')} to be ingested. Run the stream there until "
                "nothing is left, then relocate it."
            )

    def _require_unregistered(self) -> None:
        """Refuse where files of the old place are data files of the table: they must stay."""
        registered = RegisteredFiles(self._state, self._old.source)
        if registered and not registered.has_moved_along(self._place.root):
            count = len(registered)
            raise StateError(
                f"{counted(count, 'file')} of {printable_path(self._old.source)} "
                f"{plural(count, 'is a data file', 'are data files')} of {registered.target} "
                "(cloudFiles.loadMode=reference): moved, they would be lost to it. Move the table "
                "with them; or have it write them anew first (cloudfiles table optimize --target "
                f"{registered.target} --all), and keep the old files as long as older versions of "
                "it are read."
            )

    def _ledger(self) -> Ledger:
        ledger = open_ledger(self._old.stream_id, self._files)
        catch_up(ledger, self._files)
        return ledger

    def _adopt(self) -> int:
        """Record the versions at the new place of what is known, so that they are no news."""
        adopted = 0
        ledger = self._ledger()
        try:
            for batch in listed(self._store, self._place, self._own):
                unknown = {entry.path for entry in ledger.unseen(batch)}
                changed = [
                    entry
                    for entry in ledger.unseen(batch, versions=True)
                    if entry.path not in unknown
                ]
                if changed:
                    self._may_go_on()
                    entry = FileBatch(tuple(changed), "existing")
                    if not self._files.append(ledger.caught_up + 1, entry):
                        raise StateError("The file log has grown meanwhile. Run again.")
                    catch_up(ledger, self._files)
                    adopted += len(changed)
        finally:
            ledger.close()
        return adopted
