"""Import PySpark's API of Python data sources, or raise an error that says which Spark has it.

What registers, reads or writes for plain queries imports the API from here only.
"""

from __future__ import annotations

from airflow_cloudfiles.engine.spark_versions import installed, too_old_for_queries

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError as error:
    raise too_old_for_queries(installed() or "that is installed") from error

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
]
