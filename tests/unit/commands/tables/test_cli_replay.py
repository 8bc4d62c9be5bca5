"""`cloudfiles replay` at a shell: what it says, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from tests.support.ingested import Ingested


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ingested:
    """A stream whose table is lost."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    found = Ingested(tmp_path)
    found.add("f0", "f1")
    found.run()
    shutil.rmtree(found.target)
    return found


def _replay(stream: Ingested, *more: str) -> int:
    where = ["--checkpoint-location", str(stream.state), "--target", str(stream.target)]
    return cli.main(["replay", *where, "--from-batch", "0", "--json", *more])


@pytest.mark.slow
def test_what_is_lost_is_shown_then_ingested(
    stream: Ingested, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _replay(stream, "--dry-run") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["is_done"], shown["batches"], shown["files"]) == (False, [0, 1], 2)
    assert not stream.target.exists()
    assert _replay(stream) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["is_done"], done["rows"]) == (True, 2)
    assert stream.rows() == ["f0", "f1"]


@pytest.mark.slow
def test_a_loss_is_accepted_by_name(stream: Ingested, capsys: pytest.CaptureFixture[str]) -> None:
    assert _replay(stream, "--accept-loss") == 0
    assert json.loads(capsys.readouterr().out)["batches"] == [0, 1]
    stream.add("f2")
    stream.run()
    assert stream.rows() == ["f2"]


@pytest.mark.slow
def test_what_cannot_be_done_is_one_sentence(
    stream: Ingested, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream.source / "f1.json").unlink()
    assert _replay(stream) == 1
    assert "f1.json (batch 1)" in capsys.readouterr().err
    where = ["--checkpoint-location", str(stream.source), "--target", str(stream.target)]
    assert cli.main(["replay", *where, "--from-batch", "0"]) == 1
    assert "no plans to replay" in capsys.readouterr().err
