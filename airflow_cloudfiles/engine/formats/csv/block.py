"""What becomes of each record of a block?

The life of one `Block.read`:

1. Plain records are taken apart at once, odd ones by themselves. A record that is not valid is
   kept, dropped or fails, as the mode says.
2. Columns of texts become columns of values; they tell which rows hold one that does not fit.
3. What did not find its column is put into the rescued data column, the corrupt record column, or
   wherever else the mode says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.errors import CorruptRecordError
from airflow_cloudfiles.engine.formats.arrays import Positions
from airflow_cloudfiles.engine.formats.base import BadRecord, ReadCounts, UnknownFields
from airflow_cloudfiles.engine.formats.csv.casts import Cast
from airflow_cloudfiles.engine.formats.csv.columns import PlainReader
from airflow_cloudfiles.engine.formats.csv.header import FileColumns
from airflow_cloudfiles.engine.formats.csv.lines import ODD, PLAIN, SKIPPED, Records
from airflow_cloudfiles.engine.formats.csv.rescue import Rescued, quote
from airflow_cloudfiles.engine.formats.csv.tokens import MalformedRecordError, Tokenizer
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions

_SAMPLE_CHARACTERS: Final = 1000
_NO_TEXTS: Final = pa.array([], pa.string())
_MISFIT: Final = "a value does not fit its column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a reader has made of its schema and options.

    Attributes:
        options: Of the source.
        null_value: The text that stands for null.
        arrow_schema: Of the batches.
        casts: Of the data columns but the corrupt record column, in their order.
        corrupt_place: Position of the corrupt record column in `arrow_schema`, if there is one.
        plain: Reads plain records.
        tokens: Reads any record.
        is_thorough: Whether everything goes the long way, which is the reference.
    """

    options: CloudFilesOptions
    null_value: str
    arrow_schema: pa.Schema
    casts: tuple[Cast, ...]
    corrupt_place: int | None
    plain: PlainReader
    tokens: Tokenizer
    is_thorough: bool = False

    @property
    def rescues(self) -> bool:
        """Whether there is a rescued data column, which comes last in `arrow_schema`."""
        return self.options.rescued_data_column is not None

    @property
    def watches(self) -> bool:
        """Whether new columns must be told of."""
        return self.options.schema_evolution_mode in WATCHING_MODES


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
    """The rows of the block, as texts.

    Attributes:
        records: For each row, which record it was.
        texts: Columns, by position in the file.
        odd: Positions of the rows that were read by themselves, with these.
    """

    records: Positions
    texts: dict[int, pa.StringArray]
    odd: dict[int, _OddRow] = field(default_factory=dict)


