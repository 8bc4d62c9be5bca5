"""The golden bytes of what a run says at its end."""

from __future__ import annotations

from airflow_cloudfiles.engine.extensions.overview.runs import (
    IngestionSummary,
    RunSummary,
    StreamOverview,
    ingestion_summary,
)
from airflow_cloudfiles.engine.extensions.row_rules.batch import note_tables, quarantine_tables
from airflow_cloudfiles.engine.state import run_history
from tests.golden.kinds import CREATED, Format, in_store, written

REPORT = {"run_id": "r.1", "kind": "ingest", "outcome": "succeeded", "rows": 3}
SUMMARIZED = {
    **REPORT,
    "outcome": "failed",
    "started": "2026-01-01T00:00:00+00:00",
    "ended": "2026-01-01T00:00:09+00:00",
    "schema": "a STRING",
    "schema_version": 2,
    "target_version": 7,
    "durations": {"total_seconds": 9.0},
    "metrics": {
        "numFilesOutstanding": "2",
        "numBytesOutstanding": "10",
        "isBacklogComputationComplete": "true",
    },
    "oldest_outstanding": CREATED,
    "position": {"last_batch": 3, "entries": 5, "newest_found": CREATED},
    "error": {"class": "UnknownFieldException", "code": "CF501", "message": "price \u00e9\udcff"},
    "warnings": ["look"] * 9,
}
SUMMARY = IngestionSummary(
    ended="2026-01-01T00:00:09+00:00",
    newest=RunSummary(
        run_id="r.1",
        kind="ingest",
        started="2026-01-01T00:00:00+00:00",
        outcome="failed",
        rows=3,
        schema_version=2,
        target_version=7,
        seconds=9.0,
        error="UnknownFieldException",
        code="CF501",
        message="price \u00e9\udcff",
        warnings=("look",) * 5,
    ),
    overview=StreamOverview(
        last_batch=3,
        entries=5,
        newest_found=CREATED,
        outstanding_files=2,
        outstanding_bytes=10,
        oldest_outstanding=CREATED,
        is_counted=True,
    ),
)

OF_RUNS = [
    Format(
        name="quarantine",
        keys=r"_source/quarantine\.json",
        write=lambda: written(
            "_source/quarantine.json",
            lambda store: note_tables(store, ["file:///lake/t_quarantine", "s3://b/\u00e9"]),
        ),
        read=in_store("_source/quarantine.json", quarantine_tables),
        expected=["file:///lake/t_quarantine", "s3://b/\u00e9"],
    ),
    Format(
        name="summary",
        keys=r"_source/summary\.json",
        write=lambda: written(
            "_source/summary.json",
            lambda store: run_history.write_report(store, "_reports/r.1.json", SUMMARIZED),
        ),
        read=in_store("_source/summary.json", ingestion_summary),
        expected=SUMMARY,
        newer="passed over",
    ),
]
