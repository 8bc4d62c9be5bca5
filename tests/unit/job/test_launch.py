"""A run is specified, started, followed and ended."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    IncompatibleStateError,
    OptionError,
    RunFailedError,
    StateError,
    UnknownFieldException,
    to_record,
)
from airflow_cloudfiles.engine.job import run as job_run
from airflow_cloudfiles.engine.job.__main__ import main
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, SparkSubmit, launch
from airflow_cloudfiles.engine.job.spec import BESIDE, SPEC
from airflow_cloudfiles.engine.spark.preload import FORKABLE
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.small_objects import seal


def test_a_job_specification_survives_its_file() -> None:
    spec = JobSpec(
        kind="ingest",
        source="/in/ä b%+",
        format="json",
        checkpoint_location="/state",
        target="/t",
        run_id="r.1",
        options={"cloudFiles.maxFilesPerTrigger": "5"},
        batch={"last_entry": 3},
    )
    assert JobSpec.from_json(spec.to_json()) == spec
    newer = json.dumps({**json.loads(spec.to_json()), "version": 2})
    with pytest.raises(IncompatibleStateError, match=r"_runs/r.1.json .*version 2.*same version"):
        JobSpec.from_json(newer, "_runs/r.1.json")


@pytest.mark.parametrize("run_id", ["", "../x", "a b", "a/b", "x" * 300])
def test_a_run_id_cannot_leave_its_folder(run_id: str) -> None:
    with pytest.raises(OptionError, match="run_id"):
        JobSpec(kind="infer", source="/in", format="json", checkpoint_location="/s", run_id=run_id)


def test_arguments_and_options_may_not_contradict_each_other() -> None:
    spec = JobSpec(
        kind="infer",
        source="/in",
        format="json",
        checkpoint_location="/state",
        run_id="r",
        options={"cloudFiles.schemaLocation": "/elsewhere"},
    )
    with pytest.raises(OptionError, match="schemaLocation"):
        spec.source_options()


class _Script:
    """Runs a Python text in the place of a Spark driver."""

    def __init__(self, text: str) -> None:
        self._text = text

    def command(self, state: str, run_id: str) -> list[str]:
        return [sys.executable, "-c", self._text, state, run_id]

    def environment(self) -> dict[str, str]:
        return {}


def _spec(folder: Path) -> JobSpec:
    return JobSpec(
        kind="infer",
        source=str(folder),
        format="json",
        checkpoint_location=str(folder / "state"),
        run_id="r",
    )


def test_a_driver_that_ends_without_a_report_is_reported_with_its_last_lines(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    script = _Script("print('so far'); raise SystemExit(7)")
    run = launch(_spec(tmp_path), script, on_log=lines.append)
    with pytest.raises(RunFailedError, match=r"exit code 7(.|\n)*so far") as caught:
        run.wait()
    assert caught.value.is_retryable
    assert lines == ["so far"]


def test_the_error_of_a_report_is_raised_as_itself(tmp_path: Path) -> None:
    error = UnknownFieldException.of({"a": 1}, file="f", retry=True)
    report = {"outcome": "failed", "error": to_record(error)}
    text = (
        "import sys, pathlib\n"
        "folder = pathlib.Path(sys.argv[1].removeprefix('file://'), '_reports')\n"
        "folder.mkdir(parents=True)\n"
        f"(folder / 'r.json').write_bytes({seal(report)!r})\n"
    )
    with pytest.raises(UnknownFieldException) as caught:
        launch(_spec(tmp_path), _Script(text), on_log=print).wait()
    assert caught.value.fields == {"a": 1}
    assert caught.value.is_retryable


def test_specification_and_report_of_a_driver_here_need_not_be_read_from_the_state(
    tmp_path: Path,
) -> None:
    text = (
        "import json, os, pathlib\n"
        "folder = pathlib.Path(os.environ['CLOUDFILES_RUN_FOLDER'])\n"
        "spec = json.loads((folder / 'spec.json').read_text())\n"
        "report = {'outcome': 'succeeded', 'run_id': spec['run_id']}\n"
        "(folder / 'report.json').write_text(json.dumps(report))\n"
        "print(oct(folder.stat().st_mode & 0o777), folder)\n"
    )
    lines: list[str] = []
    run = launch(_spec(tmp_path), _Script(text), on_log=lines.append)
    assert run.wait() == {"outcome": "succeeded", "run_id": "r"}
    assert (tmp_path / "state" / "_runs" / "r.json").exists(), "for others"
    mode, folder = lines[0].split()
    assert mode == "0o700"
    assert not Path(folder).exists()


def test_a_driver_takes_its_specification_from_whoever_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the state has another one; a driver on another machine would take that."""
    spec = _spec(tmp_path)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / SPEC).write_text(replace(spec, format="csv").to_json())
    LocalStore((tmp_path / "state").as_uri()).put(spec.spec_key, spec.sealed())
    seen: list[JobSpec] = []

    def run(spec: JobSpec, _: object) -> dict[str, str]:
        seen.append(spec)
        return {"outcome": "succeeded"}

    monkeypatch.setattr(job_run, "run", run)
    arguments = ["job", spec.checkpoint_location, spec.run_id]
    monkeypatch.setenv(BESIDE, str(tmp_path / "beside"))
    assert main(arguments) == main(arguments) == 0
    assert [each.format for each in seen] == ["csv", "json"], "it is there once"


