"""The operator cleans in a process of its own, follows it, and returns what was done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles import CloudFilesCleanOperator
from tests.support.ingested import Ingested

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
MODE = "cloudFiles.cleanSource"


def test_a_task_cleans_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    stream = Ingested(tmp_path)
    stream.add("f0", "f1")
    stream.run()

    def task(options: dict[str, object], **changes: Any) -> CloudFilesCleanOperator:
        return CloudFilesCleanOperator(
            task_id="clean",
            source=str(stream.source),
            format="json",
            checkpoint_location=str(stream.state),
            options=options,
            **changes,
        )

    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
    context: Any = {"ti": ti}
    moved = {
        MODE: "MOVE",
        f"{MODE}.moveDestination": str(tmp_path / "archive"),
        f"{MODE}.retentionDuration": "0 seconds",
    }
    told = task(moved, is_dry_run=True).execute(context)
    assert (told["mode"], told["is_dry_run"], told["files"]) == ("MOVE", True, 2)
    assert len([*stream.source.iterdir()]) == 2
    done = task(moved).execute(context)
    assert (done["files"], done["is_complete"], done["warnings"]) == (2, True, [])
    assert {each.name for each in (tmp_path / "archive").iterdir()} == {"f0.json", "f1.json"}
    with pytest.raises(AirflowFailException, match="nothing is to be cleaned"):
        task({MODE: "OFF"}).execute(context)
    task(moved).on_kill()
