"""Read JSON Lines, block by block.

Blocks of lines become record batches. The fast path decodes a chunk of lines at once into structs
of raw strings (`shape`) and converts whole columns (`columns`). A line that the decoder
refuses, and a row with a value that does not fit, are explained one by one (`explain`).
A line is in exactly one place afterwards: its rows, the rescued data, the corrupt record column,
or, as the mode says, dropped and counted, or the error.

The life of one `JsonReader.read`:

1. Chunks of lines are decoded at once; a line the decoder refuses is explained by itself.
2. The columns are made; they tell which rows hold a value that does not fit.
3. What did not find its column is put into the rescued data column, the corrupt record column,
   or wherever else the mode says.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.files import FileCounts, RecordError
from airflow_cloudfiles.engine.formats.base import (
    ENOUGH_RECORDS,
    LinePiece,
    ReadCounts,
    UnknownFields,
    is_utf8,
    path_end,
    quote,
    with_line_breaks,
)
from airflow_cloudfiles.engine.formats.json import tokens
from airflow_cloudfiles.engine.formats.json.columns import FinishedColumn, LeafColumn, StructColumn
from airflow_cloudfiles.engine.formats.json.explain import (
    JsonExplainer,
    JsonExplanation,
    has_repeated_key,
)
from airflow_cloudfiles.engine.formats.json.shape import (
    JsonConverters,
    UnknownFieldColumns,
    compile_struct,
    grammar_of,
)
from airflow_cloudfiles.engine.formats.json.tokens import (
    BLANK,
    NotJsonError,
    count_quotes,
    printable,
)
from airflow_cloudfiles.engine.formats.record_policy import (
    MISFIT_REASON,
    NumberRule,
    RecordOutcomes,
    RecordReader,
    rescued_error,
)
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.json.shape import ExtendedDecoder
    from airflow_cloudfiles.engine.options.formats.nested import JsonOptions


_REFUSED: Final = (msgspec.DecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class _LineRange:
    """Consecutive lines that one decoder took: one row each."""

    extended: ExtendedDecoder | None
    first_row: int
    begin: int
    end: int


@dataclass
class JsonBlock:
    """Lines of one or many files, read once.

    Attributes:
        outcomes: What becomes of the records, still empty.
        decoder: Of whole lines.
        explainer: Of single records.
        unknown_fields: The fields outside the schema that are known to come.
        pieces: Lines, each ending with a line break (`lines.as_lines`).
        aside: Records that lines stand for.
    """

    outcomes: RecordOutcomes
    decoder: msgspec.json.Decoder[Any]
    explainer: JsonExplainer
    unknown_fields: UnknownFieldColumns
    pieces: Sequence[LinePiece]
    aside: list[bytes]
    _rows: int = 0
    _row_begins: dict[int, int] = field(default_factory=dict)
    _runs: list[_LineRange] = field(default_factory=list)
    _odd_rows: list[object] = field(default_factory=list)
    _waiting: int = 0
    _quotes: int = 0
    _replaced: dict[int, object] = field(default_factory=dict)
    _new_fields_file: str | None = None
    _lines_since_new_fields: int = 0
    _learnt_members: dict[int, bytes] = field(default_factory=dict)
    _odd_begins: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._policy = self.outcomes.policy
        self._parsed_type = self._policy.parsed_type
        self._shape = self.explainer.root
        strings = [piece.data for piece in self.pieces]
        self._text = strings[0] if len(strings) == 1 else b"".join(strings)
        self._piece_begins: list[int] = np.cumsum([0, *map(len, strings[:-1])]).tolist()
        self._columns = self._new_columns()

    def read(self) -> pa.RecordBatch:
        """Read everything."""
        for begin, end in tokens.chunks(self._text, tokens.CHUNK_BYTES):
            self._read_chunk(begin, end)
        self._collect_odd_rows()
        self._raise_for_new_fields()
        if self._policy.rescues:
            self._rescue_repeated_keys()
        finished = [column.finish() for column in self._columns.children]
        self._rescue_misfits(finished)
        arrays, rescued = self._arrays(finished), None
        if self._policy.rescues:
            rescued = self.outcomes.rescued_column(self._rows, self._path_ends())
        return self.outcomes.batch(arrays, self._rows, rescued)

    def _raise_for_new_fields(self) -> None:
        if self._new_fields_file is not None:
            raise UnknownFields(self.explainer.new_fields, self._new_fields_file)

    # 1. Decoding --------------------------------------------------------------------------

    def _read_chunk(self, begin: int, end: int) -> None:
        """Decode some lines at once, or, if that fails, one by one."""
        chunk = self._text[begin:end]
        lines = tokens.clean_lines(chunk)
        # A decoder that passes over unknown keys does not see that one of them is no text.
        if lines and (self._policy.rescues or not tokens.may_have_lone_surrogate(chunk)):
            for extended in (None, self.unknown_fields.extended):
                rows = _decode_lines(extended.decoder if extended else self.decoder, chunk)
                if len(rows) == lines:
                    self._take(extended, rows, begin, end)
                    return
        self._read_line_by_line(begin, end, is_text=is_utf8(chunk))

    def _read_line_by_line(self, begin: int, end: int, *, is_text: bool) -> None:
        extended = self.unknown_fields.extended
        decode = (extended.decoder if extended else self.decoder).decode
        taken: list[object] = []
        taken_begin = begin
        while begin < end:
            line_end = self._text.find(b"\n", begin, end) + 1
            line = self._text[begin:line_end]
            try:
                if self._is_odd(line) or not (is_text or is_utf8(line)):
                    raise msgspec.DecodeError
                taken.append(decode(line))
            except _REFUSED:
                self._take(extended, taken, taken_begin, begin)
                taken, taken_begin = [], line_end
                if line.strip(BLANK):
                    self._read_odd_line(begin, tokens.original(line, self.aside))
                    extended = self.unknown_fields.extended
                    decode = (extended.decoder if extended else self.decoder).decode
            begin = line_end
        self._take(extended, taken, taken_begin, end)

    def _is_odd(self, line: bytes) -> bool:
        """Tell whether a line is to be explained, even if the decoder took it."""
        if tokens.may_be_too_deep(line):
            return True
        return not self._policy.rescues and tokens.may_have_lone_surrogate(line)

    def _take(
        self, extended: ExtendedDecoder | None, rows: list[object], begin: int, end: int
    ) -> None:
        """Add decoded lines to the columns."""
        if not rows:
            return
        self._collect_odd_rows()
        self._columns.collect_fields(rows)
        self._runs.append(_LineRange(extended, self._rows, begin, end))
        self._quotes += count_quotes(self._text, begin, end)
        if extended is not None and self._policy.rescues:
            members, quotes = extended.members(rows)
            self._quotes -= quotes
            first = self._rows
            self._learnt_members.update({first + row: each for row, each in members.items()})
        self._rows += len(rows)

    def _read_odd_line(self, begin: int, line: bytes) -> None:
        try:
            found = self.explainer.explain(line)
            if not self._policy.rescues and tokens.may_have_lone_surrogate(line):
                self.explainer.check_keys(line)
        except NotJsonError as error:
            self._read_corrupt(begin, line, error)
            return
        self.unknown_fields.learn(self.explainer.unknown_fields, self.explainer.spelled)
        if self.explainer.new_fields:
            self._new_fields_file = self._new_fields_file or self._piece_at(begin).file_uri
            self._lines_since_new_fields += 1
            if self._lines_since_new_fields >= ENOUGH_RECORDS:
                self._raise_for_new_fields()
        first = self._rows
        for each in found:
            self._add_odd_row(begin, each.row)
        self._resolve(first, begin, line, found)

    def _add_odd_row(self, begin: int, row: object) -> None:
        self._odd_rows.append(row)
        self._waiting += 1
        self._row_begins[self._rows] = begin
        self._odd_begins.append(begin)
        self._rows += 1

    def _collect_odd_rows(self) -> None:
        """Give the columns the explained rows that come before what they are given next."""
        if self._waiting:
            self._columns.collect_fields(self._odd_rows[-self._waiting :])
            self._waiting = 0

    def _read_corrupt(self, begin: int, line: bytes, error: NotJsonError) -> None:
        """Give a line that is not a record a row of its own, if it is kept."""
        record, uri = printable(line), self._piece_at(begin).file_uri
        if not self.outcomes.is_dropped(uri, record, str(error), place=begin):
            self._add_odd_row(begin, self._shape.missing)
            self.outcomes.keep(self._rows - 1, record)

    # 2. What the columns did not take -----------------------------------------------------

    def _resolve(self, first: int, begin: int, line: bytes, found: list[JsonExplanation]) -> None:
        """Decide about the explained rows of a line of which something may be left over."""
        rows = range(first, first + len(found))
        if self._policy.rescues:
            some = ((row, each.rescued) for row, each in zip(rows, found, strict=True))
            self.outcomes.rescued.update((row, rescued) for row, rescued in some if rescued)
        elif not all(each.fits for each in found):
            # Without rescued data, a value that does not fit makes a bad record, as in Spark.
            uri = self._piece_at(begin).file_uri
            self.outcomes.drop_or_keep(uri, printable(line), MISFIT_REASON, rows, place=begin)

    def _rescue_misfits(self, finished: list[FinishedColumn]) -> None:
        """Rescue values that columns could not take, and what the learnt fields hold.

        Where nothing but plain columns is concerned, the text is at hand. A value somewhere in a
        nested one is looked for by explaining the row.
        """
        plain: dict[int, bytes] = {}
        explained: set[int] = set()
        # Where records cannot spell the name of a column in another case.
        has_plain_keys = self._policy.rescues and self.explainer.case_sensitive
        for index, (column, each) in enumerate(zip(self._columns.children, finished, strict=True)):
            if has_plain_keys and isinstance(column, LeafColumn):
                key = quote(self._shape.names[index]).encode() + b":"
                for row in each.misfits.tolist():
                    member = key + column.strings.value(row)
                    plain[row] = plain[row] + b"," + member if row in plain else member
            else:
                explained.update(each.misfits.tolist())
        self._check_disagreement(plain.keys() | explained)
        for row, members in self._learnt_members.items():
            plain[row] = plain[row] + b"," + members if row in plain else members
        if self._policy.rescues:
            self.outcomes.rescued = plain | self.outcomes.rescued
        for row, begin, line in self._lines_of(sorted(explained)):
            found = self.explainer.explain(line)
            if not self._policy.rescues:
                self._replaced[row] = found[0].row
            self._resolve(row, begin, line, found)

    def _arrays(self, finished: list[FinishedColumn]) -> list[pa.Array]:
        """Build the columns, where explained rows have taken the place of others."""
        arrays = [each.array for each in finished]
        if not self._replaced:
            return arrays
        again = self._new_columns()
        again.collect_fields(list(self._replaced.values()))
        order = np.arange(self._rows)
        order[list(self._replaced)] = self._rows + np.arange(len(self._replaced))
        indices = pa.array(order)
        return [
            pa.concat_arrays([array, column.finish().array]).take(indices)
            for array, column in zip(arrays, again.children, strict=True)
        ]

    def _check_disagreement(self, misfits: set[int]) -> None:
        """Check that an explained row holds only what fits: rather fail than lose what does not."""
        for row in misfits & self._row_begins.keys():
            line = self._text[self._row_begins[row] :].partition(b"\n")[0]
            raise AssertionError(f"explained, but not taken by its column: {line[:1000]!r}")

    def _lines_of(self, rows: list[int]) -> Iterator[tuple[int, int, bytes]]:
        """Source lines of rows that a decoder took; `rows` ascending."""
        starts = [run.first_row for run in self._runs]
        current, breaks = -1, np.empty(0, np.int64)
        for row in rows:
            index = bisect_right(starts, row) - 1
            run = self._runs[index]
            if index != current:
                current = index
                text = np.frombuffer(self._text, np.uint8, run.end - run.begin, run.begin)
                breaks = np.flatnonzero(text == ord("\n")) + run.begin
            place = row - run.first_row
            begin = run.begin if place == 0 else int(breaks[place - 1]) + 1
            yield row, begin, self._text[begin : int(breaks[place])]

    def _rescue_repeated_keys(self) -> None:
        """Find keys that come twice in an object: the decoder has kept the last value only.

        The quotation marks of the source are counted against those of all the strings and keys that
        were taken from it. A key that came twice leaves at least two over, and nothing else can.
        """
        odd = self._new_columns()
        odd.collect_fields(self._odd_rows)
        if self._columns.quotes() == self._quotes + odd.quotes():
            return
        for run in self._runs:
            chunk = self._text[run.begin : run.end]
            decoder = run.extended.decoder if run.extended else self.decoder
            rows = decoder.decode_lines(chunk)
            again = self._new_columns()
            again.collect_fields(rows)
            besides = run.extended.members(rows)[1] if run.extended else 0
            if again.quotes() + besides != count_quotes(self._text, run.begin, run.end):
                self._rescue_repeated_keys_of(run, chunk)

    def _rescue_repeated_keys_of(self, run: _LineRange, chunk: bytes) -> None:
        breaks = [-1, *np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")).tolist()]
        for place, (before, end) in enumerate(pairwise(breaks)):
            line = chunk[before + 1 : end]
            if has_repeated_key(line):
                found = self.explainer.explain(line)
                self._resolve(run.first_row + place, run.begin + before + 1, line, found)

    # 3. The batch -------------------------------------------------------------------------

    def _path_ends(self) -> Callable[[int], bytes]:
        """Build what ends the rescued data of a row: the path of its file."""
        ends = [path_end(piece.file_uri).encode() for piece in self.pieces]
        if len(ends) == 1:
            return lambda _: ends[0]
        begins = self._row_begins
        rows = sorted(row for row in self.outcomes.rescued if row not in begins)
        begins |= {row: begin for row, begin, _ in self._lines_of(rows)}
        return lambda row: ends[self._number_at(begins[row])]

    def by_piece(self) -> list[FileCounts]:
        """Count what became of the records of each piece, when all are read.

        The line of an error counts from the first line of its piece, which is 1.
        """
        counts, outcomes = self.outcomes.counts, self.outcomes
        if len(self.pieces) == 1:
            first = outcomes.first_error(self._begin_of)
            error = None if first is None else self._with_line(*first)
            numbers = counts.rows, counts.rescued_rows, counts.corrupt_records
            return [FileCounts(*numbers, counts.dropped_records, error=error)]
        found = [FileCounts(rows) for rows in self._rows_by_piece()]
        errors = [(each.place, RecordError(each.reason)) for each in outcomes.bad]
        for bad in outcomes.bad:
            self._add_to(found, bad.place, FileCounts(-bad.removed, 0, 1, bad.dropped))
        first_rescued: dict[int, tuple[int, int]] = {}
        for row in outcomes.rescued.keys() - outcomes.dropped:
            begin = self._row_begins[row]
            number = self._add_to(found, begin, FileCounts(0, 1))
            first_rescued[number] = min(first_rescued.get(number, (begin, row)), (begin, row))
        errors += [
            (begin, rescued_error(b"{" + outcomes.rescued[row] + b"}", self._policy.parsed))
            for begin, row in first_rescued.values()
        ]
        # Of a record that is not valid, what is rescued says less.
        for place, error in sorted(errors, key=lambda each: each[0]):
            self._add_to(found, place, FileCounts(error=self._with_line(place, error)))
        return found

    def _rows_by_piece(self) -> list[int]:
        """Count the rows that each piece has, with those that are dropped."""
        begins = self._piece_begins
        ends = [*begins[1:], len(self._text)]
        rows = [0] * len(begins)
        for run in self._runs:  # which has a row a line
            number = self._number_at(run.begin)
            while number < len(begins) and begins[number] < run.end:
                begin, end = max(run.begin, begins[number]), min(run.end, ends[number])
                rows[number] += self._text.count(b"\n", begin, end)
                number += 1
        for begin in self._odd_begins:
            rows[self._number_at(begin)] += 1
        return rows

    def _add_to(self, found: list[FileCounts], place: int, more: FileCounts) -> int:
        number = self._number_at(place)
        found[number] += more
        return number

    def _begin_of(self, row: int) -> int:
        """Find where the record of a row begins."""
        known = self._row_begins.get(row)
        return next(self._lines_of([row]))[1] if known is None else known

    def _with_line(self, place: int, error: RecordError) -> RecordError:
        begin = self._piece_begins[self._number_at(place)]
        return replace(error, line=self._text.count(b"\n", begin, place) + 1)

    def _piece_at(self, position: int) -> LinePiece:
        return self.pieces[self._number_at(position)]

    def _number_at(self, position: int) -> int:
        return bisect_right(self._piece_begins, position) - 1

    def _new_columns(self) -> StructColumn:
        return StructColumn(self._shape, self._parsed_type)


def _decode_lines(decoder: msgspec.json.Decoder[Any], chunk: bytes) -> list[Any]:
    """Decode the records of a chunk; none when one of them is refused."""
    try:
        return decoder.decode_lines(chunk)
    except _REFUSED:
        return []


__all__ = ["JsonReader", "LinePiece", "ReadCounts", "UnknownFields"]


class JsonReader(RecordReader):
    """Reads blocks of JSON Lines with one schema; see `RecordReader`.

    Attributes:
        pieces: What became of each of the pieces that were read last (`JsonBlock.by_piece`).

    Raises:
        IncompatibleSchemaError: A column has a type that JSON cannot be read into.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        self._own = own = cast("JsonOptions", options.format_options)
        self.grammar = grammar_of(own)
        converters = JsonConverters(own, NumberRule.of(options), exact=self._policy.rescues)
        self._shape = compile_struct(
            self._policy.parsed,
            converters,
            options.matcher,
            forbid_unknown=not self._ignores_unknown,
        )
        self.decoder = msgspec.json.Decoder(self._shape.make)
        drops_nulls = own.drop_field_if_all_null
        self._unknown_fields = UnknownFieldColumns(self._shape, drops_nulls=drops_nulls)
        self.pieces: list[FileCounts] = []

    def read(self, pieces: Sequence[LinePiece]) -> pa.RecordBatch:
        """Read lines of one or many files into one batch, rows in the order of the lines.

        Reading the same pieces again gives the same batch; only `counts` goes on growing.

        Raises:
            UnknownFields: The block has new fields, in the modes that watch for them.
            CorruptRecordError: A line is no record, in mode `FAILFAST`.
        """
        aside: list[bytes] = []
        lines = [LinePiece(each.file_uri, self._lines(each.data, aside)) for each in pieces]
        return self._read(lines, aside)

    def read_records(self, file_uri: str, records: Sequence[bytes]) -> pa.RecordBatch:
        """Read records of one file into one batch, whatever separated them."""
        aside: list[bytes] = []
        data = tokens.as_lines(records, self.grammar, aside)
        return self._read([LinePiece(file_uri, data)], aside)

    def _lines(self, data: bytes, aside: list[bytes]) -> bytes:
        separator = self._own.line_sep
        if separator is None:
            return with_line_breaks(data)
        return tokens.as_lines(data.split(separator.encode()), self.grammar, aside)

    def _read(self, lines: Sequence[LinePiece], aside: list[bytes]) -> pa.RecordBatch:
        explainer = JsonExplainer(
            self._shape,
            case_sensitive=self._options.reader_case_sensitive,
            collects_new=self.watches,
            grammar=self.grammar,
            drops_nulls=self._own.drop_field_if_all_null,
            as_spark=not self._policy.rescues,
            matcher=self._options.matcher,
            reserved=self._reserved,
            left_out=self._left_out,
        )
        outcomes = RecordOutcomes(self._policy)
        block = JsonBlock(outcomes, self.decoder, explainer, self._unknown_fields, lines, aside)
        batch = block.read()
        self.pieces = block.by_piece()
        return self._counted(batch, outcomes)
