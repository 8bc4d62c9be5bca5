"""How often the stores of a process are asked for what."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_cloudfiles.engine.storage.local import LocalStore


def counted_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what local stores are asked to read, from now on."""
    found: Counter[str] = Counter()
    for name in ("get", "get_range", "head", "list"):
        real = getattr(LocalStore, name)

        def counted(
            self: Any, *given: Any, _real: Any = real, _name: str = name, **more: Any
        ) -> Any:
            found[_name] += 1
            return _real(self, *given, **more)

        monkeypatch.setattr(LocalStore, name, counted)
    return found
