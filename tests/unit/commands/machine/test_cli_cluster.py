"""`cloudfiles cluster` writes what is to be submitted, and nothing secret."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from airflow_cloudfiles import cli

FLAG = re.compile(r"--[a-z][a-z-]+")
STREAM = ["--source", "/in", "--format", "json", "--target", "/table", "--run-id", "r1"]
KINDS = {
    "kubernetes": ["--master", "k8s://https://h", "--image", "i:1"],
    "yarn": ["--python", "/opt/env/bin/python"],
    "standalone": ["--master", "spark://h:7077", "--python", "/opt/env/bin/python"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_is_written_and_the_state_is_left_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ["--checkpoint-location", str(tmp_path / "state")]
    more = ["--executors", "3", "--conf", "spark.speculation=true", "--env", "AWS_REGION=x"]
    assert cli.main(["cluster", kind, *KINDS[kind], *STREAM, *state, *more]) == 0
    text = capsys.readouterr().out
    assert "exec spark-submit" in text
    assert '"run_id": "r1"' in text
    assert not (tmp_path / "state").exists()
    assert cli.main(["cluster", kind, *KINDS[kind], *STREAM, *state, *more, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    conf = written["spark_conf"]
    assert conf["spark.speculation"] == "true"
    assert conf["spark.executorEnv.AWS_REGION"] == "x"
    assert conf.get("spark.executor.instances", conf.get("spark.cores.max")) == "3"
    assert f"file://{tmp_path}/state" in written["command"]


def test_with_a_folder_the_run_can_be_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, folder = tmp_path / "state", tmp_path / "out"
    given = [*STREAM, "--checkpoint-location", str(state), "--output", str(folder)]
    secrets = ["--secret-env", "AWS_SECRET_ACCESS_KEY=landing:key", "--secret-files", "gcp=/etc/g"]
    assert cli.main(["cluster", "kubernetes", *KINDS["kubernetes"], *given, *secrets]) == 0
    assert str(folder / "submit.sh") in capsys.readouterr().out
    assert (state / "_runs" / "r1.json").is_file()
    script = (folder / "submit.sh").read_text()
    assert "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=landing:key" in script


def test_a_secret_in_place_of_its_name_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*STREAM, "--checkpoint-location", "/state", "--secret-env", "AWS_KEY=hunter2"]
    with pytest.raises(SystemExit):
        cli.main(["cluster", "kubernetes", *KINDS["kubernetes"], *given])
    assert "hunter2" not in capsys.readouterr().err
    given = [*STREAM, "--checkpoint-location", "/state", "--env", "AWS_SESSION_TOKEN=hunter2"]
    assert cli.main(["cluster", "yarn", *KINDS["yarn"], *given]) == 2
    assert "hunter2" not in capsys.readouterr().err


def test_the_commands_of_the_page_write_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repository: Path
) -> None:
    page = (repository / "docs" / "how-to" / "run-on-a-cluster.md").read_text()
    blocks = re.findall(r"```sh\n(cloudfiles cluster .*?)```", page, re.DOTALL)
    assert len(blocks) == len(KINDS)
    for block in blocks:
        words = shlex.split(block.replace("\\\n", " "))[1:]
        if "--output" in words:  # which would write into the state
            del words[words.index("--output") : words.index("--output") + 2]
        assert cli.main(words) == 0
        assert "exec spark-submit" in capsys.readouterr().out
    told = page[page.index("## How executors get credentials") : page.index("## Without Airflow")]
    assert set(FLAG.findall(told)) <= set(FLAG.findall(_help(capsys)))


def _help(capsys: pytest.CaptureFixture[str]) -> str:
    """The arguments of every kind of cluster."""
    for kind in KINDS:
        with pytest.raises(SystemExit):
            cli.main(["cluster", kind, "--help"])
    return capsys.readouterr().out
