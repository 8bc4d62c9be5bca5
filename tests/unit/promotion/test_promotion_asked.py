"""A promotion is asked for from a shell, and its process tells how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.state.run_history import decode_report
from tests.support.promoted import Landed


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    (tmp_path / "landing").mkdir()
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land({"id": 1, "user": {"zip": "01"}, "price": 2}, {"id": 2, "price": "$3"})
    return landed


@pytest.mark.slow
def test_from_a_shell(landed: Landed, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--checkpoint-location", landed.state, "--target", landed.target]
    fields = ["--field", "user.zip", "--field", "price=DOUBLE"]
    options = ["--option", "cloudFiles.inferColumnTypes=true"]
    assert cli.main(["promote", "--json", *where, *fields, *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == {"user.zip": "string", "price": "double"}
    assert told["values"]["price"] == {"promoted": 1, "partly": 0, "unfit": 1, "occupied": 0}
    assert (told["rows"], told["schema_version"], told["outcome"]) == (1, 1, "succeeded")
    report = Path(told["report_uri"].removeprefix("file://"))
    assert decode_report(report.read_bytes(), name=report.name) == told
    assert [row["user"] for row in landed.rows()] == [{"zip": "01"}, None]
    assert cli.main(["promote", *where, "--field", "price=STRING"]) == 1
    assert capsys.readouterr().err.count("is a column of type double already") == 1
    assert cli.main(["promote", *where, "--field", "a,b"]) == 2
    with pytest.raises(SystemExit):
        cli.main(["promote", *where, "--field", "`a"])
    assert cli.main(["promote", *where[:1], landed.target, *where[2:], "--field", "a"]) == 1
    assert "no state in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a.b", ("a.b", None)),
        ("a=STRUCT<x: INT>", ("a", "STRUCT<x: INT>")),
        ("`a=b`.c", ("`a=b`.c", None)),
        ("`a=``b`=INT", ("`a=``b`", "INT")),
    ],
)
def test_a_field_is_read_with_its_type(text: str, field: tuple[str, str | None]) -> None:
    given = cli.parser().parse_args(
        ["promote", "--checkpoint-location", "s", "--target", "t", "--field", text]
    )
    assert given.fields == [field]


def test_a_process_that_is_killed_says_so_and_leaves_no_child(landed: Landed) -> None:
    spec = JobSpec(
        kind="promote",
        source=f"{landed.folder}/landing",
        format="json",
        checkpoint_location=landed.state,
        target=landed.target,
        promote={"price": "DOUBLE"},
        run_id="killed",
    )
    run = launch(spec, LocalPython(), on_log=lambda _: None)
    run.kill()
    with pytest.raises(Exception, match="before it wrote a report"):
        run.wait()
    with pytest.raises(OptionError, match="target is required to promote"):
        JobSpec(kind="promote", source="s", format="json", checkpoint_location="c", run_id="r")
