"""Which files are in the folder now?

A full listing of the source, in byte order of the keys. It is complete or it fails: a folder that
cannot be read is an error, never a gap.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import ListingError, OptionError, SourceNotFoundError
from airflow_cloudfiles.engine.files import FileEntry, printable_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_cloudfiles.engine.storage import ObjectStore

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 5.0
_GLOB = frozenset("*?[{")


def is_hidden(name: str) -> bool:
    """Tell whether Hadoop and Spark ignore a file or folder of this name (B91).

    References:
        `HadoopFSUtils.shouldFilterOutPathName` in Apache Spark.
    """
    return (name.startswith(".") or (name.startswith("_") and "=" not in name)) or name.endswith(
        "._COPYING_"
    )


class DirectoryListing:
    """Lists everything below a source that is to be ingested.

    Args:
        source: The folder the files land in.
        exclude: Locations that are left out where they are below the source: the checkpoint, the
            schema location, the target.

    Raises:
        OptionError: One of them is the source itself.
    """

    def __init__(self, source: ObjectStore, exclude: Sequence[str] = ()) -> None:
        self._source = source
        self._name = printable_path(source.uri)
        self._excluded = frozenset(
            key for key in (self._key_of(uri) for uri in exclude) if key is not None
        )

    def discover(self) -> Iterator[FileEntry]:
        """List the files in byte order of their paths, each once.

        Hidden files and folders are left out, as Spark leaves them out.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder.
            ListingError: Something below it cannot be listed.
        """
        seen = 0
        next_word = time.monotonic() + _PROGRESS_SECONDS
        try:
            if not self._source.is_folder():
                raise self._not_found()
            for entry in self._source.list(skip=self._leaves_out):
                yield entry
                seen += 1
                if time.monotonic() >= next_word:
                    logger.info("Listing %s: %d files so far", self._name, seen)
                    next_word = time.monotonic() + _PROGRESS_SECONDS
        except OSError as failure:
            msg = (
                f"{self._name} could not be listed completely: {failure}. Files found before stay "
                f"recorded; the next run lists everything again."
            )
            raise ListingError(msg) from failure

    def _leaves_out(self, key: str, _is_folder: bool) -> bool:  # noqa: FBT001 - the protocol
        return is_hidden(key.rpartition("/")[2]) or key in self._excluded

    def _key_of(self, uri: str) -> str | None:
        """Place a location to leave out below the source."""
        key = self._source.key_of(uri)
        if key == "":
            msg = (
                f"{uri!r} is the source folder itself, whose files would be ingested again and "
                f"again. Use another folder for the checkpoint, the schemas and the target."
            )
            raise OptionError(msg)
        return key

    def _not_found(self) -> SourceNotFoundError:
        hint = ""
        if _GLOB & set(self._source.uri):
            hint = " Patterns in paths are not in this version; name the folder above them."
        return SourceNotFoundError(
            f"The source {self._name} does not exist or is not a folder. Create it, or correct "
            f"the path.{hint}"
        )
