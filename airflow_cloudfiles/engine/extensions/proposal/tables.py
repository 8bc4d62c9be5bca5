"""Find which files below a folder make up a table, and a source that selects them and no others.

A table's files lie in folders and have names that differ in dates, numbers and random identifiers.
What is left of a path without these is the pattern that its files share.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.globs import escape_pattern, split_pattern
from airflow_cloudfiles.engine.discovery.listing.ranges import order_of
from airflow_cloudfiles.engine.errors import ListingError, SourceNotFoundError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.splits import COMPRESSED
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.base import is_tree
from airflow_cloudfiles.engine.storage.local import LocalStore

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions


_UUID: Final = r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_HEX: Final = r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![0-9A-Za-z])"
_NUMBER: Final = r"[0-9]+(?:[-_.: ]?[THWQM]?[0-9]+)*(?:Z(?![0-9A-Za-z]))?"
_UNUSUAL: Final = r"[\ud800-\udfff\x00-\x1f\x7f\x85\u2028\u2029]+"
"""Bytes that are not UTF-8, and control characters, which a file of streams cannot hold."""
_IDENTIFIER: Final = re.compile(f"{_UUID}|{_HEX}")
_VARYING: Final = re.compile(f"{_NUMBER}|{_UNUSUAL}")
_SEPARATORS: Final = frozenset("-_.: ")
_KEY: Final = re.compile(r"[^=\ud800-\udfff]+=")
ANY: Final = "*"
"""A folder whose name is a date, a number or an identifier."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """What the names of a table's files share.

    Attributes:
        fixed: The texts between the parts that vary; a single one where nothing varies.
        ending: Of the name, in lower case, without the dot and that of a compression.
    """

    fixed: tuple[str, ...]
    ending: str

    @property
    def varies(self) -> bool:
        """Whether files of other names fit it."""
        return len(self.fixed) > 1

    @property
    def stem(self) -> str:
        """The fixed texts without the ending."""
        text = "".join(self.fixed)
        ending = f".{self.ending}"
        return text[: -len(ending)] if text.lower().endswith(ending) else text

    def glob(self, compressions: frozenset[str] = frozenset({""})) -> str:
        """Write it as a pattern for names.

        Args:
            compressions: The endings of compressions that its files have, with their dots; an empty
                text for none.
        """
        text = "*".join(map(escape_pattern, self.fixed))
        if len(compressions) == 1:
            return text + escape_pattern(next(iter(compressions)))
        return text + "{" + ",".join(map(escape_pattern, sorted(compressions))) + "}"


def split_compression(name: str) -> tuple[str, str]:
    """Separate a name from the ending that says how the file is compressed."""
    place = name.rfind(".")
    is_compressed = place > 0 and name[place:].lower() in COMPRESSED
    return (name[:place], name[place:]) if is_compressed else (name, "")


def name_pattern(name: str) -> NamePattern:
    """Find the pattern of a name without its compression."""
    begin, *others = _VARYING.split(_without_identifiers(name))
    fixed = [begin]
    for at, text in enumerate(others):
        # Between two parts that vary a separator tells nothing.
        if text in _SEPARATORS and at < len(others) - 1:
            continue
        if not text and at < len(others) - 1:
            continue
        fixed.append(text)
    stem, dot, ending = name.rpartition(".")
    is_ending = bool(dot and stem) and ending.isalnum() and not ending.isdigit()
    return NamePattern(tuple(fixed), ending.lower() if is_ending else "")


def _without_identifiers(name: str) -> str:
    """Put a character that varies in the place of identifiers, before numbers are searched for."""
    return _IDENTIFIER.sub("\x00", name)


def folder_step(name: str) -> str | None:
    """Find what stands for a folder in the pattern of its path.

    Returns:
        `None` where the name itself belongs to the pattern; `ANY` for a date, a number or an
        identifier; `key=*` for a partition.
    """
    if key := _KEY.match(name):
        return f"{escape_pattern(key[0])}*"
    if not name:
        return None
    left = _VARYING.sub("", _without_identifiers(name))
    is_varying = left != name and all(each in _SEPARATORS for each in left)
    return ANY if is_varying else None


def folder_pattern(folders: list[str]) -> tuple[str, ...]:
    """Find the pattern of the folder of a table, of folders a file is in.

    Folders at the end that vary only tell files of a table apart, and are left out.

    Args:
        folders: Names, from the root down.

    Returns:
        Patterns of names, those that belong to it escaped.
    """
    steps = [folder_step(each) for each in folders]
    while steps and (steps[-1] is not None or not folders[len(steps) - 1]):
        steps.pop()
    return tuple(
        escape_pattern(name) if step is None else step
        for name, step in zip(folders, steps, strict=False)
    )


_DELTA_LOG: Final = "_delta_log"
_ICEBERG_METADATA: Final = ".metadata.json"
_MOST_SINGLE_NAMES: Final = 50
"""So many names without a number in one folder, and no more, are a table each."""
_MOST_CHECKED: Final = 5000
"""A source is tried on so many files of each kind."""


@dataclass(slots=True)
class Listing:
    """What is below a folder.

    Attributes:
        files: Those that may be input, in the order of their names.
        is_cut: Whether there are more than were listed.
        doubts: What is left out, in sentences.
    """

    files: list[FileEntry] = field(default_factory=list)
    is_cut: bool = False
    doubts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FoundTable:
    """Files that belong together.

    Attributes:
        folders: Patterns of the names of the folders that they are in (`folder_pattern`).
        name: The pattern of their names.
        files: In the order of their names.
        doubts: What is not certain, in sentences.
    """

    folders: tuple[str, ...]
    name: NamePattern
    files: list[FileEntry] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FileSelection:
    """A source that selects the files of a table.

    Attributes:
        source: A folder, or a pattern.
        options: With which it selects them.
        is_exact: Whether it selects all files of the table that were listed, and no others.
    """

    source: str
    options: dict[str, str]
    is_exact: bool


def list_files(store: ObjectStore, most: int) -> Listing:
    """List the files below a folder.

    Args:
        store: The folder.
        most: At most so many files, those that are left out among them.

    Raises:
        SourceNotFoundError: There is no such folder.
        ListingError: It cannot be listed.
    """
    if is_tree(store) and not store.is_folder():
        raise SourceNotFoundError(
            f"{printable_path(store.uri)} does not exist or is not a folder. Give the folder, the "
            "bucket or the prefix in which files land."
        )
    found = Listing()
    seen = _Folders(store)
    wanted = FileFilter(store.uri, None, _default_discovery())
    is_ordered = order_of(store) is not None and bool(getattr(store, "is_order_promised", True))
    try:
        for number, entry in enumerate(store.list(skip=seen.skip, ordered=is_ordered)):
            if number >= most:
                found.is_cut = True
                break
            if entry.path.endswith(_ICEBERG_METADATA) and "metadata/" in entry.path:
                seen.tables[entry.path.rpartition("metadata/")[0].rstrip("/")] = "Iceberg"
            if wanted.accepts(entry):
                found.files.append(entry)
    except OSError as failure:
        raise ListingError(
            f"{printable_path(store.uri)} cannot be listed: {failure}. Correct the rights, or give "
            "a folder below it."
        ) from failure
    found.files = [file for file in found.files if seen.table_of(file.path) is None]
    found.files.sort(key=lambda file: os.fsencode(file.path))
    found.doubts = [*seen.doubts(), *_left_out(wanted.rejected)]
    if found.is_cut:
        order = "in the order of names" if is_ordered else "in no order"
        found.doubts.append(
            f"Only the first {counted(most, 'file')} were looked at, {order}: there are more."
        )
    return found


def _default_discovery() -> DiscoveryOptions:
    return CloudFilesOptions.parse({"cloudFiles.format": "text"}, path="/").discovery


def _left_out(rejected: Counter[str]) -> list[str]:
    return [
        f"{counted(count, 'file')} {'is' if count == 1 else 'are'} left out: {reason}."
        for reason, count in sorted(rejected.items())
    ]


class _Folders:
    """Leaves out folders that are no input, and takes note of them.

    Attributes:
        tables: Folders of tables, and of which kind.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._wanted = FileFilter(store.uri, None, _default_discovery())
        self._hidden: dict[str, None] = {}
        self._denied: dict[str, None] = {}
        self.tables: dict[str, str] = {}

    def skip(self, key: str, is_folder: bool) -> bool:  # noqa: FBT001 - the protocol's SkipRule
        if not is_folder:
            return False
        if key.rpartition("/")[2] == _DELTA_LOG:
            self.tables[key.rpartition("/")[0]] = "Delta"
            return True
        if self._wanted.skip_folder(key, is_folder):
            self._hidden[key] = None
            return True
        if isinstance(self._store, LocalStore):
            path = self._store.local_path(key)
            if not os.access(path, os.R_OK | os.X_OK):
                self._denied[key] = None
                return True
        return False

    def table_of(self, key: str) -> str | None:
        """Find the table that a file is part of; `None` for a file of its own."""
        if not self.tables:
            return None
        folder = key.rpartition("/")[0]
        while folder and folder not in self.tables:
            folder = folder.rpartition("/")[0]
        return folder if folder in self.tables else None

    def doubts(self) -> list[str]:
        found = [
            f"{printable_path(folder) or 'The folder itself'} is {_article(kind)} {kind} table, "
            "whose files are no files that land: left out. Stream from the table instead."
            for folder, kind in self.tables.items()
        ]
        more = len(found) - _MOST_SINGLE_NAMES
        found = found[:_MOST_SINGLE_NAMES]
        if more > 0:
            found.append(f"{counted(more, 'more folder')} of tables are left out, too.")
        if self._denied:
            names = few([printable_path(each) for each in self._denied], most=20)
            found.append(f"Folders that may not be read are left out: {names}. Correct the rights.")
        if self._hidden:
            names = few([printable_path(each) for each in self._hidden])
            found.append(f"Folders with hidden names are left out: {names}.")
        return found


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


