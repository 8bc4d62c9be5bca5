"""A session with Delta's own jars for each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.delta_spark import HOME, IS_OLDER, RELEASE, DeltaSpark

if IS_OLDER:  # no data sources in Python, no VARIANT, no options that let a stream go on
    collect_ignore = [
        "test_cloudfiles_into_deltas_sink.py",
        "test_killed_beside_deltas_sink.py",
        "test_schema_tracking.py",
        "test_values_of_variants.py",
    ]


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Delta's own implementation."""
    if not HOME.exists():
        pytest.skip(f"The PySpark that Delta supports is not here: run `make {RELEASE}`")
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as session:
        yield session
