"""Read the manifests of S3's inventory reports."""

from __future__ import annotations

from typing import Any, Final

from airflow_cloudfiles.engine.extensions.inventory.base import (
    Report,
    ReportFile,
    ReportSource,
    format_of,
    require_source,
    require_version,
)

HAS_CHECKSUM: Final = True
"""Whether the checksum of a manifest is written beside it."""
_VERSION: Final = "2016-11-30"


def parse(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    """Read a manifest whose checksum was looked at; see `parse_manifest`."""
    require_version(uri, value["version"], _VERSION)
    require_source(uri, "bucket", value["sourceBucket"], source.bucket)
    data_format = format_of(uri, value["fileFormat"])
    columns = [each.strip() for each in str(value["fileSchema"]).split(",")]
    is_csv = data_format == "csv"
    return Report(
        uri=uri,
        id=digest,
        started_us=int(value["creationTimestamp"]) * 1000,
        format=data_format,
        columns=tuple(columns) if is_csv else (),
        is_encoded=is_csv,
        is_prefix_known=False,
        files=tuple(
            ReportFile(str(each["key"]), int(each["size"]), str(each["MD5checksum"]).lower())
            for each in value["files"]
        ),
    )
