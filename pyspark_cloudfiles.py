"""The data source `cloudFiles`, where Spark looks for sources that it does not know.

It looks in modules whose names begin with `pyspark_`, in each session, in a Python process that
does nothing else. So this imports the source when that is asked for. A session that `register` has
not seen finds the source, too: what it reads as a batch is the same, and a stream says what is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# An older Spark, which has no such sources, does not look.
with suppress(ImportError):
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):
        """Stands for `CloudFilesDataSource` until it is made."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "cloudFiles"

        def __new__(cls, options: Mapping[str, str]) -> Any:
            """Make the source itself.

            Raises:
                CloudFilesError: As of `CloudFilesDataSource`.
            """
            from airflow_cloudfiles.engine.spark.source import (  # noqa: PLC0415 - see above
                CloudFilesDataSource,
            )

            return CloudFilesDataSource(options)


__all__ = ["DefaultSource"]
