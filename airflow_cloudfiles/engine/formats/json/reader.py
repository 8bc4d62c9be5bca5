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

from airflow_cloudfiles.engine.formats.base import LinePiece, ReadCounts, UnknownFields
from airflow_cloudfiles.engine.formats.json import lines as json_lines
from airflow_cloudfiles.engine.formats.json.block import JsonBlock
from airflow_cloudfiles.engine.formats.json.converters import grammar_of, json_options, scalar_rules
from airflow_cloudfiles.engine.formats.json.explain import JsonExplainer
from airflow_cloudfiles.engine.formats.json.shape import UnknownFieldColumns, compile_struct
from airflow_cloudfiles.engine.formats.record_policy import RecordOutcomes, RecordReader
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["JsonReader", "LinePiece", "ReadCounts", "UnknownFields"]


class JsonReader(RecordReader):
    """Reads blocks of JSON Lines with one schema; see `RecordReader`.

    Raises:
        IncompatibleSchemaError: A column has a type that JSON cannot be read into.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        self._own = own = json_options(options)
        self.grammar = grammar_of(own)
        self._shape = compile_struct(
            self._policy.parsed,
            forbid_unknown=not self._ignores_unknown,
            rules=scalar_rules(own, NumberRule.of(options), exact=self._policy.rescues),
            matcher=options.matcher,
        )
        self.decoder = msgspec.json.Decoder(self._shape.make)
        drops_nulls = own.drop_field_if_all_null
        self._unknown_fields = UnknownFieldColumns(self._shape, drops_nulls=drops_nulls)

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
            collects_new=self._watches,
            grammar=self.grammar,
            drops_nulls=self._own.drop_field_if_all_null,
            as_spark=not self._policy.rescues,
            matcher=self._options.matcher,
            reserved=self._reserved,
            left_out=self._left_out,
        )
        outcomes = RecordOutcomes(self._policy)
        block = JsonBlock(outcomes, self.decoder, explainer, self._unknown_fields, lines, aside)
        return self._counted(block.read(), outcomes)
