"""`cloudfiles file`: operations on files from a shell."""

from __future__ import annotations

import json
import uuid

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.storage import open_store
from tests.support.written_state import WrittenState


@pytest.fixture
def written(tmp_path) -> WrittenState:
    """Two committed files, two that wait."""
    (tmp_path / "in").mkdir()
    for name in ("a b", "b", "c", "d"):
        (tmp_path / "in" / f"{name}.json").write_text("{}\n")
    written = WrittenState(str(tmp_path / "state"), f"file://{tmp_path}/in")
    written.discover("a b.json", "b.json")
    written.plan()
    written.commit()
    written.discover("c.json", "d.json")
    return written


def file(written: WrittenState, action: str, *more: str) -> int:
    return cli.main(["file", action, "--checkpoint-location", written.uri, *more])


def test_a_dry_run_tells_and_the_command_does_it_and_the_list_shows_it(written, capsys):
    before = written.content()
    assert file(written, "skip", "c.json", "--dry-run") == 0
    assert "Nothing was changed" in capsys.readouterr().out
    logs = {name: each for name, each in before.items() if not name.endswith(".lock")}
    assert logs.items() <= written.content().items()
    assert file(written, "skip", "c.json", "--reason", "a\ttest", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each.rpartition("/")[2] for each in told["files"]] == ["c.json"]
    assert told["entries"] == [2]
    assert file(written, "list") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == [
        "operation",
        "operation_time",
        "status",
        "batch_id",
        "path",
        "operation_reason",
    ]
    assert shown[1].startswith("skip ")
    assert shown[1].endswith(r"/in/c.json  a\ttest")
    assert shown[2:] == ["1 file"]
    assert file(written, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "skipped"


def test_what_cannot_be_done_is_one_sentence(written, capsys):
    assert file(written, "skip", "a+b.json") == cli.ASKED_WRONGLY
    assert "The nearest file that is recorded is 'a b.json'" in capsys.readouterr().err
    assert file(written, "release", "a b.json") == cli.NOT_DONE
    assert "neither skipped nor quarantined" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        file(written, "skip", "c.json", "--append")


def test_where_there_is_no_state_that_is_said(capsys):
    uri = f"memory://{uuid.uuid4().hex}/state"
    assert cli.main(["file", "list", "--checkpoint-location", uri]) == cli.NOT_DONE
    assert "There is no state in" in capsys.readouterr().err
    assert not list(open_store(uri).list())
