"""From when on does a state belong to a stream?

From the first file on that it records, and for ever. Before that it belongs to nobody: where a
source is misspelled, or empty, nothing is written that a correction would conflict with. So:

1. Opening a state reads whose it is, and writes nothing.
2. A state that is nobody's is looked at: has the source a file that is to be recorded?
3. If it has, the metadata is written, if nobody was faster, and only then the file log. Of two
   sources at once one is refused, before it has recorded anything.

With `cloudFiles.includeExistingFiles=false` the time of the first start is to be kept: there the
metadata is written as soon as a local source is seen to exist, be it empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.intake.baseline import Baseline
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
from airflow_cloudfiles.engine.intake.results import Discovered
from airflow_cloudfiles.engine.ledger.memory import MemoryLedger
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import claimed_metadata, open_metadata

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
    from airflow_cloudfiles.engine.state.metadata import StreamMetadata
    from airflow_cloudfiles.engine.storage import ObjectStore


class Claim:
    """One stream's claim to a checkpoint location.

    Args:
        state: The checkpoint location.
        source: The folder the files land in.
        name: What the state knows the source by.
        format: `cloudFiles.format`.
        first: Lists the source, without remembering anything in the state.
        include_existing_files: Of the stream; what the state says is what counts.

    Attributes:
        name: What the state knows the source by.
        files: The file log.
        baseline: Distinguishes existing files from new ones; `None` where all are ingested.

    Raises:
        StateConflictError: The state belongs to another source or format.
    """

    def __init__(  # noqa: PLR0913 - what makes a stream
        self,
        state: ObjectStore,
        source: ObjectStore,
        name: str,
        format: str,  # noqa: A002 - Auto Loader's name
        *,
        first: DirectoryListing,
        include_existing_files: bool,
    ) -> None:
        self._state = state
        self._source = source
        self._format = format
        self._include_existing_files = include_existing_files
        self._first = first
        self.name = name
        self.files = FileLog(state)
        self.baseline: Baseline | None = None
        self._metadata: StreamMetadata | None = None
        found = claimed_metadata(state, name, format)
        if found is not None:
            self._accept(found)

    def is_made(self) -> bool:
        """Whether the state is this stream's; it becomes so when there is a file to record.

        Raises:
            SourceNotFoundError: The state is nobody's, and the source does not exist.
            ListingError: The state is nobody's, and the source cannot be listed.
            StateConflictError: Another source was faster.
        """
        if self._metadata is None:
            glance = LedgerRecorder(MemoryLedger(), self.files)
            if not self._include_existing_files:
                self._first.check_source()
                self.take()
            elif self._first.has_new(glance):
                self.take()
        return self._metadata is not None

    def discover_nothing(self) -> Discovered:
        """Say what of a source is left out in which nothing was to be recorded.

        A file that came since is recorded as any other.
        """
        recorder = LedgerRecorder(MemoryLedger(), self.files, check=self.take)
        listing = self._first.run(recorder, full=True)
        return Discovered.of(recorder.recorded, listing, None)

    @property
    def stream_id(self) -> str:
        """Id of the stream, whose the state is from now on.

        Raises:
            StateConflictError: Another source was faster.
        """
        return (self._metadata or self._taken()).stream_id

    def take(self) -> None:
        """Make the state this stream's for ever; doing it again changes nothing.

        Raises:
            StateConflictError: Another source was faster.
        """
        if self._metadata is None:
            self._taken()

    def _taken(self) -> StreamMetadata:
        metadata = open_metadata(
            self._state,
            self.name,
            self._format,
            include_existing_files=self._include_existing_files,
            clock_us=self._source.clock_us,
        )
        self._accept(metadata)
        return metadata

    def _accept(self, metadata: StreamMetadata) -> None:
        self._metadata = metadata
        if not metadata.include_existing_files:
            self.baseline = Baseline(self._source, metadata.started_us, is_first=metadata.is_new)
