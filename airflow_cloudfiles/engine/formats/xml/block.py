"""What becomes of each row of a piece of a file?

The life of one `Block`:

1. Rows that look alike are read as columns (`columns`); what is left over is odd.
2. Odd rows are explained one by one.
3. What did not find its column is put into the rescued data column, the corrupt record column,
   or wherever else the mode says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.errors import CorruptRecordError
from airflow_cloudfiles.engine.formats.arrays import Positions
from airflow_cloudfiles.engine.formats.base import BadRecord, ReadCounts
from airflow_cloudfiles.engine.formats.xml.columns import NONE_TAKEN, Columns, Taken
from airflow_cloudfiles.engine.formats.xml.explain import Explainer
from airflow_cloudfiles.engine.formats.xml.rows import Rows
from airflow_cloudfiles.engine.formats.xml.source import printable
from airflow_cloudfiles.engine.formats.xml.tree import NotXmlError, parse
from airflow_cloudfiles.engine.formats.xml.variant import VariantExplainer
from airflow_cloudfiles.engine.options.cloud_files import ParseMode

_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a reader has made of its schema and options.

    Attributes:
        rescues: Whether there is a rescued data column, which comes last in `arrow_schema`.
        keeps_bad_records: Whether corrupt records go to `badRecordsPath`.
        corrupt_name: Key of a corrupt record in rescued data.
        corrupt_place: Position of the corrupt record column, if there is one.
        parsed_type: The other columns as one Arrow struct.
    """

    mode: ParseMode
    rescues: bool
    keeps_bad_records: bool
    corrupt_name: str
    corrupt_place: int | None
    arrow_schema: pa.Schema
    parsed_type: pa.DataType


@dataclass(slots=True)
class _Left:
    """What is left over of rows, by row.

    Attributes:
        rescued: Members of rescued data, without the path.
        corrupt: Whole rows.
        dropped: Rows to be taken out again.
    """

    rescued: dict[int, str] = field(default_factory=dict)
    corrupt: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)


class Block:
    """Consecutive rows of one file, read once.

    Attributes:
        counts: Of these rows; complete when `read` returns.
        bad_records: On their way to `badRecordsPath`.
    """

    def __init__(
        self,
        rules: Rules,
        columns: Columns | None,
        explainer: Explainer | VariantExplainer,
        rows: Rows,
        file_uri: str,
    ) -> None:
        self._rules = rules
        self._columns = columns
        self._explainer = explainer
        self._rows = rows
        self._file_uri = file_uri
        self._left = _Left()
        self._explained: list[dict[str, object]] = []
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []

    def read(self) -> pa.RecordBatch:
        """Read everything."""
        taken = NONE_TAKEN if self._columns is None else self._columns.read(self._rows)
        odd = np.setdiff1d(np.arange(len(self._rows.texts)), taken.rows, assume_unique=True)
        for row in odd.tolist():
            self._read_odd_row(row)
        return self._batch(self._arrays(taken, odd))

    # 2. One by one ------------------------------------------------------------------------

    def _read_odd_row(self, row: int) -> None:
        text = self._rows.texts[row]
        reason = self._rows.broken.get(row)
        values: dict[str, object] = {}
        if reason is None:
            try:
                values = self._explain(row, text)
            except NotXmlError as error:
                reason = str(error)
        if reason is not None:
            self._read_corrupt(row, text, reason)
        self._explained.append(values)

    def _explain(self, row: int, text: bytes) -> dict[str, object]:
        found = self._explainer.explain(parse(text))
        if self._rules.rescues:
            if found.rescued:
                self._left.rescued[row] = found.rescued
        elif not found.fits:
            # As in Spark: without rescued data, a value that does not fit makes a bad record.
            self._read_corrupt(row, text, "a value does not fit its column")
        return found.row

    def _read_corrupt(self, row: int, text: bytes, reason: str) -> None:
        """A row that is none: keep it, drop it or fail, as the options say."""
        self.counts.corrupt_records += 1
        if self._rules.keeps_bad_records:
            self.bad_records.append(BadRecord(self._file_uri, printable(text), reason))
            self._left.dropped.add(row)
        elif self._drop_or_fail(text, reason):
            self._left.dropped.add(row)
        elif self._rules.corrupt_place is not None:
            self._left.corrupt[row] = printable(text)
        elif self._rules.rescues:
            key, value = _quote(self._rules.corrupt_name), _quote(printable(text))
            self._left.rescued[row] = f"{key}:{value}"

    def _drop_or_fail(self, text: bytes, reason: str) -> bool:
        """Whether the mode drops records that are not valid; fails if it says so."""
        if self._rules.mode == "FAILFAST":
            raise CorruptRecordError(
                f"{self._file_uri}: a row is not a valid record ({reason}), and mode is FAILFAST. "
                "Correct or remove the file, or set mode to PERMISSIVE, which keeps such records "
                f"apart. The row begins: {printable(text[:_SHOWN_CHARACTERS])}"
            )
        return self._rules.mode == "DROPMALFORMED"

    # 3. The batch -------------------------------------------------------------------------

    def _arrays(self, taken: Taken, odd: Positions) -> list[pa.Array]:
        """The columns of all rows, in the order of the rows."""
        if not len(odd):
            return taken.arrays
        explained = pa.array(self._explained, self._rules.parsed_type).flatten()
        if not len(taken.rows):
            return list(explained)
        order = pa.array(np.argsort(np.concatenate([taken.rows, odd])))
        return [
            pa.concat_arrays(pair).take(order) for pair in zip(taken.arrays, explained, strict=True)
        ]

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        rules, left = self._rules, self._left
        count = len(self._rows.texts)
        if rules.corrupt_place is not None:
            arrays.insert(rules.corrupt_place, _sparse(left.corrupt, count))
        if rules.rescues:
            arrays.append(_sparse(self._with_path(), count))
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=rules.arrow_schema)
        else:
            empty = pa.Array.from_buffers(pa.struct([]), count, [None], children=[])
            batch = pa.RecordBatch.from_struct_array(empty)
        if left.dropped:
            keep = np.ones(count, np.bool_)
            keep[list(left.dropped)] = False
            batch = batch.filter(pa.array(keep))
        self.counts.rows = batch.num_rows
        self.counts.rescued_rows = len(left.rescued.keys() - left.dropped)
        self.counts.dropped_records = len(left.dropped)
        return batch

    def _with_path(self) -> dict[int, str]:
        end = f',"_file_path":{_quote(self._file_uri)}}}'
        return {row: "{" + members + end for row, members in self._left.rescued.items()}


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _sparse(values: dict[int, str], count: int) -> pa.Array:
    """A string column that is NULL except in some rows."""
    if not values:
        return pa.nulls(count, pa.string())
    return pa.array([values.get(row) for row in range(count)], pa.string())
