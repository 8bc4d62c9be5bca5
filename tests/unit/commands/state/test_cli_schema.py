"""`cloudfiles schema` prints what the schema log holds, and writes to it only when asked to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.log_entry import (
    SchemaEntry,
    append_entry,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.schema.proposals import Proposal, ProposedChange, propose
from airflow_cloudfiles.engine.storage import open_store

GOLDEN = Path(__file__).parents[3] / "golden" / "schema_log_v1"


@pytest.fixture
def location(tmp_path) -> Path:
    """A log of an inferred version and one with a new column."""
    for number in ("0", "1"):
        path = tmp_path / "_schemas" / number
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((GOLDEN / number).read_bytes())
    return tmp_path


def schema(action: str, location: Path, *more: str) -> int:
    return cli.main(["schema", action, "--schema-location", str(location), *more])


def test_versions_are_listed_for_people_and_for_programs(location, capsys):
    assert schema("list", location) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["version", "written"]
    assert first.startswith("0")
    assert "inferred" in first
    assert "from 3 files" in first
    assert "addNewColumns" in second
    assert "new: b, d" in second
    assert schema("list", location, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["version"], each["columns"], each["fields"]) for each in told] == [
        (0, 4, 5),
        (1, 5, 7),
    ]


def test_a_version_is_shown_with_its_columns(location, capsys):
    assert schema("show", location, "--version", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("version 0, 2026-11-21T04:20:57")
    assert lines[1:] == [
        "  a: string",
        "  b: struct<c:bigint>",
        "  event: string (partition)",
        "  date: date (partition)",
    ]
    assert schema("show", location, "--json") == 0
    assert json.loads(capsys.readouterr().out)["data_schema"]["fields"][2]["name"] == "d"


def test_differences_and_origins_are_shown(location, capsys):
    assert schema("diff", location) == 0
    assert capsys.readouterr().out.splitlines() == ["+  b.e  string", "+  d    string"]
    assert schema("diff", location, "--from", "1", "--to", "1") == 0
    assert capsys.readouterr().out == "no difference\n"
    assert schema("blame", location) == 0
    told = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert told["d"][2] == "1"
    assert told["d"][-1] == "file:///landing/flights/2026/3.json"
    assert told["a"][2] == "0"


def test_rolling_back_and_pinning_append_versions(location, capsys):
    assert schema("rollback", location, "--to", "0", "--pin", "rescue", "--note", "bad file") == 0
    assert "Version 2 is written (rolledBack, columns of version 0)" in capsys.readouterr().out
    assert schema("unpin", location) == 0
    assert schema("pin", location, "--version", "1", "--new-fields", "fail", "--json") == 0
    told = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert (told["version"], told["pin"], told["reason"]["to"]) == (4, "fail", 1)
    assert schema("list", location) == 0
    out = capsys.readouterr().out
    assert "rolledBack (pinned)" in out
    assert "as version 0; bad file" in out
    assert sorted(path.name for path in (location / "_schemas").iterdir()) == list("01234")


def test_the_checkpoint_location_may_be_named_instead(location, capsys):
    for argument in ("--checkpoint-location", "--state"):
        assert cli.main(["schema", "list", argument, str(location)]) == 0
        assert "addNewColumns" in capsys.readouterr().out


def test_what_is_not_there_is_reported_in_a_sentence(location, capsys):
    assert schema("show", location, "--version", "9") == 1
    assert "no schema version 9" in capsys.readouterr().err
    assert schema("unpin", location) == 1
    assert "is not pinned" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["schema", "list"])


def test_it_needs_neither_spark_nor_arrow(location):
    program = (
        "import sys; from airflow_cloudfiles import cli; "
        f"cli.main(['schema', 'blame', '--state', {str(location)!r}]); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert {"pyspark", "pyarrow", "airflow"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("action", ["list", "show", "diff", "blame"])
def test_a_place_without_a_schema_is_an_error(tmp_path, capsys, action):
    assert schema(action, tmp_path / "nowhere") == 1
    assert "There is no schema in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_name_with_a_dot_cannot_be_taken_for_a_path(tmp_path, capsys):
    log = open_log(open_store(str(tmp_path)))
    text, inner = {"nullable": True, "metadata": {}, "type": "string"}, []
    for number in range(2):
        inner.append(text | {"name": f"c.{number}"})
        struct = {"type": "struct", "fields": list(inner)}
        fields = [*inner, text | {"name": "a`b", "type": struct}]
        reason = {"change": "addNewColumns", "fields": ["c.1"], "file": "file:///in/1.json"}
        columns = {"type": "struct", "fields": fields}
        none = {"type": "struct", "fields": []}
        assert append_entry(log, SchemaEntry(number, "", "file:///in", reason, None, columns, none))
    assert schema("list", tmp_path) == 0
    assert "new: `c.1`" in capsys.readouterr().out
    assert schema("show", tmp_path) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == [
        "  `c.0`: string",
        "  `c.1`: string",
        "  `a``b`: struct<`c.0`:string,`c.1`:string>",
    ]
    assert schema("diff", tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [
        "+  `a``b`.`c.1`  string",
        "+  `c.1`         string",
    ]
    assert schema("blame", tmp_path, "--json") == 0
    blamed = {each["path"]: each["file"] for each in json.loads(capsys.readouterr().out)}
    assert blamed["`c.1`"] == "file:///in/1.json"
    assert "`a``b`.`c.0`" in blamed


@pytest.fixture
def proposed(location) -> Path:
    """The same log, with a change that waits."""
    store = open_store(str(location))
    entry = read_entry(open_log(store), 1)
    fields = [*entry.data_schema["fields"], {**entry.data_schema["fields"][0], "name": "new"}]
    change = ProposedChange("added", "new", None, "string", "file:///x/\x1b.json", ('"v"',))
    propose(
        store,
        Proposal(
            1,
            "",
            entry.source,
            "somebody",
            (change,),
            {"change": "addNewColumns", "fields": ["new"]},
            {"type": "struct", "fields": fields},
            entry.partition_schema,
        ),
    )
    return location


def test_a_change_that_waits_is_shown_with_its_file_and_values(proposed, capsys):
    assert schema("proposed", proposed) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("proposal 1, 20")
    assert rest == ["  new string added", r"    in file:///x/\x1b.json", '    such as "v"']
    assert schema("proposed", proposed, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["proposal"], told["refused"], told["changes"][0]["samples"]) == (1, None, ['"v"'])


def test_a_change_is_accepted_with_other_types(proposed, capsys):
    assert schema("accept", proposed, "--hints", "new INT", "--proposal", "1") == 0
    assert "Version 2 is written: proposal 1 is accepted." in capsys.readouterr().out
    entry = read_entry(open_log(open_store(str(proposed))), 2)
    assert paths_of(entry.data_schema)["new"] == "int"
    assert schema("list", proposed) == 0
    assert "new: new; proposal 1" in capsys.readouterr().out.splitlines()[-1]
    assert schema("proposed", proposed) == 0
    assert capsys.readouterr().out == "no change of the schema waits\n"
    assert schema("refuse", proposed, "--proposal", "1") == 1
    assert "was decided meanwhile: schema version 2" in capsys.readouterr().err


def test_a_change_is_refused_and_rescued_after_all(proposed, capsys):
    assert schema("refuse", proposed, "--note", "a typo") == 0
    assert schema("proposed", proposed) == 0
    refused = capsys.readouterr().out.splitlines()[2]
    assert refused.startswith("refused by ")
    assert refused.endswith(": a typo")
    assert schema("rescue", proposed) == 0
    assert "proposal 1 is rescued" in capsys.readouterr().out
    assert schema("list", proposed) == 0
    assert "stay rescued: new; proposal 1" in capsys.readouterr().out.splitlines()[-1]
    assert read_entry(open_log(open_store(str(proposed))), 3).stay_rescued == ("new",)
