"""The operator promotes in a process of its own, follows it, and returns its report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles import CloudFilesPromoteOperator
from tests.support.promoted import Landed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture
def landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Landed:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "landing").mkdir()
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land({"id": 1, "price": 2}, {"id": 2, "price": "$3"})
    return landed


def test_a_task_promotes_and_reports(landed: Landed) -> None:
    def task(fields: Any, **changes: Any) -> CloudFilesPromoteOperator:
        stream = {
            "source": f"{landed.folder}/landing",
            "format": "json",
            "checkpoint_location": landed.state,
            "target": landed.target,
            "options": {"cloudFiles.schemaEvolutionMode": "rescue", "mergeSchema": True},
            **changes,
        }
        return CloudFilesPromoteOperator(task_id="promote", fields=fields, **stream)

    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
    context: Any = {"ti": ti}
    report = task("{'price': 'DOUBLE'}").execute(context)  # as a template renders it
    assert (report["rows"], report["columns"]) == (1, {"price": "double"})
    with pytest.raises(AirflowFailException, match="No value of the field nowhere"):
        task(["nowhere"]).execute(context)
    with pytest.raises(AirflowFailException, match="fields must be paths"):
        task([1]).execute(context)
    with pytest.raises(AirflowFailException, match="is relative"):
        task(["price"], target="table").execute(context)
    task(["price"]).on_kill()
    assert "fields" in CloudFilesPromoteOperator.template_fields
