"""A state between whose writings other things happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Interrupted:
    """A store that calls one of some functions before each of its conditional writes."""

    def __init__(self, store: Any, events: list[Callable[[], None]]) -> None:
        self._store = store
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        if self._events:
            self._events.pop(0)()
        created: bool = self._store.put_if_absent(key, content)
        return created
