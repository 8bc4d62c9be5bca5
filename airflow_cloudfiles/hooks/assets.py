"""Give a stream the assets of Airflow that belong to it.

An asset can stand for a location. The events of the assets that a task writes say what its run did,
so that a DAG which they start can decide by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import Asset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXTRA: Final = (
    "files", "bytes", "rows", "rescued_rows", "corrupt_records", "schema_version",
    "target_version", "report_uri",
)  # fmt: skip
"""What an event says, as the report of a run calls it."""
NEW_COLUMNS: Final = "new_columns"


def location_of(given: Any) -> Any:
    """Return an asset's location, which is its URI; return anything else as it is."""
    return given.uri if isinstance(given, Asset) else given


def with_asset(assets: Iterable[Any], given: object) -> list[Any]:
    """Return a task's assets, and one more where a location of the task is an asset."""
    found = list(assets)
    return [*found, given] if isinstance(given, Asset) and given not in found else found


def describe_events(
    assets: Iterable[object], context: Mapping[str, Any], report: Mapping[str, Any]
) -> None:
    """Say in the events of assets what a run did.

    Args:
        assets: What the task writes; aliases and the like get nothing.
        context: Of the task.
        report: Of the run.
    """
    extra = {name: report[name] for name in EXTRA if name in report}
    if change := report.get("schema_change"):
        extra[NEW_COLUMNS] = change["fields"]
    for each in assets:
        if isinstance(each, Asset):
            context["outlet_events"][each].extra.update(extra)
