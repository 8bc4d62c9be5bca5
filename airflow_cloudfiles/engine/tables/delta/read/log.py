"""Find the files that make up a version of a Delta table's log.

A version is the newest checkpoint at or before it and the commits after that, which must all be
there. Compacted logs stand for the commits that they repeat, where these are gone: a writer that
has not reconciled them would otherwise decide which rows there are. What is incomplete, such as a
checkpoint of several parts of which one is missing or empty, counts as absent.

The path of a file in the log is a URI, below the table or elsewhere.

The log has URIs, percent-encoded: relative to the table's folder as a rule, absolute where a file
was taken over from another table (a shallow clone).

Rows that wait to be merged are in a folder of the table that readers pass over.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.errors import (
    OptionError,
    TargetCorruptedError,
    UnsupportedTableError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.base import UnorderedListingError

LOG: Final = "_delta_log/"
_END: Final = LOG + ":"
"""Behind all numbered files: in the order of bytes `:` follows the digits."""
LAST_CHECKPOINT: Final = LOG + "_last_checkpoint"
_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:"
    r"json|(?P<until>\d{20})\.compacted\.json"
    r"|checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<unique>[0-9a-fA-F-]{36}))?"
    r"\.(?P<kind>parquet|json))"
)


def damaged_log(target: str, what: str) -> TargetCorruptedError:
    """Build the error for a log that contradicts itself, or lacks something."""
    return TargetCorruptedError(
        f"The log of the Delta table {target} is damaged: {what}. Restore the log from a backup."
    )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is complete.

    Attributes:
        version: Of the table.
        files: Its parts, or the one file of it.
    """

    version: int
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that make up one version.

    Attributes:
        version: Of the table.
        checkpoint: Where to begin; `None` for the first commit.
        commits: Commits and compacted logs after it, in their order.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[FileEntry, ...]


@dataclass(slots=True)
class LogListing:
    """What is in the folder of a log.

    Attributes:
        commits: By version.
        compacted: By the first version that each stands for: the last one, and the file.
        checkpoints: Those that are complete, in the order of their versions.
    """

    commits: dict[int, FileEntry] = field(default_factory=dict)
    compacted: dict[int, list[tuple[int, FileEntry]]] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)

    def without(self, damaged: Iterable[Checkpoint]) -> LogListing:
        """Return the listing without some checkpoints."""
        kept = [each for each in self.checkpoints if each not in damaged]
        return replace(self, checkpoints=kept)

    @property
    def latest(self) -> int:
        """The newest version; -1 when there is none."""
        newest = max((each.version for each in self.checkpoints), default=-1)
        return max(newest, max(self.commits, default=-1))

    def segment(self, target: str, version: int | None = None) -> LogSegment:
        """Find the files of a version.

        Args:
            target: The table, for errors.
            version: Of the table; the newest, unless one is named.

        Raises:
            OptionError: The version does not exist, or no longer does.
            TargetCorruptedError: A commit is missing.
        """
        wanted = self.latest if version is None else version
        if not 0 <= wanted <= self.latest:
            raise OptionError(
                f"The Delta table {target} has no version {wanted}: its newest is {self.latest}."
            )
        found = next((each for each in reversed(self.checkpoints) if each.version <= wanted), None)
        start = 0 if found is None else found.version + 1
        return LogSegment(wanted, found, tuple(self._commits(start, wanted, target)))

    def _commits(self, start: int, end: int, target: str) -> Iterator[FileEntry]:
        """Yield the commits of versions; where one is gone, a compacted log that ends in time."""
        at = start
        while at <= end:
            fitting = [each for each in self.compacted.get(at, ()) if each[0] <= end]
            longest = max(fitting, key=lambda each: each[0], default=None)
            stands_for = range(at, at if longest is None else longest[0] + 1)
            if longest is not None and not self.commits.keys() >= set(stands_for):
                at, file = longest[0] + 1, longest[1]
            elif at in self.commits:
                at, file = at + 1, self.commits[at]
            else:
                raise self._missing(at, start, target)
            yield file

    def _missing(self, version: int, start: int, target: str) -> Exception:
        first = min(self.commits, default=0)
        if start == 0 and version < first:
            oldest = self.checkpoints[0].version if self.checkpoints else None
            known = "" if oldest is None else f" The oldest that can be read is {oldest}."
            return OptionError(
                f"The version asked for of the Delta table {target} cannot be read any more: "
                f"commit {version} of its log was removed, and no checkpoint stands for it.{known}"
            )
        what = f"commit {version} is missing, and no checkpoint stands for it"
        return damaged_log(target, what)


