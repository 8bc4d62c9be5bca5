"""A session with Delta's own jars for each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.delta_spark import HOME, DeltaSpark


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Delta's own implementation."""
    if not HOME.exists():
        pytest.skip("The PySpark that Delta supports is not here: run `make delta-spark`")
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as session:
        yield session
