"""Read and infer files whose records are rows of a table.

Records with a value for each column, which a header names or which are counted: CSV and workbooks.

Columns of a file are matched with those of the schema by name.

A file with a header is read by the names in it, wherever they stand (Auto Loader ignores
`enforceSchema`, so that it can evolve and rescue). A file without one is read by position: its
columns are those of a given schema, or else `_c0`, `_c1` and so on (B8); where columns are counted
from 1, as in Excel, `_c1`, `_c2` and so on.

Rescued data is written for many rows at once.

One JSON object a row: members by the names in the file, values as their strings, the path of the
file last.

The names of inferred columns are those of the headers of all files, in the order of their first
appearance (B9). All are strings, unless `cloudFiles.inferColumnTypes` is set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType

from airflow_cloudfiles.engine.formats.base import path_end, quote
from airflow_cloudfiles.engine.formats.record_policy import (
    RecordOutcomes,
    RecordReader,
)
from airflow_cloudfiles.engine.formats.scalars import data_of
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.types import is_column_name, missing_fields

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Positions
    from airflow_cloudfiles.engine.names import NameMatcher

STRING: Final = StringType()
Values = TypeVar("Values")
"""Values of one column, as a format has them."""


class TableInference(Generic[Values]):
    """Learns the schema of files.

    Args:
        options: Of the source.
        known: A schema the files are read with already; what they have besides is appended to it,
            its own types stay.
        finder: Finds the type that holds some values and what is of a known type; `None` where
            all columns are strings.
    """

    def __init__(
        self,
        options: CloudFilesOptions,
        known: StructType | None,
        finder: Callable[[Values, DataType], DataType] | None,
    ) -> None:
        self._known = StructType([]) if known is None else known
        self._matcher = options.matcher
        self._fixed = self._matcher.keys(self._known.names)
        self._names: dict[str, str] = {}
        self._types: dict[str, DataType] = {}
        self._finder = finder

    def result(self) -> StructType:
        """Return what is known: `NullType` where no value has shown the type."""
        new = [StructField(name, self._types[key]) for key, name in self._names.items()]
        return StructType([*self._known.fields, *new])

    def _learn_names(self, names: Iterable[str]) -> None:
        for name in names:
            key = self._matcher.key(name)
            if key not in self._names and key not in self._fixed and is_column_name(name):
                self._names[key] = name
                self._types[key] = STRING if self._finder is None else NullType()

    def _learn_type(self, key: str | None, values: Values) -> None:
        """Learn from values of a column, unless its type is known."""
        if self._finder is not None and key in self._types:
            self._types[key] = self._finder(values, self._types[key])


_POSITIONAL: Final = re.compile(r"_c(0|[1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class TabularColumns:
    """The columns of one file.

    Attributes:
        names: As the file, or its lack of a header, names them.
        targets: For each, its position in the schema; `None` when it has none.
        new: Positions in the file of what could be new columns.
        is_exact: Whether a record with fewer values is not valid.
        is_open: Whether a record with more values has new columns, rather than not being valid.
        usual_width: How many values most records have.
    """

    names: tuple[str, ...]
    targets: tuple[int | None, ...]
    new: tuple[int, ...] = ()
    is_exact: bool = True
    is_open: bool = False
    usual_width: int = 0

    def with_width(self, width: int) -> TabularColumns:
        """Describe records of that many values, in a file that tells nothing about its columns.

        Columns only grow: what a wider record has besides is known by its position.
        """
        if not self.is_open or not width:
            return self
        more = range(len(self.names), width)
        return TabularColumns(
            (*self.names, *(f"_c{place}" for place in more)),
            (*self.targets, *(None for _ in more)),
            (*self.new, *more),
            is_exact=False,
            is_open=True,
            usual_width=width,
        )


def safe_names(
    header: Sequence[str | None], null_value: str, matcher: NameMatcher, *, first: int = 0
) -> tuple[str, ...]:
    """Name columns as Spark does from a header (`CSVUtils.makeSafeHeader`).

    Args:
        header: The names that the file has.
        null_value: Stands for no name, as an empty text does.
        matcher: How names of columns are compared.
        first: The number of the first column.

    Without a name, a column is called `_c` and its position (B79); names that come twice, in
    whatever spelling, have their position behind them.
    """
    key = matcher.key
    counts = Counter(key(name) for name in header if name)
    return tuple(
        f"_c{index}"
        if not name or name == null_value
        else name + (str(index) if counts[key(name)] > 1 else "")
        for index, name in enumerate(header, first)
    )


class TableReader(RecordReader):
    """Reads files with one schema; see `RecordReader`.

    Args:
        data_schema: The columns to fill.
        options: Of the source.
        first: The number of the first column in a file.

    Attributes:
        stay_rescued: Names that are no new columns, all the same.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, first: int = 0
    ) -> None:
        super().__init__(data_schema, options)
        parsed, self._key = self._policy.parsed, options.matcher.key
        left_out = missing_fields(options.stay_rescued, parsed, options.matcher)
        self.stay_rescued = frozenset(name for name, *_ in left_out)
        self._never_new = self._reserved | options.matcher.keys(self.stay_rescued)
        self._first = first
        self._names = parsed.names
        columns = [*enumerate(self._names)][::-1]
        self._index = {name: place for place, name in columns}
        self._folded = {self._key(name): place for place, name in columns}

    def _columns(
        self, header: Sequence[str | None] | None, null_value: str = "", *, first: int = 0
    ) -> TabularColumns:
        """Find the columns of a file; see `safe_names`."""
        if header is None:
            return self._without_header()
        return self._of_header(safe_names(header, null_value, self._options.matcher, first=first))

    def _of_header(self, names: Sequence[str]) -> TabularColumns:
        """Find the columns of a file with a header."""
        targets: list[int | None] = []
        taken: set[int] = set()
        for name in names:
            found = self._index.get(name)
            if found is None and not self._options.reader_case_sensitive:
                found = self._folded.get(self._key(name))
            targets.append(None if found in taken else found)
            taken.update([] if found is None else [found])
        new = tuple(
            place
            for place, name in enumerate(names)
            if targets[place] is None and self._may_be_new(name)
        )
        return TabularColumns(tuple(names), tuple(targets), new, usual_width=len(names))

    def _without_header(self) -> TabularColumns:
        """Find the columns of a file without a header."""
        if self._options.has_schema:
            width = len(self._names)
            return TabularColumns(tuple(self._names), tuple(range(width)), usual_width=width)
        positions = {
            int(found[1]) - self._first: place
            for place, name in enumerate(self._names)
            if (found := _POSITIONAL.fullmatch(name)) and int(found[1]) >= self._first
        }
        width = max(positions, default=-1) + 1
        names = tuple(f"_c{place + self._first}" for place in range(width))
        targets = tuple(positions.get(place) for place in range(width))
        new = tuple(place for place, target in enumerate(targets) if target is None)
        return TabularColumns(names, targets, new, is_exact=False, is_open=True, usual_width=width)

    def _may_be_new(self, name: str) -> bool:
        return (
            is_column_name(name)
            and self._key(name) not in self._folded
            and self._key(name) not in self._never_new
        )


