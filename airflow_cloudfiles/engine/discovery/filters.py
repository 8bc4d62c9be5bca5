"""Decide which of the files below a source are input, and which wait for a completion marker.

One `FileFilter` decides, for files that were listed and for files that a notification names: so
both ways ingest the same files. A listing asks it early (`skip`), to leave out folders unseen.

`cloudFiles.completionMarker` with `{name}` means a marker beside each file: `a.json.done` for
`a.json`. A name without it means one for a folder: it stands for the files in its folder and in the
folders below, so a file is complete when there is one in its folder or in a folder above it.

A full listing passes the markers on its way to the files, so most of them need no request. What it
has passed is kept for each thread (`PassedMarkers`), as each reads another range of keys.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.globs import (
    Glob,
    NamePatterns,
    SourcePattern,
    compile_name,
    compile_path,
)
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.options.discovery import (
    IN_PROGRESS_NAMES,
    MARKED_NAME,
    DiscoveryOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class CompletionMarker:
    """A kind of markers.

    Attributes:
        pattern: `cloudFiles.completionMarker`.
    """

    pattern: str

    @property
    def is_of_folder(self) -> bool:
        """Whether a marker stands for the files of a folder."""
        return MARKED_NAME not in self.pattern

    def is_marker(self, key: str) -> bool:
        """Tell whether a file is a marker, by its name."""
        name = key.rpartition("/")[2]
        return name == self.pattern if self.is_of_folder else bool(self._marked(name))

    def file_of(self, key: str) -> str:
        """Give the key of the file that a marker beside it stands for."""
        folder, slash, name = key.rpartition("/")
        return folder + slash + self._marked(name)

    def markers_of(self, key: str) -> tuple[str, ...]:
        """Give the keys of the markers of which a file needs one, the nearest first."""
        folder, slash, name = key.rpartition("/")
        if not self.is_of_folder:
            return (folder + slash + self.pattern.replace(MARKED_NAME, name, 1),)
        found = []
        while folder:
            found.append(f"{folder}/{self.pattern}")
            folder = folder.rpartition("/")[0]
        return (*found, self.pattern)

    def _marked(self, name: str) -> str:
        """Find the name that a marker's name has in it; empty where it is not a marker."""
        before, _, after = self.pattern.partition(MARKED_NAME)
        is_marker = name.startswith(before) and name.endswith(after)
        return name[len(before) : len(name) - len(after)] if is_marker else ""


@dataclass(slots=True)
class ListedFiles:
    """What one thread has listed since it was asked last.

    Attributes:
        first: The first key.
        last: The last key.
        markers: The markers in between, by their keys.
    """

    first: str = ""
    last: str = ""
    markers: dict[str, FileEntry] = field(default_factory=dict)

    def is_absent(self, key: str, order: Callable[[str], Any]) -> bool:
        """Tell whether a marker would have been listed, and was not.

        Args:
            key: Of the marker.
            order: What keys are compared by where they are listed.
        """
        if not self.last or key in self.markers:
            return False
        return bool(order(self.first) <= order(key) <= order(self.last))


class PassedMarkers(threading.local):
    """Collects the markers that a listing passes, in each thread for itself.

    Args:
        marker: The kind of markers; `None`: nothing is collected.
    """

    def __init__(self, marker: CompletionMarker | None) -> None:
        super().__init__()
        self._marker = marker
        self._passed = ListedFiles()

    def see(self, entry: FileEntry) -> None:
        """Take note of a file that was listed, in the order of the listing."""
        if self._marker is None:
            return
        passed = self._passed
        passed.first = passed.first or entry.path
        passed.last = entry.path
        if self._marker.is_marker(entry.path):
            passed.markers[entry.path] = entry

    def take(self) -> ListedFiles:
        """Give what this thread has passed, and begin anew behind it."""
        passed, self._passed = self._passed, ListedFiles()
        return passed


