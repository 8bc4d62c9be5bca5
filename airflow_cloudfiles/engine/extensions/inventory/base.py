"""Describe an inventory report, and remember how far it was read.

A report is a manifest and data files. Each cloud writes another manifest; `manifests` makes a
`Report` of it, and from there on all reports are read in one way.

How far a report was read is one small JSON file in the state, `_source/inventory.json`, written
after each data file whose files are recorded. It is a hint, as that of listings is: lost or
damaged, a report is read again, and nothing is recorded twice.

Read the manifests of inventory reports, and choose the report to read.

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

import errno
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from airflow_cloudfiles.engine.errors import IncompatibleStateError, InventoryError, ListingError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.values import parse_time
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.outage import is_transient, reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME, VENDORS, Vendor
from airflow_cloudfiles.engine.versions import FIELD, as_record, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access


_log = logging.getLogger(__name__)

KEY: Final = "_source/inventory.json"
VERSION: Final = 1

FoundBy = Literal["listing", "backfill"]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A data file whose files are recorded.

    Attributes:
        rows: How many rows it has.
        files: How many files below the source it names.
        first: The first of their paths.
        last: The last of them.
        has_recent: Whether it names files that came later than `Report.settled_us`.
    """

    rows: int
    files: int
    first: str = ""
    last: str = ""
    has_recent: bool = False


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """How far one report has been read.

    Attributes:
        report: `Report.id`; empty when none has been read.
        filter: Which files were input (`FileFilter.fingerprint`).
        found_by: What its files are recorded as.
        read: The data files that were read, by their places in the manifest.
        is_done: Whether all of it was read, and what has to follow was done or noted.
    """

    report: str = ""
    filter: str = ""
    found_by: FoundBy = "listing"
    read: Mapping[int, FileRead] = field(default_factory=dict)
    is_done: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether a report is being read."""
        return bool(self.report) and not self.is_done

    def after(self, number: int, read: FileRead) -> ReportProgress:
        """Build the same progress, with one more data file."""
        return replace(self, read={**self.read, number: read})


def load_progress(state: ObjectStore) -> ReportProgress:
    """Read what is remembered; nothing, when there is no file or it cannot be understood."""
    content = read_if_there(state, KEY)
    if content is None:
        return ReportProgress()
    name = printable_path(state.child_uri(KEY))
    try:
        fields = fields_of(unseal(content), name=name, understood=VERSION)
        return as_record(fields, ReportProgress)
    except (IncompatibleStateError, ValueError) as failure:
        _log.warning("%s cannot be read (%s). The report is read from its start.", name, failure)
        return ReportProgress()


def save_progress(state: ObjectStore, progress: ReportProgress) -> None:
    """Write what is to be remembered.

    Raises:
        StateError: It cannot be written.
    """
    with reaching_state(state):
        state.put(KEY, seal({FIELD: VERSION, **asdict(progress)}))


DataFormat = Literal["csv", "orc", "parquet"]

LAG_SECONDS: Final = 86400.0
"""A file that came so long before a report was begun, or longer, is in it. S3 says of its reports
only that they are eventually consistent, so a day is left for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """The place that a report has to be about.

    Attributes:
        scheme: `s3`, `gs`, `abfss`, or that of another store, which takes reports of any cloud.
        bucket: The bucket or container.
        account: Of the container; empty where there is none.
        root: How the full keys of its files begin: empty, or with a slash at the end.
        prefix: How all that is input begins, below the root.
    """

    scheme: str
    bucket: str
    account: str
    root: str
    prefix: str

    @classmethod
    def of(cls, uri: str, prefix: str) -> ReportSource:
        """Take the canonical URI of a source apart."""
        scheme, _, rest = uri.partition("://")
        bucket, _, path = rest.partition("/")
        container, _, host = bucket.partition("@")
        return cls(
            scheme=scheme,
            bucket=container,
            account=host.partition(".")[0],
            root=path + "/" if path else "",
            prefix=prefix,
        )


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A data file, as the manifest names it.

    Attributes:
        key: In the bucket or container of the report.
        size: Its bytes; `None` where the manifest does not say.
        md5: Its MD5 in hexadecimal digits; empty where the manifest does not say.
    """

    key: str
    size: int | None = None
    md5: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report that may be read.

    Attributes:
        uri: Of its manifest.
        id: The MD5 of the manifest.
        started_us: When the bucket began to be looked through, in microseconds since 1970.
        format: Of its data files.
        columns: The names of their columns; empty where each file says them itself.
        delimiter: Between the columns of CSV.
        is_encoded: Whether keys are percent-encoded, with `+` for a space.
        version: The column that names a version of a file as its store does.
        key_prefix: What stands before each key besides: on Azure the container.
        is_prefix_known: Whether the manifest has shown that the report takes in all of the source.
        files: The data files.
        rows: How many rows they have together; `None` where the manifest does not say.
    """

    uri: str
    id: str
    started_us: int
    format: DataFormat
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    is_encoded: bool = False
    version: Literal["etag", "generation"] = "etag"
    key_prefix: str = ""
    is_prefix_known: bool = True
    files: tuple[ReportFile, ...]
    rows: int | None = None

    @property
    def settled_us(self) -> int:
        """Files that came before this time, in microseconds since 1970, are in the report."""
        return settled_us(self.started_us)


