"""A task reports the files that no version needs, and removes them when it is told to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles import CloudFilesVacuumTableOperator

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


def _vacuum(target: str, **changes: Any) -> dict[str, Any]:
    task = CloudFilesVacuumTableOperator(task_id="t", target=target, **changes)
    return task.execute(cast("Any", {}))


def test_a_task_reports_and_removes_only_when_told_to(tmp_path: Path) -> None:
    target = tmp_path / "t"
    write_deltalake(str(target), pa.table({"a": [1]}))
    for number in range(2):  # what killed tasks leave
        pq.write_table(pa.table({"a": [number]}), target / f"part-{number}.parquet")
    kept = _vacuum(str(target), delete=True)
    assert (kept["files"], kept["unnamed_but_young"], kept["retention_hours"]) == (0, 2, 168)
    short = {"retention": timedelta(0), "allow_short_retention": True}
    planned = _vacuum(str(target), **short)
    assert (planned["files"], planned["data_files"], planned["removed"]) == (2, 2, False)
    assert "paths" not in planned
    assert len(list(target.glob("*.parquet"))) == 3, "a dry run by default"
    done = _vacuum(str(target), delete=True, **short)
    assert (done["files"], done["removed"], done["version"]) == (2, True, 0)
    assert len(list(target.glob("*.parquet"))) == 1
    assert DeltaTable(str(target)).to_pyarrow_table().to_pylist() == [{"a": 1}]
    assert _vacuum(str(target), delete=True, **short)["files"] == 0


@pytest.mark.parametrize(
    ("target", "changes", "reason"),
    [
        ("t", {}, "relative"),
        ("/nowhere/t", {}, "There is no Delta table"),
    ],
)
def test_what_cannot_work_fails_for_good(target: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(AirflowFailException, match=reason):
        _vacuum(target, **changes)


def test_a_retention_below_the_tables_own_is_refused(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    write_deltalake(target, pa.table({"a": [1]}))
    with pytest.raises(AirflowFailException, match="retention"):
        _vacuum(target, retention=timedelta(hours=1), delete=True)
