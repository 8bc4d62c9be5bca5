"""Read the manifests of Azure's inventory reports."""

from __future__ import annotations

from typing import Any, Final

from airflow_cloudfiles.engine.extensions.inventory.base import (
    NEXT,
    Report,
    ReportFile,
    ReportSource,
    format_of,
    refused,
    require_source,
    require_version,
    time_of,
)

HAS_CHECKSUM: Final = True
"""Whether the checksum of a manifest is written beside it."""
_VERSION: Final = "1.0"


def parse(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    """Read a manifest whose checksum was looked at; see `parse_manifest`."""
    require_version(uri, value["version"], _VERSION)
    if value.get("status") != "Succeeded":
        raise refused(uri, f"its status is {value.get('status')!r}, not 'Succeeded'", NEXT)
    account = str(value["endpoint"]).partition("://")[2].partition(".")[0]
    if source.account:
        require_source(uri, "account", account, source.account)
    rule = value["ruleDefinition"]
    if rule.get("objectType", "blob") != "blob":
        raise refused(uri, "it lists containers, not blobs", "Let a rule list blobs.")
    wanted = f"{source.bucket}/{source.root}{source.prefix}"
    filters = rule.get("filters") or {}
    prefixes = filters.get("prefixMatch") or [""]
    if not any(wanted.startswith(each) for each in prefixes) or filters.get("excludePrefix"):
        why = f"its rule does not take in all of {wanted!r} (prefixMatch or excludePrefix)"
        raise refused(uri, why, "Name a report of a rule that does.")
    return Report(
        uri=uri,
        id=digest,
        started_us=time_of(value["inventoryStartTime"]),
        format=format_of(uri, rule["format"]),
        key_prefix=source.bucket + "/",
        files=tuple(ReportFile(str(each["blob"]), int(each["size"])) for each in value["files"]),
        rows=int(value["summary"]["objectCount"]),
    )
