"""How far is a file, as an operation on it has to know?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.state.operations import HOLDING, Operation

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.ledger.base import Ledger
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.state.sink_log import Position

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
        """Where the newest record of each file is."""
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
        """Which records of files are to be ingested, and not committed."""
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
        """Which records of a file an operation keeps from being ingested."""
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
