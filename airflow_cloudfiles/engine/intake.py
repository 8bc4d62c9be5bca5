"""What has arrived, and what is still to be ingested?

Discovering is three steps, and may be killed between any two of them:

1. List the source.
2. Leave out what the ledger, caught up with the file log, has seen.
3. Append the rest to the file log. If another discoverer was faster: catch up, leave out what it
   recorded, and try again.

A kill before step 3 has changed nothing, and after it the files are recorded, once. The ledger is
only an index of the file log and learns from it, so it does not matter when it is killed.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.listing import DirectoryListing
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    LedgerError,
)
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, printable_path
from airflow_cloudfiles.engine.ledger.base import Ledger, catch_up
from airflow_cloudfiles.engine.ledger.file_log import MAX_ENTRY_FILES, FileBatch, FileLog
from airflow_cloudfiles.engine.ledger.metadata import open_metadata
from airflow_cloudfiles.engine.ledger.opening import open_ledger
from airflow_cloudfiles.engine.ledger.plan_log import PlanLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

logger = logging.getLogger(__name__)

_SAMPLE_FILES = 5


@dataclass(frozen=True, slots=True)
class Discovered:
    """What one discovery recorded.

    Attributes:
        listed: How many files were listed.
        files: How many of them were new.
        bytes: The size of the new ones.
        first_entry: First entry of the file log that holds new files; `None` for none.
        last_entry: Last of these entries (inclusive).
        sample: The first new paths, at most five.
    """

    listed: int
    files: int
    bytes: int
    first_entry: int | None
    last_entry: int | None
    sample: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is recorded and not yet committed.

    Attributes:
        files: How many files.
        bytes: Their size.
        first_entry: Entry of the file log with the first of them; `None` for none.
        last_entry: Entry with the last of them (inclusive).
        sample: The first paths, at most five.
    """

    files: int
    bytes: int
    first_entry: int | None
    last_entry: int | None
    sample: tuple[str, ...]


