"""A session with Iceberg's own jars for each worker, and a catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.iceberg_spark import HOME, IcebergSpark, RestServer
from tests.support.iceberg_tables import LocalCatalog


@pytest.fixture(scope="session")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    """Iceberg's own implementation."""
    if not HOME.exists():
        pytest.skip("The PySpark that Iceberg supports is not here: run `make iceberg-spark`")
    with IcebergSpark(tmp_path_factory.mktemp("iceberg-spark")) as session:
        yield session


@pytest.fixture
def lake(iceberg: IcebergSpark, tmp_path: Path) -> Iterator[LocalCatalog]:
    """A catalog on SQLite that both know."""
    found = LocalCatalog(tmp_path)
    iceberg.use(found)
    yield found
    found.close()


@pytest.fixture
def rest(iceberg: IcebergSpark, tmp_path: Path) -> Iterator[LocalCatalog]:
    """A REST catalog that both know."""
    with RestServer(tmp_path, tmp_path / "warehouse") as server:
        found = LocalCatalog(tmp_path, server.uri)
        iceberg.use(found)
        yield found
        found.close()