HIDDEN = "hidden name"
MARK = "mark of a folder"
EXCLUDED = "checkpoint, schemas or target"
NOT_IN_PATTERN = "not in the pattern of the path"
NOT_IN_NAME_FILTER = "not in pathGlobFilter"
TOO_EARLY = "not after modifiedAfter"
TOO_LATE = "not before modifiedBefore"
TOO_OLD = "older than maxFileAge"
IN_PROGRESS = "in inProgressNames"
MARKER = "completionMarker"


def is_hidden(name: str) -> bool:
    """Tell whether Hadoop and Spark ignore a file or folder of this name (B91).

    References:
        `HadoopFSUtils.shouldFilterOutPathName` in Apache Spark; `FOLDER_SUFFIX` of Hadoop's
        `NativeS3FileSystem`, whose marks of folders EMR still writes.
    """
    return (name.startswith(".") or (name.startswith("_") and "=" not in name)) or name.endswith(
        ("._COPYING_", "_$folder$")
    )


def is_member_input(name: str, pattern: Glob | None) -> bool:
    """Tell whether a member of an archive is input: by the same names as files of a folder.

    Args:
        name: Its path in the archive.
        pattern: `archivePathFilter`.
    """
    parts = name.split("/")
    if any(is_hidden(each) for each in parts if each != ".."):
        return False
    return pattern is None or pattern.matches(name)


