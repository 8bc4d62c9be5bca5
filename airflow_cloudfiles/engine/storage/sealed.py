"""How does a small object of JSON show that it is what was written?

Its last field is a checksum of all that comes before it:

```
{"entries": 12, "crc32": "0bb6d2a1"}
```

So a byte that has changed, or an end that is gone, is found rather than believed. Whoever reads
such an object decides what follows: a hint is passed over, anything else is an error.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECKSUM = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n}\n\Z')


def seal(value: Mapping[str, Any], *, head: bytes = b"") -> bytes:
    """Build the bytes of an object.

    Args:
        value: JSON values, at least one; none is called `crc32`.
        head: What stands before it, such as a version line; the checksum covers it.
    """
    text = head + json.dumps(value, ensure_ascii=True, indent=1).encode("ascii")[: -len("\n}")]
    return b'%b,\n "crc32": "%08x"\n}\n' % (text, zlib.crc32(text))


def unseal(content: bytes, *, head: bytes = b"") -> dict[str, Any]:
    """Read what `seal` wrote.

    Args:
        content: All of its bytes.
        head: As for `seal`; the content begins with it.

    Raises:
        ValueError: It is damaged, or something else.
    """
    found = _CHECKSUM.search(content)
    if found is None:
        msg = "it does not end with its checksum"
        raise ValueError(msg)
    text = content[: found.start()]
    if zlib.crc32(text) != int(found[1], 16) or not text.startswith(head):
        msg = "its content does not match its checksum"
        raise ValueError(msg)
    value = json.loads(text[len(head) :] + b"\n}")
    if not isinstance(value, dict):
        msg = "it is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - as for all that is not one
    return value
