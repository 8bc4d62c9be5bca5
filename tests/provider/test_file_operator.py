"""A task operates on files of a stream, once in a DAG run, and says what it did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles import CloudFilesFileOperator, cloud_files_state
from airflow_cloudfiles.engine.errors import StateLockedError
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from tests.support.written_state import WrittenState

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    """Two files, of which one is committed."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text("{}\n")
    written = WrittenState(str(tmp_path / "state"), f"file://{tmp_path}/in")
    written.discover("a.json")
    written.plan()
    written.commit()
    written.discover("b.json")
    return written


def _execute(written: WrittenState, try_number: int = 1, **given: Any) -> dict[str, Any]:
    task = CloudFilesFileOperator(task_id="t", checkpoint_location=written.uri, **given)
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", try_number=try_number, map_index=-1)
    return task.execute(cast("Any", {"ti": ti}))


def test_a_task_does_it_once_however_often_it_is_tried(written: WrittenState) -> None:
    report = _execute(written, action="forget", paths=["a.json"], reason="sent again")
    assert (report["changed"], report["unchanged"], report["entries"]) == (1, 0, [2])
    written.discover("a.json")  # found again, before the next try
    again = _execute(written, try_number=2, action="forget", paths="a.json")
    assert (again["changed"], again["unchanged"]) == (0, 1)
    rows = cloud_files_state(written.uri, path="a.json").read_all().to_pylist()
    assert [(row["status"], row["operation_reason"]) for row in rows] == [
        ("committed", "sent again"),
        ("discovered", None),
    ]


def test_errors_fail_for_good_but_for_a_run_at_work(written: WrittenState) -> None:
    with pytest.raises(AirflowFailException, match="it is too late to skip it"):
        _execute(written, action="skip", paths=["a.json"])
    with pytest.raises(AirflowFailException, match="action must be one of"):
        _execute(written, action="remove", paths=["a.json"])
    with RunLock(open_store(written.uri), JOB_KEY), pytest.raises(StateLockedError):
        _execute(written, action="skip", paths=["b.json"])
    assert _execute(written, action="skip", paths="*.json", pattern=True)["files"] == [
        f"file://{written.uri.removesuffix('state')}in/b.json"
    ]
