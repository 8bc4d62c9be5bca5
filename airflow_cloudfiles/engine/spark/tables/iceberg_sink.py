"""The sink `pyiceberg`: Spark writes a stream to an Iceberg table, without jars.

`writeStream.format("pyiceberg").start("iceberg://catalog/namespace/table")`.
"""

from __future__ import annotations

from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.batches.error_marks import marking_errors
from airflow_cloudfiles.engine.batches.iceberg_writer import IcebergWriter
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSource,
)
from airflow_cloudfiles.engine.spark.tables.sink import refuse_misspelt
from airflow_cloudfiles.engine.spark.tables.stream_writer import StreamWriter, new_writer
from airflow_cloudfiles.engine.storage.uri import iceberg_name


@marking_errors
class IcebergDataSource(DataSource):
    """The sink `pyiceberg`.

    Options: `path` (`iceberg://catalog/namespace/table`), `checkpointLocation`, `mergeSchema`
    (false), `typeWidening` (false), `partitionBy` (none), `txnAppId` (default: the id of the stream
    whose state is in the checkpoint location).
    """

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "pyiceberg"

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> StreamWriter:
        """The writer of one query.

        Raises:
            OptionError: No table, an output mode other than append, an option that looks like one
                of the sink's and is none, or the extra `iceberg` is not installed.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = str(options.get("path") or "")
        iceberg_name(target)
        if overwrite:
            raise OptionError("The pyiceberg sink appends: use outputMode append.")
        refuse_misspelt(options, SinkOptions, self.name())
        return StreamWriter(new_writer(IcebergWriter, target, options, schema))