class Block:
    """Records of one file, read once.

    Attributes:
        counts: What was read; complete after `read`.
        bad_records: What `badRecordsPath` takes.
    """

    def __init__(self, rules: Rules, columns: FileColumns, records: Records, file_uri: str) -> None:
        self._rules, self._columns, self._records = rules, columns, records
        self._file_uri = file_uri
        self._wanted = [
            place
            for place, target in enumerate(columns.targets)
            if target is not None or rules.rescues
        ]
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []

    def read(self) -> pa.RecordBatch:
        """Read everything.

        Raises:
            UnknownFields: There are new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
        """
        rows = self._rows()
        self._tell_new_columns(rows)
        rescued = Rescued()
        arrays = self._arrays(rows, rescued)
        corrupt = {row: odd.record for row, odd in rows.odd.items() if odd.is_corrupt}
        dropped = self._resolve_misfits(rows, corrupt) if not self._rules.rescues else set[int]()
        self._rescue_odd(rows, rescued)
        return self._batch(rows, arrays, rescued, corrupt, dropped)

    # 1. Taking records apart --------------------------------------------------------------

    def _rows(self) -> _Rows:
        """All rows, in the order of their records."""
        kept, texts = self._plain_rows()
        odd = list(self._odd_rows())
        if not odd:
            return _Rows(kept, texts)
        of = np.concatenate([kept, np.array([row.record for row in odd], np.int64)])
        order = np.argsort(of)
        indices = pa.array(order)
        for place, plain in texts.items():
            values = [
                row.values[place] if row.values and place < len(row.values) else None for row in odd
            ]
            texts[place] = pa.concat_arrays([plain, pa.array(values, pa.string())]).take(indices)
        rows = np.flatnonzero(order >= len(kept)).tolist()
        return _Rows(of[order], texts, dict(zip(rows, odd, strict=True)))

    def _plain_rows(self) -> tuple[Positions, dict[int, pa.StringArray]]:
        """Which records are plain, and the columns of their texts."""
        records, width = self._records, self._columns.usual_width
        text = b"" if self._rules.is_thorough or not width else records.plain_text()
        if not text or not self._rules.plain.can_read(text):
            records.kinds[records.kinds == PLAIN] = ODD
            return records.of_kind(PLAIN), dict.fromkeys(self._wanted, _NO_TEXTS)
        wanted = [place for place in self._wanted if place < width]
        plain = self._rules.plain.read(text, width, wanted)
        kept = records.of_kind(PLAIN)
        records.kinds[kept[plain.ragged]] = ODD
        kept = np.delete(kept, plain.ragged)
        texts = dict.fromkeys(self._wanted, pa.nulls(len(kept), pa.string()))
        return kept, texts | dict(zip(wanted, plain.arrays, strict=False))

    def _odd_rows(self) -> Iterator[_OddRow]:
        """Read the odd records, and decide about those that are not valid."""
        for index in self._records.of_kind(ODD).tolist():
            row, reason = self._odd_row(index)
            if reason is None:
                yield row
                continue
            if self._is_dropped(index, reason):
                self.counts.dropped_records += 1
            else:
                row.is_corrupt = True
                yield row

    def _odd_row(self, index: int) -> tuple[_OddRow, str | None]:
        """One record, and why it is not valid."""
        raw = self._records.record(index)
        reason = None
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            reason = f"bytes that are not UTF-8, at byte {error.start}"
            if self._rules.rescues:
                return _OddRow(index, None), reason
            text = raw.decode(errors="replace")  # as in Spark: nothing else takes the other values
        try:
            values = self._rules.tokens.values(text)
        except MalformedRecordError as error:
            return _OddRow(index, None), str(error)
        null = self._rules.null_value
        row = _OddRow(index, [None if value == null else value for value in values])
        columns, width = self._columns, len(self._columns.names)
        few, many = len(values) < width, len(values) > width
        if (few and columns.is_exact) or (many and not columns.is_open):
            return row, reason or f"{len(values)} values instead of {width}"
        return row, reason

    def _is_dropped(self, index: int, reason: str) -> bool:
        """Whether a record that is not valid goes to `badRecordsPath`, or nowhere; or fail."""
        self.counts.corrupt_records += 1
        if self._rules.options.bad_records_path is not None:
            self.bad_records.append(BadRecord(self._file_uri, self._raw(index), reason))
            return True
        return self._drop_or_fail(index, reason)

    def _drop_or_fail(self, index: int, reason: str) -> bool:
        """Whether the mode drops records that are not valid; fails if it says so."""
        if self._rules.options.mode == "FAILFAST":
            raise CorruptRecordError(
                f"{self._file_uri}: a record is not valid ({reason}), and mode is FAILFAST. "
                "Correct or remove the file, or set mode to PERMISSIVE, which keeps such records "
                f"apart. The record begins: {self._raw(index)[:_SAMPLE_CHARACTERS]}"
            )
        return self._rules.options.mode == "DROPMALFORMED"

    def _raw(self, index: int) -> str:
        """The text of a record, with bytes that are not UTF-8 escaped."""
        return self._records.record(index).decode("utf-8", "backslashreplace")

    def _tell_new_columns(self, rows: _Rows) -> None:
        """Raise for what could be a new column, in the modes that must know."""
        if not self._rules.watches or not len(rows.records):
            return
        new: dict[str, object] = {}
        if self._columns.new:
            values = self._first_values(rows)
            for place in self._columns.new:
                new[self._columns.names[place]] = _sample(values, place)
        if self._columns.is_open:
            for row in rows.odd.values():
                for place in range(len(self._columns.names), len(row.values or [])):
                    new.setdefault(f"_c{place}", _sample(row.values or [], place))
        if new:
            raise UnknownFields(new, self._file_uri)

    def _first_values(self, rows: _Rows) -> list[str | None]:
        """The values of the first record that is one."""
        for row, record in enumerate(rows.records.tolist()):
            odd = rows.odd.get(row)
            if odd is None:
                return self._rules.tokens.values(self._raw(record))
            if odd.values is not None:
                return odd.values
        return []

    # 2. Values ----------------------------------------------------------------------------

    def _arrays(self, rows: _Rows, rescued: Rescued) -> list[pa.Array]:
        """The data columns but the corrupt record column; what is left goes to `rescued`."""
        found: dict[int, pa.Array] = {}
        self._misfits: set[int] = set()
        for place in self._wanted:
            target, texts = self._columns.targets[place], rows.texts[place]
            if target is None:
                lost = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
            else:
                cast = self._rules.casts[target]
                found[target], lost = (
                    cast.one_by_one(texts) if self._rules.is_thorough else cast(texts)
                )
            if len(lost) and self._rules.rescues:
                rescued.add(self._columns.names[place], lost, texts.take(pa.array(lost)))
            else:
                self._misfits.update(lost.tolist())
        return [
            found[target] if target in found else pa.nulls(len(rows.records), cast.kind)
            for target, cast in enumerate(self._rules.casts)
        ]

    def _resolve_misfits(self, rows: _Rows, corrupt: dict[int, int]) -> set[int]:
        """Without rescued data, a value that does not fit makes a bad record, as in Spark."""
        dropped = set()
        for row in sorted(self._misfits - corrupt.keys()):
            record = int(rows.records[row])
            if self._is_dropped(record, _MISFIT):
                dropped.add(row)
            else:
                corrupt[row] = record
        return dropped

    # 3. What is left over -----------------------------------------------------------------

    def _rescue_odd(self, rows: _Rows, rescued: Rescued) -> None:
        """Rescue values that no column of the file has, and records that are not valid."""
        if not self._rules.rescues:
            return
        members: dict[int, str] = {}
        width = len(self._columns.names)
        for row, odd in rows.odd.items():
            if odd.values is None and self._rules.corrupt_place is None:
                name = self._rules.options.corrupt_record_column
                members[row] = f"{quote(name)}:{quote(self._raw(odd.record))}"
            elif odd.values is not None and len(odd.values) > width:
                extra = [
                    f"{quote(f'_c{place}')}:{quote(value)}"
                    for place, value in enumerate(odd.values[width:], width)
                    if value is not None
                ]
                if extra:
                    members[row] = ",".join(extra)
        rescued.add_members(
            np.array(list(members), np.int64), pa.array(list(members.values()), pa.string())
        )

    def _batch(
        self,
        rows: _Rows,
        arrays: list[pa.Array],
        rescued: Rescued,
        corrupt: dict[int, int],
        dropped: set[int],
    ) -> pa.RecordBatch:
        rules, count = self._rules, len(rows.records)
        if rules.corrupt_place is not None:
            arrays.insert(rules.corrupt_place, self._corrupt_column(corrupt, count))
        if rules.rescues:
            column, self.counts.rescued_rows = rescued.column(count, self._file_uri)
            arrays.append(column)
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=rules.arrow_schema)
        else:
            empty = pa.Array.from_buffers(pa.struct([]), count, [None], children=[])
            batch = pa.RecordBatch.from_struct_array(empty)
        if dropped:
            keep = np.ones(count, np.bool_)
            keep[list(dropped)] = False
            batch = batch.filter(pa.array(keep))
        self.counts.rows = batch.num_rows
        self.counts.dropped_records += len(dropped)
        return batch

    def _corrupt_column(self, corrupt: dict[int, int], count: int) -> pa.StringArray:
        texts: list[str | None] = [None] * count
        if not corrupt:
            return pa.nulls(count, pa.string())
        for row, record in corrupt.items():
            texts[row] = self._raw(record)
        return pa.array(texts, pa.string())


def records_left(records: Records) -> bool:
    """Whether there is anything to read."""
    return bool((records.kinds != SKIPPED).any())


def _sample(values: list[str | None], place: int) -> str | None:
    """A value for a message, cut off when it is long."""
    value = values[place] if place < len(values) else None
    if value is None or len(value) <= _SAMPLE_CHARACTERS:
        return value
    return value[:_SAMPLE_CHARACTERS] + "…"
