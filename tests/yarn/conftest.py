"""A YARN for all tests, and the packed environment that their containers unpack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.yarn_cluster import YarnCluster


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """Hadoop's ResourceManager and NodeManager."""
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def packed(yarn: YarnCluster) -> str:
    """The environment of the containers, as an archive."""
    return yarn.pack()
