"""How is a location written?

One canonical spelling per location, because the spelling decides whether a state belongs to a
source. Like Hadoop's paths, a `file:` URI is plain text: `%20` in it is a per cent sign and two
digits, not a space.
"""

from __future__ import annotations

import os
import re

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/|$)")
_LATER = {"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "az", "azure", "hdfs"}


def normalize_uri(uri: str) -> str:
    """Bring a path or URI into its canonical form.

    Args:
        uri: `/x`, `x` (relative to the working directory), `file:/x`, `file:///x` or
            `memory://name/x`.

    Returns:
        `file:///x` or `memory://name/x`: absolute, no doubled, dotted or trailing slashes.

    Raises:
        UnsupportedOptionError: A location that this version cannot reach.
        OptionError: Not a location.
    """
    if not uri or "\0" in uri:
        msg = f"Not a location: {uri!r}. Give a path or a file:// URI."
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
    raise _unsupported(scheme, uri)


def local_path(uri: str) -> str:
    """Give the absolute local path of a canonical `file://` URI."""
    return uri.removeprefix("file://")


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


def _memory_name(uri: str, rest: str) -> str:
    """Name and path of a `memory://` URI."""
    parts = [part for part in rest.split("/") if part]
    if not rest.startswith("//") or not parts:
        msg = f"{uri!r} has no name; write memory://name."
        raise OptionError(msg)
    return "/".join(parts)


def _unsupported(scheme: str, uri: str) -> OptionError:
    """Refuse a scheme and say what to use instead."""
    if scheme == "dbfs":
        what = "dbfs: is Databricks' own file system; use the storage behind it"
    elif scheme in _LATER:
        what = f"{scheme}: locations are not in this version, which reads and writes local paths"
    else:
        what = f"no storage is known for {scheme}:"
    msg = f"Cannot open {uri!r}: {what}."
    return UnsupportedOptionError(msg)
