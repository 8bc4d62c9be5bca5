"""Notice files that are gone from a source, so that the table loses their rows.

For `cloudFiles.onDelete=delete`:

1. A full listing is compared with the index of known files. What it lacks is looked for by name: a
   listing leaves out what its filter does not want, and that is not gone.
2. If more than `cloudFiles.maxDeletedShare` of the known files is gone, nothing is recorded. An
   unmounted disk, a bucket that was emptied by mistake and a wrong prefix look like that.
3. What is gone is recorded in the file log (`delete`), and the index forgets it. The commit of the
   micro-batch with that entry removes the rows.

Between a look and the entry, a file may come back and be recorded by another discovery. That has
the number of the entry then, so the files are looked for again.

Killed before the entry, nothing has happened, and the next full listing finds the same.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_cloudfiles.engine.discovery.base import head_of
from airflow_cloudfiles.engine.errors import MassDeletionError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger
    from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
    from airflow_cloudfiles.engine.storage import ObjectStore

AT_ONCE: Final = 1000
"""Files that are looked for, and recorded, together."""
_LOOKS: Final = 16
_HASH_BYTES: Final = 8


class DeletedFiles:
    """The files that one discovery finds to be gone (`Deletions`).

    Args:
        source: Where the files are.
        most: The largest share of the known files that may be gone at once.
    """

    def __init__(self, source: ObjectStore, most: float) -> None:
        self._source = source
        self._most = most
        self._listed: list[array[int]] = []

    def listed(self, files: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Pass on the files of a listing, and remember that they are there: 8 bytes for each."""
        hashes = array("Q")
        self._listed.append(hashes)
        for file in files:
            hashes.append(_hash(file.path))
            yield file

    def record(self, recorder: LedgerRecorder) -> int:
        """Record which known files a full listing has not found, and are gone.

        Returns:
            How many these are.

        Raises:
            MassDeletionError: They are too many; none is recorded.
            ListingError: The source does not answer.
        """
        missing, known = self._missing(recorder.known)
        return self._record(recorder, self._checked(missing, known))

    def record_announced(self, recorder: LedgerRecorder, paths: Sequence[str]) -> int:
        """Record which of some files are gone, as notifications say; as `record` otherwise.

        Args:
            recorder: Records them.
            paths: Files, and folders with a slash at their end.
        """
        folders = (path for path in paths if path.endswith("/"))
        inside = chain.from_iterable(map(recorder.known.paths, folders))
        named = (path for path in paths if recorder.known.entry_of(path) is not None)
        there = list(dict.fromkeys(chain(named, inside)))
        if not there:
            return 0
        gone = self.gone(there)
        if len(gone) > 1:
            self._check(len(gone), sum(1 for _ in recorder.known.paths()), gone[0])
        return self._record(recorder, gone)

    def unlisted(self, ledger: Ledger) -> Iterator[str]:
        """Give the known files that a full listing has not found, and are gone; records nothing."""
        missing, _ = self._missing(ledger)
        for start in range(0, len(missing), _LOOKS):
            yield from self.gone(missing[start : start + _LOOKS])

    def gone(self, paths: Sequence[str]) -> list[str]:
        """Give those of some files that the source does not have now.

        Raises:
            ListingError: The source does not answer.
        """
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            found = pool.map(partial(head_of, self._source), paths)
            return [path for path, file in zip(paths, found, strict=True) if file is None]

    def _record(self, recorder: LedgerRecorder, gone: Sequence[str]) -> int:
        parts = (gone[start : start + AT_ONCE] for start in range(0, len(gone), AT_ONCE))
        return sum(recorder.record_deleted(part, self.gone) for part in parts)

    def _missing(self, ledger: Ledger) -> tuple[list[str], int]:
        """Find the known files that were not listed, and how many are known."""
        hashes = array("Q")
        for each in self._listed:
            hashes.extend(each)
        self._listed.clear()
        there: Any = pa.array(memoryview(hashes), pa.uint64()).sort()
        # Without this, each look at a value would make an object of Arrow.
        values = memoryview(there.buffers()[1] or b"").cast("Q")[: len(there)]
        missing, known = [], 0
        for path in ledger.paths():
            known += 1
            wanted = _hash(path)
            place = bisect_left(values, wanted)
            if place == len(values) or values[place] != wanted:
                missing.append(path)
        return missing, known

    def _checked(self, missing: Sequence[str], known: int) -> list[str]:
        """Look for missing files by name; of very many, first for some."""
        if len(missing) > max(AT_ONCE, self._most * known):
            some = random.sample(missing, AT_ONCE)
            if len(self.gone(some)) == len(some):
                self._check(len(missing), known, missing[0])
        parts, gone = iter(missing), list[str]()
        while some := list(islice(parts, AT_ONCE)):
            gone += self.gone(some)
        if gone:
            self._check(len(gone), known, gone[0])
        return gone

    def _check(self, gone: int, known: int, first: str) -> None:
        if gone <= self._most * known:
            return
        raise MassDeletionError(
            f"{gone} of the {counted(known, 'known file')} of {printable_path(self._source.uri)} "
            f"are gone, such as {printable_path(first)}: more than cloudFiles.maxDeletedShare="
            f"{self._most:g} allows, so no row was removed. If a disk is not mounted, or the files "
            "were deleted by mistake, put them back and run again. If they are to go, set "
            "cloudFiles.maxDeletedShare=1 for one run. `cloudfiles discover --dry-run` lists them."
        )


def _hash(path: str) -> int:
    digest = blake2b(path.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")
