"""How do ORC files become batches?"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, cast

from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarFile, ColumnarReader
from airflow_cloudfiles.engine.formats.orc.file import OrcFile

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.orc import OrcOptions


class OrcReader(ColumnarReader):
    """Reads ORC files with one schema; see `ColumnarReader`."""

    format = "ORC"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""
        return OrcFile(content, cast("OrcOptions", self._options.format_options).max_record_bytes)
