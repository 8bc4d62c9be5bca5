"""Read files as they are, whatever they are.

One row a file, in the columns of Spark's `binaryFile` (B14): where it is, when it was written, how
long it is, and its bytes as they are stored: never decompressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.fixed_columns import BINARY_FILE, FixedColumnsReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_cloudfiles.engine.formats.base import OpenedFile

_MAX_CONTENT_BYTES: Final = 2**31 - 1
"""As Spark's `spark.sql.sources.binaryFile.maxLength`."""


class BinaryReader(FixedColumnsReader):
    """Reads files as they are, in some or all of the columns of `binaryFile`."""

    WHAT = "Format binaryFile"
    COLUMNS = BINARY_FILE

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file. It is a row of the part that it begins in.

        Raises:
            FileUnreadableError: It is larger than a row can take.
        """
        del end  # of the protocol
        if start:
            return
        found: dict[str, object] = {
            "path": file.uri,
            "modificationTime": file.entry.modification_time_us,
            "length": file.entry.size,
        }
        if "content" in self.arrow_schema.names:
            found["content"] = _content(file)
        yield self._row(found)


def _content(file: OpenedFile) -> bytes:
    if file.entry.size > _MAX_CONTENT_BYTES:
        raise FileUnreadableError(
            f"{file.uri} has {file.entry.size} bytes, more than the {_MAX_CONTENT_BYTES} that one "
            "row can take. Leave it out with pathGlobFilter, or give a schema without `content`."
        )
    with file.random_access() as stream:
        return stream.read()