class FileFilter:
    """Decides which files below a folder are input. Safe to use from several threads.

    Args:
        root: URI of the folder that is listed.
        pattern: What follows it in the source path (`split_pattern`); `None` for everything.
        options: `pathGlobFilter`, `modifiedAfter` and `modifiedBefore`, `maxFileAge`,
            `useStrictGlobber`, `inProgressNames`, `completionMarker`.
        exclude_keys: Keys that are left out with all that is below them: the checkpoint, the schema
            location, the target. Those that are not below the root are `None`.
        clock: Seconds since 1970; for `maxFileAge`.

    Attributes:
        marker: The kind of completion markers; `None` where none is asked for.
        passed: The markers that were passed.
        prefix: How the key of every file that is input begins.
        known_from_us: Files modified before this are left out where `maxFileAge` is set, whatever
            the clock says: the index may have forgotten them.
        rejected: How many files were left out, by reason. Files in a folder that a listing did not
            look into are not counted.

    Raises:
        OptionError: A pattern cannot be read, or what is to be left out is the source itself.
    """

    def __init__(
        self,
        root: str,
        pattern: str | None,
        options: DiscoveryOptions,
        exclude_keys: Iterable[str | None] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = root
        self.pattern = pattern
        self.rejected: Counter[str] = Counter()
        self.known_from_us = 0
        self._options = options
        self._excluded = frozenset(key for key in exclude_keys if key is not None)
        self._clock = clock
        self._source = (
            None if pattern is None else SourcePattern(pattern, strict=options.use_strict_globber)
        )
        glob = options.path_glob_filter
        self._name = None if glob is None else compile_name(glob)
        if options.archive_path_filter is not None:
            compile_path(options.archive_path_filter)  # refused before an archive is read
        given = options.in_progress_names
        self._in_progress = NamePatterns(IN_PROGRESS_NAMES if given is None else given)
        marker = options.completion_marker
        self.marker = None if marker is None else CompletionMarker(marker)
        self.passed = PassedMarkers(self.marker)
        self._lock = threading.Lock()
        self.prefix = "" if self._source is None else self._source.prefix
        self._looks_at_time = (
            options.modified_after_us is not None
            or options.modified_before_us is not None
            or options.max_file_age_seconds is not None
        )
        if "" in self._excluded:
            raise OptionError(
                f"{printable_path(root)!r} is the source folder itself, whose files would be "
                f"ingested again and again. Use another folder for the checkpoint, the schemas "
                f"and the target."
            )

    @property
    def fingerprint(self) -> str:
        """A text that is another one when other files may be input."""
        options = self._options
        given = options.in_progress_names  # with the default, no source is to be listed anew
        others = () if given is None else (list(self._in_progress.patterns),)
        waits: list[object] = [options.min_file_age_seconds is not None, options.completion_marker]
        waits += ["archived"] if options.on_archived_file == "wait" else []
        return repr(
            (
                self.root,
                self.pattern,
                options.use_strict_globber,
                options.path_glob_filter,
                options.modified_after_us,
                options.modified_before_us,
                options.max_file_age_seconds,
                sorted(self._excluded),
                *others,
                *(waits if options.waits else ()),
            )
        )

    def oldest_us(self) -> int | None:
        """Find the time (microseconds since 1970) before which files are too old, or `None`."""
        age = self._options.max_file_age_seconds
        return None if age is None else int((self._clock() - age) * 1_000_000)

    def skip(self, key: str, is_folder: bool) -> bool:  # noqa: FBT001 - the protocol's SkipRule
        """Leave out a file by its name, or a folder with all that is below it.

        For a file only its own name is checked: the listing has asked for the folders above.
        """
        if is_folder:
            return self.skip_folder(key, is_folder)
        reason = self._name_reason(key)
        if reason is not None:
            self._count(reason)
        return reason is not None

    def skip_folder(self, key: str, is_folder: bool) -> bool:  # noqa: FBT001 - as `skip`
        """Do the same as `skip`, but leave out no single files: `accepts_in_folder` decides."""
        return is_folder and (
            is_hidden(key.rpartition("/")[2])
            or key in self._excluded
            or (self._source is not None and not self._source.may_hold(key))
        )

    def accepts_in_folder(self, entry: FileEntry) -> bool:
        """Tell whether a file is input, in a folder that a listing did not leave out."""
        self.passed.see(entry)
        is_mark = entry.size == 0 and entry.path.endswith("/")
        reason = MARK if is_mark else self._name_reason(entry.path)
        if reason is None and self._looks_at_time:
            reason = self._time_reason(entry)
        if reason is not None:
            self._count(reason)
        return reason is None

    def accepts(self, entry: FileEntry) -> bool:
        """Tell whether a file is input, wherever it is and however it was found."""
        reason = self._folder_reason(entry.path)
        if reason is not None:
            self._count(reason)
            return False
        return self.accepts_in_folder(entry)

    def _folder_reason(self, key: str) -> str | None:
        """Say why a file is left out because of a folder it is in."""
        end = key.find("/")
        while end >= 0:
            folder = key[:end]
            if folder in self._excluded:
                return EXCLUDED
            if is_hidden(folder.rpartition("/")[2]):
                return HIDDEN
            end = key.find("/", end + 1)
        return None

    def _name_reason(self, key: str) -> str | None:
        """Say why a file is left out because of its own name."""
        name = key.rpartition("/")[2]
        if is_hidden(name):
            return HIDDEN
        if key in self._excluded:
            return EXCLUDED
        return self._unfinished_reason(key, name) or self._unmatched_reason(key, name)

    def _unfinished_reason(self, key: str, name: str) -> str | None:
        """Say why a name is not, or not yet, that of a file to ingest."""
        if self.marker is not None and self.marker.is_marker(key):
            return MARKER
        return IN_PROGRESS if self._in_progress.match(name) else None

    def _unmatched_reason(self, key: str, name: str) -> str | None:
        """Say why a name is not one that was asked for."""
        if self._source is not None and not self._source.matches(key):
            return NOT_IN_PATTERN
        if self._name is not None and not self._name.matches(name):
            return NOT_IN_NAME_FILTER
        return None

    def _time_reason(self, entry: FileEntry) -> str | None:
        """Say why a file is left out because of its modification time."""
        options, modified = self._options, entry.modification_time_us
        if options.modified_after_us is not None and modified <= options.modified_after_us:
            return TOO_EARLY
        if options.modified_before_us is not None and modified >= options.modified_before_us:
            return TOO_LATE
        oldest_us = self.oldest_us()
        if oldest_us is not None and modified < max(oldest_us, self.known_from_us):
            return TOO_OLD
        return None

    def _count(self, reason: str) -> None:
        with self._lock:
            self.rejected[reason] += 1
