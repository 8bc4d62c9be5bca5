"""`cloudfiles status`: a line a stream, and an exit code that a monitor understands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.state.run_history import encode_report
from tests.support.written_state import WrittenState

FAILED = {"class": "UnknownFieldException", "code": "CF501", "message": "New fields: price."}


def _report(written: WrittenState, number: int, **more: Any) -> None:
    report = {
        "run_id": f"r{number}",
        "kind": "ingest",
        "outcome": "succeeded",
        "started": f"2026-11-23T09:0{number}:00+01:00",
        **more,
    }
    written.state.put(f"_reports/r{number}.json", encode_report(report))


@pytest.fixture
def streams(tmp_path: Path) -> str:
    """A file of five streams, one in each state."""
    names = ("good", "fresh", "broken", "healed", "nothing")
    for name in names[:-1]:
        written = WrittenState(f"file://{tmp_path}/{name}")
        written.discover("a.json")
        if name != "fresh":
            written.plan()
            written.commit()
            _report(written, 1, rows=10)
        if name in {"broken", "healed"}:
            _report(written, 2, outcome="failed", error=FAILED)
        if name == "healed":
            _report(written, 3, rows=7)
            _report(written, 4, kind="infer", outcome="failed", error=FAILED)
    keys = "source: /in/{0}, checkpoint_location: {1}/{0}, target: /t/{0}"
    lines = [f"  {name}: {{{keys.format(name, tmp_path)}}}" for name in names]
    file = tmp_path / "streams.yaml"
    file.write_text("\n".join(["defaults: {format: json}", "streams:", *lines]))
    return str(file)


def status(*arguments: str) -> int:
    return cli.main(["status", *arguments])


def test_each_stream_has_a_line_and_trouble_an_exit_code(streams, capsys):
    assert status("--all", "--streams-file", streams) == 1
    _, *lines, end = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["good", "ok"],
        ["fresh", "new"],
        ["broken", "failed"],
        ["healed", "ok"],
        ["nothing", "unreadable"],
    ]
    assert "UnknownFieldException: New fields: price. [CF501]" in lines[2]
    assert "2026-11-23 08:03:00" in lines[3], "a failed inference is no failed ingestion"
    assert "There is no state in" in lines[4]
    assert end == "5 streams, 2 in trouble"


def test_one_stream_is_named(streams, capsys):
    assert status("--stream", "good", "--streams-file", streams) == 0
    assert status("--stream", "broken", "--streams-file", streams, "--json") == 1
    out = capsys.readouterr().out
    (found,) = json.loads(out[out.index("[\n") :])
    assert (found["stream"], found["standing"]) == ("broken", "failed")
    assert found["newest"]["error"] == "UnknownFieldException"


def test_a_file_that_waits_too_long_is_trouble(streams, tmp_path, capsys):
    where = ("--checkpoint-location", str(tmp_path / "fresh"))
    assert status(*where, "--behind", "1 day") == 0
    assert status(*where, "--behind", "1 millisecond") == 1
    assert "1 file not ingested since" in capsys.readouterr().out
    assert status(*where, "--behind", "soon") == 2
    assert "--behind must be an interval" in capsys.readouterr().err


def test_without_a_stream_it_says_what_it_needs(capsys):
    assert status() == 2
    assert "--checkpoint-location, --stream or --all" in capsys.readouterr().err
