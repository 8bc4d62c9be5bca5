"""What becomes of each row of a piece of a file?

The life of one `XmlBlock`:

1. Rows that look alike are read as columns (`columns`); what is left over is odd.
2. Odd rows are explained one by one.
3. What did not find its column is put into the rescued data column, the corrupt record column,
   or wherever else the mode says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.record_policy import MISFIT_REASON, RecordOutcomes
from airflow_cloudfiles.engine.formats.rescued_json import path_end
from airflow_cloudfiles.engine.formats.xml.columns import NONE_TAKEN, Columns, Taken
from airflow_cloudfiles.engine.formats.xml.source import printable
from airflow_cloudfiles.engine.formats.xml.tree import NotXmlError, parse

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.arrays import Positions
    from airflow_cloudfiles.engine.formats.xml.explain import XmlExplainer
    from airflow_cloudfiles.engine.formats.xml.rows import Rows
    from airflow_cloudfiles.engine.formats.xml.variant import VariantExplainer


class XmlBlock:
    """Consecutive rows of one file, read once.

    Args:
        outcomes: What becomes of the rows, still empty.
        columns: Read rows that are alike; `None`: every row is explained.
        explainer: Of single rows.
        rows: The rows.
        file_uri: Their file.
    """

    def __init__(
        self,
        outcomes: RecordOutcomes,
        columns: Columns | None,
        explainer: XmlExplainer | VariantExplainer,
        rows: Rows,
        file_uri: str,
    ) -> None:
        self._outcomes = outcomes
        self._columns = columns
        self._explainer = explainer
        self._rows = rows
        self._file_uri = file_uri
        self._explained: list[dict[str, object]] = []

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
            self._drop_or_keep(row, text, reason)
        self._explained.append(values)

    def _explain(self, row: int, text: bytes) -> dict[str, object]:
        found = self._explainer.explain(parse(text))
        if self._outcomes.policy.rescues:
            if found.rescued:
                self._outcomes.rescued[row] = found.rescued.encode()
        elif not found.fits:
            # As in Spark: without rescued data, a value that does not fit makes a bad record.
            self._drop_or_keep(row, text, MISFIT_REASON)
        return found.row

    def _drop_or_keep(self, row: int, text: bytes, reason: str) -> None:
        self._outcomes.drop_or_keep(self._file_uri, printable(text), reason, [row])

    # 3. The batch -------------------------------------------------------------------------

    def _arrays(self, taken: Taken, odd: Positions) -> list[pa.Array]:
        """The columns of all rows, in the order of the rows."""
        if not len(odd):
            return taken.arrays
        explained = pa.array(self._explained, self._outcomes.policy.parsed_type).flatten()
        if not len(taken.rows):
            return list(explained)
        order = pa.array(np.argsort(np.concatenate([taken.rows, odd])))
        return [
            pa.concat_arrays(pair).take(order) for pair in zip(taken.arrays, explained, strict=True)
        ]

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        count, rescued = len(self._rows.texts), None
        if self._outcomes.policy.rescues:
            end = path_end(self._file_uri).encode()
            rescued = self._outcomes.rescued_column(count, lambda _: end)
        return self._outcomes.batch(arrays, count, rescued)
