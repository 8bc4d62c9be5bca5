"""What is in the JSON Lines of these files?

Blocks of lines become record batches. The fast path decodes a chunk of lines at once into structs
of raw texts (`json_shape`) and converts whole columns (`json_columns`). A line that the decoder
refuses, and a row with a value that does not fit, are explained one by one (`json_explain`).
A line is in exactly one place afterwards: its rows, the rescued data, the corrupt record column,
or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import CorruptRecordError, IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.json_columns import StructColumn
from airflow_cloudfiles.engine.formats.json_explain import Explained, Explainer, has_repeated_key
from airflow_cloudfiles.engine.formats.json_shape import compile_struct
from airflow_cloudfiles.engine.formats.json_tokens import MAX_DEPTH, NotJsonError
from airflow_cloudfiles.engine.options import CloudFilesOptions
from airflow_cloudfiles.engine.types import to_arrow

CHUNK_BYTES: Final = 128 * 1024
"""Lines decoded at a time: their objects fit the processor's cache, which halves the cost."""

_BLANK: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """Complete lines of one file, or of a part of it.

    Attributes:
        file_uri: The file, as it appears in rescued data: printable, UTF-8.
        data: The lines, decompressed, without a byte order mark.
    """

    file_uri: str
    data: bytes


class UnknownFields(Exception):  # noqa: N818 - a signal to the stream, which makes it an error
    """A block holds fields that the schema does not have, in a mode that must know.

    Attributes:
        fields: Every new top-level field of the block, with a sample value. A new field of a
            nested struct is reported under its top-level name.
        file_uri: The first file with such a field.
    """

    def __init__(self, fields: dict[str, object], file_uri: str) -> None:
        super().__init__(fields, file_uri)
        self.fields = fields
        self.file_uri = file_uri


@dataclass(slots=True)
class ReadCounts:
    """What was read so far.

    Attributes:
        rows: Rows given out.
        rescued_rows: Rows among them whose rescued data column is not NULL.
        corrupt_records: Lines that are no JSON records, kept or dropped.
        dropped_records: Lines that mode `DROPMALFORMED` dropped.
    """

    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    dropped_records: int = 0


