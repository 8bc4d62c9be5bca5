"""Which columns do files with their own types have?

Learnt from the footers: no row is read. Types are the files' own (`types`), whatever
`cloudFiles.inferColumnTypes` says, and meet in the widest one when files disagree (B10). What a
column cannot have (times of day, unions, a second field under the same name) is left out; the
reader rescues it.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING

from pyspark.sql.types import DataType, NullType, StructType

from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarFile, content_of
from airflow_cloudfiles.engine.formats.columnar.types import clashes, column_types, merge_fields
from airflow_cloudfiles.engine.types import inside_of, seen_columns, with_inside, with_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_log = logging.getLogger(__name__)


class ColumnarInference(ABC):
    """Learns the schema of files of a columnar format.

    Args:
        options: The stream's; `mergeSchema=false` learns from the first file alone.
        known: The schema there is already. Its columns keep their types, whatever the files say;
            only what it lacks is learnt.
    """

    format: str

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._merges = getattr(options.format_options, "merge_schema", True)
        self._matcher = options.matcher
        self._known = known
        self._found = StructType([]) if known is None else known
        self._files = 0

    @abstractmethod
    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""

    def add_file(self, file: OpenedFile) -> None:
        """Learn from the footer of one file.

        Raises:
            FileUnreadableError: The file is not of this format, or damaged.
        """
        if self._is_resolved or not file.entry.size:
            return
        with content_of(file, self.format) as content:
            found = StructType(column_types(self.open(content).schema, self._matcher))
        self._learn(found, 1, file.uri)

    def evidence(self) -> bytes:
        """All that it knows, for `absorb`."""
        return json.dumps({"files": self._files, "found": self._found.jsonValue()}).encode()

    def absorb(self, evidence: bytes) -> None:
        """Learn what another process learned from the files after those of this one."""
        learned = json.loads(evidence)
        if learned["files"] and not self._is_resolved:
            found = StructType.fromJson(learned["found"])
            self._learn(found, learned["files"], "some files")

    def result(self) -> StructType:
        """The columns of all files, in order of first appearance."""
        return seen_columns(self._found)

    @property
    def _is_resolved(self) -> bool:
        """Whether no more file is looked at, because one tells it all."""
        return bool(self._files) and not self._merges and self._known is None

    def _learn(self, found: StructType, files: int, where: str) -> None:
        self._files += files
        if self._known is None:
            self._tell_clashes(self._found, found, "", where)
            self._found = merge_fields(self._found, found, self._matcher)
        else:
            self._found = add_new(self._found, found, self._matcher)

    def _tell_clashes(self, left: StructType, right: StructType, within: str, where: str) -> None:
        positions = self._matcher.positions(left)
        for field in right.fields:
            place = positions.get(self._matcher.key(field.name))
            if place is None:
                continue
            before = left.fields[place].dataType
            name = f"{within}{field.name}"
            if isinstance(before, StructType) and isinstance(field.dataType, StructType):
                self._tell_clashes(before, field.dataType, f"{name}.", where)
            elif clashes(before, field.dataType, self._matcher):
                _log.warning(
                    "Column %s is %s in %s but %s in other files of the sample, which have no "
                    "wider type in common: it becomes a string, and values of other types are "
                    "rescued. Say which type it has with cloudFiles.schemaHints",
                    name,
                    field.dataType.simpleString(),
                    where,
                    before.simpleString(),
                )


def add_new(known: StructType, found: StructType, matcher: NameMatcher) -> StructType:
    """What is known, with the fields that it lacks at the end of each struct."""
    fields = list(known.fields)
    key = matcher.key
    positions = matcher.positions(known)
    for field in found.fields:
        place = positions.get(key(field.name))
        if place is None:
            positions[key(field.name)] = len(fields)
            fields.append(field)
            continue
        old = fields[place]
        kind = _grown(old.dataType, field.dataType, matcher)
        fields[place] = with_type(old, kind)
    return StructType(fields)


def _grown(known: DataType, found: DataType, matcher: NameMatcher) -> DataType:
    """A known type with the new fields of its structs; one that nobody knew becomes the other."""
    if isinstance(known, NullType):
        return found
    if isinstance(known, StructType) and isinstance(found, StructType):
        return add_new(known, found, matcher)
    if type(known) is not type(found):
        return known
    others = dict(inside_of(found))
    # The key of a map stays as it is.
    return with_inside(
        known, lambda name, each: each if name == "key" else _grown(each, others[name], matcher)
    )
