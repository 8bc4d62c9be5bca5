"""Fetch the data files of an inventory report, and tell which file each row names.

Some are fetched ahead into a folder of this user, by threads, in pieces. A file is read when all of
it is there and is what the manifest says; so nothing of a damaged one is recorded. On the disk are
four files at most; in memory some pieces, and a block of rows (of ORC, a stripe).

The three clouds call one thing by many names (`LastModifiedDate`, `last_modified_date`,
`Last-Modified`, `timeCreated`). Names are compared without case, hyphens and underscores.

Rows that are no file are left out: past versions, delete markers, snapshots, what is deleted and
kept for a while, folders of a hierarchical namespace.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from airflow_cloudfiles.engine.discovery.events import NotUnderstoodError, time_us
from airflow_cloudfiles.engine.errors import InventoryError
from airflow_cloudfiles.engine.extensions.inventory.base import (
    Report,
    ReportFile,
    not_reached,
    refused,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, ObjectNotFoundError
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


_NEEDED: Final = (
    ("the key", ("key", "name")),
    ("the size", ("size", "contentlength")),
    ("the time of the last change", ("lastmodifieddate", "lastmodified", "timecreated")),
)
_CURRENT: Final = ("islatest", "iscurrentversion")
_GONE: Final = ("isdeletemarker", "deleted", "hdiisfolder")
_PAST: Final = ("snapshot", "timedeleted")
_TIME_COLUMN: Final = 2

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns of a data file that are read, in the order in which rows give them.

    Attributes:
        columns: Their places in the file: key, size, time, perhaps the version, then the marks.
        names: Their names in the file.
        has_version: Whether the fourth one is the etag or generation.
        marks: For each of the others what it says: `version`, `current`, `gone` or `past`.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    has_version: bool
    marks: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], uri: str, *, version: str) -> Selection:
        """Choose among the columns of a file.

        Args:
            names: All of them, in order.
            uri: Of the file.
            version: The one that names a version (`Report.version`).

        Raises:
            InventoryError: One is missing.
        """
        places = {_plain(name): at for at, name in reversed(list(enumerate(names)))}
        chosen = [_needed(places, what, any_of, uri) for what, any_of in _NEEDED]
        marks, has_version = _marks(places, uri), version in places
        chosen += [places[version]] if has_version else []
        chosen += [at for at, _ in marks]
        return cls(
            tuple(chosen),
            tuple(names[at] for at in chosen),
            has_version,
            tuple(mark for _, mark in marks),
        )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")


def _needed(places: dict[str, int], what: str, any_of: Sequence[str], uri: str) -> int:
    for name in any_of:
        if name in places:
            return places[name]
    why = f"it has no column with {what} ({' or '.join(any_of)})"
    raise refused(uri, why, "Add the field to the configuration of the report.")


def _marks(places: dict[str, int], uri: str) -> list[tuple[int, str]]:
    """Find the columns that tell which rows are not files."""
    found = [(places[name], "gone") for name in _GONE if name in places]
    found += [(places[name], "past") for name in _PAST if name in places]
    current = next((places[name] for name in _CURRENT if name in places), None)
    if "versionid" in places:
        if current is None:
            why = "it has versions, and no column that says which one is current"
            raise refused(uri, why, "Add the field to the configuration of the report.")
        found += [(places["versionid"], "version"), (current, "current")]
    return found


class RowReader:
    """Makes files of rows.

    Args:
        report: Whose rows they are.
        root: How the full keys of the source begin.
        selection: What the values of a row are.
        name: Of the data file.
    """

    def __init__(self, report: Report, root: str, selection: Selection, name: str) -> None:
        self._prefix = report.key_prefix + root
        self._is_encoded = report.is_encoded
        self._name = name
        self._has_version = selection.has_version
        self._marks = [
            (at, mark)
            for at, mark in enumerate(selection.marks, _TIME_COLUMN + 1 + selection.has_version)
        ]
        self.rows = 0

    def files(self, rows: Iterable[Row]) -> Iterator[FileEntry]:
        """Give the files below the root of the source, in the order of the rows.

        Raises:
            InventoryError: A row cannot be understood.
        """
        prefix, cut, is_encoded = self._prefix, len(self._prefix), self._is_encoded
        for row in rows:
            self.rows += 1
            try:
                key = _decoded(row[0]) if is_encoded else row[0]
                if not key.startswith(prefix) or (self._marks and self._is_no_file(row)):
                    continue
                size, time = int(row[1]), row[_TIME_COLUMN]
                path = key[cut:]
                if not path or (size == 0 and path.endswith("/")):
                    continue
                etag = str(row[3]).strip('"') if self._has_version and row[3] is not None else ""
                yield FileEntry(path, size, time if type(time) is int else _time_us(time), etag)
            except (ValueError, TypeError, AttributeError, IndexError) as failure:
                why = f"row {self.rows} is not understood ({failure})"
                what = "See that the file is what the cloud has written."
                raise refused(self._name, why, what) from failure

    def _is_no_file(self, row: Row) -> bool:
        is_version, is_current = False, None
        for at, mark in self._marks:
            value = row[at]
            text = value.lower() if isinstance(value, str) else value
            if mark == "gone" and text in {True, "true"}:
                return True
            if mark == "past" and text not in {None, ""}:
                return True
            if mark == "version":
                is_version = bool(text)
            if mark == "current":
                is_current = text in {True, "true"} if text not in {None, ""} else None
        return is_current is False or (is_version and is_current is None)


def _decoded(key: str) -> str:
    """Decode a key that S3 has encoded for CSV."""
    if "%" in key or "+" in key:
        return unquote_plus(key, errors="strict")
    return key


def _time_us(text: str) -> int:
    """Microseconds since 1970 of a time as one of the clouds writes it."""
    try:
        return time_us(text.removesuffix(" UTC"))
    except NotUnderstoodError:
        return time_us(parsedate_to_datetime(text).isoformat())


_THREADS: Final = 4
_PIECE_BYTES: Final = 8 * 2**20
_GZIP: Final = b"\x1f\x8b"
_COLUMNAR: Final = "airflow_cloudfiles.engine.extensions.inventory.columnar"
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
        """Check that each file is there and as long as the manifest says; one HEAD each.

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
        all_rows = rows if first is None else chain((first,), rows)
        return number, reader, reader.files(all_rows)

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

    def _refused(self, file: ReportFile, why: str) -> InventoryError:
        return refused(self._store.child_uri(file.key), why, _PARTIAL)


_NO_ROWS: Final = ("key", "size", "lastmodified")


def _understood(rows: Iterator[Any], name: str) -> Iterator[Any]:
    """Turn what a parser raises into an error that names the file."""
    try:
        yield from rows
    except InventoryError:
        raise
    except (OSError, ValueError, EOFError, IndexError, csv.Error, zlib.error) as failure:
        why = f"this data file cannot be read ({failure})"
        raise refused(name, why, "See that it is what the cloud has written.") from failure
