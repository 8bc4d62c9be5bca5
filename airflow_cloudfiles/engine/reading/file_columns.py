"""Take the columns of one file from its records, its path, and what is known of the file.

The partition columns of a stream come from every path. With a given schema and no
`cloudFiles.partitionColumns`, a column of it is a partition column for those files whose path has
a key of its name, as in Spark's file sources; in other files it is a field of the records (decision
50). So files of one split may need different readers, which are made once each.

The value of a partition column is what Spark makes of the text after `key=` in a path
(`PartitioningUtils.castPartValueToDesiredType`, Spark 4.3): dates and timestamps as its CAST takes
them, decimals rounded half up, numbers as Java parses them. A value that Spark would turn into
another one (an overflow that wraps round in a `TINYINT`, or is NULL in a `DECIMAL`) does not fit.

`_metadata` has the values of Spark's own, for the version of the file that was read, which is not
always the one that was discovered. They differ from Spark's in two things: a path has the scheme
under which the stream knows its source (`s3`, where Spark may say `s3a`), and times have the
microseconds that the store has.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql.types import ArrayType, DecimalType, MapType, StructField, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.files import RecordError, printable_path
from airflow_cloudfiles.engine.formats.base import (
    BadRecord,
    BlockReader,
    FileReader,
    OpenedFile,
    ReadCounts,
    line_blocks,
)
from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.registry import open_reader
from airflow_cloudfiles.engine.formats.scalars import (
    MISFIT,
    Convert,
    or_misfit,
    to_boolean,
    to_decimal,
    to_floating,
    to_integer,
)
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.base import StringValueOptions
from airflow_cloudfiles.engine.options.metadata_columns import ARCHIVE_MEMBER, SHEET_NAME, STRUCT
from airflow_cloudfiles.engine.reading.fetch import files_in
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange
from airflow_cloudfiles.engine.schema.log import full_schema, in_order
from airflow_cloudfiles.engine.schema.source_columns import (
    FIELDS,
    SHEET_FIELDS,
    SINGLE_FIELDS,
    partition_values,
    path_partitions,
    with_metadata,
)
from airflow_cloudfiles.engine.types import VariantType, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
    from airflow_cloudfiles.engine.options.metadata_columns import MetadataColumn

_FIELDS: Final = to_arrow(FIELDS)
_SHEET_FIELDS: Final = to_arrow(SHEET_FIELDS)
_SINGLE_FIELDS: Final = to_arrow(SINGLE_FIELDS)
_QUOTED: Final = re.compile(
    # What `java.net.URI` quotes in a path: all of ASCII that no path may have, control characters,
    # and spaces of any kind; here also bytes that are no UTF-8.
    "[^A-Za-z0-9\\-_.!~*'():@&=+$,;/\u00a1-\U0010ffff]"
    "|[\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ud800-\udfff]"
)


class RowsOfPart(NamedTuple):
    """Rows that are from one part of a file.

    Attributes:
        part: The part, of the version that was read.
        rows: How many.
        member: The path of the file in its archive; empty outside of archives.
    """

    part: FileRange
    rows: int
    member: str = ""


def metadata_arrays(
    columns: Sequence[MetadataColumn],
    source_uri: str,
    parts: Sequence[RowsOfPart],
    sheet: str | None = None,
) -> dict[str, pa.Array]:
    """Make the columns of rows of some parts of files.

    Args:
        columns: Which, and of which names.
        source_uri: What the paths of the files are relative to.
        parts: The parts, in the order of the rows.
        sheet: The sheet that they are from, where files have sheets.
    """
    values = [
        {
            **metadata_values(source_uri, each.part),
            SHEET_NAME: sheet,
            ARCHIVE_MEMBER: printable_path(each.member) or None,
        }
        for each in parts
    ]
    wanted = {each.field for each in columns}
    of_rows = [place for place, each in enumerate(parts) for _ in range(each.rows)]
    places = pa.array(of_rows, pa.int64())
    arrays = {
        field.name: _repeated([each[field.name] for each in values], field.type, places)
        for field in _SINGLE_FIELDS
        if STRUCT in wanted or field.name in wanted
    }
    found = {}
    for each in columns:
        if each.field == STRUCT:
            fields = list(_SHEET_FIELDS if each.has_sheet else _FIELDS)
            found[each.name] = pa.StructArray.from_arrays(
                [arrays[field.name] for field in fields], fields=fields
            )
        else:
            found[each.name] = arrays[each.field]
    return found


def _repeated(values: list[object], kind: pa.DataType, places: pa.Array) -> pa.Array:
    """Give each row the value at its place."""
    if len(values) == 1:
        return pa.repeat(pa.scalar(values[0], kind), len(places))
    return pa.array(values, kind).take(places)


def metadata_values(source_uri: str, part: FileRange) -> Mapping[str, str | int]:
    """Build the values for one part of a file; the time is in microseconds since 1970."""
    path = file_path(source_uri, part.file.path)
    return {
        "file_path": path,
        "file_name": path.rpartition("/")[2],
        "file_size": part.file.size,
        "file_block_start": part.start,
        "file_block_length": part.size,
        "file_modification_time": part.file.modification_time_us,
    }


def file_path(source_uri: str, path: str) -> str:
    """Build the URI of a file as Spark's file sources write it."""
    scheme, _, rest = source_uri.partition("://")
    authority, _, folder = rest.partition("/")
    below = f"{folder.rstrip('/')}/{path}" if folder else path
    place = f"{scheme}://{authority}" if authority else f"{scheme}:"
    return f"{place}/{_QUOTED.sub(_quoted, below)}"


