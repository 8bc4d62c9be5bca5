"""Read the manifests of inventory reports, and choose the report to read.

The manifest that was named; or, of the reports in a folder, the newest one that can be used. A
report that is being written yet, or was not finished, is passed over, as long as an older one may
still be read.

| cloud | manifest | its MD5 is in | says |
| --- | --- | --- | --- |
| S3 | `manifest.json` | `manifest.checksum` | bucket, schema, size and MD5 of each file |
| Azure | `<rule>-manifest.json` | `<rule>-manifest.checksum` | rule, status, size of each file |
| Cloud Storage | `<id>_<time>_manifest.json` | | configuration, number of rows, file names |

A manifest is untrusted: what it lacks, or says in another way, is an error that names it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_cloudfiles.engine.discovery.inventory.base import (
    DataFormat,
    Report,
    ReportFile,
    ReportSource,
    not_reached,
    refused,
)
from airflow_cloudfiles.engine.errors import InventoryError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.values import parse_time
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access


CLOUDS: Final = {"s3": "S3", "abfss": "Azure", "gs": "Cloud Storage"}
"""Whose reports a source is listed by, by its scheme."""
_S3_VERSION: Final = "2016-11-30"
_AZURE_VERSION: Final = "1.0"
_NEXT: Final = "Wait for the next report, or name an older one that is whole."


class _UnreadableError(Exception):
    """The manifest lacks something, or has it in another form."""


def has_checksum(content: Mapping[str, Any]) -> bool:
    """Tell whether the cloud that wrote a manifest writes its checksum beside it."""
    return "report_config" not in content


def parse_manifest(
    content: bytes, uri: str, source: ReportSource, checksum: bytes | None
) -> Report:
    """Read a manifest, and see that it is whole and about a source.

    Args:
        content: All of its bytes.
        uri: Where it lies.
        source: What it has to be about.
        checksum: What lies beside it as its checksum; `None` where nothing does.

    Raises:
        InventoryError: It is not finished, damaged, of another place, of a newer version, or
            lacks what is needed.
    """
    try:
        value = json.loads(content)
    except ValueError as failure:
        raise refused(uri, f"its manifest is not JSON ({failure})", _NEXT) from failure
    cloud, parse = _kind(value, uri)
    expected = CLOUDS.get(source.scheme, cloud)
    if expected != cloud:
        why = f"it is a report of {cloud}, and the source is in {expected}"
        raise refused(uri, why, "Name a report of the source.")
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if has_checksum(value):
        _check_digest(uri, digest, checksum)
    try:
        return parse(value, uri, digest, source)
    except (_UnreadableError, KeyError, TypeError, ValueError, AttributeError) as failure:
        why = f"its manifest is not understood ({type(failure).__name__}: {failure})"
        raise refused(uri, why, "Name the manifest.json that the cloud has written.") from failure


def _kind(value: object, uri: str) -> tuple[str, Callable[[Any, str, str, ReportSource], Report]]:
    """Find which cloud wrote a manifest."""
    if isinstance(value, dict):
        if "sourceBucket" in value:
            return "S3", _s3
        if "ruleDefinition" in value:
            return "Azure", _azure
        if "report_config" in value:
            return "Cloud Storage", _gcs
    why = "it has none of the fields sourceBucket, ruleDefinition and report_config"
    raise refused(uri, why, "Name the manifest.json that the cloud has written.")


def _check_digest(uri: str, digest: str, checksum: bytes | None) -> None:
    if checksum is None:
        raise refused(uri, "its checksum file is missing, so it is not finished", _NEXT)
    if checksum.strip().lower() != digest.encode():
        raise refused(uri, "its manifest does not match its checksum file", _NEXT)


def _require_version(uri: str, found: object, understood: str) -> None:
    if found != understood:
        raise refused(
            uri,
            f"it is of version {found!r}, and {understood!r} is understood",
            "Upgrade the package.",
        )


def _require_source(uri: str, what: str, found: object, wanted: str) -> None:
    if found != wanted:
        why = f"it is of the {what} {found!r}, not of {wanted!r}"
        raise refused(uri, why, "Name a report of the source.")


def _format_of(uri: str, found: object) -> DataFormat:
    name = str(found).lower()
    if name not in {"csv", "orc", "parquet"}:
        raise refused(uri, f"its format is {found!r}", "Let the report be CSV, ORC or Parquet.")
    return cast("DataFormat", name)


def _s3(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    _require_version(uri, value["version"], _S3_VERSION)
    _require_source(uri, "bucket", value["sourceBucket"], source.bucket)
    data_format = _format_of(uri, value["fileFormat"])
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


def _azure(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    _require_version(uri, value["version"], _AZURE_VERSION)
    if value.get("status") != "Succeeded":
        raise refused(uri, f"its status is {value.get('status')!r}, not 'Succeeded'", _NEXT)
    account = str(value["endpoint"]).partition("://")[2].partition(".")[0]
    if source.account:
        _require_source(uri, "account", account, source.account)
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
        started_us=_time(value["inventoryStartTime"]),
        format=_format_of(uri, rule["format"]),
        key_prefix=source.bucket + "/",
        files=tuple(ReportFile(str(each["blob"]), int(each["size"])) for each in value["files"]),
        rows=int(value["summary"]["objectCount"]),
    )


def _gcs(value: dict[str, Any], uri: str, digest: str, source: ReportSource) -> Report:
    configured = value["report_config"]
    of_objects = configured["object_metadata_report_options"]
    bucket = (of_objects.get("storage_filters") or {}).get("bucket")
    _require_source(uri, "bucket", bucket, source.bucket)
    names = [str(each) for each in value["report_shards_file_names"]]
    if "shard_count" in value and len(names) != int(value["shard_count"]):
        why = f"it names {len(names)} data files of {value['shard_count']}"
        raise refused(uri, why, _NEXT)
    of_csv = configured.get("csv_options")
    has_header = bool(of_csv and of_csv.get("header_required"))
    folder = uri.partition("://")[2].partition("/")[2].rpartition("/")[0]
    return Report(
        uri=uri,
        id=digest,
        started_us=_time(value["snapshot_time"]),
        format="parquet" if of_csv is None else "csv",
        columns=() if has_header else tuple(map(str, of_objects["metadata_fields"])),
        version="generation",
        delimiter=str((of_csv or {}).get("delimiter") or ","),
        files=tuple(ReportFile(f"{folder}/{each}" if folder else each) for each in names),
        rows=int(value["records_processed"]),
    )


def _time(text: object) -> int:
    found = parse_time(str(text))
    if found is None:
        raise _UnreadableError(f"{text!r} is not a time")
    return found


_MANIFEST: Final = "manifest.json"
_DATED: Final = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T/](\d\d)[-:](\d\d)(?:[-:](\d\d))?[^/]*/?(?:[^/]+/)?[^/]*$"
)
_NOT_LOOKED_INTO: Final = frozenset({"data", "hive"})
"""Folders beside S3's reports, which hold the data files of all of them."""
_MOST_REPORTS: Final = 50
"""So many are looked at, the newest first."""
_log = logging.getLogger(__name__)


