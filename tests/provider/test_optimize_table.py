"""A task optimizes a table in a process of its own, and says what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles import CloudFilesOptimizeTableOperator

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


def _optimize(target: str, **changes: Any) -> dict[str, Any]:
    task = CloudFilesOptimizeTableOperator(task_id="t", target=target, **changes)
    return task.execute(cast("Any", {}))


def test_a_task_optimizes_and_reports(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(target, pa.table({"a": [number]}), mode="append")
    report = _optimize(target, target_size="1m")
    assert (report["removed_files"], report["added_files"], report["version"]) == (3, 1, 3)
    assert _optimize(target, all_files=True)["version"] == 4
    assert DeltaTable(target).to_pyarrow_dataset().count_rows() == 3


@pytest.mark.parametrize(
    ("target", "changes", "reason"),
    [
        ("t", {}, "relative"),
        ("/nowhere/t", {}, "There is no Delta table"),
        ("/nowhere/t", {"target_size": "much"}, "target_size must be a size"),
    ],
)
def test_what_cannot_work_fails_for_good(target: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(AirflowFailException, match=reason):
        _optimize(target, **changes)
