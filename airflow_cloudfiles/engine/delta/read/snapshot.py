"""What is a version of a Delta table made of?

The actions of the log (`log`) are applied in their order: the last word on a data file, on the
columns and on the protocol counts. Deleted rows are part of a file's identity: a file whose
deletion vector changes is removed and added in one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.actions import (
    Action,
    AddFile,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    decode,
)
from airflow_cloudfiles.engine.delta.read.checkpoint import CheckpointPart
from airflow_cloudfiles.engine.delta.read.log import LOG, LogListing, LogSegment, list_log
from airflow_cloudfiles.engine.delta.read.paths import decoded, relative_key
from airflow_cloudfiles.engine.delta.read.protocol import require_readable
from airflow_cloudfiles.engine.errors import TargetCorruptedError, TargetNotDeltaError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore

_SIDECARS: Final = LOG + "_sidecars/"
PARALLEL_REQUESTS: Final = 16
"""Files of a log that are read at once."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Snapshot:
    """One version of a table; its files are put together when they are first asked for.

    Attributes:
        target: The table, for messages.
        version: Its number.
        metadata: Its columns and properties.
        protocol: What a program must support.
        checkpoint: Parts of the state that the log begins with.
        commits: Actions of the commits after it, in their order.
    """

    target: str
    version: int
    metadata: Metadata
    protocol: Protocol
    checkpoint: Sequence[CheckpointPart]
    commits: Sequence[Sequence[Action]]

    @property
    def files(self) -> tuple[AddFile, ...]:
        """Its data files."""
        return self._state[0]

    @property
    def removed(self) -> tuple[RemoveFile, ...]:
        """Files that earlier versions have, as far as the log still lists them."""
        return self._state[1]

    @cached_property
    def _state(self) -> tuple[tuple[AddFile, ...], tuple[RemoveFile, ...]]:
        """Apply the commits to the checkpoint, in which every file has its last word."""
        files: dict[FileKey, AddFile] = {}
        removed: dict[FileKey, RemoveFile] = {}
        for part in self.checkpoint:
            files.update((each.key, each) for each in part.files())
            removed.update((each.key, each) for each in part.gone())
        for key in removed.keys() & files.keys():
            del removed[key]
        for commit in self.commits:
            # The order of actions within a commit does not matter.
            for gone in (each.remove for each in commit if each.remove is not None):
                files.pop(gone.key, None)
                removed[gone.key] = gone
            for added in (each.add for each in commit if each.add is not None):
                files[added.key] = added
                removed.pop(added.key, None)
        return tuple(files.values()), tuple(removed.values())


class TableLog:
    """The log of one table.

    Args:
        location: Of the table.
        store: Its files; opened for `location`, unless given.
    """

    def __init__(self, location: DeltaLocation, store: ObjectStore | None = None) -> None:
        self.target = location.target
        self.location = location
        self.store = location.store() if store is None else store

    def listing(self, *, whole: bool = False) -> LogListing:
        """List the log; see `list_log`.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            TargetUnreachableError: Its storage failed, or refused us.
        """
        with self.location.translate_store_errors("cannot be read"):
            found = list_log(self.store, whole=whole)
        if found.latest < 0:
            raise TargetNotDeltaError(
                f"There is no Delta table at {self.target}. Check the path: the folder of a table "
                "has a folder _delta_log with at least one commit."
            )
        return found

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Read a version of the table; the newest, unless one is named.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            UnsupportedTableError: The table needs a feature that is not supported.
            TargetCorruptedError: The log is damaged.
            OptionError: There is no such version, or not any more.
            TargetUnreachableError: Its storage failed, or refused us.
        """
        return self.snapshot_of(
            self.listing(whole=version is not None).segment(self.target, version)
        )

    def snapshot_of(self, segment: LogSegment) -> Snapshot:
        """Read the version that some files of the log make up; see `snapshot`."""
        parts: list[CheckpointPart] = []
        with ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="cloudfiles-delta") as pool:
            if segment.checkpoint is not None:
                parts += pool.map(self._part, segment.checkpoint.files)
                sidecars = [
                    each.sidecar.path
                    for part in parts
                    for each in part.others
                    if each.sidecar is not None
                ]
                parts += pool.map(self._sidecar, sidecars)
            commits = list(pool.map(self.actions, segment.commits))
        said = [*(part.others for part in parts), *commits]
        metadata = _last(each.meta_data for part in said for each in part)
        protocol = _last(each.protocol for part in said for each in part)
        if metadata is None or protocol is None:
            what = "columns (metaData)" if metadata is None else "protocol"
            raise TargetCorruptedError(
                f"The log of the Delta table {self.target} is damaged: version {segment.version} "
                f"has no {what}. Restore the log from a backup."
            )
        require_readable(protocol, self.target)
        return Snapshot(self.target, segment.version, metadata, protocol, parts, commits)

    def actions(self, file: FileEntry) -> Sequence[Action]:
        """Read a commit, a compacted log or a checkpoint in JSON.

        Raises:
            TargetCorruptedError: It is damaged, or gone.
            TargetUnreachableError: The storage failed.
        """
        with self._reading(file):
            content = self.store.get(file.path)
            if not content.strip():
                raise self._damaged(file.path, "it is empty")
            return decode(content)

    def _part(self, file: FileEntry) -> CheckpointPart:
        """Read a checkpoint, or a part of one; errors as `actions`."""
        if file.path.endswith(".json"):
            return CheckpointPart.of_actions(self.actions(file))
        with self._reading(file), StoreFile(self.store, file).random_access() as content:
            return CheckpointPart.read(content)

    @contextmanager
    def _reading(self, file: FileEntry) -> Iterator[None]:
        """Put into a sentence why a file of the log cannot be read."""
        try:
            with self.location.translate_store_errors("cannot be read"):
                yield
        except ObjectNotFoundError as error:
            raise self._damaged(file.path, "it is gone") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException) as error:
            raise self._damaged(file.path, str(error)) from error

    def _sidecar(self, path: str) -> CheckpointPart:
        """Read a file that holds part of a checkpoint."""
        key = relative_key(self.store, path)
        if key == decoded(path):  # not an absolute one
            key = _SIDECARS + key
        if key is None or not key.startswith(_SIDECARS) or ".." in key.split("/"):
            raise self._damaged(path, "it is outside the folder of sidecars")
        with self.location.translate_store_errors("cannot be read"):
            found = self.store.head(key)
        if found is None:
            raise self._damaged(key, "it is gone")
        return self._part(found)

    def _damaged(self, path: str, why: str) -> TargetCorruptedError:
        return TargetCorruptedError(
            f"The log of the Delta table {self.target} is damaged: {path} cannot be read, because "
            f"{why}. Restore it, or the table, from a backup."
        )


def _last(values: Iterable[_T | None]) -> _T | None:
    """The last word on something."""
    found = None
    for value in values:
        found = value or found
    return found