class Intake:
    """The arrivals of one stream: what discovery finds and what a run still has to ingest.

    Open it with `Intake.open`. Any number of intakes, in any processes, may work on one state.

    Attributes:
        stream_id: Id of the stream, fixed for the life of its state.
        source: The folder the files land in.
        state: The checkpoint location.
        files: The file log.
        plans: The plan log.
    """

    def __init__(  # noqa: PLR0913 - it introduces the rooms to each other
        self,
        *,
        stream_id: str,
        source: ObjectStore,
        state: ObjectStore,
        listing: DirectoryListing,
        files: FileLog,
        ledger: Ledger | None = None,
    ) -> None:
        self.stream_id = stream_id
        self.source = source
        self.state = state
        self.files = files
        self.plans = PlanLog(state)
        self._listing = listing
        self._ledger = ledger

    @classmethod
    def open(
        cls,
        *,
        source: str,
        format: str,  # noqa: A002 - Auto Loader's word
        checkpoint_location: str,
        exclude: Sequence[str] = (),
    ) -> Intake:
        """Open the state of a source, or begin one.

        The checkpoint location is never ingested, wherever it is.

        Args:
            source: Path or URI of the folder the files land in. It need not exist yet.
            format: `cloudFiles.format`.
            checkpoint_location: Path or URI of the state.
            exclude: Further locations that are not ingested where they are below the source: the
                schema location, the target.

        Raises:
            StateConflictError: The state belongs to another source or format.
            OptionError: A location is not one, or is the source itself.
        """
        return cls.over(
            source=open_store(source),
            format=format,
            state=open_store(checkpoint_location),
            exclude=exclude,
        )

    @classmethod
    def over(
        cls,
        *,
        source: ObjectStore,
        state: ObjectStore,
        format: str,  # noqa: A002 - Auto Loader's word
        exclude: Sequence[str] = (),
        ledger: Ledger | None = None,
    ) -> Intake:
        """Open the state of a source over stores of one's own.

        Args:
            source: The folder the files land in.
            state: The checkpoint location.
            format: `cloudFiles.format`.
            exclude: As for `open`.
            ledger: An index of the file log to use; `None` opens the one in the local cache when
                files are first discovered.
        """
        listing = DirectoryListing(source, [state.uri, *exclude])
        metadata = open_metadata(state, source.uri, format)
        return cls(
            stream_id=metadata.stream_id,
            source=source,
            state=state,
            listing=listing,
            files=FileLog(state),
            ledger=ledger,
        )

    def discover(self) -> Discovered:
        """Record the files that have arrived; append nothing when nothing is new.

        Killed or failing at any point, it leaves each file in at most one entry, and the next call
        records what is missing.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder.
            ListingError: The source could not be listed completely; files found before stay
                recorded.
            StateError: The state cannot be read or written.
        """
        try:
            return self._discover(self._open_ledger())
        except LedgerError as failure:
            logger.warning("%s Rebuilding it from the file log.", failure)
        ledger = self._open_ledger()
        ledger.clear()
        return self._discover(ledger)

    def head(self) -> Offset:
        """Give the position behind everything that is recorded now."""
        return self.files.head()

    def committed(self) -> Offset:
        """Give the position up to which Spark has committed, from its own checkpoint.

        Returns:
            The end of the last committed batch; `START` when none was committed.

        Raises:
            CorruptedStateError: Spark's checkpoint cannot be understood.
        """
        batch = max(_batch_numbers(self.state, "commits"), default=None)
        return START if batch is None else _source_offset(self.state, f"offsets/{batch}")

    def outstanding(self) -> Backlog:
        """Tell what is recorded and not yet committed; discovers nothing."""
        start, end = self.committed(), self.head()
        if start > end:
            msg = (
                f"Spark's checkpoint in {printable_path(self.state.uri)} has committed up to "
                f"{start.to_json()}, but the file log ends at {end.to_json()}. They are not of one "
                f"life; restore the checkpoint location as a whole from a backup."
            )
            raise CorruptedStateError(msg)
        files, size = 0, 0
        for number in range(start.entry, end.entry):
            summary = self.files.summary(number)
            if number == start.entry and start.index > 0:
                rest = self.files.read(number).files[start.index :]
                files += len(rest)
                size += sum(file.size for file in rest)
            elif summary.is_ingested:
                files += summary.files
                size += summary.bytes
        if files == 0:
            return Backlog(0, 0, None, None, ())
        first = islice(self.files.slice(start, end), _SAMPLE_FILES)
        sample = tuple(printable_path(file.path) for file in first)
        return Backlog(files, size, start.entry, end.entry - 1, sample)

    def close(self) -> None:
        """Release the ledger; closing twice does nothing."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self.stream_id, self.files)
        return self._ledger

    def _discover(self, ledger: Ledger) -> Discovered:
        """Steps 1 to 3, in batches of the most that an entry holds."""
        catch_up(ledger, self.files)
        tally = _Tally()
        new = ledger.unseen(tally.counted(self._listing.discover()))
        while batch := list(islice(new, MAX_ENTRY_FILES)):
            self._record(ledger, batch, tally)
        found = tally.discovered()
        logger.info(
            "Listed %d files in %s: %d new, %d bytes",
            found.listed,
            printable_path(self.source.uri),
            found.files,
            found.bytes,
        )
        return found

    def _record(self, ledger: Ledger, batch: list[FileEntry], tally: _Tally) -> None:
        """Append what no entry holds; while others are faster, look again and try again.

        The ledger is caught up before each try. So if entry `caught_up + 1` can be created, all
        entries before it were looked at, and no file of the batch is in any of them.
        """
        while True:
            catch_up(ledger, self.files)
            batch = list(ledger.unseen(batch))
            crash_point("after-dedupe")
            if not batch:
                return
            number = ledger.caught_up + 1
            if self.files.append(number, FileBatch(tuple(batch))):
                catch_up(ledger, self.files)
                crash_point("after-ledger-record")
                tally.add(number, batch)
                return


@dataclass(slots=True)
class _Tally:
    """What a discovery has come to so far; the files themselves are not kept."""

    listed: int = 0
    files: int = 0
    bytes: int = 0
    first_entry: int | None = None
    last_entry: int | None = None
    sample: list[str] = field(default_factory=list)

    def counted(self, listing: Iterator[FileEntry]) -> Iterator[FileEntry]:
        """Pass a listing on and count it."""
        for entry in listing:
            self.listed += 1
            yield entry
        crash_point("after-listing")

    def add(self, number: int, batch: list[FileEntry]) -> None:
        """Count an entry that was appended."""
        self.files += len(batch)
        self.bytes += sum(file.size for file in batch)
        self.first_entry = number if self.first_entry is None else self.first_entry
        self.last_entry = number
        self.sample += [
            printable_path(file.path) for file in batch[: _SAMPLE_FILES - len(self.sample)]
        ]

    def discovered(self) -> Discovered:
        """Give the result."""
        return Discovered(
            listed=self.listed,
            files=self.files,
            bytes=self.bytes,
            first_entry=self.first_entry,
            last_entry=self.last_entry,
            sample=tuple(self.sample),
        )


def _batch_numbers(state: ObjectStore, folder: str) -> list[int]:
    """Numbers of the files in one of Spark's logs; its checksums and temporary files are none."""
    names = (entry.path.removeprefix(folder + "/") for entry in state.list(folder + "/"))
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def _source_offset(state: ObjectStore, key: str) -> Offset:
    """Read our offset from a file of Spark's offset log.

    Its lines are a version, a line of metadata, and one line for each source of the query, `-` for
    a source that has given nothing yet.
    """
    name = state.child_uri(key)
    try:
        lines = state.get(key).decode("utf-8", "replace").splitlines()
    except ObjectNotFoundError as failure:
        msg = (
            f"Spark's checkpoint has committed a batch whose offsets are missing: {name}. Restore "
            f"the checkpoint location as a whole from a backup."
        )
        raise CorruptedStateError(msg) from failure
    if not lines or lines[0] != "v1":
        msg = f"{name} has a format that this version does not know: {lines[:1]}."
        raise IncompatibleStateError(msg)
    for line in lines[2:]:
        offset = _offset_of(line)
        if offset is not None:
            return offset
    if all(line == "-" for line in lines[2:]):
        return START
    msg = f"{name} holds no offset of a cloudFiles source; the checkpoint is another query's."
    raise CorruptedStateError(msg)


def _offset_of(line: str) -> Offset | None:
    """Read one source's line; `None` when it is not ours."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    match value:
        case {"entry": int(entry), "index": int(index)}:
            return Offset(entry, index)
    return None