def find_tables(files: Iterable[FileEntry]) -> list[FoundTable]:
    """Group files to tables; those with most files come first.

    Args:
        files: In the order of their names.
    """
    found: dict[tuple[tuple[str, ...], NamePattern], FoundTable] = {}
    for file in files:
        *folders, name = file.path.split("/")
        folder, pattern = folder_pattern(folders), name_pattern(split_compression(name)[0])
        table = found.get((folder, pattern))
        if table is None:
            table = found[folder, pattern] = FoundTable(folder, pattern)
        table.files.append(file)
    tables = _without_crowds(found.values())
    return sorted(tables, key=lambda table: (-len(table.files), table.folders, table.name.fixed))


def _without_crowds(tables: Iterable[FoundTable]) -> list[FoundTable]:
    """Make one table of very many files in a folder whose names share nothing but an ending."""
    crowds: dict[tuple[tuple[str, ...], str], list[FoundTable]] = {}
    others = []
    for table in tables:
        if table.name.varies:
            others.append(table)
        else:
            crowds.setdefault((table.folders, table.name.ending), []).append(table)
    for (folders, ending), crowd in crowds.items():
        if len(crowd) <= _MOST_SINGLE_NAMES:
            others += crowd
            continue
        files = sorted((file for table in crowd for file in table.files), key=_by_name)
        whole = FoundTable(
            folders, NamePattern(("", f".{ending}" if ending else ""), ending), files
        )
        whole.doubts.append(
            f"{len(crowd):,} names share nothing but their ending: they are taken for one table."
        )
        others.append(whole)
    return others


