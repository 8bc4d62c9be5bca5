"""Write a location in one way.

One canonical spelling per location, because the spelling decides whether a state belongs to a
source. Like Hadoop's paths, a URI is plain text: `%20` in it is a per cent sign and two digits, not
a space. A local path is cleaned of doubled and dotted slashes; in an object store those are
ordinary characters of a key, so there only slashes at the end go.
"""

from __future__ import annotations

import os
import re

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.vendors import VENDORS, Vendor

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/|$)")
_VENDORS = {name: each for each in VENDORS for name in (each.scheme, *each.aliases)}
"""Vendors by the schemes that their locations may have."""

ICEBERG = "iceberg"
"""The scheme of tables that are found by a catalog, not by where they are."""
_ICEBERG_PARTS = 5


def normalize_uri(uri: str) -> str:
    """Bring a path or URI into its canonical form.

    Args:
        uri: `/x`, `x` (relative to the working directory), `file:/x`, `file:///x`,
            `memory://name/x`, `s3://bucket/x` (also `s3a`, `s3n`), `gs://bucket/x`, or
            `abfss://container@account.dfs.core.windows.net/x` (also `abfs`, `wasb`, `wasbs`, and
            hosts with `.blob.`), `sftp://user@host:port/x` (user and port may be left out), or
            `iceberg://catalog/namespace/table`, a table and no place.

    Returns:
        `file:///x`, `memory://name/x` or `sftp://host/x`: absolute, no doubled, dotted or trailing
        slashes; or
        `s3://…`, `gs://…`, `abfss://…dfs…`: no trailing slashes, all else as it was given; or
        `iceberg://catalog/level/…/table`.

    Raises:
        UnsupportedOptionError: A location that this version cannot reach.
        OptionError: Not a location.
    """
    if not uri or "\0" in uri:
        msg = f"Not a location: {uri!r}. Give a path or a URI."
        raise OptionError(msg)
    found = _SCHEME.match(uri)
    if found is None:
        return "file://" + _absolute(uri)
    scheme = found.group(1).lower()
    rest = uri[found.end() :]
    if scheme == "file":
        return "file://" + _absolute(_without_host(uri, rest))
    if scheme == "memory":
        return "memory://" + _memory_name(uri, rest)
    if (vendor := _VENDORS.get(scheme)) is not None:
        return vendor.normalize(rest) if vendor.is_server else _cloud(vendor, rest)
    if scheme == ICEBERG:
        catalog, identifier = iceberg_name(uri)
        return f"{ICEBERG}://{'/'.join((catalog, *identifier))}"
    raise _unsupported(scheme, uri)


def is_iceberg(target: str) -> bool:
    """Tell whether a target is a table of an Iceberg catalog."""
    return target.lower().startswith(f"{ICEBERG}://")


def iceberg_name(target: str) -> tuple[str, tuple[str, ...]]:
    """Read `iceberg://catalog/namespace/table`.

    Args:
        target: The namespace may have several levels, with slashes or dots between them.

    Returns:
        The name of the catalog, and the identifier of the table in it.

    Raises:
        OptionError: It is not of that form.
    """
    found = target.rstrip("/").split("/")
    if not is_iceberg(target) or len(found) < _ICEBERG_PARTS or not all(found[2:]):
        raise OptionError(
            f"{target!r} is not an Iceberg table. Write iceberg://catalog/namespace/table."
        )
    levels = tuple(level for part in found[3:-1] for level in part.split("."))
    if not all(levels):
        raise OptionError(f"The namespace of {target!r} has an empty level.")
    return found[2], (*levels, found[-1])


def refuse_iceberg(uri: str) -> None:
    """Refuse to read or keep files where only a table can be.

    Raises:
        UnsupportedOptionError: It is a table of an Iceberg catalog.
    """
    if is_iceberg(uri):
        raise UnsupportedOptionError(
            f"{uri} is a table of an Iceberg catalog, which can be the target of an ingest only: "
            "not a source, a checkpoint or schema location, nor the target of promote, replay or "
            "the table commands."
        )


def local_path(uri: str) -> str:
    """Give the absolute local path of a canonical `file://` URI."""
    return uri.removeprefix("file://")


