"""What are the bytes of an entry?

```
v1                                                          format version of this log
{"id": "…", "created": "2026-01-31T…", …, "crc32": "…"}     header, one line of JSON
…                                                           body: the rest, may be empty
```

The checksum covers header and body, so that damage is found rather than believed.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.versions import older, require_version

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = re.compile(rb"v([0-9]{1,9})")
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"}$')


def encode_entry(header: Mapping[str, Any], body: bytes, *, format_version: int) -> bytes:
    """Build the bytes of an entry."""
    line = json.dumps(header, ensure_ascii=True).encode("ascii")
    crc = zlib.crc32(body, zlib.crc32(line))
    return b'v%d\n%b, "crc32": "%08x"}\n%b' % (format_version, line[:-1], crc, body)


def decode_entry(content: bytes, *, name: str, format_version: int) -> tuple[dict[str, Any], bytes]:
    """Take the bytes of an entry apart.

    Args:
        content: All of its bytes.
        name: What to call it in an error.
        format_version: The newest version that is understood.

    Returns:
        The header and the body.

    Raises:
        CorruptedStateError: Not an entry, or damaged.
        IncompatibleStateError: A newer version of this package wrote it, or a much older one.
    """
    line, body = split_entry(content, name=name, format_version=format_version)
    found = _CHECKSUM.search(line)
    if found is None:
        header = json_object(line)
        if "crc32" not in header and isinstance(header.get("id"), str):
            raise older(name)
        raise _corrupted(name, "its header has no checksum")
    signed = line[: found.start()] + b"}"
    if zlib.crc32(body, zlib.crc32(signed)) != int(found.group(1), 16):
        raise _corrupted(name, "its content does not match its checksum")
    return parse_header(line, name=name), body


def check_version(line: bytes, *, name: str, format_version: int) -> None:
    """Refuse a version line that is none, or newer than what is understood."""
    found = _VERSION.fullmatch(line)
    if found is None:
        raise _corrupted(name, "it does not begin with a version line")
    require_version(int(found.group(1)), name=name, understood=format_version)


def split_entry(content: bytes, *, name: str, format_version: int) -> tuple[bytes, bytes]:
    """Split an entry into header line and body, having checked the version line."""
    version, _, rest = content.partition(b"\n")
    check_version(version, name=name, format_version=format_version)
    line, newline, body = rest.partition(b"\n")
    if not newline:
        raise _corrupted(name, "it ends before the end of its header")
    return line, body


def json_object(text: bytes) -> dict[str, Any]:
    """Read a JSON object; an empty one for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def parse_header(line: bytes, *, name: str) -> dict[str, Any]:
    """Parse a header line."""
    try:
        header = json.loads(line)
    except ValueError as failure:
        raise _corrupted(name, "its header is not JSON") from failure
    if not isinstance(header, dict) or not isinstance(header.get("id"), str):
        raise _corrupted(name, "its header has no id")
    header.pop("crc32", None)
    return header


def _corrupted(name: str, what: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"{name} cannot be read: {what}. It was damaged or changed after it was written. Restore "
        f"the checkpoint location as a whole from a backup, or start with a new one, which "
        f"ingests everything anew."
    )
