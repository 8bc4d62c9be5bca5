"""A run's report says what of the input is not in the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.job.counts import add_counts, summary
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import open_store
from tests.support.written_state import WrittenState


@pytest.mark.parametrize(
    ("options", "dropped"),
    [
        ({"mode": "DROPMALFORMED"}, "3 invalid records were dropped (DROPMALFORMED)."),
        ({"BadRecordsPath": "/bad"}, "3 invalid records are in badRecordsPath."),
    ],
)
def test_what_was_left_out_is_in_the_warnings(
    tmp_path: Path, options: dict[str, str], dropped: str
) -> None:
    spec = JobSpec(
        kind="ingest",
        source=str(tmp_path / "in"),
        format="json",
        checkpoint_location=str(tmp_path / "state"),
        target=str(tmp_path / "table"),
        run_id="run",
        options=options,
    )
    for batch, counts in enumerate(
        [
            {"files": 5, "rows": 9, "corrupt_files": 1, "dropped_records": 3},
            {"files": 1, "rows": 1, "corrupt_files": 1, "missing_files": 2, "changed_files": 4},
        ]
    ):
        done = run_history.BatchDone(
            batch_id=batch, table_version=batch, is_new=True, schema_version=0, counts=counts
        )
        run_history.note(spec.checkpoint_location, done)
        SinkLog(open_store(spec.checkpoint_location)).add(
            SinkRecord(batch=batch, end=Offset(batch + 1, 0))
        )
    report = summary(spec, run_history.notes(spec.checkpoint_location, range(2)))
    assert (report["files"], report["rows"], report["batches"]) == (6, 10, 2)
    missing, corrupt, changed, last = report["warnings"]
    assert missing == "2 files were gone and were skipped."
    assert corrupt.startswith("2 damaged files, or parts of large ones, were given up")
    assert changed == "4 files had changed since they were discovered."
    assert last == dropped


def test_what_a_run_leaves_is_in_its_report_in_auto_loaders_words(tmp_path: Path) -> None:  # B116
    written = WrittenState(f"file://{tmp_path}/state")
    written.discover("a", "bb")
    written.discover("ccc")
    spec = JobSpec(
        kind="ingest",
        source=str(tmp_path / "in"),
        format="json",
        checkpoint_location=written.uri,
        target=str(tmp_path / "table"),
        run_id="run",
    )
    waiting = {"notifications": {"approximate_size_after": 4}}
    shown, oldest = [], []
    for _ in range(2):
        written.plan(2)
        written.commit()
        report: dict[str, Any] = {"warnings": []}
        add_counts(report, spec, -1, 1, waiting)
        shown.append(report["metrics"])
        oldest.append(report["oldest_outstanding"])
    assert shown == [
        {
            "numFilesOutstanding": files,
            "numBytesOutstanding": size,
            "isBacklogComputationComplete": "true",
            "approximateQueueSize": "4",
        }
        for files, size in (("1", "3"), ("0", "0"))
    ]
    assert oldest == [FileLog(written.state).summary(1).created, None]
