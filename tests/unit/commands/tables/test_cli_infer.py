"""`cloudfiles infer` writes a schema, and writes it again with the options of now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import section_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Beside it, a folder with a file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"a": 1}\n')
    return tmp_path / "state"


def infer(capsys: pytest.CaptureFixture[str], state: Path, *more: str) -> dict[str, object]:
    given = ["--checkpoint-location", str(state), "--json", "--quiet", *more]
    assert cli.main(["infer", *given]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_options_of_now_are_applied_when_it_is_inferred_again(state, capsys):
    typed = ("--option", "cloudFiles.inferColumnTypes=true")
    where = ("--source", str(state.parent / "in"), "--format", "json")
    first = infer(capsys, state, *where)
    assert (first["created"], first["schema"]) == (True, "a STRING, _rescued_data STRING")
    second = infer(capsys, state, *where, *typed)
    assert (second["created"], second["schema"]) == (False, first["schema"])
    assert "cloudfiles infer --again" in str(second["warnings"])
    third = infer(capsys, state, *where, *typed, "--again")
    assert (third["schema_version"], third["schema"]) == (1, "a BIGINT, _rescued_data STRING")
    assert third["warnings"] == []


@pytest.mark.slow
def test_files_that_are_not_whole_are_left_out_of_a_schema_and_named(state, capsys):
    source = state.parent / "in"
    (source / "1.json.done").touch()
    (source / "half.json").write_text('{"a": 2, "torn": 1}\n{"a": 3, "to')
    where = ("--source", str(source), "--format", "json")
    marked = ("--option", "cloudFiles.completionMarker={name}.done")
    found = infer(capsys, state, *where, *marked)
    assert found["schema"] == "a STRING, _rescued_data STRING"
    [said] = found["warnings"]
    assert "not whole: 1 file not taken yet: 1 for cloudFiles.completionMarker (half.json)" in said
    young = ("--option", "cloudFiles.minFileAge=1 hour")
    given = ["--checkpoint-location", f"{state}-young", "--quiet", *where, *young]
    assert cli.main(["infer", *given]) == 1
    assert "is whole yet" in capsys.readouterr().err


@pytest.mark.slow
def test_source_and_format_are_those_of_the_state(state, capsys):
    source = str(state.parent / "in")
    assert cli.main(["infer", "--checkpoint-location", str(state), "--quiet"]) == 2
    assert "Give --source and --format" in capsys.readouterr().err
    discover = ["discover", "--checkpoint-location", str(state), "--source", source]
    assert cli.main([*discover, "--format", "json", "--quiet"]) == 0
    capsys.readouterr()
    assert infer(capsys, state)["schema"] == "a STRING, _rescued_data STRING"


@pytest.mark.slow
def test_what_a_job_fails_for_is_said_once_with_its_code(state, capsys):
    nowhere = ("--source", str(state.parent / "nowhere"), "--format", "json")
    assert cli.main(["infer", "--checkpoint-location", str(state), *nowhere]) == 1
    said = capsys.readouterr().err
    assert said.count("does not exist") == 1
    assert said.endswith(f"Create it, or correct the path. {section_of('CF201')}\n")
    assert said.count("[CF201]") == 1
