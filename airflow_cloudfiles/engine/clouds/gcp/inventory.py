"""Read the manifests of Cloud Storage's inventory reports."""

from __future__ import annotations

from typing import Any, Final

from airflow_cloudfiles.engine.extensions.inventory.base import (
    NEXT,
    Report,
    ReportFile,
    ReportSource,
    refused,
    require_source,
    time_of,
)

HAS_CHECKSUM: Final = False
"""Whether the checksum of a manifest is written beside it."""


def parse(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    """Read a manifest whose checksum was looked at; see `parse_manifest`."""
    configured = value["report_config"]
    of_objects = configured["object_metadata_report_options"]
    bucket = (of_objects.get("storage_filters") or {}).get("bucket")
    require_source(uri, "bucket", bucket, source.bucket)
    names = [str(each) for each in value["report_shards_file_names"]]
    if "shard_count" in value and len(names) != int(value["shard_count"]):
        why = f"it names {len(names)} data files of {value['shard_count']}"
        raise refused(uri, why, NEXT)
    of_csv = configured.get("csv_options")
    has_header = bool(of_csv and of_csv.get("header_required"))
    folder = uri.partition("://")[2].partition("/")[2].rpartition("/")[0]
    return Report(
        uri=uri,
        id=digest,
        started_us=time_of(value["snapshot_time"]),
        format="parquet" if of_csv is None else "csv",
        columns=() if has_header else tuple(map(str, of_objects["metadata_fields"])),
        version="generation",
        delimiter=str((of_csv or {}).get("delimiter") or ","),
        files=tuple(ReportFile(f"{folder}/{each}" if folder else each) for each in names),
        rows=int(value["records_processed"]),
    )
