"""How is one file removed or moved without losing it?

1. Inspect it. Gone: done before. Another version than the one that was ingested: it stays.
2. To move it: copy this very version to where there is no object yet, under its path below the
   source. Where that name is taken by something else (an earlier version of the file, say), the
   copy's name has a hash of the version in it, the same each time.
3. Inspect the copy: its size, its checksum where the store knows one, else its bytes.
4. Remove this very version. It takes a condition that the store checks itself.

Where a store cannot copy and can rename (an SFTP server), this very version is renamed to its new
name, in place of 2 to 4.

Killed anywhere, the next try finds what is done: a copy that is the file counts as this one's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Literal

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.storage.base import (
    LinkedObjectError,
    ObjectChangedError,
    ObjectNotFoundError,
    is_version,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.base import Fingerprint

Result = Literal["cleaned", "gone", "changed", "linked", "taken"]
"""What became of a file. `gone`: it was not there any more. Those that stay: `changed`, it is
another version; `linked`, it is a symbolic link; `taken`, other objects have both names that its
copy could have."""

_BLOCK: Final = 8 * 2**20


class FileCleaner:
    """Removes or moves files of one source. Several threads may use it.

    Args:
        source: Where the files are.
        destination: Where they are moved to; `None` to remove them.
        is_exact: Whether a file that was written anew with the same content is another version.

    Attributes:
        renamed: Paths of moved files whose copy has a name of its own, with its key.
    """

    def __init__(
        self, source: ObjectStore, destination: ObjectStore | None, *, is_exact: bool = False
    ) -> None:
        self._source = source
        self._destination = destination
        self._is_exact = is_exact
        self.renamed: dict[str, str] = {}

    def inspect(self, file: FileEntry) -> Fingerprint | Result:
        """Find a file, in the version that was ingested; or why it is not to be cleaned.

        Raises:
            OSError: The store did not answer.
        """
        found = self._source.fingerprint(file.path)
        if found is None:
            return "gone"
        is_same = is_version(found.entry, file)
        if self._is_exact:
            is_same &= found.entry.modification_time_us == file.modification_time_us
        return found if is_same else "changed"

    def clean(self, file: FileEntry) -> Result:
        """Remove or move a file.

        Raises:
            OSError: The store did not answer, or not as it should.
        """
        found = self.inspect(file)
        if isinstance(found, str):
            return found
        try:
            if self._destination is None:
                self._remove(found)
            elif not self._bring(found, self._destination):
                return "taken"
        except ObjectNotFoundError:
            return "gone"
        except ObjectChangedError:
            return "changed"
        except LinkedObjectError:
            return "linked"
        crash_point("after-clean-delete")
        return "cleaned"

    def _bring(self, found: Fingerprint, to: ObjectStore) -> bool:
        """Move a file; false where other objects have the names that it could have."""
        if hasattr(self._source, "move_version"):
            return self._moved(found, to)
        if not self._copied(found, to):
            return False
        self._remove(found)
        return True

    def _remove(self, found: Fingerprint) -> None:
        crash_point("before-clean-delete")
        self._source.delete_version(found.entry)

    def _copied(self, found: Fingerprint, to: ObjectStore) -> bool:
        """See to a copy that is the file; false where other objects have the names for one."""
        path = found.entry.path
        for key in (path, own_name(found.entry)):
            there = to.fingerprint(key)
            if there is None:
                crash_point("before-clean-copy")
                is_made = self._source.copy_version(found.entry, to, key)
                crash_point("after-clean-copy")
                there = to.fingerprint(key)
                if there is None:
                    raise ConnectionError(
                        f"{to.child_uri(key)} was copied and is not there. Its source stays."
                    )
                if is_made and there.entry.size == found.entry.size and _agree(found, there):
                    return self._is_at(path, key)
            if self._is_copy(found, there, to, key):
                return self._is_at(path, key)
        return False

    def _moved(self, found: Fingerprint, to: ObjectStore) -> bool:
        """Rename a file, or remove it where it is already; false where both names are taken."""
        path = found.entry.path
        for key in (path, own_name(found.entry)):
            there = to.fingerprint(key)
            if there is None:
                crash_point("before-clean-copy")
                if self._source.move_version(found.entry, to, key):  # type: ignore[attr-defined]
                    crash_point("after-clean-copy")
                    return self._is_at(path, key)
                there = to.fingerprint(key)
            if there is not None and self._is_copy(found, there, to, key):
                self._remove(found)
                return self._is_at(path, key)
        return False

    def _is_at(self, path: str, key: str) -> bool:
        """Note where the copy of a file is."""
        if key != path:
            self.renamed[path] = key
        return True

    def _is_copy(self, found: Fingerprint, there: Fingerprint, to: ObjectStore, key: str) -> bool:
        """Whether an object has the content of a file."""
        if there.entry.size != found.entry.size:
            return False
        if found.checksums & there.checksums:
            return True
        etag = found.entry.etag or None
        for start in range(0, found.entry.size, _BLOCK):
            ours = self._source.get_range(found.entry.path, start, _BLOCK, etag=etag)
            try:
                theirs = to.get_range(key, start, _BLOCK)
            except ObjectNotFoundError:  # that the copy went is not that the file did
                return False
            if ours != theirs:
                return False
        return True


def _agree(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether the store knows no checksum by which a copy that it made would differ."""
    if one.checksums & other.checksums:
        return True
    kinds = {kind for kind, _ in one.checksums} & {kind for kind, _ in other.checksums}
    return not kinds


def own_name(file: FileEntry) -> str:
    """A name that only this version of a file has: its path, with a hash before the ending."""
    version = f"{file.size} {file.modification_time_us} {file.etag}"
    mark = hashlib.sha256(version.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    folder, slash, name = file.path.rpartition("/")
    stem, dot, ending = name.partition(".")
    return f"{folder}{slash}{stem}.{mark}{dot}{ending}"
