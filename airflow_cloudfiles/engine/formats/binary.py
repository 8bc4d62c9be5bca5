"""What are these files, whatever they are?

One row a file, in the columns of Spark's `binaryFile` (B14): where it is, when it was written, how
long it is, and its bytes as they are stored: never decompressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from airflow_cloudfiles.engine.errors import FileUnreadableError, IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import BadRecord, OpenedFile, ReadCounts
from airflow_cloudfiles.engine.formats.record_policy import batch_schema, make_batch
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_COLUMNS: Final = {
    "path": pa.string(),
    "modificationTime": pa.timestamp("us", "UTC"),
    "length": pa.int64(),
    "content": pa.binary(),
}
_MAX_CONTENT_BYTES: Final = 2**31 - 1
"""As Spark's `spark.sql.sources.binaryFile.maxLength`."""


class BinaryReader:
    """Reads files as they are.

    Args:
        data_schema: Some or all of the columns of `binaryFile`, in any order.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the columns, then the rescued data column if any (NULL).
        counts: What was read so far.
        bad_records: Stays empty.

    Raises:
        IncompatibleSchemaError: There is another column.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        for field in to_arrow(data_schema):
            if _COLUMNS.get(field.name) != field.type:
                raise IncompatibleSchemaError(
                    f"Format binaryFile has no column {field.name} of type {field.type}. Its "
                    "columns are: path STRING, modificationTime TIMESTAMP, length BIGINT, "
                    "content BINARY."
                )
        self.arrow_schema = batch_schema(data_schema, options)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []

    def read_file(
        self,
        file: OpenedFile,
        start: int = 0,
        end: int | None = None,  # noqa: ARG002 - of the protocol
    ) -> Iterator[pa.RecordBatch]:
        """Read one file. It is a row of the part that it begins in.

        Raises:
            FileUnreadableError: It is larger than a row can take.
        """
        if start:
            return
        found: dict[str, object] = {
            "path": file.uri,
            "modificationTime": file.entry.modification_time_us,
            "length": file.entry.size,
        }
        if "content" in self.arrow_schema.names:
            found["content"] = _content(file)
        arrays = [pa.array([found.get(each.name)], each.type) for each in self.arrow_schema]
        self.counts.rows += 1
        yield make_batch(arrays, self.arrow_schema, 1)


def _content(file: OpenedFile) -> bytes:
    if file.entry.size > _MAX_CONTENT_BYTES:
        raise FileUnreadableError(
            f"{file.uri} has {file.entry.size} bytes, more than the {_MAX_CONTENT_BYTES} that one "
            "row can take. Leave it out with pathGlobFilter, or give a schema without `content`."
        )
    with file.random_access() as stream:
        return stream.read()