def bucket_and_path(uri: str) -> tuple[str, str]:
    """Take the canonical URI of a cloud location apart.

    Returns:
        The bucket (on Azure `container@account.dfs…`), and the path without a slash at the start
        or the end that was not asked for: the keys below it start with the path and a slash.
    """
    bucket, _, path = uri.partition("://")[2].partition("/")
    return bucket, path


def _absolute(path: str) -> str:
    """Absolute path without doubled, dotted or trailing slashes; symbolic links stay."""
    return "/" + os.path.abspath(path).strip("/")  # noqa: PTH100 - pathlib keeps dotted parts


def _without_host(uri: str, rest: str) -> str:
    """Path of a `file:` URI: `/x`, `///x` or `//localhost/x`."""
    if not rest.startswith("//") or rest.startswith("///"):
        return rest or "/"
    host, slash, path = rest[2:].partition("/")
    if host != "localhost" or not slash:
        msg = (
            f"{uri!r} names the host {host!r}. Files on another host cannot be reached this way; "
            f"write file:///... with three slashes for a path on this one."
        )
        raise OptionError(msg)
    return slash + path


def is_directory_bucket(uri: str) -> bool:
    """Tell whether a location is in a directory bucket of S3, which lists keys in no order."""
    bucket = uri.removeprefix("s3://").partition("/")[0]
    return bucket != uri and bucket.endswith("--x-s3")


def refuse_source_only(uri: str) -> None:
    """Refuse to keep anything but a source where no write can be made that one of several wins.

    Raises:
        UnsupportedOptionError: It is an SFTP server, or a directory bucket.
    """
    scheme, colon, _ = uri.partition(":")
    vendor = _VENDORS.get(scheme.lower()) if colon else None
    if vendor is not None and vendor.is_source_only:
        raise UnsupportedOptionError(
            f"{printable_path(uri)} is on an {vendor.title} server, which can be a source only: "
            f"{vendor.title} has no write that keeps two runs apart. Put checkpoint location, "
            f"schema location, bad records and target on S3, Azure Storage, Cloud Storage or a "
            f"local disk."
        )
    if is_directory_bucket(uri):
        raise UnsupportedOptionError(
            f"{uri} is in a directory bucket, which does not list its keys in order. It can be a "
            f"source; put states, schemas and tables into a general purpose bucket."
        )


def _memory_name(uri: str, rest: str) -> str:
    """Name and path of a `memory://` URI."""
    parts = [part for part in rest.split("/") if part]
    if not rest.startswith("//") or not parts:
        msg = f"{uri!r} has no name; write memory://name."
        raise OptionError(msg)
    return "/".join(parts)


def _cloud(vendor: Vendor, rest: str) -> str:
    """Canonical URI of a cloud location; a refused one is not quoted, for it may hold a key."""
    scheme = vendor.scheme
    bucket, slash, path = rest.removeprefix("//").partition("/")
    if scheme == "abfss":
        container, at, host = bucket.rpartition("@")
        bucket = container + at + host.lower().replace(".blob.", ".dfs.", 1)
    if not rest.startswith("//") or not re.fullmatch(vendor.bucket, bucket):
        msg = (
            f"A location that starts with {scheme}: is written {vendor.example}, and the one "
            "given is not. Credentials do not belong in it: they come from a connection or from "
            "the environment."
        )
        raise OptionError(msg)
    return f"{scheme}://{bucket}{slash}{path}".rstrip("/")


def _unsupported(scheme: str, uri: str) -> OptionError:
    """Refuse a scheme and name what to use instead."""
    if scheme == "dbfs":
        what = "dbfs: is Databricks' own file system; use the storage behind it"
    elif scheme in {"az", "azure", "adl"}:
        what = f"{scheme}: names no account; write abfss://container@account.dfs.core.windows.net/…"
    elif scheme == "hdfs":
        what = "hdfs: locations are not supported; mount the file system and give the local path"
    elif scheme in {"http", "https"}:
        *others, last = (f"{each.scheme}://" for each in VENDORS if each.bucket)
        what = f"{scheme}: addresses are not listed; write {', '.join(others)} or {last}"
    else:
        what = f"no storage is known for {scheme}:"
    msg = f"Cannot open {uri!r}: {what}."
    return UnsupportedOptionError(msg)
