"""A catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.iceberg_tables import LocalCatalog


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalCatalog]:
    """A catalog on SQLite."""
    found = LocalCatalog(tmp_path)
    yield found
    found.close()
