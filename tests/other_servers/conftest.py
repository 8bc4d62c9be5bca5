"""These tests need what `make other-servers` brings."""

from __future__ import annotations

import pytest

from tests.support.emulators.other_servers import HOME


@pytest.fixture(scope="session", autouse=True)
def _is_brought() -> None:
    """Skip where it is not there: a Ceph of the system's alone is no reason to take minutes."""
    if not HOME.exists():
        pytest.skip("Other people's servers are not here: run `make other-servers`")
