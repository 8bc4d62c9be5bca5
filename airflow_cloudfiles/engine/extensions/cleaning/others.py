"""Find what the other streams of the same source have not committed yet.

A stream knows nothing of others that read its source, unless it is given their checkpoint locations
(`cloudFiles.cleanSource.otherCheckpoints`). Of each, three things are read, in this order: its
index of the file log; how far it is committed; the files in between. A file is done with when the
index has this version of it and it is not in between. So a file that the other stream has not
discovered stays, too. Whatever cannot be read, or does not fit together, stops the cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from airflow_cloudfiles.engine.discovery.globs import SourcePattern, split_pattern
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.files import FileEntry, Offset, printable_path
from airflow_cloudfiles.engine.intake.file_states import FileQuery, FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.ledger.opening import open_ledger
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import is_version

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger
    from airflow_cloudfiles.engine.storage import ObjectStore

_HELD: Final = FileQuery(status=("skipped", "quarantined"))
VerifyState = Callable[["ObjectStore"], None]
"""Raises when the table of a state's stream lacks batches that are committed."""


class OtherStream:
    """Another stream that reads the source.

    Args:
        location: Its checkpoint location.
        root: URI of the folder that paths are relative to in the stream that is cleaned.
        verify: Whether its table has its batches.

    Raises:
        StateError: There is no state, or it cannot be read.
        CorruptedStateError: It is damaged.
        LostBatchesError: Its table has lost batches, for which their files are needed.
    """

    def __init__(self, location: str, root: str, verify: VerifyState) -> None:
        state = open_store(location)
        metadata = read_metadata(state)
        if metadata is None:
            raise StateError(
                f"There is no state in {printable_path(state.uri)}, which "
                "cloudFiles.cleanSource.otherCheckpoints names. Name the checkpoint location of a "
                "cloudFiles stream that has been started, or remove it."
            )
        verify(state)
        self.source = metadata.source
        folder, pattern = _parts(metadata.source)
        self._folder = open_store(folder)
        self._below = open_store(root).key_of(folder)
        self._above = self._folder.key_of(root)
        if self._below is None and self._above is None:
            raise OptionError(
                f"The stream in {printable_path(state.uri)}, which "
                "cloudFiles.cleanSource.otherCheckpoints names, does not read this source: its own "
                f"is {printable_path(metadata.source)}. Remove it, or name the checkpoint location "
                "that was meant."
            )
        self._patterns = (
            [SourcePattern(pattern, strict=each) for each in (True, False)] if pattern else []
        )
        self._files = FileLog(state)
        self._ledger: Ledger = open_ledger(metadata.stream_id, self._files)
        try:
            committed = position(state).end
            end = Offset(self._ledger.caught_up + 1, 0)
            between = self._files.slice(committed, end) if committed < end else ()
            self._outstanding = {file.path for file in between}
            if metadata.has_operations:  # what is put aside there may be released
                held = FileStates(StateSnapshot.take(location), _HELD).operated()
                self._outstanding |= {file.path for group in held for file in group.files}
        except BaseException:
            self.close()
            raise

    def may_hold(self, location: str) -> bool:
        """Tell whether the stream might ingest what is below a location."""
        folder = self._folder.key_of(location)
        if folder is None:
            return open_store(location).key_of(self._folder.uri) is not None
        return (
            not folder
            or not self._patterns
            or any(each.may_hold(folder) for each in self._patterns)
        )

    def not_done(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files that the stream reads, and has not committed."""
        theirs = {self._theirs(file): file for file in files}
        concerned = {entry: file for entry, file in theirs.items() if entry is not None}
        # A time may differ where one stream lists the files and the other is notified of them.
        unseen = self._not_recorded(list(self._ledger.unseen(concerned, versions=True)))
        waits = unseen | {each for each in concerned if each.path in self._outstanding}
        return {concerned[each] for each in waits}

    def _not_recorded(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files of which the newest record has another size or etag."""
        by_entry: dict[int | None, list[FileEntry]] = {}
        for file in files:
            by_entry.setdefault(self._ledger.entry_of(file.path), []).append(file)
        missing = set(by_entry.pop(None, ()))
        for number, some in by_entry.items():
            recorded = {each.path: each for each in self._files.read(number or 0).files}
            missing |= {each for each in some if not _has_etag(recorded.get(each.path), each)}
        return missing

    def _theirs(self, file: FileEntry) -> FileEntry | None:
        """Give a file as the stream knows it; `None` if it does not read it."""
        path = file.path
        if self._above:
            path = f"{self._above}/{path}"
        elif self._below:
            if not path.startswith(f"{self._below}/"):
                return None
            path = path[len(self._below) + 1 :]
        if self._patterns and not any(each.matches(path) for each in self._patterns):
            return None
        return FileEntry(path, file.size, file.modification_time_us, file.etag)

    def close(self) -> None:
        """Free its index."""
        self._ledger.close()


class OtherStreams:
    """All streams that were named; a context manager.

    Args:
        locations: Their checkpoint locations.
        root: As in `OtherStream`.
        verify: As in `OtherStream`.
    """

    def __init__(self, locations: Sequence[str], root: str, verify: VerifyState) -> None:
        self._opened = ExitStack()
        self._streams: list[OtherStream] = []
        with ExitStack() as opening:
            for location in locations:
                self._streams.append(OtherStream(location, root, verify))
                opening.callback(self._streams[-1].close)
            self._opened = opening.pop_all()

    def refuse_destination(self, destination: str) -> None:
        """Refuse to move files to where one of the streams would ingest them again.

        Raises:
            OptionError: It would.
        """
        for each in self._streams:
            if each.may_hold(destination):
                raise OptionError(
                    f"cloudFiles.cleanSource.moveDestination={destination} is where another stream "
                    f"finds its files: its source is {printable_path(each.source)}. Give a folder "
                    "outside of it."
                )

    def not_done(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files that one of the streams has not committed."""
        return {file for each in self._streams for file in each.not_done(files)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free their indexes."""
        self._opened.close()


def _has_etag(recorded: FileEntry | None, file: FileEntry) -> bool:
    """Tell whether a record is of a version, whatever its time."""
    return recorded is not None and bool(file.etag) and is_version(recorded, file)


def _parts(source: str) -> tuple[str, str | None]:
    """Split a source, as its state has it, into its folder and its pattern."""
    try:
        return split_pattern(source)
    except OptionError:  # the name of a folder, which is no pattern
        return source, None
