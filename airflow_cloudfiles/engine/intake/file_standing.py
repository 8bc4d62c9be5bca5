"""Tell how far a file is, and which file a text means, for operations on files.

A path relative to the source, or a URI, character by character: in a name, `%20`, `+` and `=` are
themselves. A URI that names no file may also be written as the column `_metadata.file_path` has it,
percent-encoded. What names nothing is an error that names the nearest file that is known.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.discovery.base import head_of
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, printable_path
from airflow_cloudfiles.engine.state.operations import HOLDING, Operation
from airflow_cloudfiles.engine.storage import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.state.sink_log import Position
    from airflow_cloudfiles.engine.storage import ObjectStore

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NEIGHBOURS: Final = 40
"""Files that are compared with a wrong name, from each of some places in the order of names."""


class FileNames:
    """The names of the files of a stream.

    Args:
        ledger: The index of its file log.
        source: The folder that paths are relative to.
    """

    def __init__(self, ledger: Ledger, source: ObjectStore) -> None:
        self._ledger = ledger
        self._source = source

    def find(self, text: str) -> str:
        """Give the path of the file that a text means, which is recorded or in the source.

        Raises:
            OptionError: It means none; names the nearest one that is recorded.
            ListingError: The source does not answer.
        """
        candidates = list(dict.fromkeys(self._candidates(text)))
        for path in candidates:
            if self._ledger.entry_of(path) is not None:
                return path
        for path in candidates:
            if self.look(path) is not None:
                return path
        raise self._unknown(text, candidates)

    def look(self, path: str) -> FileEntry | None:
        """Look at a file in the source; `None` where it is gone.

        Raises:
            ListingError: The source does not answer.
        """
        return head_of(self._source, path) if self._may_be_key(path) else None

    def uri(self, path: str) -> str:
        """Build the URI of a file, for people."""
        return printable_path(self._source.child_uri(path))

    def _candidates(self, text: str) -> Iterator[str]:
        """Yield what a text may mean, the most literal reading first."""
        if not text:
            return
        root = self._source.uri.rstrip("/") + "/"
        is_local = root.startswith("file:")
        if not _URI.match(text) and not (is_local and text.startswith("/")):
            yield text
            return
        for each in (text, unquote(text, errors="surrogateescape")):
            if each.startswith(root):
                yield each[len(root) :]
            try:
                whole = normalize_uri(each)
            except OptionError:
                continue
            if whole.startswith(root):
                yield whole[len(root) :]

    def _may_be_key(self, path: str) -> bool:
        """Tell whether a path cannot lead out of a folder on a disk."""
        is_local = self._source.uri.startswith("file:")
        parts = path.split("/")
        return "\0" not in path and not (is_local and {"", ".", ".."} & set(parts))

    def _unknown(self, text: str, candidates: list[str]) -> OptionError:
        source = printable_path(self._source.uri)
        shown = printable_path(text)
        if not candidates:
            return OptionError(
                f"{shown!r} is not below the source {source}. Give a path below it, or one "
                "relative to it."
            )
        near = difflib.get_close_matches(candidates[0], self._around(candidates[0]), n=1, cutoff=0)
        hint = f" The nearest file that is recorded is {printable_path(near[0])!r}." if near else ""
        return OptionError(
            f"{shown!r} is no file of this stream: it is neither recorded nor in the source "
            f"{source}.{hint} Paths are relative to the source, or whole URIs, and written exactly "
            "as the file is named."
        )

    def _around(self, path: str) -> list[str]:
        """Files whose names begin as a path does, or as parts of it."""
        length, found = len(path), dict[str, None]()
        for begin in dict.fromkeys((length, length * 2 // 3, length // 3, 0)):
            at: str | None = path[:begin]
            before = self._ledger.last(before=at) if at else None
            if before is not None:
                found[before] = None
            for _ in range(_NEIGHBOURS):
                at = None if at is None else self._ledger.first_after(at)
                if at is not None:
                    found[at] = None
        return list(found)


HELD_AS: Final = {"skip": "skipped", "quarantine": "quarantined"}


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a file is.

    Attributes:
        path: Its path.
        newest: Where its newest record is; `None` where it has none.
        file: The version of that record.
        found_by: How that record came into the file log.
        planned: Records that a micro-batch has which is not committed.
        waiting: Records that are in no micro-batch yet.
        held: The operation that keeps its newest record from being ingested.
        kept_out: All records that this operation keeps from being ingested.
    """

    path: str
    newest: Offset | None = None
    file: FileEntry | None = None
    found_by: str = ""
    planned: tuple[Offset, ...] = ()
    waiting: tuple[Offset, ...] = ()
    held: Operation | None = None
    kept_out: tuple[Offset, ...] = ()

    @property
    def is_existing(self) -> bool:
        """Whether it was there before the first start."""
        return self.found_by == "existing"

    @property
    def is_duplicate(self) -> bool:
        """Whether its content is that of another file, which stands for both."""
        return self.found_by == "duplicate"


