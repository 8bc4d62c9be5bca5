"""Which file does a row of a report name?

The three clouds call one thing by many names (`LastModifiedDate`, `last_modified_date`,
`Last-Modified`, `timeCreated`). Names are compared without case, hyphens and underscores.

Rows that are no file are left out: past versions, delete markers, snapshots, what is deleted and
kept for a while, folders of a hierarchical namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from airflow_cloudfiles.engine.discovery.inventory.base import refused
from airflow_cloudfiles.engine.files import FileEntry

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.inventory.base import Report

_NEEDED: Final = (
    ("the key", ("key", "name")),
    ("the size", ("size", "contentlength")),
    ("the time of the last change", ("lastmodifieddate", "lastmodified", "timecreated")),
)
_CURRENT: Final = ("islatest", "iscurrentversion")
_GONE: Final = ("isdeletemarker", "deleted", "hdiisfolder")
_PAST: Final = ("snapshot", "timedeleted")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
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
    """The columns that tell which rows are no file."""
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
    """A key as it is, of one that S3 has encoded for CSV."""
    if "%" in key or "+" in key:
        return unquote_plus(key, errors="strict")
    return key


def _time_us(text: str) -> int:
    """Microseconds since 1970 of a time as one of the clouds writes it."""
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        found = parsedate_to_datetime(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH) // _TICK
