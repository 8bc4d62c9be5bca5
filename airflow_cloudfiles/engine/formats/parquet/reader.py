"""How do Parquet files become batches?"""

from __future__ import annotations

from typing import IO

from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarFile, ColumnarReader
from airflow_cloudfiles.engine.formats.parquet.file import ParquetFile, parquet_options


class ParquetReader(ColumnarReader):
    """Reads Parquet files with one schema; see `ColumnarReader`."""

    format = "Parquet"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""
        return ParquetFile(content, parquet_options(self._options))
