"""What columns do ORC files have?"""

from __future__ import annotations

from typing import IO

from airflow_cloudfiles.engine.formats.columnar.infer import ColumnarInference
from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarFile
from airflow_cloudfiles.engine.formats.orc.file import OrcFile


class OrcInference(ColumnarInference):
    """Learns the schema of ORC files from their footers; see `ColumnarInference`."""

    format = "ORC"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file; refuse one with a column that could not be read exactly."""
        file = OrcFile(content)
        file.check_exact()
        return file
