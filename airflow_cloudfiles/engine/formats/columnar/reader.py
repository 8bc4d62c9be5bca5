"""Read files with types of their own, and infer their schema.

What Parquet and ORC share. The life of one `read_file`:

1. The file's schema is compared with the stream's (`fit`); new fields are reported before
   any row is given out.
2. Batches of the columns that are needed are fitted, column by column.
3. What did not find its column goes into the rescued data column, row by row. Without that column
   it is dropped, which is what leaving it out asks for (B55): these formats have no bad records,
   and no `mode`.

Their schema is learnt from the footers: no row is read. Types are the files' own (`types`),
whatever `cloudFiles.inferColumnTypes` says, and meet in the widest one when files disagree (B10).
What a column cannot have (times of day, unions, a second field under the same name) is left out;
the reader rescues it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import CloudFilesError, FileUnreadableError
from airflow_cloudfiles.engine.formats.base import (
    OpenedFile,
    UnknownFields,
    add_sample,
    path_end,
    quote,
)
from airflow_cloudfiles.engine.formats.columnar import strings as json_strings
from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.fit import (
    INSIDE,
    FilePlan,
    Matching,
    NewField,
    compile_file,
    there,
)
from airflow_cloudfiles.engine.formats.columnar.types import clashes, column_types
from airflow_cloudfiles.engine.formats.content import WatchedBytes
from airflow_cloudfiles.engine.formats.recognize import HEAD_BYTES, kind_of_content, not_of_format
from airflow_cloudfiles.engine.formats.record_policy import (
    FormatReader,
    make_batch,
    rescued_error,
    sparse_strings,
)
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.types import (
    grown,
    merge_structs,
    missing_fields,
    seen_columns,
    to_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from airflow_cloudfiles.engine.files import RecordError

BATCH_BYTES: Final = 16 * 2**20
"""About what a batch takes in memory: large enough to vectorise, small enough for a task."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file.

    Attributes:
        rows: How many.
        columns: The columns that were asked for, in that order.
        schema: Of the file, where these rows need other types than the file tells.
    """

    rows: int
    columns: list[pa.Array]
    schema: pa.Schema | None = None


class ColumnarFile(Protocol):
    """An open file of a columnar format."""

    schema: pa.Schema
    """Its columns, with the types its values have for Spark."""

    def parts(self, start: int, end: int | None) -> list[int]:
        """List the row groups or stripes whose first byte is in a range."""

    def rows_before(self, parts: list[int]) -> int | None:
        """Count the rows before the first of some parts; `None` where the file does not say."""

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """Yield the rows of some parts, in order."""


class _Columnar:
    """What opens the files of a columnar format.

    Attributes:
        format: The name of the format, for errors.
        file: What a file is opened as: a `ColumnarFile`, of its bytes and the format's options.
    """

    format: ClassVar[str]
    file: ClassVar[type[Any]]
    _options: CloudFilesOptions

    def open(self, content: IO[bytes]) -> Any:
        """Read the footer of a file."""
        return self.file(content, self._options.format_options)


class ColumnarReader(_Columnar, FormatReader):
    """Reads files of a columnar format with one schema.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column.
        options: Evolution mode, case sensitivity and the name of the rescued data column.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: Always empty.

    Raises:
        IncompatibleSchemaError: A column has a type that files cannot be read into.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        self._columns, self._data_schema = to_arrow(data_schema), data_schema
        # Inference leaves these names out; where the user's own schema has one, it is a column.
        matcher = options.matcher
        reserved = matcher.keys(options.reserved_columns)
        self._matching = Matching(
            case_sensitive=options.reader_case_sensitive,
            rescues_unknown_fields=options.rescued_data_column is not None,
            reserved=reserved - matcher.keys(data_schema.names),
            matcher=matcher,
            left_out=missing_fields(options.stay_rescued, data_schema, matcher),
        )
        self._last: tuple[pa.Schema, FilePlan] | None = None

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the row groups or stripes of it that begin in a range of bytes.

        Reading the ranges of a file, in whatever tasks, gives each of its rows once.

        Raises:
            UnknownFields: The file has fields the schema lacks, in a mode that must know.
            FileUnreadableError: The file is not of this format, damaged, or not readable here.
        """
        if not file.entry.size:
            return  # without a row, as an empty file of lines
        with content_of(file, self.format) as content:
            opened: ColumnarFile = self.open(content)
            parts = opened.parts(start, end)
            plan = self._plan(opened.schema)
            watches = self._options.schema_evolution_mode in WATCHING_MODES
            if plan.new and watches and (parts or start == 0):
                raise UnknownFields(_samples(opened, parts, plan.new), file.uri)
            before: int | None = 0 if start == 0 else opened.rows_before(parts)
            for chunk in opened.chunks(parts, plan.columns):
                schema = opened.schema if chunk.schema is None else chunk.schema
                batch, first = self._batch(self._plan(schema), chunk, file.uri)
                if first is not None and self.first_error is None:
                    row, error = first
                    line = None if before is None else before + row + 1
                    byte = start if line is None else None
                    self.first_error = replace(error, line=line, byte=byte)
                before = None if before is None else before + chunk.rows
                self.counts.rows += batch.num_rows
                yield batch

    def _plan(self, schema: pa.Schema) -> FilePlan:
        """Plan for files of a schema; most files of a stream have the same."""
        if self._last is None or not self._last[0].equals(schema, check_metadata=True):
            self._last = schema, compile_file(schema, self._columns, self._matching)
        return self._last[1]

    def _batch(
        self, plan: FilePlan, chunk: Chunk, uri: str
    ) -> tuple[pa.RecordBatch, tuple[int, RecordError] | None]:
        """Fit one chunk, and rescue what does not fit; say which row is the first of that."""
        columns = dict(zip(plan.columns, chunk.columns, strict=True))
        fields = [columns.get(place) for place in range(len(plan.root.names))]
        arrays, bads = plan.root.fit_fields(fields, chunk.rows)
        if self._options.rescued_data_column is None:
            return make_batch(arrays, self.arrow_schema, chunk.rows), None
        members: dict[int, list[str]] = {}
        for child, bad in zip(plan.root.children, bads, strict=True):
            if child is not None and bad is not None:
                places = np.flatnonzero(bad)
                rest = child[1].rest(_taken(fields[child[0]], places))
                _add(members, plan.root.names[child[0]], places.tolist(), rest)
        for place in plan.root.unknown_fields:
            present = there(fields[place])
            if present is not None:
                places = np.flatnonzero(present)
                strings = json_strings.json_of(_taken(fields[place], places))
                _add(members, plan.root.names[place], places.tolist(), strings)
        self.counts.rescued_rows += len(members)
        end = path_end(uri)
        whole = {row: ("{" + ",".join(found) + end).encode() for row, found in members.items()}
        arrays.append(sparse_strings(whole, chunk.rows))
        first = min(whole, default=None)
        error = None if first is None else (first, rescued_error(whole[first], self._data_schema))
        return make_batch(arrays, self.arrow_schema, chunk.rows), error


def names_of(schema: pa.Schema, columns: list[int]) -> list[str] | None:
    """Columns by name, as the library wants them; `None`, all, where names would be ambiguous.

    To the library a dot leads into a struct.
    """
    names = schema.names
    if len(columns) == len(names) or len(set(names)) < len(names):
        return None
    return None if any("." in name for name in names) else [names[each] for each in columns]


@contextmanager
def reading(file: OpenedFile, format_name: str) -> Iterator[None]:
    """Turn what the library raises into an error that names the file.

    What fetching the bytes raises passes: the stream knows what to do about it.

    Raises:
        FileUnreadableError: The file is not of this format, damaged, or not readable here.
    """
    try:
        yield
    except (CloudFilesError, UnknownFields):
        raise
    except (pa.ArrowException, MemoryError, ValueError, ArithmeticError) as error:
        raise unreadable(file, format_name, str(error)) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise  # the system's, or the store's; the library raises nothing but the bare class
        raise unreadable(file, format_name, str(error)) from error


@contextmanager
def content_of(file: OpenedFile, format_name: str) -> Iterator[IO[bytes]]:
    """Open a file for a library, and turn what that raises into an error that names the file.

    Raises:
        FileUnreadableError: As of `reading`.
    """
    with reading(file, format_name), file.random_access() as content:
        watched = WatchedBytes(content)
        try:
            yield cast("IO[bytes]", watched)
        except Exception as error:
            if watched.failure is not None:
                raise watched.failure from error
            raise


def unreadable(file: OpenedFile, format_name: str, reason: str) -> FileUnreadableError:
    """Build the error for a file that cannot be read."""
    kind = None
    with suppress(OSError), file.random_access() as content:
        kind = kind_of_content(content.read(HEAD_BYTES))
    if kind is not None and kind != format_name:
        return not_of_format(file.uri, kind)
    reason = cut(" ".join(reason.split()).rstrip("."), 300)
    return FileUnreadableError(
        f"{file.uri} cannot be read as {format_name}: {reason}. "
        "Replace it and run again, or set ignoreCorruptFiles=true to go on without it."
    )


def _taken(array: pa.Array, places: np.ndarray) -> pa.Array:
    """Take some values; return the array itself when these are all."""
    array = types.plain(array)
    return array if len(places) == len(array) else array.take(pa.array(places))


def _add(
    members: dict[int, list[str]], name: str, places: list[int], strings: json_strings.Strings
) -> None:
    """Add a member to the rescued data of rows."""
    key = quote(name) + ":"
    for place, text in zip(places, strings, strict=True):
        if text is not None:
            members.setdefault(place, []).append(key + text)


def _samples(opened: ColumnarFile, parts: list[int], new: list[NewField]) -> dict[str, object]:
    """List new top-level fields with a value of each, nested as they are."""
    columns = sorted({each.steps[0] for each in new})
    chunk = next(opened.chunks(parts[:1], columns), None)
    arrays = {} if chunk is None else dict(zip(columns, chunk.columns, strict=True))
    found: dict[str, object] = {}
    for each in new:
        array = arrays.get(each.steps[0])
        value = None if array is None else _sample(array, each.steps[1:])
        add_sample(found, each.names, value)
    return found


def _sample(array: pa.Array, steps: tuple[int, ...]) -> object:
    """Find the first value at a path that is there, for a message."""
    for step in steps:
        array = types.plain(array)
        if step != INSIDE:
            array = array.flatten()[step]
        elif pa.types.is_map(array.type):
            array = types.entries(array)[1]
        else:
            array = types.elements(types.listed(array))
    return json_strings.sample(array)


_log = logging.getLogger(__name__)


class ColumnarInference(_Columnar):
    """Learns the schema of files of a columnar format.

    Args:
        options: The stream's; `mergeSchema=false` learns from the first file alone.
        known: The schema there is already. Its columns keep their types, whatever the files say;
            only what it lacks is learnt.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._options = options
        self._merges = getattr(options.format_options, "merge_schema", True)
        self._matcher = options.matcher
        self._known = known
        self._found = StructType([]) if known is None else known
        self._has_learned = False

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from the footer of one file.

        Raises:
            FileUnreadableError: The file is not of this format, or damaged.
        """
        if self._is_resolved or not file.entry.size:
            return
        with content_of(file, self.format) as content:
            found = StructType(column_types(self.open(content).schema, self._matcher))
        self._learn(found, file.uri)
        yield 0

    def result(self) -> StructType:
        """Return the columns of all files, in order of first appearance."""
        return seen_columns(self._found)

    @property
    def _is_resolved(self) -> bool:
        """Whether no more file is looked at, because one tells it all."""
        return self._has_learned and not self._merges and self._known is None

    def _learn(self, found: StructType, where: str) -> None:
        self._has_learned = True
        if self._known is None:
            self._tell_clashes(self._found, found, "", where)
            self._found = merge_structs(self._found, found, self._matcher, of_files=True)
        else:
            self._found = grown(self._found, found, self._matcher)

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
