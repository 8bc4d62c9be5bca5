"""`cloudfiles doctor`: what it finds of this machine and of locations, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands import doctor
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.storage import open_store


def _found(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, tuple[str, str]]:
    code = cli.main(["doctor", "--json", *map(str, arguments)])
    findings = json.loads(capsys.readouterr().out)
    assert code == any(each["verdict"] == "problem" for each in findings)
    return {each["check"]: (each["verdict"], each["found"]) for each in findings}


def test_this_machine_is_checked_without_a_location(capsys: pytest.CaptureFixture[str]) -> None:
    found = _found(capsys)
    assert found["Python"][0] == "ok"
    assert {"Java", "temporary folder", "cache of the index", "extra delta"} <= found.keys()
    assert not [check for check in found if ":" in check]


def test_a_stream_that_will_work_has_no_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in + %=ü"
    source.mkdir()
    (source / "a b.json").write_text("{}")
    state, table = tmp_path / "state", tmp_path / "table"
    arguments = ("--source", source, "--checkpoint-location", state, "--target", table)
    found = _found(capsys, *arguments)
    assert found["source: list"] == ("ok", f"such as {open_store(str(source)).uri}/a b.json")
    assert found["checkpoint: stream"][1].endswith("is new: the first run takes it for its source")
    assert found["target: table"][1] == "no table yet: the first run creates it"
    assert not state.exists()
    assert not table.exists()
    assert [path.name for path in source.iterdir()] == ["a b.json"]

    open_metadata(open_store(str(state)), open_store(str(source)).uri, "json")
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / "00000000000000000000.json").touch()
    found = _found(capsys, *arguments)
    assert found["checkpoint: stream"][0] == "ok"
    assert found["target: table"] == ("ok", "a Delta table")


def test_what_would_fail_is_a_problem_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, state = tmp_path / "file", tmp_path / "state"
    file.touch()
    other = open_metadata(open_store(str(state)), (tmp_path / "other").as_uri(), "csv")
    FileLog(open_store(str(state)), other).append(0, FileBatch((FileEntry("a", 1, 1),)))
    arguments = ("--source", tmp_path / "no", "--checkpoint-location", state)
    found = _found(capsys, *arguments, "--target", file / "table")
    problems = {check: text for check, (verdict, text) in found.items() if verdict == "problem"}
    assert problems.pop("source: list").endswith(
        "is no folder. Create it, or correct the location."
    )
    assert "/other, format csv, not of " in problems.pop("checkpoint: stream")
    assert problems.pop("target: write") == f"{file} is a file. Give a folder."
    assert not [check for check in problems if ":" in check]


def test_a_pattern_is_listed_below_what_it_begins_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _found(capsys, "--source", tmp_path / "20*" / "*.json")["source: list"][0] == "note"


def test_a_location_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, text = _found(capsys, "--source", "ftp://host/path")["source"]
    assert verdict == "problem"
    assert "ftp://host/path" in text


def test_both_sparks_at_once_are_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions: Mapping[str, str] = {"pyspark": "4.3.0", "pyspark-client": "4.3.0"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    found = _found(capsys)
    assert found["Spark"][0] == "problem"
    assert found["extra aws"] == ("note", f"boto3 not installed. {install('aws')}")
    assert "pip install '<path>[aws]'" in install("aws")


def test_people_read_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok       Python")
    assert lines[-1].endswith(("No problems", "problem", "problems"))
    assert code == (lines[-1] != "No problems")
