"""The command line: what it prints, how it ends, and that it leaves Airflow and Spark alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands.outcome import Outcome, add_command, as_text
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def landing(tmp_path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.json").write_text('{"a":1}\n')
    return folder


def discover(landing: Path, *more: str) -> int:
    checkpoint = landing.parent / "checkpoint"
    where = ["--source", str(landing), "--checkpoint-location", str(checkpoint)]
    return cli.main(["discover", *where, *more])


def test_it_is_installed_under_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"cloudfiles": "airflow_cloudfiles.cli:main"}
    done = subprocess.run(
        [sys.executable, "-m", "airflow_cloudfiles.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("cloudfiles ")


@pytest.mark.slow
def test_it_imports_no_airflow_no_spark_and_no_cloud():
    unwanted = ("airflow", "pyspark", "pyarrow", "boto3", "google.cloud", "azure")
    program = "import sys, airflow_cloudfiles.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(unwanted).isdisjoint(done.stdout.split())


def test_help_says_where_credentials_come_from(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "never arguments" in text
    assert all(command in text for command in ("notifications", "discover", "state"))


def test_alone_it_prints_its_help(capsys):
    assert cli.main([]) == 0
    assert "notifications" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["unknown"],
        ["notifications"],
        ["notifications", "set-up", "--source", "s3://bucket"],
        ["notifications", "list"],
        ["notifications", "set-up", "--source", "s3://b", "--name", "n1", "--tag", "no-equals"],
    ],
)
def test_what_is_asked_wrongly_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_files_that_arrived_are_recorded_once(landing, capsys):
    assert discover(landing, "--json") == 0
    assert json.loads(capsys.readouterr().out)["new_files"] == 3
    (landing / "new.json").write_text("{}\n")
    assert discover(landing, "--full", "--json") == 0
    assert json.loads(capsys.readouterr().out)["new_files"] == 1
    assert discover(landing) == 0
    assert "new_files: 0" in capsys.readouterr().out


def test_options_of_the_stream_are_obeyed_and_checked(landing, capsys):
    assert discover(landing, "--json", "--option", "pathGlobFilter=1*") == 0
    assert json.loads(capsys.readouterr().out)["new_files"] == 1
    assert discover(landing, "--option", "cloudFiles.unknown=1") == 2
    assert "Unknown option" in capsys.readouterr().err


def test_what_cannot_be_done_ends_with_1_and_a_sentence(landing, capsys):
    assert discover(landing / "none") == 1
    said = capsys.readouterr().err
    assert "none" in said
    assert "Traceback" not in said


def test_a_state_is_told_and_not_touched(landing, capsys):  # B117
    discover(landing)
    checkpoint = landing.parent / "checkpoint"
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    capsys.readouterr()
    assert cli.main(["state", "--checkpoint-location", str(checkpoint), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["source"] == f"file://{landing}"
    assert (told["format"], told["entries"], told["files"]) == ("json", 1, 3)
    assert (told["committed_files"], told["outstanding_files"]) == (0, 3)
    assert told["found_by"] == {"listing": 3}
    assert told["plans"] == {}
    assert told["run_lock"] is None
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before


def test_a_state_tells_who_runs_on_it(landing, capsys):
    discover(landing)
    checkpoint = str(landing.parent / "checkpoint")
    with RunLock(open_store(checkpoint)):
        assert cli.main(["state", "--checkpoint-location", checkpoint]) == 0
        assert "which is running" in capsys.readouterr().out


def test_without_a_state_it_says_so(tmp_path, capsys):
    assert cli.main(["state", "--checkpoint-location", str(tmp_path / "nothing")]) == 1
    assert "There is no state" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_notifications_are_set_up_shown_and_torn_down(aws: Aws, monkeypatch, capsys):
    for key, value in to_environment(aws.access).items():
        monkeypatch.setenv(key, value)
    bucket = aws.bucket()
    name = f"cli-{uuid.uuid4().hex[:8]}"
    one = ["--source", f"{bucket}/in", "--name", name]
    assert cli.main(["notifications", "set-up", *one, "--dry-run"]) == 0
    assert f"would create    queue cloudfiles-{name}" in capsys.readouterr().out
    assert cli.main(["notifications", "set-up", *one, "--tag", "team=x", "--via", "sns"]) == 0
    ended = capsys.readouterr()
    assert "cloudFiles.useNotifications=true" in ended.out
    assert f"Created the queue cloudfiles-{name}" in ended.err
    assert cli.main(["notifications", "list", "--source", bucket, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["name"], told["is_complete"]) == (name, True)
    assert cli.main(["notifications", "list", "--cloud", "aws", "--quiet"]) == 0
    assert name in capsys.readouterr().out
    assert cli.main(["notifications", "tear-down", *one, "--quiet"]) == 0
    ended = capsys.readouterr()
    assert ended.err == ""
    assert ended.out.count("removed") == 5
    assert cli.main(["notifications", "list", "--source", bucket]) == 0
    assert capsys.readouterr().out == "Nothing was set up.\n"


def test_a_stream_with_the_options_of_a_set_up_learns_of_files(
    aws: Aws, monkeypatch, capsys, tmp_path
):
    for key, value in to_environment(aws.access).items():
        monkeypatch.setenv(key, value)
    bucket = aws.bucket()
    put = partial(aws.client("s3").put_object, Bucket=bucket.removeprefix("s3://"), Body=b"{}")
    put(Key="in/before.json")
    one = ["--source", f"{bucket}/in", "--name", f"cli-{uuid.uuid4().hex[:8]}"]
    assert cli.main(["notifications", "set-up", *one, "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    given = [f"--option={key}={value}" for key, value in options.items()]
    where = ["--source", f"{bucket}/in", "--checkpoint-location", str(tmp_path / "checkpoint")]
    found = []
    for key in ("in/new.json", "in/more.json"):
        put(Key=key)
        assert cli.main(["discover", *where, *given, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [each["new_files"] for each in found] == [2, 1]
    assert found[1]["found_by"] == {"notification": 1}
    assert found[1]["notifications"]["new"] == 1


def test_a_refusal_of_notifications_is_a_sentence(aws: Aws, monkeypatch, capsys):
    for key, value in to_environment(aws.access).items():
        monkeypatch.setenv(key, value)
    bucket = f"s3://none-{uuid.uuid4().hex}"
    where = ["notifications", "set-up", "--source", bucket]
    assert cli.main([*where, "--name", "Bad_Name"]) == 2
    assert "lower-case letters" in capsys.readouterr().err
    assert cli.main([*where, "--name", "good"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cloudfiles: ")
    assert "There is no bucket" in said


class Failing:
    """A command with a mistake in it."""

    @staticmethod
    def add_to(commands, shared) -> None:
        add_command(commands, "fail", Failing.run, help="fail", parents=[shared])

    @staticmethod
    def run(given) -> Outcome:
        raise KeyError("what the program did not think of")


def test_a_mistake_of_the_program_is_no_traceback_unless_asked_for(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "airflow_cloudfiles.commands.failing", Failing)
    monkeypatch.setattr(cli, "COMMANDS", {"fail": "failing"})
    assert cli.main(["fail"]) == 1
    said = capsys.readouterr().err
    assert "Unexpected KeyError" in said
    assert "Traceback" not in said
    assert cli.main(["fail", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_value_is_written_for_people():
    value = {"files": 1234567, "none": None, "is": True, "more": {"a": 1}, "list": ["x", "y"]}
    assert as_text({**value, "empty": {}}) == (
        "files: 1,234,567\nnone: none\nis: yes\nmore:\n  a: 1\nlist:\n  x\n  y\nempty: none"
    )


@pytest.mark.parametrize("end", ["\n", " "])
def test_a_location_with_a_blank_end_is_no_other_state(tmp_path, capsys, end):
    assert cli.main(["state", "--checkpoint-location", f"{tmp_path}{end}"]) == cli.ASKED_WRONGLY
    assert "begins or ends with a blank or a line end" in capsys.readouterr().err
    arguments = ["--source", f"{tmp_path}{end}", "--checkpoint-location", f"{tmp_path}/state"]
    assert cli.main(["discover", *arguments]) != 0
    assert "begins or ends with a blank or a line end" in capsys.readouterr().err
