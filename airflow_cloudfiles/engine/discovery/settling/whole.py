"""Which files of a source are whole now, for whoever keeps no state?

A batch read and an inference cannot let a file wait and come back to it. They leave it out, and say
which files they have left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.settling.settling import Settling, WaitingReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore


class WholeFiles:
    """Lists the files of a source that are whole.

    Args:
        source: The source.
        wanted: Which of its files are input.
        options: `minFileAge`, `completionMarker`.

    Raises:
        ListingError: The store does not report its time.
    """

    def __init__(self, source: ObjectStore, wanted: FileFilter, options: DiscoveryOptions) -> None:
        self._listing = DirectoryListing(source, wanted)
        self._settling = Settling.if_asked(source, None, options, wanted)

    def discover(self) -> Iterator[FileEntry]:
        """List them, as `DirectoryListing.discover` does."""
        found = self._listing.discover()
        return found if self._settling is None else self._settling.of_listing(found)

    def left_out(self) -> WaitingReport:
        """Say what was listed so far and is not whole."""
        return WaitingReport() if self._settling is None else self._settling.report()