def _quoted(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))


class PartitionConverters:
    """The conversions of the values of paths.

    Args:
        time_zone: `timeZone`: of timestamps that name none; `None` is UTC.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text of which Spark would drop something does not fit.

    Raises:
        OptionError: There is no such time zone.
    """

    def __init__(
        self, time_zone: str | None = None, numbers: NumberRule = SPARK, *, exact: bool = False
    ) -> None:
        self._numbers, self._exact = numbers, exact
        self._times = TimePatterns(StringValueOptions(time_zone=time_zone), exact=exact)

    def scalar(self, text: str, kind: pa.DataType) -> pa.Scalar | None:
        """Give the value of a text in the type of a column; `None` where it does not fit."""
        found = self._to(kind)(text)
        return None if found is MISFIT else pa.array([found], kind)[0]

    def _to(self, kind: pa.DataType) -> Convert:
        if pa.types.is_integer(kind):
            return to_integer(kind.bit_width)
        if pa.types.is_decimal(kind):
            return to_decimal(DecimalType(kind.precision, kind.scale), exact=self._exact)
        if pa.types.is_floating(kind):
            return to_floating(self._numbers, is_float=kind == pa.float32(), exact=self._exact)
        if pa.types.is_date(kind):
            return or_misfit(self._times.date_days)
        if pa.types.is_timestamp(kind):
            return or_misfit(self._moment(kind))
        return _OTHERS.get(kind, lambda _: MISFIT)

    def _moment(self, kind: pa.DataType) -> Callable[[str], int | None]:
        if kind.tz is not None:
            return self._times.timestamp_micros
        # Spark's CAST passes over a zone here.
        exact = self._exact
        return lambda text: default_format.local_micros(text, exact=exact, drops_zone=not exact)


