"""Decide what becomes of records that are not valid, and of values that nothing can hold exactly.

The same in every format that has such records:

1. With `badRecordsPath` the record goes there, and has no row.
2. Otherwise the mode decides. `FAILFAST` fails. `DROPMALFORMED` drops the record. `PERMISSIVE`
   keeps it: in the corrupt record column where the schema has one, else in the rescued data
   column, else nowhere but in the counts.

A reader makes one `RecordPolicy` of its schema and options, and one `RecordOutcomes` for each
batch, which also puts the columns of the batch together.

A double is the nearest one to its text, which Spark takes for the value whatever it differs by.
`cloudFiles.rescueInexactNumbers` says which differences count. Each rule rescues what the one
before it rescues, too:

- `none`: no difference, as with Spark. It is the rule where there is no rescued data column.
- `wholeNumbers`: whole numbers without a fraction and an exponent, such as ids, that are another
  number in the column; and numbers other than 0 that are 0 in it.
- `all`: numbers with more digits than the column gives back. A column gives back a number when that
  is what it is written as, in as few digits as tell it from its neighbors: `0.1` is, although no
  double is a tenth.

One number at a time (`holds`) and whole columns (`doubtful`), which agree.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import CorruptRecordError, IncompatibleSchemaError
from airflow_cloudfiles.engine.files import RecordError
from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.base import (
    SAMPLE_CHARACTERS,
    BadRecord,
    Bools,
    ReadCounts,
    validity,
)
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.cloud_files import (
    WATCHING_MODES,
    CloudFilesOptions,
    InexactNumbers,
)
from airflow_cloudfiles.engine.types import VariantType, missing_fields, short_type, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


MISFIT_REASON: Final = "a value does not fit its column"
UNKNOWN_REASON: Final = "no column has this field"
_SHOWN_CHARACTERS: Final = 200
"""How much of a record an error quotes."""


class RecordPolicy:
    """What a schema and options say about bad records.

    Args:
        data_schema: The columns to fill.
        options: Of the source.
        arrow_schema: Of the batches.

    Attributes:
        mode: Decides where there is no `badRecordsPath`.
        has_bad_records_path: Whether bad records go to `badRecordsPath`.
        rescues: Whether there is a rescued data column, which comes last in `arrow_schema`.
        corrupt_name: Name of the corrupt record column, and key of a corrupt record in rescued
            data.
        corrupt_position: Position of the corrupt record column, if the schema has one.
        arrow_schema: As above.
        parsed: The columns that records are parsed into: all but these two.
        parsed_type: The same as one Arrow struct.

    Raises:
        IncompatibleSchemaError: The corrupt record column is no string.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, arrow_schema: pa.Schema
    ) -> None:
        name = self.corrupt_name = options.corrupt_record_column
        # The corrupt record column is a string, as in Spark; a schema may lack it.
        if name in data_schema.names and not isinstance(data_schema[name].dataType, StringType):
            raise IncompatibleSchemaError(
                f"Column {name} takes corrupt records and must be a string, not "
                f"{short_type(data_schema[name].dataType)}. Change its type, or name another "
                "column with columnNameOfCorruptRecord."
            )
        self.mode = options.mode
        self.has_bad_records_path = options.bad_records_path is not None
        self.rescues = options.rescued_data_column is not None
        self.arrow_schema = arrow_schema
        position = arrow_schema.get_field_index(name)
        self.corrupt_position = position if position >= 0 else None
        self.parsed = StructType([each for each in data_schema.fields if each.name != name])
        self.parsed_type = pa.struct(list(to_arrow(self.parsed)))


