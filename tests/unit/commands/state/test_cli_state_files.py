"""`cloudfiles state files`: was this file ingested, when, and in which batch?"""

from __future__ import annotations

import json

import pytest

from airflow_cloudfiles import cli, cloud_files_state
from tests.support.written_state import WrittenState


@pytest.fixture
def written(tmp_path) -> WrittenState:
    """Three files, of which one is committed and one is planned."""
    written = WrittenState(f"file://{tmp_path}/state")
    written.discover("a.json", "b.json", "line\nbreak.json")
    written.plan(1)
    written.commit("run-1")
    written.plan(1)
    return written


def files(written: WrittenState, *more: str) -> int:
    return cli.main(["state", "files", "--checkpoint-location", written.uri, *more])


def test_files_are_listed_for_people(written, capsys):
    assert files(written) == 0
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "status", "discovery_time", "commit_time", "batch_id", "size", "rows", "rescued_rows",
        "corrupt_records", "path", "run_id",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines] == ["committed", "planned", "discovered"]
    assert lines[0].endswith("s3://lake/orders/a.json  run-1")
    assert "line\\nbreak.json" in lines[2]
    assert last == "3 files"


def test_files_are_written_as_lines_of_json_that_hold_the_whole_table(written, capsys):  # B117
    assert files(written, "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    table = cloud_files_state(written.uri).read_all().to_pylist()
    assert [
        json.loads(json.dumps(row, default=lambda time: time.isoformat())) for row in table
    ] == found
    assert found[0]["ingestion_state"] == "INGESTED"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--path", "a.json"], ["a.json"]),
        (["--path", "s3://lake/orders/b.json"], ["b.json"]),
        (["--status", "planned", "--status", "committed"], ["a.json", "b.json"]),
        (["--status", "outstanding"], ["b.json", "line\nbreak.json"]),
        (["--batch", "1"], ["b.json"]),
        (["--run", "run-1"], ["a.json"]),
        (["--discovered-since", "2026-01-01"], ["a.json", "b.json", "line\nbreak.json"]),
        (["--discovered-until", "2026-01-01T08:00+01:00"], []),
        (["--committed-since", "2999-01-01T08:00"], []),
        (["--committed-until", "2999-01-01T08:00"], ["a.json"]),
    ],
)
def test_arguments_narrow_them_down(written, arguments, found, capsys):
    assert files(written, "--json", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    paths = [json.loads(line)["path"].removeprefix("s3://lake/orders/") for line in lines]
    assert paths == found


def test_nothing_found_is_said(written, capsys):
    assert files(written, "--path", "none.json") == 0
    assert capsys.readouterr().out == "0 files\n"


def test_counts_are_those_of_the_summary(written, capsys):  # B116
    for action in ([], ["show"]):
        assert cli.main(["state", *action, "--checkpoint-location", written.uri, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["files"], shown["committed_files"], shown["outstanding_files"]) == (3, 1, 2)
        assert shown["outstanding_bytes"] == len("b.json") + len("line\nbreak.json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--committed-since", "yesterday"], "'yesterday' is not a time"),
        (["--status", "done"], "invalid choice: 'done'"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2(written, arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        files(written, *arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_path_elsewhere_ends_with_2_and_a_missing_batch_with_1(written, capsys):
    assert files(written, "--path", "s3://other/a.json") == 2
    assert "not below the source of this state" in capsys.readouterr().err
    assert files(written, "--batch", "7") == 1
    assert "Batch 7 is not planned" in capsys.readouterr().err
    assert cli.main(["state"]) == 2
    assert "needs --checkpoint-location" in capsys.readouterr().err


def test_damage_that_is_met_while_files_are_listed_ends_with_1(written, capsys):
    key = f"_source/plans/{1:020}"
    written.state.put(key, written.state.get(key).replace(b'"files": 1', b'"files": 2'))
    assert files(written, "--json") == 1
    assert key in capsys.readouterr().err
