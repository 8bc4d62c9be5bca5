"""Find the files of a source that a table has as data files, for what may harm them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import SinkError, TargetNotDeltaError
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.log import relative_key
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile


class RegisteredFiles:
    """The data files of the newest version of a table that lie in a source.

    Args:
        state: Of a stream: its records say which table it fills.
        source: What the state knows its source by.

    Attributes:
        target: The table; empty where the source is not below one.

    Raises:
        SinkError: The table cannot be read.
    """

    def __init__(self, state: ObjectStore, source: str) -> None:
        self.target, self._files, self._folder, self._id = "", {}, "", ""
        record = SinkLog(state).newest()
        if record is None or not record.target or target_of(record.target).layer != "delta":
            return
        location = DeltaLocation.to_read(record.target)
        self._store = location.store()
        folder = self._store.key_of(normalize_uri(split_pattern(source)[0]))
        if not folder:
            return
        self.target, self._folder = record.target, f"{folder}/"
        try:
            snapshot = TableLog(location).snapshot()
        except TargetNotDeltaError:  # it was deleted
            return
        self._id = snapshot.metadata.id
        keyed = ((relative_key(self._store, each.path), each) for each in snapshot.files)
        self._files = {key: file for key, file in keyed if key and key.startswith(self._folder)}

    def __len__(self) -> int:
        return len(self._files)

    def has_moved_along(self, source: str) -> bool:
        """Tell whether another place of the source lies below a copy of the table, as this one.

        Args:
            source: URI of the place, without a pattern.
        """
        root = f"{source.rstrip('/')}/"
        if not root.endswith(f"/{self._folder}"):
            return False
        with suppress(SinkError):
            copy = TableLog(DeltaLocation.to_read(root.removesuffix(f"/{self._folder}")))
            return copy.snapshot().metadata.id == self._id
        return False

    def changed(self) -> Iterator[tuple[str, str]]:
        """Yield the files that are not as they were registered, and what is wrong with each.

        One listing of the source tells it: a file that was written again has another size or
        another modification time.
        """
        left = dict(self._files)
        for there in self._store.list(self._folder, ordered=False) if left else ():
            file = left.pop(there.path, None)
            if file is not None and not _is_same(file, there.size, there.modification_time_us):
                problem = (
                    f"It was written again since it was registered as a data file of "
                    f"{self.target}, which has {file.size} bytes of it: the rows of that table "
                    "are not what was ingested, or cannot be read. Put the file back as it was."
                )
                yield self._store.child_uri(there.path), problem
        for key in left:
            problem = (
                f"It is gone, and a data file of {self.target}, which cannot be read without it. "
                "Put it back."
            )
            yield self._store.child_uri(key), problem


def _is_same(file: AddFile, size: int, time_us: int) -> bool:
    return file.size == size and file.modification_time == time_us // 1000
