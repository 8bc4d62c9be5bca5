"""What tests of the provider share: one warm Spark, for runs whose start is not what they test."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.job.warm import listing
from airflow_cloudfiles.engine.job.warm.instances import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def _warm_folder() -> Iterator[Path]:
    """Where the warm Sparks of these tests are; none is left."""
    # Not below pytest's folder, which is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="w-") as short, pytest.MonkeyPatch.context() as patch:
        folder = Path(short, "w")
        folder.mkdir(mode=0o700)
        yield folder
        patch.setenv(FOLDER, str(folder))
        listing.stop_all()


@pytest.fixture
def keep_warm(_warm_folder: Path, monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """For an ingestion on `local[1]` that may have the Spark of the run, or of the test, before.

    Spark ends by itself when no test has used it for so long.
    """
    monkeypatch.setenv(FOLDER, str(_warm_folder))
    # As long as all tests have the same environment, they share a warm Spark.
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(_warm_folder.with_name("cache")))
    return timedelta(minutes=3)
