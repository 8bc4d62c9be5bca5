"""How do the data files of a report come here, and what do they hold?

Some are fetched ahead into a folder of this user, by threads, in pieces. A file is read when all of
it is there and is what the manifest says; so nothing of a damaged one is recorded. On the disk are
four files at most; in memory some pieces, and a block of rows (of ORC, a stripe).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.discovery.inventory.base import not_reached, refused
from airflow_cloudfiles.engine.discovery.inventory.rows import RowReader, Selection
from airflow_cloudfiles.engine.errors import InventoryError
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, ObjectNotFoundError
from airflow_cloudfiles.engine.storage.extras import import_with_extra

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.inventory.base import DataFile, Report
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

_THREADS: Final = 4
_PIECE_BYTES: Final = 8 * 2**20
_GZIP: Final = b"\x1f\x8b"
_COLUMNAR: Final = "airflow_cloudfiles.engine.discovery.inventory.columnar"
_PARTIAL: Final = "Wait for the next report, or name an older one that is whole."


class DataFiles:
    """The data files of a report.

    Args:
        store: The bucket they are in.
        report: Whose files they are.
        root: How the full keys of the source begin.
    """

    def __init__(self, store: ObjectStore, report: Report, root: str) -> None:
        self._store = store
        self._report = report
        self._root = root

    def check(self) -> None:
        """See that each file is there and as long as the manifest says; one HEAD each.

        Raises:
            InventoryError: One is not.
            ListingError: The store does not answer.
        """
        with self._reaching(), ThreadPoolExecutor(_THREADS) as pool:
            for file, found in zip(
                self._report.files,
                pool.map(lambda each: self._store.head(each.key), self._report.files),
                strict=True,
            ):
                if found is None:
                    raise self._refused(file, "this data file of it is missing")
                if file.size is not None and found.size != file.size:
                    why = f"this data file has {found.size} bytes, not {file.size}"
                    raise self._refused(file, why)

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[int, RowReader, Iterator[FileEntry]]]:
        """Give some data files: number, what counts its rows, and the files that it names.

        Args:
            numbers: Their places in the manifest.

        Raises:
            InventoryError: One is damaged, or cannot be understood.
            ListingError: The store does not answer.
        """
        left = deque(numbers)
        coming: deque[tuple[int, Future[Path]]] = deque()
        with (
            tempfile.TemporaryDirectory(prefix="cloudfiles-inventory-") as folder,
            ThreadPoolExecutor(_THREADS, thread_name_prefix="cloudfiles-inventory") as pool,
        ):
            try:
                while left or coming:
                    while left and len(coming) < _THREADS:
                        number = left.popleft()
                        place = Path(folder, str(number))
                        coming.append((number, pool.submit(self._fetch, number, place)))
                    number, fetched = coming.popleft()
                    with self._reaching():
                        path = fetched.result()
                    yield self._opened(number, path)
                    path.unlink()
            finally:
                pool.shutdown(cancel_futures=True)

    def _fetch(self, number: int, place: Path) -> Path:
        """Bring a data file here, and see that it is whole."""
        file = self._report.files[number]
        found = self._store.head(file.key)
        if found is None:
            raise self._refused(file, "this data file of it is missing")
        digest = hashlib.md5(usedforsecurity=False)
        with place.open("wb") as written:
            for start in range(0, found.size, _PIECE_BYTES):
                try:
                    piece = self._store.get_range(
                        file.key, start, _PIECE_BYTES, etag=found.etag or None
                    )
                except (ObjectNotFoundError, ObjectChangedError) as failure:
                    raise self._refused(file, "this data file was replaced") from failure
                digest.update(piece)
                written.write(piece)
            length = written.tell()
        if length != found.size or (file.md5 and digest.hexdigest() != file.md5):
            raise self._refused(file, "this data file does not match its checksum")
        return place

    def _opened(self, number: int, path: Path) -> tuple[int, RowReader, Iterator[FileEntry]]:
        name = self._store.child_uri(self._report.files[number].key)
        chosen: list[Selection] = []

        def choose(names: Sequence[str]) -> tuple[str, ...]:
            chosen[:] = [Selection.of(names, name, version=self._report.version)]
            return chosen[0].names

        if self._report.format == "csv":
            rows = self._csv_rows(path, name, chosen)
        else:
            what = f"cloudFiles.inventory with the {self._report.format} report {name}"
            columnar = import_with_extra(_COLUMNAR, "delta", needed_for=what)
            is_orc = self._report.format == "orc"
            rows = (columnar.read_orc if is_orc else columnar.read_parquet)(path, choose)
        rows = _understood(rows, name)
        first = next(rows, None)  # from here on the columns are known
        if not chosen:
            choose(self._report.columns or _NO_ROWS)
        reader = RowReader(self._report, self._root, chosen[0], name)
        return number, reader, reader.files(_with_first(first, rows))

    def _csv_rows(self, path: Path, name: str, chosen: list[Selection]) -> Iterator[Sequence[str]]:
        with path.open("rb") as probe:
            is_gzip = probe.read(len(_GZIP)) == _GZIP
        opened: Any = gzip.open if is_gzip else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=self._report.delimiter)
            names: Sequence[str] = self._report.columns or next(rows, [])
            if not names:
                return
            chosen[:] = [Selection.of(names, name, version=self._report.version)]
            pick = itemgetter(*chosen[0].columns)
            for row in rows:
                if row:
                    yield pick(row)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise not_reached(self._store, failure) from failure

    def _refused(self, file: DataFile, why: str) -> InventoryError:
        return refused(self._store.child_uri(file.key), why, _PARTIAL)


_NO_ROWS: Final = ("key", "size", "lastmodified")


def _with_first(first: Any, rows: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
        yield from rows


def _understood(rows: Iterator[Any], name: str) -> Iterator[Any]:
    """Turn what a parser raises into an error that names the file."""
    try:
        yield from rows
    except InventoryError:
        raise
    except (OSError, ValueError, EOFError, IndexError, csv.Error, zlib.error) as failure:
        why = f"this data file cannot be read ({failure})"
        raise refused(name, why, "See that it is what the cloud has written.") from failure
