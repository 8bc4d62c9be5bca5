"""What the engine's tests share: caches of their own, never the user's."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep the indexes of seen files in a temporary folder."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
