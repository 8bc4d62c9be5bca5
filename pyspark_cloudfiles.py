"""The data source `cloudFiles`, where Spark looks for sources that it does not know.

It looks in modules whose names begin with `pyspark_`. So a session that `register` has not seen
finds the source, too: what it reads as a batch is the same, and a stream says what is missing.
"""

from __future__ import annotations

from contextlib import suppress

# Spark looks with the `python3` of the path, which may lack what this package needs.
with suppress(ImportError):
    from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource as DefaultSource

__all__ = ["DefaultSource"]
