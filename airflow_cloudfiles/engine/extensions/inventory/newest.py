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
from typing import TYPE_CHECKING, Final, cast

from airflow_cloudfiles.engine.errors import InventoryError
from airflow_cloudfiles.engine.extensions.inventory.base import (
    NEXT,
    Report,
    ReportSource,
    UnreadableError,
    not_reached,
    refused,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME, VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.engine.storage.vendors import Vendor


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
        raise refused(uri, f"its manifest is not JSON ({failure})", NEXT) from failure
    vendor = _whose(value, uri)
    expected = BY_SCHEME.get(source.scheme, vendor)
    if expected.manifest and expected is not vendor:
        why = f"it is a report of {vendor.title}, and the source is in {expected.title}"
        raise refused(uri, why, "Name a report of the source.")
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    leaf = vendor.load("inventory", needed_for=uri)
    if leaf.HAS_CHECKSUM:
        _check_digest(uri, digest, checksum)
    try:
        return cast("Report", leaf.parse(value, uri, digest, source))
    except (UnreadableError, KeyError, TypeError, ValueError, AttributeError) as failure:
        why = f"its manifest is not understood ({type(failure).__name__}: {failure})"
        raise refused(uri, why, "Name the manifest.json that the cloud has written.") from failure


def _whose(value: object, uri: str) -> Vendor:
    """Find which cloud wrote a manifest."""
    with_manifests = [each for each in VENDORS if each.manifest]
    if isinstance(value, dict):
        for vendor in with_manifests:
            if vendor.manifest in value:
                return vendor
    first, *others = (each.manifest for each in with_manifests)
    why = f"it has none of the fields {first}, {' and '.join(others)}"
    raise refused(uri, why, "Name the manifest.json that the cloud has written.")


def _check_digest(uri: str, digest: str, checksum: bytes | None) -> None:
    if checksum is None:
        raise refused(uri, "its checksum file is missing, so it is not finished", NEXT)
    if checksum.strip().lower() != digest.encode():
        raise refused(uri, "its manifest does not match its checksum file", NEXT)


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
