"""How do many rows become columns at once?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.xml_rows import Rows

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that were read.

    Attributes:
        rows: Their positions, ascending.
        arrays: Their columns.
    """

    rows: Positions
    arrays: list[pa.Array]


class Columns:
    """Reads rows of one schema."""

    def read(self, rows: Rows) -> Taken:  # noqa: ARG002 - to come
        """Read those rows that can be."""
        return Taken(np.empty(0, np.int64), [])
