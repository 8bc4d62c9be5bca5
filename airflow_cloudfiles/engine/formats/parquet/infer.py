"""What columns do Parquet files have?"""

from __future__ import annotations

from typing import IO

from airflow_cloudfiles.engine.formats.columnar.infer import ColumnarInference
from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarFile
from airflow_cloudfiles.engine.formats.parquet.file import ParquetFile
from airflow_cloudfiles.engine.options.formats.parquet import ParquetOptions


class ParquetInference(ColumnarInference):
    """Learns the schema of Parquet files from their footers; see `ColumnarInference`."""

    format = "Parquet"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""
        return ParquetFile(content, ParquetOptions())
