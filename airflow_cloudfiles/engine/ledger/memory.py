"""What is the least a ledger can be?

The reference implementation: a dictionary. For tests, and for states in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.ledger.format import path_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.ledger.file_log import FileBatch


class MemoryLedger:
    """A `Ledger` in memory."""

    def __init__(self) -> None:
        self._entry_of: dict[str, int] = {}
        self._caught_up = -1
        self._caught_up_id = ""

    @property
    def caught_up(self) -> int:
        """Number of the last entry in the index; -1 for none."""
        return self._caught_up

    @property
    def caught_up_id(self) -> str:
        """Id of the writing of that entry."""
        return self._caught_up_id

    def unseen(self, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Give the files that are in no entry."""
        before = b""
        for entry in entries:
            key = path_key(entry.path)
            if key <= before:
                msg = f"not in ascending order: {entry.path!r}"
                raise ValueError(msg)
            before = key
            if entry.path not in self._entry_of:
                yield entry

    def record(self, number: int, entry_id: str, batch: FileBatch) -> None:
        """Add an entry of the file log."""
        if number != self._caught_up + 1:
            msg = f"entry {number} does not follow entry {self._caught_up}"
            raise ValueError(msg)
        self._entry_of.update((file.path, number) for file in batch.files)
        self._caught_up, self._caught_up_id = number, entry_id

    def clear(self) -> None:
        """Forget everything."""
        self._entry_of.clear()
        self._caught_up, self._caught_up_id = -1, ""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
