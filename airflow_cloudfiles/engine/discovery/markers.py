"""Which file does a completion marker stand for, and which markers does a file need?

`cloudFiles.completionMarker` with `{name}` means a marker beside each file: `a.json.done` for
`a.json`. A name without it means one for a folder: it stands for the files in its folder and in the
folders below, so a file is complete when there is one in its folder or in a folder above it.

A full listing passes the markers on its way to the files, so most of them need no request. What it
has passed is kept for each thread (`PassedMarkers`), as each reads another range of keys.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.options.discovery import MARKED_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.files import FileEntry


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
        """Whether a file is a marker, by its name."""
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
        """The name that a marker's name has in it; empty where it is no marker."""
        before, _, after = self.pattern.partition(MARKED_NAME)
        is_marker = name.startswith(before) and name.endswith(after)
        return name[len(before) : len(name) - len(after)] if is_marker else ""


@dataclass(slots=True)
class Passed:
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
        """Whether a marker would have been listed, and was not.

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
        self._passed = Passed()

    def see(self, entry: FileEntry) -> None:
        """Take note of a file that was listed, in the order of the listing."""
        if self._marker is None:
            return
        passed = self._passed
        passed.first = passed.first or entry.path
        passed.last = entry.path
        if self._marker.is_marker(entry.path):
            passed.markers[entry.path] = entry

    def take(self) -> Passed:
        """Give what this thread has passed, and begin anew behind it."""
        passed, self._passed = self._passed, Passed()
        return passed