def _by_name(file: FileEntry) -> bytes:
    return os.fsencode(file.path)


class Selector:
    """Finds sources for tables.

    Args:
        store: The folder that was listed.
        tables: All of its tables.
    """

    def __init__(self, store: ObjectStore, tables: Sequence[FoundTable]) -> None:
        self._root = store.uri
        self._owner = {
            file.path: number for number, each in enumerate(tables) for file in each.files
        }
        self._numbers = {id(table): number for number, table in enumerate(tables)}
        self._files = sorted((f for t in tables for f in t.files), key=_by_name)

    def select(self, table: FoundTable) -> FileSelection:
        """Find the simplest source that selects the files of a table, and no others."""
        candidates = list(self._candidates(table))
        for source, options in candidates:
            if self._is_exact(table, source, options):
                return FileSelection(source, options, is_exact=True)
        source, options = candidates[1]
        return FileSelection(source, options, is_exact=False)

    def _candidates(self, table: FoundTable) -> Iterable[tuple[str, dict[str, str]]]:
        compressions = frozenset(split_compression(file.path)[1] for file in table.files)
        glob = table.name.glob(compressions)
        is_pattern = any(step == ANY or step.endswith("=*") for step in table.folders)
        strict = {"cloudFiles.useStrictGlobber": "true"} if is_pattern else {}
        root = _escaped(self._root)
        source = _below(root, table.folders)
        yield source, strict
        yield source, {**strict, "pathGlobFilter": glob}
        depths = {file.path.count("/") - len(table.folders) for file in table.files}
        if len(depths) == 1:
            steps = ["*"] * depths.pop()
            yield (
                _below(source, [*steps, glob]),
                {"cloudFiles.useStrictGlobber": "true"},
            )

    def _is_exact(self, table: FoundTable, source: str, options: dict[str, str]) -> bool:
        """Try a source on files that were listed."""
        root, pattern = split_pattern(source)
        prefix = self._prefix(root)
        if prefix is None:
            return False
        parsed = CloudFilesOptions.parse({"cloudFiles.format": "text", **options}, path=source)
        wanted = FileFilter(root, pattern, parsed.discovery)
        number = self._numbers[id(table)]
        mine = _some(table.files)
        if not all(wanted.accepts(_relative(file, prefix)) for file in mine):
            return False
        others = (
            file
            for file in self._files
            if file.path.startswith(prefix) and self._owner[file.path] != number
        )
        return not any(wanted.accepts(_relative(file, prefix)) for file in _some(list(others)))

    def _prefix(self, root: str) -> str | None:
        """Give how keys below a folder begin; `None` for a folder that is elsewhere."""
        whole = self._root.rstrip("/")
        if root.rstrip("/") == whole:
            return ""
        return root[len(whole) + 1 :] + "/" if root.startswith(whole + "/") else None


def _below(root: str, steps: Sequence[str]) -> str:
    """Write the URI of what is below a folder; the root of a disk ends in a slash."""
    if not steps:
        return root
    return f"{root}{'' if root.endswith('/') else '/'}{'/'.join(steps)}"


def _escaped(root: str) -> str:
    """Escape what would be a pattern in the URI of the folder that was listed."""
    scheme, mark, rest = root.partition("://")
    return scheme + mark + escape_pattern(rest)


def _relative(file: FileEntry, prefix: str) -> FileEntry:
    path = file.path[len(prefix) :]
    return FileEntry(path, file.size, file.modification_time_us, file.etag)


def _some(files: Sequence[FileEntry]) -> Sequence[FileEntry]:
    """Choose files from the beginning to the end, where there are very many."""
    return files[:: 1 + len(files) // _MOST_CHECKED]
