"""Write the rows of a task to data files of a table.

Their columns become the table's (`conform`). Without partition columns they go to one file after
another. With them, rows are kept in memory by partition, up to `BUFFER_BYTES` in all; then the
largest partition is written to a file of its own, and so on. One file is open at a time, however
many partitions a task meets.

The value of a partition column is written as Delta does, and so is the folder of its files.

The value is a string in the table's log, in the form that Delta's protocol has for its type; an
empty string is null. The folder is only a name, which no reader takes apart: Hive's `column=value`,
as Delta and Spark have it, in a length that file systems take.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
    Spark's `ExternalCatalogUtils.escapePathName`

Arrays of rows become those of a data file; a null where none may be is refused.

The layout has the shape of the rows, so the two are walked side by side; nothing is looked up by
name. What has the type already is handed on as it is.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.formats.columnar.types import is_bytes, with_inner
from airflow_cloudfiles.engine.messages import counted, cut, plural
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter, FileSettings
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.columns import rows_columns
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules, layout_for
from airflow_cloudfiles.engine.tables.delta.write.layout import (
    ColumnLayout,
    FileLayout,
    holds_void,
    layout_of,
    physical_path,
    plain_layout,
)
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles

BUFFER_BYTES = 128 * 2**20
"""Rows that a task keeps in memory before it writes those of the largest partition."""

Values = tuple[str | None, ...]
_USUAL: Final = FileSettings()


@dataclass(frozen=True, slots=True)
class TableWrite:
    """How the tasks of a batch write its rows to files in the folder of a table.

    Attributes:
        table: The table as it is; `None` where there is none yet.
        rules: How it may change.
        target_bytes: Size of a file that goes before that of the table's properties.
        is_staged: Whether the rows are read again to be committed: their files are in no version
            of the table, and have the columns of the rows.
    """

    table: TableState | None
    rules: WriteRules
    target_bytes: int | None = None
    is_staged: bool = False

    def layout(self, rows: pa.Schema) -> FileLayout | None:
        """Plan how rows become data files; `None` where they are written as they are.

        Raises:
            SchemaMismatchError: The columns do not fit the table.
        """
        if self.is_staged:
            return None
        if self.table is None:  # files of a new table, too, have no columns without a type
            return plain_layout(rows) if any(map(holds_void, rows.types)) else None
        return layout_for(self.table, rows, self.rules)

    @property
    def settings(self) -> FileSettings:
        """What the files are to be like."""
        if self.is_staged:
            return FileSettings(self.target_bytes, folder=STAGED)
        if self.table is None:
            return FileSettings(self.target_bytes)
        found = FileSettings.of(self.table.configuration, self.target_bytes)
        indexed = found.indexed.renamed(partial(physical_path, self.table.columns, self.table.mode))
        return replace(found, indexed=indexed)


def write_rows(
    target: str,
    rows: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    layout: FileLayout | None,
    settings: FileSettings = _USUAL,
) -> list[DataFile]:
    """Write rows to data files that no reader sees yet; a failure removes them, if it can.

    Args:
        target: Path or URI of the table.
        rows: Columns of the rows.
        batches: The rows.
        layout: Of the table's files; `None` writes the rows as they are.
        settings: What the files are to be like.

    Raises:
        SchemaMismatchError: A value is null in a column that is NOT NULL.
        TargetUnreachableError: The place of the table does not answer for the moment.
        TargetAccessError: It refused us.
    """
    if layout is None or layout.is_plain(rows):
        return DataFileWriter(target, rows, settings).write(batches)
    if not layout.partitions:
        found = (_in_files(conformed(batch, layout, target), layout) for batch in batches)
        return DataFileWriter(target, layout.schema, settings).write(found)
    return _PartitionedWriter(target, layout, settings).write(batches)


def _in_files(arrays: Sequence[pa.Array], layout: FileLayout) -> pa.RecordBatch:
    """Choose the columns that data files have."""
    return pa.RecordBatch.from_arrays(
        [arrays[place] for place in layout.places], schema=layout.schema
    )


class _PartitionedWriter:
    """Writes rows to the files of their partitions."""

    def __init__(self, target: str, layout: FileLayout, settings: FileSettings) -> None:
        self._target = target
        self._layout = layout
        self._settings = settings
        self._buffers: defaultdict[Values, list[pa.RecordBatch]] = defaultdict(list)
        self._sizes: Counter[Values] = Counter()
        self._bytes = 0
        self._files: list[DataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write all rows; see `write_rows`."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(batch)
                while self._bytes > BUFFER_BYTES:
                    self._flush(max(self._sizes, key=self._sizes.__getitem__))
            for values in list(self._buffers):
                self._flush(values)
        except BaseException:
            location = DeltaLocation.of(self._target)
            data_files.remove(location, [file.name for file in self._files])
            raise
        return self._files

    def _add(self, batch: pa.RecordBatch) -> None:
        arrays = conformed(batch, self._layout, self._target)
        kept = _in_files(arrays, self._layout)
        for values, rows in self._split(arrays, kept):
            size = max(1, rows.nbytes)
            self._buffers[values].append(rows)
            self._sizes[values] += size
            self._bytes += size

    def _split(
        self, arrays: list[pa.Array], kept: pa.RecordBatch
    ) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """Yield the rows of each partition; those of one partition keep their order."""
        names = self._layout.partitions
        coded = [None if place is None else _codes(arrays[place]) for _, place in names]
        code = np.zeros(len(kept), np.int64)
        for each in coded:
            if each is not None:
                # Numbered anew each time: products of many columns would not fit.
                code = np.unique(code * (len(each[1]) + 1) + each[0], return_inverse=True)[1]
        order = np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order], prepend=-1))
        ends = [*starts[1:], len(order)]
        for start, end in zip(starts, ends, strict=True):
            rows = order[start:end]
            values = tuple(
                None if each is None else self._text(each[1], int(each[0][rows[0]]), name)
                for each, (name, _) in zip(coded, names, strict=True)
            )
            yield values, kept if len(starts) == 1 else kept.take(pa.array(rows))

    def _text(self, values: pa.Array, code: int, name: str) -> str | None:
        return None if code == len(values) else value_text(values[code], name, self._target)

    def _flush(self, values: Values) -> None:
        batches = self._buffers.pop(values)
        self._bytes -= self._sizes.pop(values)
        names = [name for name, _ in self._layout.partitions]
        settings = in_partition(self._settings, tuple(zip(names, values, strict=True)))
        writer = DataFileWriter(self._target, self._layout.schema, settings)
        table = pa.Table.from_batches(batches).combine_chunks()
        self._files += writer.write(table.to_batches())


def _codes(array: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.Array]:
    """Encode the rows by the numbers of their values; null has the number behind them."""
    coded = pc.dictionary_encode(array)
    numbers = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), coded.dictionary


NULL_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in the name of a folder."""
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_LONGEST: Final = 120
"""Bytes of a value in the name of a folder; names end at 255 on most file systems."""
_MICROS: Final = 10**6
_DAY: Final = 86400
_LAST_YEAR: Final = 9999


