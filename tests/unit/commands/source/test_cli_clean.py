"""`cloudfiles clean` at a shell: what it says, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested

MODE = "cloudFiles.cleanSource"


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ingested:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    found = Ingested(tmp_path)
    found.add("f0", "f1")
    found.run()
    return found


def _clean(stream: Ingested, *more: str) -> int:
    return cli.main(["clean", "--checkpoint-location", str(stream.state), *more])


@pytest.mark.slow
def test_what_is_due_is_shown_then_moved(
    stream: Ingested, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options are those of the newest run, and what the command is told besides."""
    to = {f"{MODE}.moveDestination": str(tmp_path / "archive")}
    stream.given = {**stream.given, **to, MODE: "OFF"}
    spec = stream.spec()
    open_store(str(stream.state)).put(spec.spec_key, spec.sealed())
    assert _clean(stream) == 2
    assert "nothing is to be cleaned" in capsys.readouterr().err
    given = ["--option", f"{MODE}=MOVE", "--option", f"{MODE}.retentionduration=0 seconds"]
    assert _clean(stream, *given, "--dry-run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["files"], shown["is_dry_run"]) == ("clean", 2, True)
    assert len([*stream.source.iterdir()]) == 2
    assert _clean(stream, *given) == 0
    assert "files: 2" in capsys.readouterr().out
    assert {each.name for each in (tmp_path / "archive").iterdir()} == {"f0.json", "f1.json"}
    assert [*stream.source.iterdir()] == []


def test_without_a_state_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean", "--checkpoint-location", str(tmp_path)]) == 1
    assert "There is no state in" in capsys.readouterr().err