def settled_us(started_us: int) -> int:
    """Give the time before which all files are in a report that was begun at `started_us`."""
    return started_us - int(LAG_SECONDS * 1_000_000)


def refused(uri: str, why: str, what_to_do: str) -> InventoryError:
    """Give the error for a report.

    Args:
        uri: Of its manifest, or of one of its data files.
        why: What is wrong with it, as the rest of a sentence.
        what_to_do: A sentence.
    """
    return InventoryError(
        f"The inventory report {printable_path(uri)} is refused: {why}. {what_to_do} Or remove "
        "cloudFiles.inventory: then the source is listed."
    )


def not_reached(store: ObjectStore, failure: OSError) -> InventoryError | ListingError:
    """Give the error for a report that its store does not give, or that this disk does not take."""
    name = printable_path(store.uri)
    if failure.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ListingError(
            f"The temporary folder does not take the data files of the inventory report in {name}: "
            f"{failure} Free space there, or set TMPDIR to a larger folder, and run again."
        )
    if is_transient(failure):
        return ListingError(
            f"The inventory reports in {name} cannot be reached: {failure} What was read stays "
            "recorded. Run again."
        )
    return InventoryError(
        f"The inventory reports in {name} cannot be read: {failure} Let the identity of the run "
        "list and read them, or correct cloudFiles.inventory."
    )


class UnreadableError(Exception):
    """The manifest lacks something, or has it in another form."""


NEXT: Final = "Wait for the next report, or name an older one that is whole."
"""What to do about a report that is not finished."""


def require_version(uri: str, found: object, understood: str) -> None:
    """Refuse a manifest of a version that is not understood."""
    if found != understood:
        raise refused(
            uri,
            f"it is of version {found!r}, and {understood!r} is understood",
            "Upgrade the package.",
        )


def require_source(uri: str, what: str, found: object, wanted: str) -> None:
    """Refuse a report of something else than the source."""
    if found != wanted:
        why = f"it is of the {what} {found!r}, not of {wanted!r}"
        raise refused(uri, why, "Name a report of the source.")


def format_of(uri: str, found: object) -> DataFormat:
    """Read the format of the data files."""
    name = str(found).lower()
    if name not in {"csv", "orc", "parquet"}:
        raise refused(uri, f"its format is {found!r}", "Let the report be CSV, ORC or Parquet.")
    return cast("DataFormat", name)


def time_of(text: object) -> int:
    """Read a time, as microseconds since 1970.

    Raises:
        UnreadableError: It is none.
    """
    found = parse_time(str(text))
    if found is None:
        raise UnreadableError(f"{text!r} is not a time")
    return found


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
