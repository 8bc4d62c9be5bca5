"""`cloudfiles state runs`: how did the newest runs of a stream go?"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.state.run_history import encode_report
from tests.support.written_state import WrittenState

FAILED = {
    "class": "UnknownFieldException",
    "code": "CF501\x1b",
    "message": "New fields: \x1b[31mprice.",
}
LISTED = """\
started              outcome           files    rows  rescued  corrupt  schema  table  seconds  run
2026-11-23 08:03:00  ingest succeeded      0       0        1        0       -      -        -  r3
    1 files were gone.
2026-11-23 08:02:00  ingest failed         0       0        0        0       -      -      4.2  r2
    UnknownFieldException: New fields: \\x1b[31mprice. [CF501\\x1b] More: cloudfiles docs CF501\\x1b
2026-11-23 08:01:00  ingest succeeded  1,200  34,567        0        0       0      1      4.2  r1
3 of 3 runs
"""


@pytest.fixture
def written(tmp_path) -> WrittenState:
    """A stream of three runs, of which the second failed."""
    written = WrittenState(f"file://{tmp_path}/state")
    written.discover("a.json")
    _report(written, 1, files=1200, rows=34567, schema_version=0, target_version=1)
    _report(written, 2, outcome="failed", error=FAILED)
    _report(written, 3, rescued_rows=1, warnings=["1 files were gone."], durations={})
    return written


def _report(written: WrittenState, number: int, **more: Any) -> None:
    report = {
        "run_id": f"r{number}",
        "kind": "ingest",
        "outcome": "succeeded",
        "started": f"2026-11-23T09:0{number}:00+01:00",
        "durations": {"total_seconds": 4.25},
        **more,
    }
    written.state.put(f"_reports/r{number}.json", encode_report(report))


def runs(written: WrittenState, *more: str) -> int:
    return cli.main(["state", "runs", "--checkpoint-location", written.uri, *more])


def test_runs_are_listed_the_newest_first_with_what_they_failed_for(written, capsys):
    assert runs(written) == 0
    assert capsys.readouterr().out == LISTED
    assert cli.main(["runs", "--checkpoint-location", written.uri]) == 0
    assert capsys.readouterr().out == LISTED


def test_a_part_of_them_can_be_asked_for(written, capsys):
    assert runs(written, "--most", "2", "--failed", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["run_id"], found["error"]) == ("r2", "UnknownFieldException")
    assert runs(written, "--most", "1", "--failed") == 0
    assert capsys.readouterr().out == "0 of 3 runs\n"


def test_what_cannot_be_meant_is_refused(written, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        runs(written, "--most", "0")
    assert ended.value.code == 2
    assert "'0' is not a number of runs" in capsys.readouterr().err
    assert cli.main(["state", "runs", "--checkpoint-location", str(tmp_path / "other")]) == 1
    assert "There is no state in" in capsys.readouterr().err


def test_a_terminal_of_80_columns_is_wide_enough(written, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run_id = "ingest-manual__2026-11-23T08:04:00.123456+00:00-" + "0" * 28
    _report(written, 4, run_id=run_id)
    assert runs(written) == 0
    head, first, *below = capsys.readouterr().out.splitlines()
    heads = ["started", "outcome", "files", "rows", "rescued", "corrupt", "schema"]
    assert head.split() == heads
    assert first.split() == [
        "2026-11-23",
        "08:04:00",
        "ingest",
        "succeeded",
        "0",
        "0",
        "0",
        "0",
        "-",
    ]
    assert below[:2] == ["    table -, seconds 4.2, run", f"    {run_id}"]
    assert len(below[1]) == 80
    assert cli.main(["state", "files", "--checkpoint-location", written.uri]) == 0
    head, *lines, _ = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["status", "discovery_time"]
    assert max(map(len, lines)) <= 80
