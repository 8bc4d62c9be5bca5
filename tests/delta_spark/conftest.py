"""A session with Delta's own jars for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.delta_spark import HOME, IS_OLDER, RELEASE, DeltaSpark

RENAMES = ("mapped by name", "mapped by id", "upgraded to column mapping", "overwrites")
WIDENS = ("types that widen",)
OLDER_LACKS = {
    # Data sources in Python, VARIANT, options with which a stream goes on after a change.
    "test_cloudfiles_into_deltas_sink": (),
    "test_killed_beside_deltas_sink": (),
    "test_schema_tracking": (),
    "test_values_of_variants": (),
    "test_each_history_of_ours_is_streamed_alike": (
        *(*RENAMES, *WIDENS),
        "runs, a promotion and a replay",
    ),
    # Every type that widens.
    "test_each_version_is_read_alike": WIDENS,
    "test_delta_goes_on_and_so_do_we": WIDENS,
    # SQL for these.
    "test_a_replaced_table_stops_both": (),
    "test_a_change_of_rows_stops_or_passes_both": ("TRUNCATE",),
    **dict.fromkeys(
        (
            "test_a_table_of_deltas_own_is_merged_into",
            "test_a_table_of_deltas_own_is_read_and_appended_to",
            "test_each_kind_of_table_is_streamed_alike",
        ),
        ("generated column", "identity", "identity by default", "type widening", "variant"),
    ),
}
"""What Delta 3.3 and Spark 3.5 have not, by the tests that need it; of some, these parameters."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the older Delta lacks."""
    lacking = [each for each in items if IS_OLDER and _is_lacking(each)]
    config.hook.pytest_deselected(items=lacking)
    items[:] = [each for each in items if each not in lacking]


def _is_lacking(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or item.path.parent != Path(__file__).parent:
        return False
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(
        not parameters or any(each in parameters for each in given)
        for name, parameters in OLDER_LACKS.items()
        if name in (item.path.stem, item.originalname)
    )


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Delta's own implementation."""
    if not HOME.exists():
        pytest.skip(f"The PySpark that Delta supports is not here: run `make {RELEASE}`")
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as session:
        yield session