def list_log(store: ObjectStore, *, whole: bool = False) -> LogListing:
    """List the log of a table: from its last checkpoint on, or the whole of it.

    Args:
        store: The table.
        whole: Older versions, too.

    Raises:
        OSError: It cannot be listed.
    """
    hint = None if whole else noted_checkpoint(store)
    if hint is not None:
        listing = _classified(_listed(store, f"{LOG}{hint:020}"))
        # A hint may be of a checkpoint that was removed, or whose parts are not all there.
        if any(each.version >= hint for each in listing.checkpoints):
            return listing
    return _classified(_listed(store, LOG))


def is_compacted(file: FileEntry) -> bool:
    """Tell whether a file of a log stands for several commits."""
    return file.path.endswith(".compacted.json")


def list_log_after(store: ObjectStore, version: int) -> LogListing:
    """List what the log has of the versions after one.

    Raises:
        OSError: It cannot be listed.
    """
    return _classified(_listed(store, f"{LOG}{version + 1:020}"))


def _listed(store: ObjectStore, after: str) -> Iterable[FileEntry]:
    try:
        return list(store.list(LOG, start_after=after, end_before=_END))
    except UnorderedListingError:
        return [each for each in store.list(LOG, ordered=False) if after < each.path < _END]


def noted_checkpoint(store: ObjectStore) -> int | None:
    """Read the version of the last checkpoint from the log's own note."""
    try:
        version = json.loads(store.get(LAST_CHECKPOINT))["version"]
    except (ObjectNotFoundError, ValueError, TypeError, KeyError):
        return None  # it is only a hint: the listing says what there is
    return version if isinstance(version, int) and version >= 0 else None


def _classified(files: Iterable[FileEntry]) -> LogListing:
    found = LogListing()
    parts: dict[tuple[int, str], dict[int, FileEntry]] = {}
    for file in files:
        match = _NAME.fullmatch(file.path.removeprefix(LOG))
        if match is None:
            continue
        version = int(match["version"])
        if match["until"]:
            found.compacted.setdefault(version, []).append((int(match["until"]), file))
        elif match["kind"] is None:
            found.commits[version] = file
        elif file.size:
            which = version, match["parts"] or match["unique"] or ""
            parts.setdefault(which, {})[int(match["part"] or 1)] = file
    for version, group in sorted(parts):
        by_part = parts[version, group]
        wanted = int(group) if group.isdigit() else 1
        if sorted(by_part) == list(range(1, wanted + 1)):
            files_of_it = tuple(by_part[part] for part in sorted(by_part))
            found.checkpoints.append(Checkpoint(version, files_of_it))
    return found


_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def decoded(path: str) -> str:
    """Decode a path of the log to the name it stands for."""
    return unquote(path, errors="surrogateescape") if "%" in path else path


def relative_key(store: ObjectStore, path: str) -> str | None:
    """Find the key that a path in the log has below the table; `None` when it is elsewhere.

    Args:
        store: The table's files.
        path: As the log has it.
    """
    name = decoded(path)
    return store.key_of(name) or None if _ABSOLUTE.match(path) else name


def locate(store: ObjectStore, path: str, target: str) -> tuple[ObjectStore, str]:
    """Find the store and the key of a path in the log, below the table or elsewhere.

    Args:
        store: The table's files.
        path: As the log has it.
        target: The table, for errors.

    Raises:
        UnsupportedTableError: The file is on a storage of another kind than the table.
        TargetCorruptedError: The path names no file.
    """
    key = relative_key(store, path)
    if key is not None:
        if any(part in {"", ".", ".."} for part in key.split("/")):
            raise damaged_log(target, f"{path!r} names no file of it")
        return store, key
    uri = normalize_uri(decoded(path))
    folder, _, name = uri.rpartition("/")
    if folder.endswith("/") or not name:
        raise damaged_log(target, f"{path!r} names no file of it")
    if uri.partition(":")[0] != store.uri.partition(":")[0]:
        raise UnsupportedTableError(
            f"The Delta table {target} has a file on a storage of another kind ({path}), which is "
            "not read. Copy the table to one storage."
        )
    return open_store(folder), name


STAGED: Final = "_cloudfiles_staged/"
"""A folder of the table that is hidden from readers. `cloudfiles table vacuum` removes what a
killed run has left there."""