_SPECIAL: Final = bytes(range(0x20)) + b'"\\'


@dataclass(slots=True)
class RescuedCells:
    """What is rescued of the rows of a batch, column by column."""

    _rows: list[Positions] = field(default_factory=list)
    _members: list[pa.StringArray] = field(default_factory=list)

    def add(self, name: str, rows: Positions, strings: pa.StringArray) -> None:
        """Rescue strings of one column; rows ascending."""
        if len(rows):
            member = pc.binary_join_element_wise(quote(name) + ":", _quoted(strings), "")
            self.add_members(rows, member)

    def add_members(self, rows: Positions, members: pa.StringArray) -> None:
        """Rescue what is JSON already, such as `"a":"1","b":"2"`; rows ascending."""
        if len(rows):
            self._rows.append(rows)
            self._members.append(members)

    def batch(
        self, outcomes: RecordOutcomes, arrays: list[pa.Array], count: int, file_uri: str
    ) -> pa.RecordBatch:
        """Build the batch of that many rows, with what is rescued of them where that is wanted."""
        column = None
        if outcomes.policy.rescues:
            column = self._column(count, file_uri)
            lost = sum(column[row].is_valid for row in outcomes.dropped)
            outcomes.counts.rescued_rows = count - column.null_count - lost
            if outcomes.counts.rescued_rows:
                there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
                row = next(each for each in there if each not in outcomes.dropped)
                outcomes.first_rescued = row, column[row].as_py()
        return outcomes.batch(arrays, count, column)

    def _column(self, count: int, file_uri: str) -> pa.StringArray:
        if not self._rows:
            return pa.nulls(count, pa.string())
        rows = np.unique(np.concatenate(self._rows))
        members = [
            spread(each, np.searchsorted(rows, where), len(rows))
            for where, each in zip(self._rows, self._members, strict=True)
        ]
        joined = pc.binary_join_element_wise(*members, ",", null_handling="skip")
        objects = pc.binary_join_element_wise("{", joined, path_end(file_uri), "")
        return spread(objects, rows, count)


def _quoted(strings: pa.StringArray) -> pa.StringArray:
    """JSON strings."""
    data = data_of(strings)
    if len(data.translate(None, _SPECIAL)) == len(data):
        return pc.binary_join_element_wise('"', strings, '"', "")
    return pa.array([None if text is None else quote(text) for text in strings.to_pylist()])


def spread(values: pa.Array, rows: Positions, count: int) -> pa.Array:
    """Values of some rows, ascending, among all rows."""
    if len(rows) == count:
        return values
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
