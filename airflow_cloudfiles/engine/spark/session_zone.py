"""Complete a schema that a user gives, and compare time zones with those of the session.

Spark's readers take a timestamp that names no zone for one of `spark.sql.session.timeZone`, which
is the zone of the machine unless somebody sets it. Here it is UTC unless the option `timeZone` says
otherwise: the same file gives the same instants on every machine, today and at the next start. A
user of Spark expects the session's zone, so a difference that matters is logged.
"""

from __future__ import annotations

import logging
from typing import Any, Final, cast

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.source_columns import metadata_fields
from airflow_cloudfiles.engine.types import as_nullable

_log = logging.getLogger(__name__)


def completed(schema: StructType, options: CloudFilesOptions) -> StructType:
    """Add to a given schema the columns that the reader fills, if it has none yet.

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
    """Parse a schema, which may be written in DDL."""
    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    return cast("StructType", found)


CONF: Final = "spark.sql.session.timeZone"
_UTC: Final = frozenset(
    {"utc", "gmt", "z", "uct", "zulu", "universal", "greenwich", "gmt0", "+00:00", "+0", "0"}
)


def zone_warning(schema: StructType, options: CloudFilesOptions, zone: str | None) -> str | None:
    """Say that timestamps are not read in the zone of the session; `None` where it is the same.

    Args:
        schema: The schema of the stream.
        options: The options of the source.
        zone: The zone of the session, as it is configured.
    """
    reads_text = getattr(options.format_options, "time_zone", "") is None
    if zone is None or not reads_text or _is_utc(zone) or not _has_timestamp(schema):
        return None
    return (
        f"{CONF} is {zone}, but timestamps that name no zone are read as UTC here. To have them "
        f"read as Spark's readers do, set the option timeZone={zone}; timeZone=UTC ends this "
        "warning."
    )


def _is_utc(zone: str) -> bool:
    return zone.strip().lower().removeprefix("etc/") in _UTC


def _has_timestamp(kind: DataType) -> bool:
    """Tell whether a type is a timestamp with a zone, or holds one."""
    if isinstance(kind, StructType):
        return any(_has_timestamp(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_timestamp(kind.elementType)
    if isinstance(kind, MapType):
        return _has_timestamp(kind.keyType) or _has_timestamp(kind.valueType)
    return isinstance(kind, TimestampType)