def is_manifest(location: str) -> bool:
    """Tell whether a location is that of a manifest, not of a folder of reports."""
    return location.endswith(_MANIFEST)


def report_folder(location: str) -> str:
    """Give the folder that holds a report with its data files: its files are not input."""
    location = normalize_uri(location)
    if not is_manifest(location):
        return location
    folder, _, name = location.rpartition("/")
    is_of_s3 = name == _MANIFEST and _DATED.search(folder + "/") is not None
    return folder.rpartition("/")[0] if is_of_s3 else folder


def bucket_of(location: str, access: Access | None) -> ObjectStore:
    """Open the whole bucket or container that a location is in."""
    scheme, _, rest = normalize_uri(location).partition("://")
    return open_store(f"{scheme}://{rest.partition('/')[0]}", access)


def newest_report(
    location: str, access: Access | None, source: ReportSource, *, oldest_us: int
) -> Report:
    """Read the manifest of the report to be used.

    Args:
        location: Of a manifest, or of a folder of reports.
        access: How the cloud is reached.
        source: What the report has to be about.
        oldest_us: A report that was begun before this time, in microseconds since 1970, is too old.

    Raises:
        InventoryError: There is none that can be used; says of the newest one why.
        ListingError: The store does not answer.
    """
    location = normalize_uri(location)
    if location.startswith("file:"):
        raise InventoryError(
            f"cloudFiles.inventory is {printable_path(location)}, which is not in an object store. "
            "Name the folder of the reports in the bucket or container that they are written to."
        )
    folder, _, name = location.rpartition("/")
    if is_manifest(location):
        store, keys = open_store(folder, access), [name]
    else:
        store = open_store(location, access)
        keys = _newest_first(store)
    if not keys:
        raise InventoryError(
            f"There is no inventory report in {printable_path(location)}: no object's name ends "
            f"with {_MANIFEST}. Name the folder that the reports are written to, and wait for the "
            "first one, which takes a day or two."
        )
    return _usable(store, keys, source, oldest_us)


def _newest_first(store: ObjectStore) -> list[str]:
    """List the manifests in a folder, by the time in their paths."""
    try:
        found = [
            (_moment(store.child_uri(entry.path)), entry.modification_time_us, entry.path)
            for entry in store.list(skip=_is_beside, ordered=False)
            if is_manifest(entry.path)
        ]
    except OSError as failure:
        raise not_reached(store, failure) from failure
    return [path for _, _, path in sorted(found, reverse=True)][:_MOST_REPORTS]


def _is_beside(key: str, is_folder: bool) -> bool:  # noqa: FBT001 - the protocol's SkipRule
    return is_folder and key.rpartition("/")[2] in _NOT_LOOKED_INTO


def _moment(uri: str) -> str:
    found = _DATED.search(uri)
    return "".join(each or "00" for each in found.groups()) if found else ""


def _usable(
    store: ObjectStore, keys: Iterable[str], source: ReportSource, oldest_us: int
) -> Report:
    """Find the first of some reports that may be read.

    Raises:
        InventoryError: None may; the error is that of the first one.
    """
    refusals: list[InventoryError] = []
    for key in keys:
        try:
            report = _read(store, key, source)
            _check_age(report, oldest_us)
        except InventoryError as failure:
            refusals.append(failure)
            continue
        if refusals:
            _log.warning("%s An older report is read: %s", refusals[0], printable_path(report.uri))
        return report
    raise refusals[0]


def _check_age(report: Report, oldest_us: int) -> None:
    if report.started_us < oldest_us:
        raise refused(
            report.uri,
            "it was begun longer ago than cloudFiles.inventoryMaxAge",
            "See why no newer one was written, or raise cloudFiles.inventoryMaxAge.",
        )


def _read(store: ObjectStore, key: str, source: ReportSource) -> Report:
    """Read a manifest, with the checksum beside it."""
    uri = store.child_uri(key)
    try:
        content = store.get(key)
        checksum = _get(store, key.removesuffix(".json") + ".checksum")
    except ObjectNotFoundError as failure:
        raise refused(uri, "it does not exist", "Correct cloudFiles.inventory.") from failure
    except OSError as failure:
        raise not_reached(store, failure) from failure
    return parse_manifest(content, uri, source, checksum)


def _get(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None
