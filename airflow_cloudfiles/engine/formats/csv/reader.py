"""Read CSV files, block by block.

Blocks of a file become record batches. The fast path hands plain records to Arrow (`lines`,
`columns`) and converts whole columns (`scalars`). A record with quotes or escapes that Arrow would
read otherwise is taken apart by itself, a value that is not easily converted too. A record is in
exactly one place afterwards: its row, with the rescued data; the corrupt record column; or, as the
mode says, dropped and counted, or the error.

The life of one `CsvBlock.read`:

1. Plain records are taken apart at once, odd ones by themselves. A record that is not valid is
   kept, dropped or fails, as the mode says.
2. Columns of strings become columns of values; they tell which rows hold one that does not fit.
3. What did not find its column is put into the rescued data column, the corrupt record column, or
   wherever else the mode says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.base import (
    ENOUGH_RECORDS,
    UnknownFields,
    cut_sample,
    member,
    printable,
)
from airflow_cloudfiles.engine.formats.csv.columns import CsvConverters, PlainReader
from airflow_cloudfiles.engine.formats.csv.lines import (
    ODD,
    PLAIN,
    SKIPPED,
    MalformedRecordError,
    Records,
    Tokenizer,
)
from airflow_cloudfiles.engine.formats.csv.parts import FileParts
from airflow_cloudfiles.engine.formats.record_policy import (
    MISFIT_REASON,
    NumberRule,
    RecordOutcomes,
)
from airflow_cloudfiles.engine.formats.scalars import Cast
from airflow_cloudfiles.engine.formats.tables import (
    RescuedCells,
    TableReader,
    TabularColumns,
)
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.files import RecordError
    from airflow_cloudfiles.engine.formats.base import OpenedFile, Positions
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions


_NO_TEXTS: Final = pa.array([], pa.string())


@dataclass(slots=True)
class _OddRow:
    """A row that was read by itself.

    Attributes:
        record: Which record it was.
        values: By position in the file; `None` for a record that could not be taken apart.
        is_corrupt: Whether the record is not valid.
    """

    record: int
    values: list[str | None] | None
    is_corrupt: bool = False


@dataclass(slots=True)
class _Rows:
    """The rows of the block, as strings.

    Attributes:
        records: For each row, which record it was.
        strings: Columns, by position in the file.
        odd: Positions of the rows that were read by themselves, with these.
    """

    records: Positions
    strings: dict[int, pa.StringArray]
    odd: dict[int, _OddRow] = field(default_factory=dict)


@dataclass
class CsvBlock:
    """Records of one file, read once.

    Attributes:
        reader: Says how they are parsed.
        outcomes: What becomes of them, still empty.
        columns: Of the file.
        records: The records.
        file_uri: Their file.
        first_error: Which record is the first that is not valid or has rescued data, and why.
    """

    reader: CsvReader
    outcomes: RecordOutcomes
    columns: TabularColumns
    records: Records
    file_uri: str
    first_error: tuple[int, RecordError] | None = None
    _misfits: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._policy = self.outcomes.policy
        self._wanted = [
            place
            for place, target in enumerate(self.columns.targets)
            if target is not None or self._policy.rescues
        ]

    def read(self) -> pa.RecordBatch:
        """Read everything.

        Raises:
            UnknownFields: There are new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
        """
        self._tell_new_columns_early()
        rows = self._rows()
        self._raise_for_new_columns(rows)
        rescued = RescuedCells()
        arrays = self._arrays(rows, rescued)
        self._resolve_corrupt(rows)
        self._rescue_odd(rows, rescued)
        batch = rescued.batch(self.outcomes, arrays, len(rows.records), self.file_uri)
        self.first_error = self.outcomes.first_error(lambda row: int(rows.records[row]))
        return batch

    def _tell_new_columns_early(self) -> None:
        """Raise for columns that the beginning of the file tells, before all records are read.

        Its first records decide, as all of them would: whatever is read is thrown away then.
        """
        if self.reader.watches and self.columns.new:
            first = self.records.first(ENOUGH_RECORDS)
            outcomes = RecordOutcomes(self._policy)
            block = CsvBlock(self.reader, outcomes, self.columns, first, self.file_uri)
            block._raise_for_new_columns(block._rows())

    # 1. Taking records apart --------------------------------------------------------------

    def _rows(self) -> _Rows:
        """Collect all rows, in the order of their records."""
        kept, strings = self._plain_rows()
        odd = list(self._odd_rows())
        if not odd:
            return _Rows(kept, strings)
        of = np.concatenate([kept, np.array([row.record for row in odd], np.int64)])
        order = np.argsort(of)
        indices = pa.array(order)
        for place, plain in strings.items():
            values = [
                row.values[place] if row.values and place < len(row.values) else None for row in odd
            ]
            strings[place] = pa.concat_arrays([plain, pa.array(values, pa.string())]).take(indices)
        rows = np.flatnonzero(order >= len(kept)).tolist()
        return _Rows(of[order], strings, dict(zip(rows, odd, strict=True)))

    def _plain_rows(self) -> tuple[Positions, dict[int, pa.StringArray]]:
        """Find which records are plain, and the columns of their strings."""
        records, width = self.records, self.columns.usual_width
        text = b"" if self.reader.is_thorough or not width else records.plain_text()
        if not text or not self.reader.plain.can_read(text):
            records.kinds[records.kinds == PLAIN] = ODD
            return records.of_kind(PLAIN), dict.fromkeys(self._wanted, _NO_TEXTS)
        wanted = [place for place in self._wanted if place < width]
        arrays, ragged = self.reader.plain.read(text, width, wanted)
        kept = records.of_kind(PLAIN)
        records.kinds[kept[ragged]] = ODD
        kept = np.delete(kept, ragged)
        strings = dict.fromkeys(self._wanted, pa.nulls(len(kept), pa.string()))
        return kept, strings | dict(zip(wanted, arrays, strict=False))

    def _odd_rows(self) -> Iterator[_OddRow]:
        """Read the odd records, and decide about those that are not valid."""
        with_new = 0
        for index in self.records.of_kind(ODD).tolist():
            row, reason = self._odd_row(index)
            if reason is None:
                yield row
                with_new += self._has_new_columns(row)
                if with_new >= ENOUGH_RECORDS:
                    return  # the others will be thrown away, too
                continue
            raw = self._raw(index)
            if not self.outcomes.is_dropped(self.file_uri, raw, reason, place=index):
                row.is_corrupt = True
                yield row

    def _has_new_columns(self, row: _OddRow) -> bool:
        """Tell whether a record has more values than there are columns, and that must be known."""
        behind = range(len(self.columns.names), len(row.values or []))
        is_wider = any(f"_c{place}" not in self.reader.stay_rescued for place in behind)
        return self.reader.watches and self.columns.is_open and is_wider

    def _odd_row(self, index: int) -> tuple[_OddRow, str | None]:
        """Read one record, and say why it is not valid."""
        raw = self.records.record(index)
        reason = None
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            reason = f"bytes that are not UTF-8, at byte {error.start}"
            if self._policy.rescues:
                return _OddRow(index, None), reason
            text = raw.decode(errors="replace")  # as in Spark: nothing else takes the other values
        try:
            values = self.reader.tokens.values(text)
        except MalformedRecordError as error:
            return _OddRow(index, None), str(error)
        null = self.reader.own.null_value
        row = _OddRow(index, [None if value == null else value for value in values])
        columns, width = self.columns, len(self.columns.names)
        few, many = len(values) < width, len(values) > width
        if self._policy.rescues and self.reader.tokens.ended_in_quotes:
            reason = reason or "a quote that is not closed"
        if (few and columns.is_exact) or (many and not columns.is_open):
            return row, reason or f"{len(values)} values instead of {width}"
        return row, reason

    def _raw(self, index: int) -> str:
        """Format the text of a record, with bytes that are not UTF-8 escaped."""
        return printable(self.records.record(index))

    def _raise_for_new_columns(self, rows: _Rows) -> None:
        """Raise for what could be a new column, in the modes that must know."""
        if not self.reader.watches or not len(rows.records):
            return
        new: dict[str, object] = {}
        if self.columns.new:
            values = self._first_values(rows)
            names = {place: self.columns.names[place] for place in self.columns.new}
            new = {name: _sample(values, place) for place, name in names.items()}
        for row in rows.odd.values() if self.columns.is_open else ():
            for place in range(len(self.columns.names), len(row.values or [])):
                new.setdefault(f"_c{place}", _sample(row.values or [], place))
        new = {name: value for name, value in new.items() if name not in self.reader.stay_rescued}
        if new:
            raise UnknownFields(new, self.file_uri)

    def _first_values(self, rows: _Rows) -> list[str | None]:
        """Read the values of the first record that is one."""
        for row, record in enumerate(rows.records.tolist()):
            odd = rows.odd.get(row)
            if odd is None:
                return self.reader.tokens.values(self._raw(record))
            if odd.values is not None:
                return odd.values
        return []

    # 2. Values ----------------------------------------------------------------------------

    def _arrays(self, rows: _Rows, rescued: RescuedCells) -> list[pa.Array]:
        """Build the data columns but the corrupt record column; what is left goes to `rescued`."""
        found: dict[int, pa.Array] = {}
        for place in self._wanted:
            target, strings = self.columns.targets[place], rows.strings[place]
            if target is None:
                lost = np.flatnonzero(strings.is_valid().to_numpy(zero_copy_only=False))
            else:
                cast = self.reader.casts[target]
                found[target], lost = (
                    cast.one_by_one(strings) if self.reader.is_thorough else cast(strings)
                )
            if len(lost) and self._policy.rescues:
                rescued.add(self.columns.names[place], lost, strings.take(pa.array(lost)))
            else:
                self._misfits.update(lost.tolist())
        return [
            found[target] if target in found else pa.nulls(len(rows.records), cast.kind)
            for target, cast in enumerate(self.reader.casts)
        ]

    def _resolve_corrupt(self, rows: _Rows) -> None:
        """Keep records that are not valid, and decide about those with a value that does not fit.

        Without rescued data, such a value makes a bad record, as in Spark.
        """
        corrupt = {row: odd for row, odd in rows.odd.items() if odd.is_corrupt}
        width = len(self.columns.names)
        for row, odd in corrupt.items():
            # Values that are too many are rescued, which marks their record.
            beside = any(each is not None for each in (odd.values or [])[width:])
            if not beside or self._policy.corrupt_position is not None:
                self.outcomes.keep(row, self._raw(odd.record))
        if not self._policy.rescues:
            for row in sorted(self._misfits - corrupt.keys()):
                place = int(rows.records[row])
                self.outcomes.drop_or_keep(
                    self.file_uri, self._raw(place), MISFIT_REASON, [row], place=place
                )

    # 3. What is left over -----------------------------------------------------------------

    def _rescue_odd(self, rows: _Rows, rescued: RescuedCells) -> None:
        """Rescue values that no column of the file has, and records that are not valid."""
        if not self._policy.rescues:
            return
        members = {row: each.decode() for row, each in self.outcomes.rescued.items()}
        width = len(self.columns.names)
        for row, odd in rows.odd.items():
            if odd.values is not None and len(odd.values) > width:
                extra = [
                    member(f"_c{place}", value)
                    for place, value in enumerate(odd.values[width:], width)
                    if value is not None
                ]
                if extra:
                    members[row] = ",".join(extra)
        order = sorted(members)
        found = pa.array([members[row] for row in order], pa.string())
        rescued.add_members(np.array(order, np.int64), found)


def _sample(values: list[str | None], place: int) -> str | None:
    """Format a value for a message, cut off when it is long."""
    value = values[place] if place < len(values) else None
    return None if value is None else cut_sample(value)


class CsvReader(TableReader):
    """Reads CSV files with one schema.

    Reading the same file again gives the same batches; only `counts` goes on growing.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity, the names of the special columns, and how
            the files are written.
        is_thorough: Read every record and every value by itself. The result is the same; tests
            compare it with the fast path's.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.
        own: The options of CSV.
        casts: Of the parsed columns, in their order.
        plain: Reads plain records.
        tokens: Reads any record.

    Raises:
        IncompatibleSchemaError: A column has a type that CSV cannot be read into.
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, is_thorough: bool = False
    ) -> None:
        super().__init__(data_schema, options)
        self.own = own = cast("CsvOptions", options.format_options)
        numbers, parsed = NumberRule.of(options), self._policy.parsed
        converters = CsvConverters(own, numbers, exact=self._policy.rescues)
        self.casts = [
            Cast(arrow.type, converters.to(each.dataType, each.name), converters.times, numbers)
            for each, arrow in zip(parsed.fields, to_arrow(parsed), strict=True)
        ]
        self.plain, self.tokens = PlainReader(own), Tokenizer(own)
        self.is_thorough = is_thorough

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the lines of it that start in a range of bytes.

        Raises:
            UnknownFields: The file has new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
            FileUnreadableError: The header cannot be read.
        """
        parts = FileParts(file, self.own, has_header=has_header(self._options))
        columns: TabularColumns | None = None
        for records in parts.records(start, end):
            if (records.kinds == SKIPPED).all():
                continue
            if columns is None:
                columns = self._columns(parts.header, self.own.null_value)
            if parts.header is None:
                columns = columns.with_width(parts.width_of(records))
            outcomes = RecordOutcomes(self._policy)
            block = CsvBlock(self, outcomes, columns, records, file.uri)
            batch = block.read()
            if block.first_error is not None and self.first_error is None:
                record, error = block.first_error
                line, byte = parts.position(records, record)
                self.first_error = replace(error, line=line, byte=byte)
            if self._counted(batch, outcomes).num_rows:
                yield batch


def has_header(options: CloudFilesOptions) -> bool:
    """Tell whether files have a header: as the option says, else if the schema is inferred."""
    own = cast("CsvOptions", options.format_options)
    return not options.has_schema if own.header is None else own.header
