"""Put functions around methods of PySpark's builders and queries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Put a function around a method; it gets the original, which knows its name, and the call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, *args, **kwargs)

    setattr(owner, name, wrapped)