class JsonReader:
    """Reads blocks of JSON Lines with one schema.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity and the names of the special columns.
        reserved: Names that are never new columns, for instance partition columns; fields named
            so are rescued.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.

    Raises:
        IncompatibleSchemaError: A column has a type that JSON cannot be read into.
    """

    def __init__(
        self,
        data_schema: StructType,
        options: CloudFilesOptions,
        *,
        reserved: Sequence[str] = (),
    ) -> None:
        rescued, corrupt = options.rescued_data_column, options.corrupt_record_column
        extra = [] if rescued is None else [StructField(rescued, StringType())]
        self.arrow_schema: pa.Schema = to_arrow(StructType([*data_schema.fields, *extra]))
        self.counts = ReadCounts()
        self.options = options
        self.corrupt_column = corrupt if corrupt in data_schema.names else None
        if self.corrupt_column and not isinstance(data_schema[corrupt].dataType, StringType):
            raise IncompatibleSchemaError(
                f"Column {corrupt} takes corrupt records and must be a string, not "
                f"{data_schema[corrupt].dataType.simpleString()}. Change its type, or name "
                "another column with columnNameOfCorruptRecord."
            )
        self._parsed = StructType([each for each in data_schema.fields if each.name != corrupt])
        self.drops_unknown = options.schema_evolution_mode == "none" and rescued is None
        self.shape = compile_struct(self._parsed, forbid_unknown=not self.drops_unknown)
        self.decoder = msgspec.json.Decoder(self.shape.make)
        self._parsed_type = pa.struct(list(to_arrow(self._parsed)))
        self._collects_new = options.schema_evolution_mode in {
            "addNewColumns",
            "failOnNewColumns",
        }
        self._reserved = frozenset(
            name.lower() for name in (*reserved, corrupt, *([] if rescued is None else [rescued]))
        )

    def read(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """Read lines of one or many files into one batch, rows in the order of the lines.

        Reading the same pieces again gives the same batch; only `counts` goes on growing.

        Raises:
            UnknownFields: The block has new fields, in `addNewColumns` and `failOnNewColumns`.
            CorruptRecordError: A line is no record, in mode `FAILFAST`.
        """
        return _Block(self, pieces).read()

    def new_columns(self) -> StructColumn:
        """Empty columns."""
        return StructColumn(self.shape, self._parsed_type)

    def new_explainer(self) -> Explainer:
        """An explainer that has not met anything yet."""
        return Explainer(
            self.shape,
            case_sensitive=self.options.reader_case_sensitive,
            collects_new=self._collects_new,
            reserved=self._reserved,
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive lines that the decoder took: one row each."""

    first_row: int
    begin: int
    end: int


class _Block:
    """One call of `JsonReader.read`."""

    def __init__(self, reader: JsonReader, pieces: Sequence[Piece]) -> None:
        self._reader = reader
        self._pieces = pieces
        texts = [_with_line_breaks(piece.data) for piece in pieces]
        self._text = texts[0] if len(texts) == 1 else b"".join(texts)
        self._piece_begins = np.cumsum([0, *map(len, texts[:-1])]).tolist()
        self._decoder = reader.decoder
        self._columns = reader.new_columns()
        self._explainer = reader.new_explainer()
        self._rows = 0
        self._runs: list[_Run] = []
        self._odd_rows: list[object] = []
        self._quotes = 0
        self._rescued: dict[int, bytes] = {}
        self._corrupt: dict[int, bytes] = {}
        self._dropped_rows: set[int] = set()
        self._corrupt_records = 0
        self._dropped_records = 0
        self._new_fields_file: str | None = None

    def read(self) -> pa.RecordBatch:
        """Read everything."""
        for begin, end in _chunks(self._text):
            self._read_chunk(begin, end)
        if self._new_fields_file is not None:
            raise UnknownFields(self._explainer.new_fields, self._new_fields_file)
        if self._reader.options.rescued_data_column is not None:
            self._rescue_repeated_keys()
        finished = [column.finish() for column in self._columns.children]
        for misfits in (each.misfits for each in finished):
            self._explain_misfits(misfits.tolist())
        return self._batch([each.array for each in finished])

    # Decoding -----------------------------------------------------------------------------

    def _read_chunk(self, begin: int, end: int) -> None:
        """Decode some lines at once, or, if that fails, one by one."""
        chunk = self._text[begin:end]
        lines = _clean_lines(chunk)
        if lines:
            try:
                rows = self._decoder.decode_lines(chunk)
            except (msgspec.DecodeError, RecursionError):
                rows = []
            if len(rows) == lines:
                self._take(rows, begin, end)
                return
        self._read_line_by_line(begin, end, is_text=_is_text(chunk))

    def _read_line_by_line(self, begin: int, end: int, *, is_text: bool) -> None:
        decode = self._decoder.decode
        taken: list[object] = []
        taken_begin = begin
        while begin < end:
            line_end = self._text.find(b"\n", begin, end) + 1
            line = self._text[begin:line_end]
            try:
                if _is_odd(line) or not (is_text or _is_text(line)):
                    raise msgspec.DecodeError  # noqa: TRY301 - as if the decoder had said so
                taken.append(decode(line))
            except (msgspec.DecodeError, RecursionError):
                self._take(taken, taken_begin, begin)
                taken, taken_begin = [], line_end
                if line.strip(_BLANK):
                    self._read_odd_line(begin, line)
            begin = line_end
        self._take(taken, taken_begin, end)

    def _take(self, rows: list[object], begin: int, end: int) -> None:
        """Add decoded lines to the columns."""
        if not rows:
            return
        self._columns.collect_fields(rows)
        self._runs.append(_Run(self._rows, begin, end))
        self._quotes += _count_quotes(self._text[begin:end])
        self._rows += len(rows)

    def _read_odd_line(self, begin: int, line: bytes) -> None:
        try:
            found = self._explainer.explain(line)
        except NotJsonError as error:
            self._read_corrupt(begin, line, error)
            return
        if self._explainer.new_fields and self._new_fields_file is None:
            self._new_fields_file = self._piece_at(begin).file_uri
        for each in found:
            self._add_odd_row(each.row)
            self._settle(self._rows - 1, begin, line, each)

    def _add_odd_row(self, row: object) -> None:
        self._columns.collect_fields([row])
        self._odd_rows.append(row)
        self._rows += 1

    def _read_corrupt(self, begin: int, line: bytes, error: NotJsonError) -> None:
        """A line that is no record: keep it, drop it or fail, as the mode says."""
        self._corrupt_records += 1
        if self._drop_or_fail(begin, str(error)):
            self._dropped_records += 1
            return
        self._add_odd_row(self._reader.shape.missing)
        self._keep_line(self._rows - 1, begin, line)

    def _keep_line(self, row: int, begin: int, line: bytes) -> None:
        """Put a whole line where corrupt records go."""
        raw = line.rstrip(b"\n").decode("utf-8", "backslashreplace").encode()
        if self._reader.corrupt_column is not None:
            self._corrupt[row] = raw
        elif self._reader.options.rescued_data_column is not None:
            key = _quote(self._reader.options.corrupt_record_column)
            self._rescue(row, begin, key + b":" + _quote(raw.decode()))

    def _drop_or_fail(self, begin: int, reason: str) -> bool:
        """Whether the mode drops records that are not valid; fails if it says so."""
        mode = self._reader.options.mode
        if mode == "FAILFAST":
            piece_begin = self._piece_begins[bisect_right(self._piece_begins, begin) - 1]
            number = self._text.count(b"\n", piece_begin, begin) + 1
            raise CorruptRecordError(
                f"{self._piece_at(begin).file_uri}: line {number} of the block is not a valid "
                f"record ({reason}), and mode is FAILFAST. Correct or remove the file, or set "
                "mode to PERMISSIVE, which keeps such records apart."
            )
        return mode == "DROPMALFORMED"

    # Explaining ---------------------------------------------------------------------------

    def _settle(self, row: int, begin: int, line: bytes, found: Explained) -> None:
        """Decide about a row of which something may be left over."""
        if self._reader.options.rescued_data_column is not None:
            if found.rescued:
                self._rescue(row, begin, found.rescued)
        elif not found.fits:
            # As in Spark: without rescued data, a value that does not fit makes a bad record.
            if self._drop_or_fail(begin, "a value does not fit its column"):
                self._dropped_rows.add(row)
            elif self._reader.corrupt_column is not None:
                self._keep_line(row, begin, line)

    def _rescue(self, row: int, begin: int, members: bytes) -> None:
        path = _quote(self._piece_at(begin).file_uri)
        self._rescued[row] = b"{" + members + b',"_file_path":' + path + b"}"

    def _explain_misfits(self, rows: list[int]) -> None:
        """Explain rows of which a column could not take the value."""
        for row, begin, line in self._lines_of(rows):
            if row not in self._rescued:
                self._settle(row, begin, line, self._explainer.explain(line)[0])

    def _lines_of(self, rows: list[int]) -> Iterator[tuple[int, int, bytes]]:
        """Source lines of rows that the decoder took; `rows` ascending."""
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
            if index < 0 or place >= len(breaks):
                message = (
                    f"an explained row does not fit its columns: {self._text[run.end :][:200]!r}"
                )
                raise AssertionError(message)  # the two paths disagree: rather fail than lose it
            begin = run.begin if place == 0 else int(breaks[place - 1]) + 1
            yield row, begin, self._text[begin : int(breaks[place])]

    def _rescue_repeated_keys(self) -> None:
        """Find keys that come twice in an object: the decoder has kept the last value only.

        The quotation marks of the source are counted against those of all the texts and keys that
        were taken from it. A key that came twice leaves at least two over, and nothing else can.
        """
        odd = self._reader.new_columns()
        odd.collect_fields(self._odd_rows)
        if self._columns.quotes() == self._quotes + odd.quotes():
            return
        for run in self._runs:
            chunk = self._text[run.begin : run.end]
            again = self._reader.new_columns()
            again.collect_fields(self._decoder.decode_lines(chunk))
            if again.quotes() != _count_quotes(chunk):
                self._rescue_repeated_keys_of(run, chunk)

    def _rescue_repeated_keys_of(self, run: _Run, chunk: bytes) -> None:
        begin = run.begin
        for place, line in enumerate(chunk.splitlines(keepends=True)):
            if has_repeated_key(line):
                self._settle(run.first_row + place, begin, line, self._explainer.explain(line)[0])
            begin += len(line)

    def _piece_at(self, position: int) -> Piece:
        return self._pieces[bisect_right(self._piece_begins, position) - 1]

    # The batch ----------------------------------------------------------------------------

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        reader = self._reader
        if reader.corrupt_column is not None:
            place = reader.arrow_schema.get_field_index(reader.corrupt_column)
            arrays.insert(place, _sparse(self._corrupt, self._rows))
        if reader.options.rescued_data_column is not None:
            arrays.append(_sparse(self._rescued, self._rows))
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=reader.arrow_schema)
        else:
            batch = pa.RecordBatch.from_struct_array(
                pa.Array.from_buffers(pa.struct([]), self._rows, [None], children=[])
            )
        if self._dropped_rows:
            keep = np.ones(self._rows, np.bool_)
            keep[list(self._dropped_rows)] = False
            batch = batch.filter(pa.array(keep))
        counts = reader.counts
        counts.rows += batch.num_rows
        counts.rescued_rows += len(self._rescued)
        counts.corrupt_records += self._corrupt_records
        counts.dropped_records += self._dropped_records + len(self._dropped_rows)
        return batch


def _with_line_breaks(data: bytes) -> bytes:
    r"""The lines with `\n` after each (Spark's default `lineSep` is `\n`, `\r\n` or `\r`)."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _chunks(text: bytes) -> Iterator[tuple[int, int]]:
    """Cut into whole lines, about `CHUNK_BYTES` at a time."""
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + CHUNK_BYTES) + 1
        end = end or text.find(b"\n", begin + CHUNK_BYTES) + 1
        yield begin, end
        begin = end


def _clean_lines(chunk: bytes) -> int:
    """The number of lines if each of them can only be one object on its own; otherwise 0.

    The decoder takes white space as JSON does: it would also read an object that spans lines, or
    two on one line. A line break between `}` and `{` always ends an object, so if every line
    break is such, and there are as many objects as lines, each line is one.
    """
    text = np.frombuffer(chunk, np.uint8)
    breaks = np.flatnonzero(text == ord("\n"))
    clean = (
        np.count_nonzero(text < ord(" ")) == len(breaks)
        and text[0] == ord("{")
        and bool((text[breaks - 1] == ord("}")).all())
        and bool((text[breaks[:-1] + 1] == ord("{")).all())
        and _is_text(chunk)
    )
    if not clean:
        return 0
    longest = int(np.diff(breaks, prepend=-1).max())
    if longest > 2 * MAX_DEPTH and any(map(_is_odd, chunk.splitlines())):
        return 0
    return len(breaks)


def _is_text(chunk: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    if chunk.isascii():
        return True
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_odd(line: bytes) -> bool:
    """Whether a line may be nested too deeply for the decoder's own limit to be relied on."""
    return len(line) > 2 * MAX_DEPTH and line.count(b"{") + line.count(b"[") > MAX_DEPTH


def _count_quotes(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord('"')))


def _quote(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _sparse(values: dict[int, bytes], rows: int) -> pa.Array:
    """A string column that is NULL except in some rows."""
    if not values:
        return pa.nulls(rows, pa.string())
    places = sorted(values)
    lengths = np.zeros(rows, np.int64)
    lengths[places] = [len(values[place]) for place in places]
    valid = np.zeros(rows, np.bool_)
    valid[places] = True
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = b"".join(values[place] for place in places)
    buffers = [
        pa.py_buffer(np.packbits(valid, bitorder="little")),
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


__all__ = ["JsonReader", "Piece", "ReadCounts", "UnknownFields"]
