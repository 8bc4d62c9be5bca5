"""What becomes of a schema that the user gives to `readStream`?"""

from __future__ import annotations

import logging
from typing import Any, cast

from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.source_columns import metadata_fields
from airflow_cloudfiles.engine.types import as_nullable

_log = logging.getLogger(__name__)


def completed(schema: StructType, options: CloudFilesOptions) -> StructType:
    """A given schema with the columns behind it that the reader fills, if it has none yet.

    These are the rescued data column and those of `cloudFiles.metadataColumns`.

    Nothing of it is `NOT NULL`, as in Spark's file sources: Spark would take its word for it, and
    files may lack anything.
    """
    from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

    for warning in definition.in_vain(schema, options):
        _log.warning("%s", warning)
    rescued = options.rescued_data_column
    ours = [] if rescued is None else [StructField(rescued, StringType())]
    ours += metadata_fields(options.metadata_columns)
    fields = cast("StructType", as_nullable(schema)).fields
    there = options.matcher.keys(schema.fieldNames())
    missing = [each for each in ours if options.matcher.key(each.name) not in there]
    return StructType([*fields, *missing])


def parsed(schema: Any) -> StructType:
    """A schema, which may be written in DDL."""
    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    return cast("StructType", found)
