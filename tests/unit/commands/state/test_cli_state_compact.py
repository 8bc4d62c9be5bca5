"""`cloudfiles state compact`: old entries are packed by hand."""

from __future__ import annotations

import json
import uuid

import pytest

from airflow_cloudfiles import cli
from tests.support.written_state import WrittenState


@pytest.fixture
def written() -> WrittenState:
    """A state with old entries."""
    written = WrittenState(f"memory://{uuid.uuid4().hex}/state")
    for number in range(210):
        written.discover(f"{number}.json")
        written.plan()
        written.commit()
    return written


def compact(written: WrittenState, *more: str) -> int:
    return cli.main(["state", "compact", "--checkpoint-location", written.uri, *more])


def test_a_dry_run_tells_and_the_command_does(written, capsys):
    assert compact(written, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["packed"] == 400
    assert told["is_done"] is False
    assert not list(written.state.list("_source/files/packs/"))
    assert compact(written) == 0
    assert "packed: 400" in capsys.readouterr().out
    assert len(list(written.state.list("_source/files/packs/"))) == 2
    assert compact(written, "--json") == 0
    assert json.loads(capsys.readouterr().out)["packed"] == 0


@pytest.mark.parametrize("retention", ["soon", "1 hour"])
def test_a_retention_that_is_none_or_too_short_is_refused(written, capsys, retention):
    assert compact(written, "--run-retention", retention) != 0
    assert "--run-retention must be" in capsys.readouterr().err


def test_where_there_is_no_state_that_is_said(capsys):
    assert cli.main(["state", "compact", "--checkpoint-location", "memory://none/state"]) != 0
    assert "There is no state in" in capsys.readouterr().err
