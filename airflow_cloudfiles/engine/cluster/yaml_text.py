"""How is a manifest of Kubernetes written?

As the part of YAML that JSON is, but for its lines: mappings and lists as indented blocks, and each
text in quotes that could be taken for something else. So no YAML library is needed to write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_TAKEN_FOR_ELSE = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def to_yaml(value: Mapping[str, Any]) -> str:
    """Write a document."""
    return "\n".join(_block(value, "")) + "\n"


def _block(value: Mapping[str, Any] | Sequence[Any], indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", each, indent + "  ")
        return
    for each in value:
        if _is_block(each):
            first, *others = _block(each, indent + "  ")
            yield f"{indent}- {first.strip()}"
            yield from others
        else:
            yield f"{indent}- {_scalar(each)}"


def _entry(start: str, value: Any, indent: str) -> Iterator[str]:
    if _is_block(value):
        yield start
        yield from _block(value, indent)
    else:
        yield f"{start} {_scalar(value)}"


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    if is_plain and value.lower() not in _TAKEN_FOR_ELSE:
        return str(value)
    return json.dumps(value)