class Standings:
    """How far files are.

    Args:
        files: The file log.
        plans: The plan log.
        ledger: The index, caught up.
        committed: How far the stream is committed.
    """

    def __init__(self, files: FileLog, plans: PlanLog, ledger: Ledger, committed: Position) -> None:
        latest = plans.latest()
        self._files = files
        self._ledger = ledger
        self._committed = committed.end
        self._planned = START if latest is None else latest.end
        self._excluded = files.operations.excluded()
        self._paths: dict[int, dict[str, list[Offset]]] = {}

    def of(self, paths: Sequence[str]) -> Iterator[Standing]:
        """Give them in the order of the paths."""
        entries = {path: self._ledger.entry_of(path) for path in paths}
        newest = self._newest(entries)
        open_paths = {
            path
            for path, number in entries.items()
            if number is not None and number >= self._committed.entry
        }
        outstanding = self._outstanding(open_paths)
        for path in paths:
            if path not in newest:
                yield Standing(path)
                continue
            at, file = newest[path]
            summary = self._files.summary(at.entry)
            held = self._excluded.get(at.entry, {}).get(at.index)
            if held is None and summary.found_by in HOLDING:
                held = summary.operation
            left = outstanding.get(path, ())
            yield Standing(
                path,
                at,
                file,
                summary.found_by,
                planned=tuple(each for each in left if each < self._planned),
                waiting=tuple(each for each in left if each >= self._planned),
                held=held,
                kept_out=() if held is None else self._kept_out(path, at, held),
            )

    def _newest(self, entries: dict[str, int | None]) -> dict[str, tuple[Offset, FileEntry]]:
        """Find where the newest record of each file is."""
        by_entry: dict[int, set[str]] = {}
        for path, number in entries.items():
            if number is not None:
                by_entry.setdefault(number, set()).add(path)
        return {
            file.path: (Offset(number, index), file)
            for number, paths in by_entry.items()
            for index, file in enumerate(self._files.read(number).files)
            if file.path in paths
        }

    def _outstanding(self, paths: set[str]) -> dict[str, list[Offset]]:
        """Find which records of files are to be ingested, and not committed."""
        found: dict[str, list[Offset]] = {}
        for number in range(self._committed.entry, self._files.head().entry if paths else 0):
            if not self._files.summary(number).is_ingested:
                continue
            out = self._excluded.get(number, ())
            for index, file in enumerate(self._files.read(number).files):
                at = Offset(number, index)
                if file.path in paths and index not in out and at >= self._committed:
                    found.setdefault(file.path, []).append(at)
        return found

    def _kept_out(self, path: str, newest: Offset, held: Operation) -> tuple[Offset, ...]:
        """Find which records of a file an operation keeps from being ingested."""
        if held.number not in self._paths:
            by_entry: dict[int, list[int]] = {}
            for at in held.excluded:
                by_entry.setdefault(at.entry, []).append(at.index)
            found: dict[str, list[Offset]] = {}
            for number, indexes in by_entry.items():
                files = self._files.read(number).files
                for index in indexes:
                    found.setdefault(files[index].path, []).append(Offset(number, index))
            self._paths[held.number] = found
        return tuple(self._paths[held.number].get(path, [newest]))
