"""`cloudfiles state export`, `import`, `move`, `relocate`."""

from __future__ import annotations

import json

import pytest

from airflow_cloudfiles.cli import main
from tests.support.transferred import Stream


@pytest.fixture
def stream(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    return Stream(tmp_path)


def run(capsys, *arguments):
    code = main(["state", *map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


def test_a_state_is_moved_kept_and_restored(stream, tmp_path, capsys):
    new, archive = tmp_path / "new", tmp_path / "state.zip"
    code, value = run(capsys, "move", "--checkpoint-location", stream.state, "--to", new)
    assert (code, value["moved_to"], value["was_moved"]) == (0, new.as_uri(), False)
    code, problem = run(capsys, "show", "--checkpoint-location", stream.state)
    assert code != 0
    assert f"was moved to {new.as_uri()}" in str(problem)
    code, value = run(capsys, "export", "--checkpoint-location", new, "--to", archive)
    assert (code, value["source"]) == (0, stream.zone.uri)
    again = tmp_path / "again"
    code, value = run(capsys, "import", "--from", archive, "--checkpoint-location", again)
    assert (code, value["checkpoint_location"]) == (0, again.as_uri())
    code, value = run(capsys, "show", "--checkpoint-location", again)
    assert (value["files"], value["committed_files"]) == (2, 2)


def test_a_source_is_relocated_after_a_look(stream, tmp_path, capsys):
    new = stream.copied(tmp_path / "moved")
    arguments = ("relocate", "--checkpoint-location", stream.state, "--source", new.uri)
    code, value = run(capsys, *arguments, "--dry-run")
    assert (code, value["is_done"], value["known_and_there"], value["new"]) == (0, False, 2, 0)
    code, value = run(capsys, *arguments, "--allow-overwrites")
    assert (code, value["is_done"], value["adopted"]) == (0, True, 2)
    code, value = run(capsys, "show", "--checkpoint-location", stream.state)
    assert (value["source"], value["outstanding_files"]) == (new.uri, 0)