def value_text(value: pa.Scalar, column: str, target: str) -> str | None:
    """Write a value as the log has it; `None` is null.

    Args:
        value: In the table's type.
        column: Its column, for errors.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: Binary data that is no text, which the log cannot hold.
    """
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_date(kind):
        return _date(value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).as_py()
        return _timestamp(micros, is_local=kind.tz is None)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        content = value.cast(pa.binary()).as_py()  # Spark, too, takes any bytes for a text
        try:
            return content.decode() or None
        except UnicodeDecodeError as error:
            raise SchemaMismatchError(
                f"{target} is partitioned by {column}, whose value {cut(repr(content))} is no "
                "UTF-8 text, and Delta's log has partition values as text. Partition by another "
                "column."
            ) from error
    return _plain(value.as_py()) or None


def in_partition(
    settings: FileSettings, values: tuple[tuple[str, str | None], ...]
) -> FileSettings:
    """Return the settings for the files of one partition, in a folder below the table's."""
    parts = (
        f"{_escaped(name)}={NULL_NAME if value is None else _escaped(value)}/"
        for name, value in values
    )
    return replace(settings, folder="".join(parts), partition_values=values)


def write_again(
    table: TableFiles,
    rows: Iterable[pa.RecordBatch],
    settings: FileSettings,
    partition: tuple[tuple[str, str | None], ...],
) -> list[DataFile]:
    """Write rows of a table to data files that no reader sees yet; see `write_rows`.

    Args:
        table: The table.
        rows: All of one partition, without the columns of that.
        settings: What the files are to be like.
        partition: The partition.
    """
    layout = layout_of(table.state, table.columns, table.schema, rows_columns(table.schema))
    physical = partial(physical_path, table.columns, table.state.mode)
    settings = replace(
        in_partition(settings, partition), indexed=settings.indexed.renamed(physical)
    )
    return write_rows(
        table.location.target, table.schema, rows, replace(layout, partitions=()), settings
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _date(days: int) -> str:
    """Write a date of any year; those beyond 9999 have a sign, as in Java."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    number = int(year)
    sign = "-" if number < 0 else "+" if number > _LAST_YEAR else ""
    return f"{sign}{abs(number):04}-{month}-{day}"


def _timestamp(micros: int, *, is_local: bool) -> str:
    """Write a time in UTC, or a local one without a zone, to the microsecond."""
    seconds, fraction = divmod(micros, _MICROS)
    days, second = divmod(seconds, _DAY)
    time = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{fraction:06}"
    return f"{_date(days)} {time}" if is_local else f"{_date(days)}T{time}Z"


def _escaped(text: str) -> str:
    """Escape a text as Hive does in folder names; cut a long one, and end it in its hash."""
    found = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)
    encoded = found.encode()
    if len(encoded) <= _LONGEST:
        return found
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 20].decode(errors='ignore').rstrip('%')}-{digest}"


def conformed(batch: pa.RecordBatch, layout: FileLayout, target: str) -> list[pa.Array]:
    """Convert the columns of rows to the types of the table, in the order of the rows.

    Args:
        batch: Rows.
        layout: Of the table's files.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: A value is null in a column that is NOT NULL.
    """
    require_values(batch, layout, target)
    return [_conformed(*each) for each in zip(batch.columns, layout.columns, strict=True)]


def _conformed(array: pa.Array, column: ColumnLayout) -> pa.Array:
    wanted = column.field.type
    if array.type == wanted:
        return array
    if pa.types.is_null(array.type) or pa.types.is_null(wanted):
        return pa.nulls(len(array), wanted)
    if not column.inside:
        return array.cast(wanted)
    if pa.types.is_struct(wanted):
        parts = [
            _conformed(array.field(place), inside)
            for place, inside in enumerate(column.inside)
            if not pa.types.is_null(inside.field.type)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        key, value = column.inside
        fields = [wanted.key_field, wanted.item_field]
        pairs = [_conformed(array.keys, key), _conformed(array.items, value)]
        inner = pa.StructArray.from_arrays(pairs, fields=fields)
    else:
        [element] = column.inside
        inner = _conformed(array.values, element)
    return with_inner(array, wanted, inner)


def require_values(
    batch: pa.RecordBatch, layout: FileLayout, target: str, *, checks_nulls: bool = True
) -> None:
    """Refuse nulls where a table has NOT NULL, and texts that do not fit.

    These are too long, or empty where a partition column is NOT NULL. `deltalake` (1.6) looks for
    nulls itself where it changes rows, but not for these.

    Args:
        batch: Rows.
        layout: Of the table's files.
        target: The table, for errors.
        checks_nulls: Whether nulls are refused.

    Raises:
        SchemaMismatchError: There are some.
    """
    for array, column in zip(batch.columns, layout.columns, strict=True):
        _check(array, column, target, checks_nulls=checks_nulls)


def _check(array: pa.Array, column: ColumnLayout, target: str, *, checks_nulls: bool) -> None:
    """Check a column; null values have nothing inside."""
    if not column.checks_values:
        return
    if checks_nulls and column.required and array.null_count:
        count = array.null_count
        raise SchemaMismatchError(
            f"NOT NULL constraint violated for column: {column.path} of {target}: {count} of "
            f"{counted(len(array), 'row')} {plural(count, 'has', 'have')} no value there. Nothing "
            "of the batch is visible. Correct the files, or drop the constraint: cloudfiles table "
            f"drop-not-null --target {target} {column.path}"
        )
    if pa.types.is_null(array.type):
        return
    if column.checks_texts and not column.inside:
        _check_lengths(array, column, target)
    if any(each.checks_values for each in column.inside):
        for inside, part in zip(column.inside, _parts(array), strict=True):
            _check(part, inside, target, checks_nulls=checks_nulls)


def _check_lengths(array: pa.Array, column: ColumnLayout, target: str) -> None:
    least, most = column.lengths
    lengths = _characters(array)
    if empty := pc.sum(pc.less(lengths, least)).as_py():
        raise SchemaMismatchError(
            f"NOT NULL constraint violated for column: {column.path} of {target}: "
            f"{empty} of {counted(len(array), 'row')} {plural(empty, 'has', 'have')} an empty "
            "text there, and the table is partitioned by the column: Delta's log has an empty "
            "text as null. Nothing of the batch is visible. Correct the rows, or let the "
            f"column be null: cloudfiles table drop-not-null --target {target} {column.path}"
        )
    too_long = pc.greater(lengths, most) if most is not None else None
    if too_long is not None and pc.any(too_long).as_py():
        count, example = pc.sum(too_long).as_py(), array.filter(too_long)[0].as_py()
        raise SchemaMismatchError(
            f"Value {cut(repr(example))} exceeds char/varchar type length limitation: column "
            f"{column.path} of {target} has texts of at most {most} characters, and "
            f"{count} of {counted(len(array), 'value')} {plural(count, 'is', 'are')} longer. "
            "Nothing of the batch is visible. Correct the files, or widen the column where the "
            "table is maintained (ALTER TABLE ... ALTER COLUMN ... TYPE)."
        )


def _characters(array: pa.Array) -> pa.Array:
    """Count the characters of each text, or the bytes of each binary value."""
    return pc.binary_length(array) if is_bytes(array.type) else pc.utf8_length(array)


def _parts(array: pa.Array) -> list[pa.Array]:
    """Return what is inside the values that are not null."""
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        pairs = pa.ListArray.from_arrays(
            array.offsets, pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        ).flatten()
        return [pairs.field(0), pairs.field(1)]
    return [array.flatten()]
