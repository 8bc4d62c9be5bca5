"""What columns do Parquet files have?"""

from __future__ import annotations

from typing import IO

from airflow_cloudfiles.engine.format_options.parquet import ParquetOptions
from airflow_cloudfiles.engine.formats.columnar_infer import ColumnarInference
from airflow_cloudfiles.engine.formats.columnar_reader import ColumnarFile
from airflow_cloudfiles.engine.formats.parquet_file import ParquetFile


class ParquetInference(ColumnarInference):
    """Learns the schema of Parquet files from their footers; see `ColumnarInference`."""

    format = "Parquet"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""
        return ParquetFile(content, ParquetOptions())
