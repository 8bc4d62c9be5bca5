"""Which file of a stream does a text mean?

A path relative to the source, or a URI, character by character: in a name, `%20`, `+` and `=` are
themselves. A URI that names no file may also be written as the column `_metadata.file_path` has it,
percent-encoded. What names nothing is an error that names the nearest file that is known.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.errors import ListingError, OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.ledger.base import Ledger
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
        if not self._may_be_key(path):
            return None
        try:
            return self._source.head(path)
        except OSError as failure:
            name = printable_path(self._source.child_uri(path))
            raise ListingError(f"{name} could not be inspected: {failure} Run again.") from failure

    def uri(self, path: str) -> str:
        """The URI of a file, for people."""
        return printable_path(self._source.child_uri(path))

    def _candidates(self, text: str) -> Iterator[str]:
        """What a text may mean, the most literal reading first."""
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
        """Whether a path cannot lead out of a folder on a disk."""
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