_OTHERS: Final[dict[pa.DataType, Convert]] = {
    pa.bool_(): to_boolean,
    pa.binary(): str.encode,
    pa.string(): str,
}


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What reads the files whose paths have the same columns.

    Attributes:
        reader: Reads the other columns, and the rescued data column if any.
        partitions: The columns that come from the path.
    """

    reader: BlockReader | FileReader
    partitions: StructType


class ColumnSources:
    """The columns of a stream, file by file.

    Args:
        context: Schema and options of the micro-batch.

    Attributes:
        arrow_schema: Of the rows of every file.
        path_error: What did not fit of the path of a file; whoever takes note of it sets `None`.
    """

    def __init__(self, context: BatchContext) -> None:
        options = context.options
        self._options = options
        self._matcher = options.matcher
        self._partitions = _schema(context.partition_schema)
        self._data = _schema(context.data_schema)
        found_in_paths = options.has_schema and options.partition_columns is None
        self._may_be_in_paths = {
            self._matcher.key(column.name): column
            for column in self._data.fields
            if found_in_paths and _may_be_in_path(column, options)
        }
        self._known: dict[frozenset[str], FileColumns] = {}
        self._rescued_for_paths = 0
        self.path_error: RecordError | None = None
        natural = full_schema(self._data, self._partitions, options.rescued_data_column)
        whole = with_metadata(natural, options.metadata_columns)
        self.arrow_schema: pa.Schema = to_arrow(in_order(whole, context.column_order))
        self._source_uri = context.source_uri

    @cached_property
    def _converters(self) -> PartitionConverters:
        """Made for files whose paths have values."""
        return PartitionConverters(
            getattr(self._options.format_options, "time_zone", None),
            NumberRule.of(self._options),
            exact=self._options.rescued_data_column is not None,
        )

    def of(self, path: str) -> FileColumns:
        """Open the reader of a file.

        Raises:
            IncompatibleSchemaError: A column has a type that the format cannot be read into.
        """
        found = path_partitions(path) if self._may_be_in_paths else []
        keys = self._matcher.keys(name for name, _ in found)
        names = keys.intersection(self._may_be_in_paths)
        if names not in self._known:
            self._known[names] = self._without(names)
        return self._known[names]

    def rows(
        self, batch: pa.RecordBatch, parts: Sequence[RowsOfPart], file_uri: str
    ) -> pa.RecordBatch:
        """Put the columns of files together: of their records, their paths and the files.

        Args:
            batch: Of their records.
            parts: The parts that they are from, in their order. Several where their paths have no
                columns.
            file_uri: The first file, for errors.

        Raises:
            IncompatibleSchemaError: A value in the path does not fit its column, and there is no
                rescued data column to take it.
        """
        path = parts[0].part.file.path
        partitions = self.of(path).partitions
        if not partitions.fields and batch.schema.names == self.arrow_schema.names:
            return batch
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        values, lost = self.path_values(path, partitions)
        found |= {name: pa.repeat(value, batch.num_rows) for name, value in values.items()}
        if made := self._options.metadata_columns:
            sheet = (batch.schema.metadata or {}).get(SHEET_NAME.encode())
            name = None if sheet is None else sheet.decode()
            found |= metadata_arrays(made, self._source_uri, parts, name)
        rescued = self._options.rescued_data_column
        if lost and rescued is None:
            raise _misfit(lost, partitions, file_uri)
        if lost:
            self.path_error = RecordError(_PATH_REASON, next(iter(lost)))
            self._rescued_for_paths += found[rescued].null_count  # readers have counted the others
            found[rescued] = _rescued(found[rescued], lost, file_uri)
        arrays = [found[name] for name in self.arrow_schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def path_values(
        self, path: str, partitions: StructType
    ) -> tuple[dict[str, pa.Scalar], dict[str, str]]:
        """Convert the values of a path; texts that do not fit are null, and named.

        Args:
            path: Of a file.
            partitions: The columns that come from it.
        """
        texts = partition_values(path, partitions.names, self._matcher)
        values, lost = {}, {}
        for field in to_arrow(partitions):
            text = texts[field.name]
            value = None if text is None else self._converters.scalar(text, field.type)
            values[field.name] = pa.scalar(None, field.type) if value is None else value
            if text is not None and value is None:
                lost[field.name] = text
        return values, lost

    def counts(self) -> ReadCounts:
        """Return what all readers have read so far."""
        total = ReadCounts()
        for each in self._known.values():
            total.add(each.reader.counts)
        total.rescued_rows += self._rescued_for_paths
        return total

    def totals(self) -> tuple[int, int, int, int]:
        """Count rows, rescued rows, corrupt and dropped records of all readers so far.

        It costs the same however many files there are.
        """
        rows, rescued, corrupt, dropped = 0, self._rescued_for_paths, 0, 0
        for each in self._known.values():
            counts = each.reader.counts
            rows += counts.rows
            rescued += counts.rescued_rows
            corrupt += counts.corrupt_records
            dropped += counts.dropped_records
        return rows, rescued, corrupt, dropped

    @property
    def rescued_for_paths(self) -> int:
        """How many rows have rescued data for nothing but the path of their file."""
        return self._rescued_for_paths

    def take_bad_records(self) -> list[BadRecord]:
        """Return what goes to `badRecordsPath`, once."""
        taken = [record for each in self._known.values() for record in each.reader.bad_records]
        for each in self._known.values():
            each.reader.bad_records.clear()
        return taken

    def _without(self, names: frozenset[str]) -> FileColumns:
        """Open the reader of files whose paths have some of the data columns."""
        fields, key = self._data.fields, self._matcher.key
        own = StructType([each for each in fields if key(each.name) not in names])
        in_path = [each for each in fields if key(each.name) in names]
        partitions = StructType([*self._partitions.fields, *in_path])
        options = replace(self._options, path_columns=tuple(partitions.names))
        return FileColumns(open_reader(own, options), partitions)


def check_members(context: BatchContext, archive: OpenedFile) -> None:
    """Read the members of an archive to their ends, and keep nothing of them.

    Raises:
        FileUnreadableError: It is damaged, or a member of it.
        UnknownFields: There are new fields, in a mode that must know.
    """
    options = context.options
    reader = ColumnSources(context).of(archive.entry.path).reader
    for file in files_in(archive, options):
        if isinstance(reader, FileReader):
            for _ in reader.read_file(file):
                reader.bad_records.clear()
        else:  # whether its lines are records says the reader, row by row
            deque(line_blocks(file, cast("JsonOptions", options.format_options)), maxlen=0)


def _may_be_in_path(column: StructField, options: CloudFilesOptions) -> bool:
    own = (options.corrupt_record_column, options.rescued_data_column)
    nested = (StructType, ArrayType, MapType, VariantType)
    return column.name not in own and not isinstance(column.dataType, nested)


_PATH_REASON: Final = "a value in the path does not fit its column"


def _misfit(lost: dict[str, str], partitions: StructType, file_uri: str) -> Exception:
    name, text = next(iter(lost.items()))
    return IncompatibleSchemaError(
        f"{file_uri}: the path has {name}={text}, which does not fit column {name} of type "
        f"{partitions[name].dataType.simpleString()}, and there is no rescued data column to take "
        "it. Give the column another type, set rescuedDataColumn, or move the file."
    )


def _rescued(column: pa.Array, lost: dict[str, str], file_uri: str) -> pa.Array:
    """Add partition values that do not fit their type to the rescued data of every row."""
    inner = json.dumps(lost)[1:-1]
    alone = f"{{{inner}, {json.dumps({'_file_path': file_uri})[1:]}"
    values = [
        alone if text is None else f"{{{inner}, {text.removeprefix('{')}"
        for text in column.to_pylist()
    ]
    return pa.array(values, type=column.type)


def _schema(text: str) -> StructType:
    return StructType.fromJson(json.loads(text))