class RecordOutcomes:
    """What became of the records of one batch.

    Attributes:
        policy: Of the reader.
        counts: Complete when `batch` returns.
        bad_records: On their way to `badRecordsPath`.
        rescued: Members of the rescued data of rows, without braces and path.
        corrupt: Values of the corrupt record column, by row.
        dropped: Rows to be taken out of the batch again.
        bad: The records that are not valid, in the order in which they were met.
        first_rescued: The first row with rescued data, and that data; `None` for none.
    """

    def __init__(self, policy: RecordPolicy) -> None:
        self.policy = policy
        self.bad: list[BadPlace] = []
        self.first_rescued: tuple[int, bytes | str] | None = None
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self.rescued: dict[int, bytes] = {}
        self.corrupt: dict[int, bytes] = {}
        self.dropped: set[int] = set()

    def is_dropped(  # noqa: PLR0913 - what there is to say of a record
        self,
        file_uri: str,
        record: str,
        reason: str,
        *,
        place: int = 0,
        rows: Iterable[int] = (),
        has_value: bool = False,
    ) -> bool:
        """Count a bad record and decide whether it is dropped.

        Args:
            file_uri: The file it is in.
            record: Its text.
            reason: Why it is bad, in a sentence.
            place: Where it is in the batch, in the terms of the reader; later records have more.
            rows: The rows it has already, if any; they are taken out when it is dropped.
            has_value: Whether mode `DROPMALFORMED` keeps it, as Spark's reader does not see that
                it is bad.

        Raises:
            CorruptRecordError: The mode is `FAILFAST`.
        """
        self.counts.corrupt_records += 1
        self.counts.corrupt_by_file[file_uri] += 1
        if self.policy.has_bad_records_path:
            self.bad_records.append(BadRecord(file_uri, record, reason))
        elif self.policy.mode == "FAILFAST":
            raise CorruptRecordError(
                f"{file_uri}: a record is not valid ({reason}), and mode is FAILFAST. Correct or "
                "remove the file, or set mode to PERMISSIVE, which keeps such records apart. The "
                f"record begins: {record[:_SHOWN_CHARACTERS]}"
            )
        elif has_value or self.policy.mode == "PERMISSIVE":
            self.bad.append(BadPlace(place, reason))
            return False
        taken_out = set(rows)
        self.dropped |= taken_out
        self.counts.dropped_records += not taken_out
        self.bad.append(BadPlace(place, reason, len(taken_out), len(taken_out) or 1))
        return True

    def keep(self, row: int, record: str) -> None:
        """Put a whole bad record where the schema has a place for it."""
        if self.policy.corrupt_position is not None:
            self.corrupt[row] = record.encode()
        elif self.policy.rescues:
            self.rescued[row] = base.member(self.policy.corrupt_name, record).encode()

    def drop_or_keep(
        self, file_uri: str, record: str, reason: str, rows: Iterable[int], *, place: int = 0
    ) -> None:
        """Do as the policy says with a bad record that has rows already.

        Raises:
            CorruptRecordError: The mode is `FAILFAST`.
        """
        rows = list(rows)
        if not self.is_dropped(file_uri, record, reason, place=place, rows=rows):
            for row in rows:
                self.keep(row, record)

    def rescued_column(self, rows: int, end_of: Callable[[int], bytes]) -> pa.Array:
        """Build the rescued data column.

        Args:
            rows: How many there are.
            end_of: Gives the end of a row's rescued data (`rescued_json.path_end`).
        """
        there = self.rescued.keys() - self.dropped
        self.counts.rescued_rows = len(there)
        if there:
            first = min(there)
            self.first_rescued = first, b"{" + self.rescued[first] + b"}"
        whole = {row: b"{" + found + end_of(row) for row, found in self.rescued.items()}
        return sparse_strings(whole, rows)

    def batch(self, arrays: list[pa.Array], rows: int, rescued: pa.Array | None) -> pa.RecordBatch:
        """Put a batch together, without the rows that are dropped.

        Args:
            arrays: The parsed columns.
            rows: How many there are, with those that are dropped.
            rescued: The rescued data column, if the policy has one.
        """
        arrays = list(arrays)
        if self.policy.corrupt_position is not None:
            arrays.insert(self.policy.corrupt_position, sparse_strings(self.corrupt, rows))
        if rescued is not None:
            arrays.append(rescued)
        batch = make_batch(arrays, self.policy.arrow_schema, rows)
        if self.dropped:
            keep = np.ones(rows, np.bool_)
            keep[list(self.dropped)] = False
            batch = batch.filter(pa.array(keep))
        self.counts.rows = batch.num_rows
        self.counts.dropped_records += len(self.dropped)
        return batch

    def first_error(self, place_of: Callable[[int], int]) -> tuple[int, RecordError] | None:
        """Find what comes first of all that is rescued or not valid, without its line.

        Args:
            place_of: Gives the place of a row, in the terms of the reader.

        Returns:
            Its place, and the error; `None` where everything found its column.
        """
        bad = min(self.bad, key=lambda each: each.place, default=None)
        if self.first_rescued is None:
            return None if bad is None else (bad.place, RecordError(bad.reason))
        row, rescued = self.first_rescued
        place = place_of(row)
        if bad is not None and bad.place <= place:  # its record may be what is rescued
            return bad.place, RecordError(bad.reason)
        return place, rescued_error(rescued, self.policy.parsed)


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Where a bad record is.

    Attributes:
        place: In the terms of the reader.
        reason: Why it is bad, in a sentence.
        removed: How many rows were taken out for it.
        dropped: How many records count as dropped for it.
    """

    place: int
    reason: str
    removed: int = 0
    dropped: int = 0


def rescued_error(rescued: bytes | str, columns: StructType) -> RecordError:
    """Say which field of a row is the first one that is rescued, without its value.

    Args:
        rescued: The rescued data, one JSON object.
        columns: Of the schema.
    """
    try:
        found = json.loads(rescued)
    except (ValueError, RecursionError):  # nested too deeply to look into
        return RecordError(MISFIT_REASON)
    names: list[str] = []
    kind: object = columns
    while isinstance(found, dict) and isinstance(kind, StructType):
        name = next((each for each in found if each != "_file_path"), None)
        if name is None:
            break
        names.append(name)
        fields = {each.name.lower(): each.dataType for each in kind.fields}
        found, kind = found[name], fields.get(name.lower())
    reason = UNKNOWN_REASON if kind is None else MISFIT_REASON
    return RecordError(reason, cut(".".join(names), SAMPLE_CHARACTERS // 4))


class FormatReader:
    """What the readers of all formats have in common.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.
        first_error: The first of what is rescued or not valid since this was `None`; whoever reads
            another file sets it to `None`.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        self._options = options
        self.first_error: RecordError | None = None
        self.arrow_schema = batch_schema(data_schema, options)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []


class RecordReader(FormatReader):
    """Reads records with one schema.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity and the names of the special columns.

    Attributes:
        watches: Whether new columns are reported.

    Raises:
        IncompatibleSchemaError: The corrupt record column is no string.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        self._policy = RecordPolicy(data_schema, options, self.arrow_schema)
        self.watches = options.schema_evolution_mode in WATCHING_MODES
        self._reserved = options.matcher.keys(options.reserved_columns)
        self._left_out = missing_fields(options.stay_rescued, data_schema, options.matcher)

    @property
    def _ignores_unknown(self) -> bool:
        """Whether unknown fields need not be looked at.

        Nobody wants to see them again, and none may be a column in another case.
        """
        options = self._options
        is_plain = options.schema_evolution_mode == "none" and options.reader_case_sensitive
        return is_plain and not self._policy.rescues

    def _counted(self, batch: pa.RecordBatch, outcomes: RecordOutcomes) -> pa.RecordBatch:
        """Count what became of the records of a batch, and return it."""
        self.counts.add(outcomes.counts)
        self.bad_records += outcomes.bad_records
        return batch


def require_variant_column(schema: StructType, name: str) -> None:
    """Refuse a schema without the column that `singleVariantColumn` names.

    Raises:
        IncompatibleSchemaError: It has none of that name, or none of the type VARIANT.
    """
    if name not in schema.names or not isinstance(schema[name].dataType, VariantType):
        raise IncompatibleSchemaError(
            f"singleVariantColumn names {name!r}, which the schema does not have as a column of "
            "type VARIANT. Leave the schema out."
        )


def batch_schema(data_schema: StructType, options: CloudFilesOptions) -> pa.Schema:
    """Build the Arrow schema of batches: the data columns, then the rescued data column if any."""
    rescued = options.rescued_data_column
    extra = [] if rescued is None else [StructField(rescued, StringType())]
    return to_arrow(StructType([*data_schema.fields, *extra]))


def make_batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Build a batch of columns, or of that many rows without any column."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty = pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty)


def sparse_strings(values: dict[int, bytes], rows: int) -> pa.Array:
    """Build a string column that is NULL except in some rows, which `values` has in any order."""
    if not values:
        return pa.nulls(rows, pa.string())
    lengths = np.zeros(rows, np.int64)
    valid = np.zeros(rows, np.bool_)
    positions = sorted(values)
    strings = [values[position] for position in positions]
    lengths[positions] = list(map(len, strings))
    valid[positions] = True
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = pa.py_buffer(b"".join(strings))
    return pa.Array.from_buffers(pa.string(), rows, [validity(valid), pa.py_buffer(offsets), data])


_WHOLE: Final = re.compile(r"[+-]?([0-9]+)", re.ASCII)
_WHOLE_TEXT: Final = r"^[+-]?[0-9]+$"
_NO_ZERO: Final = r"^[^eE]*[1-9]"
_DIGIT_BUT_ZERO: Final = re.compile(_NO_ZERO, re.ASCII)
_LONG_DIGITS: Final = 18
"""A number of so many characters fits 64 bits."""
_SHORTEST_LOST: Final = len("1e-46")
"""The shortest number other than 0 that is 0 in a float."""
_ALL_WHOLE: Final = {pa.float64(): 2**53, pa.float32(): 2**24}
"""Up to which number a type has all whole numbers."""
_ALL_DIGITS: Final = {pa.float64(): 15, pa.float32(): 6}
"""How many digits a type always gives back, from `_ALL_BITS` on."""
_ALL_BITS: Final = {
    pa.float64(): float(np.finfo(np.float64).smallest_normal),
    pa.float32(): float(np.finfo(np.float32).smallest_normal),
}
"""Nearer to 0, numbers have ever fewer digits."""


@dataclass(frozen=True, slots=True)
class NumberRule:
    """Which numbers a floating column holds.

    Attributes:
        rescues: What is rescued for being inexact.
        infinite: Whether what is beyond the largest number is infinity, as with Spark, rather than
            a number that does not fit.
    """

    rescues: InexactNumbers = "none"
    infinite: bool = False

    @classmethod
    def of(cls, options: CloudFilesOptions) -> NumberRule:
        """Choose the rule of a source; without a rescued data column it is Spark's."""
        rescues = options.rescued_data_column is not None
        return cls(options.rescue_inexact_numbers if rescues else "none", infinite=not rescues)

    def holds(self, text: str, number: float, *, is_float: bool = False) -> bool:
        """Tell whether a column holds a number, which is finite.

        Args:
            text: The number in decimal, as a file has it.
            number: What the column makes of it.
            is_float: Whether the column is a FLOAT, rather than a DOUBLE.
        """
        if self.rescues == "none":
            return True
        if not number:
            return _DIGIT_BUT_ZERO.match(text) is None
        whole = _WHOLE.fullmatch(text)
        if whole is not None:
            return int(whole[1].lstrip("0") or "0") == abs(number)
        if self.rescues == "wholeNumbers":
            return True
        written = str(np.float32(number)) if is_float else repr(number)
        return Decimal(text) == Decimal(written)

    def doubtful(self, strings: pa.StringArray, numbers: pa.Array) -> Bools | None:
        """Find the few numbers that a column may not hold; `holds` decides about each.

        Args:
            strings: The numbers as a file has them.
            numbers: The same as the column has them, floats or doubles; null where there is none.

        Returns:
            Which are doubtful; `None` for no one.
        """
        if self.rescues == "none" or not len(strings):
            return None
        kind = numbers.type
        values = numbers.fill_null(1).to_numpy(zero_copy_only=False)
        lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
        found = np.zeros(len(strings), np.bool_)
        zeros = np.flatnonzero((values == 0) & (lengths >= _SHORTEST_LOST))
        if len(zeros):
            lost = pc.match_substring_regex(strings.take(pa.array(zeros)), _NO_ZERO)
            found[zeros] = lost.to_numpy(zero_copy_only=False)
        large = np.abs(values) >= _ALL_WHOLE[kind]
        if self.rescues == "all":
            small = (np.abs(values) < _ALL_BITS[kind]) & (values != 0)
            found |= large | small | (lengths > _ALL_DIGITS[kind])
        elif large.any():
            found[_inexact(strings, values, np.flatnonzero(large))] = True
        return found if found.any() else None


def _inexact(
    strings: pa.StringArray, values: np.ndarray[Any, Any], places: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Find large numbers that are whole in their text and maybe others in the column."""
    some = strings.take(pa.array(places))
    whole = pc.match_substring_regex(some, _WHOLE_TEXT).fill_null(False)
    is_whole: Bools = whole.to_numpy(zero_copy_only=False)
    places, some = places[is_whole], pc.utf8_ltrim(some.filter(whole), characters="+")
    short: Bools = (pc.binary_length(some).to_numpy(zero_copy_only=False)) <= _LONG_DIGITS
    exact = np.zeros(len(places), np.bool_)
    longs = some.filter(pa.array(short)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    exact[short] = values[places[short]].astype(np.int64) == longs
    return places[~exact]


SPARK: Final = NumberRule()
"""Numbers as Spark reads them."""