def test_a_checkpoint_location_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StateError, match=r"state.*cannot be read or written") as caught:
        launch(_spec(tmp_path), _Script("raise SystemExit(1)"), on_log=print)
    assert not caught.value.is_retryable


def test_a_killed_run_is_reported(tmp_path: Path) -> None:
    started: list[str] = []
    text = "import time; print('started', flush=True); time.sleep(600)"

    def kill_at_first(line: str) -> None:
        started.append(line)
        run.kill()

    run = launch(_spec(tmp_path), _Script(text), on_log=kill_at_first)
    with pytest.raises(RunFailedError, match="was killed"):
        run.wait()
    assert started == ["started"]
    run.kill()


def test_a_submission_names_no_option_of_the_job_on_its_command_line() -> None:
    how = SparkSubmit(
        master="spark://h:7077",
        binary="/opt/spark/bin/spark-submit",
        conf={"spark.executor.memory": "1g"},
        packages=["g:a:1"],
        files=["f.txt"],
        queue="q",
    )
    command = how.command("file:///state", "r1")
    assert command[:3] == ["/opt/spark/bin/spark-submit", "--master", "spark://h:7077"]
    assert command[-2:] == ["file:///state", "r1"]
    assert command[7:9] == ["--packages", "g:a:1"]
    assert "spark.executor.memory=1g" in command
    mine = SparkSubmit(master="yarn", conf={"spark.ui.enabled": "true"}).command("s", "r")
    assert [word for word in mine if word.startswith("spark.ui.enabled")] == [
        "spark.ui.enabled=true"
    ]
    with pytest.raises(OptionError, match="deploy_mode"):
        SparkSubmit(master="yarn", deploy_mode="clinet").command("s", "r")


@pytest.mark.parametrize(
    "key", ["spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword", "fs.s3a.access.key"]
)
def test_a_credential_in_spark_configuration_is_refused_and_not_repeated(key: str) -> None:
    for build in (
        lambda: JobSpec(
            kind="infer",
            source="/in",
            format="json",
            checkpoint_location="/s",
            run_id="r",
            spark_conf={key: "hunter2"},
        ),
        lambda: SparkSubmit(master="yarn", conf={key: "hunter2"}),
    ):
        with pytest.raises(OptionError, match=key.replace(".", r"\.")) as caught:
            build()
        assert "hunter2" not in str(caught.value)


def test_memory_and_master_reach_a_local_jvm() -> None:
    env = LocalSpark(master="local[3]", driver_memory="2g").environment()
    said = env["PYSPARK_SUBMIT_ARGS"]
    assert said.startswith("--master 'local[3]' ")
    assert said.endswith(" --driver-memory 2g pyspark-shell")
    assert env["PYSPARK_PYTHON"] == sys.executable
    # So that the driver has one thread when it forks, and all its forks hash alike.
    assert env.items() >= FORKABLE.items()
