"""Read formats that have the same columns for every file.

The rows of such a format are about files rather than of them: a file as a whole (`binaryFile`), or
the sheets of a workbook (`listSheets`). A schema may leave columns out, and order them otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import BadRecord, ReadCounts
from airflow_cloudfiles.engine.formats.record_policy import batch_schema, make_batch
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

BINARY_FILE: Final = StructType(
    [
        StructField("path", StringType()),
        StructField("modificationTime", TimestampType()),
        StructField("length", LongType()),
        StructField("content", BinaryType()),
    ]
)
"""As Spark's own source for `binaryFile` (B14)."""
SHEETS: Final = StructType(
    [StructField("sheetIndex", LongType()), StructField("sheetName", StringType())]
)
TEXT: Final = StructType([StructField("value", StringType())])
"""As Spark's own source for `text`; the column may have any name in a given schema."""


class FixedColumnsReader:
    """Makes rows of columns that are always the same.

    Args:
        data_schema: Some or all of the columns, in any order.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the columns, then the rescued data column if any (NULL).
        counts: What was read so far.
        bad_records: Stays empty.

    Raises:
        IncompatibleSchemaError: There is another column.
    """

    WHAT: ClassVar[str]
    """The format, as errors name it."""
    COLUMNS: ClassVar[StructType]

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        columns = {each.name: each.type for each in to_arrow(self.COLUMNS)}
        for field in to_arrow(data_schema):
            if columns.get(field.name) != field.type:
                names = ", ".join(
                    f"{each.name} {each.dataType.simpleString().upper()}"
                    for each in self.COLUMNS.fields
                )
                raise IncompatibleSchemaError(
                    f"{self.WHAT} has no column {field.name} of type {field.type}. Its columns "
                    f"are: {names}."
                )
        self.arrow_schema = batch_schema(data_schema, options)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []

    def _row(self, values: dict[str, object]) -> pa.RecordBatch:
        """Build a batch of one row; columns without a value are NULL."""
        arrays = [pa.array([values.get(each.name)], each.type) for each in self.arrow_schema]
        self.counts.rows += 1
        return make_batch(arrays, self.arrow_schema, 1)
