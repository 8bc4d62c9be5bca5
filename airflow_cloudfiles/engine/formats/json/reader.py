"""What is in the JSON Lines of these files?

Blocks of lines become record batches. The fast path decodes a chunk of lines at once into structs
of raw strings (`shape`) and converts whole columns (`columns`). A line that the decoder
refuses, and a row with a value that does not fit, are explained one by one (`explain`).
A line is in exactly one place afterwards: its rows, the rescued data, the corrupt record column,
or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airflow_cloudfiles.engine.formats.base import BadRecord, LinePiece, ReadCounts, UnknownFields
from airflow_cloudfiles.engine.formats.json import lines as json_lines
from airflow_cloudfiles.engine.formats.json.block import JsonBlock
from airflow_cloudfiles.engine.formats.json.explain import JsonExplainer
from airflow_cloudfiles.engine.formats.json.options import (
    grammar_of,
    json_options,
    scalar_rules,
)
from airflow_cloudfiles.engine.formats.json.shape import compile_struct
from airflow_cloudfiles.engine.formats.json.unknown_fields import UnknownFieldColumns
from airflow_cloudfiles.engine.formats.record_policy import RecordOutcomes, RecordPolicy
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.types import missing_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["JsonReader", "LinePiece", "ReadCounts", "UnknownFields"]


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
        bad_records: Corrupt records on their way to `badRecordsPath`; the stream empties it.

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
        self._policy = RecordPolicy.of(data_schema, options)
        self.arrow_schema: pa.Schema = self._policy.arrow_schema
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._options = options
        # Unknown fields nobody wants to see again need not be looked at, unless one of them may
        # be a column in another case.
        ignores = (
            options.schema_evolution_mode == "none"
            and not self._policy.rescues
            and options.reader_case_sensitive
        )
        own = json_options(options)
        self.grammar = grammar_of(own)
        self._own = own
        rules = scalar_rules(own, NumberRule.of(options), exact=self._policy.rescues)
        shape = compile_struct(
            self._policy.parsed, forbid_unknown=not ignores, rules=rules, matcher=options.matcher
        )
        self.decoder = msgspec.json.Decoder(shape.make)
        self._unknown_fields = UnknownFieldColumns(shape, drops_nulls=own.drop_field_if_all_null)
        self._shape = shape
        self._reserved = options.matcher.keys((*reserved, *options.reserved_columns))
        self._left_out = missing_fields(options.stay_rescued, data_schema, options.matcher)

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
        data = json_lines.as_lines(records, self.grammar, aside)
        return self._read([LinePiece(file_uri, data)], aside)

    def _lines(self, data: bytes, aside: list[bytes]) -> bytes:
        separator = self._own.line_sep
        if separator is None:
            return json_lines.with_line_breaks(data)
        return json_lines.as_lines(data.split(separator.encode()), self.grammar, aside)

    def _read(self, lines: Sequence[LinePiece], aside: list[bytes]) -> pa.RecordBatch:
        explainer = JsonExplainer(
            self._shape,
            case_sensitive=self._options.reader_case_sensitive,
            collects_new=self._options.schema_evolution_mode in WATCHING_MODES,
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
        self.counts.add(outcomes.counts)
        self.bad_records += outcomes.bad_records
        return batch
