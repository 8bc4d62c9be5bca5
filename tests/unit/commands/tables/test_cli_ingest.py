"""`cloudfiles ingest` takes a Spark of its own, or a server whose token is in no command line."""

from __future__ import annotations

import argparse
from datetime import timedelta

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands.running.job import _Lines
from airflow_cloudfiles.commands.tables.ingest import _how
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.launch import LocalSpark, SparkConnect

STREAM = (
    *("ingest", "--source", "/in", "--format", "json"),
    *("--checkpoint-location", "/state", "--target", "/table"),
)


def _given(*more: str) -> argparse.Namespace:
    return cli.parser().parse_args([*STREAM, *more])


def test_an_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert _how(_given()) == LocalSpark()
    monkeypatch.setenv("SPARK_REMOTE", "sc://host/;token=secret")
    assert _how(_given()) == SparkConnect("sc://host/;token=secret")
    assert _how(_given("--spark-remote", "sc://other/;user_id=me")) == SparkConnect(
        "sc://other/;user_id=me"
    )
    assert _how(_given("--master", "local[2]")) == LocalSpark(master="local[2]")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--spark-remote", "sc://host/;token=secret"), "SPARK_REMOTE"),
        (("--spark-remote", "host:15002"), "begins with sc://"),
        (("--master", "yarn"), "--master must be local"),
        (("--spark-remote", "sc://host", "--option", "cloudFiles.formats=x"), "cloudFiles.formats"),
    ],
)
def test_what_is_asked_wrongly_is_refused_in_a_sentence(
    tmp_path, capsys, monkeypatch, more, message
):
    monkeypatch.chdir(tmp_path)
    given = [word.replace("/state", str(tmp_path / "state")) for word in STREAM]
    assert cli.main([*given, "--quiet", *more]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "secret" not in said


def test_the_spark_of_the_command_is_kept_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://of-the-environment")
    ten = timedelta(minutes=10)
    assert _how(_given("--keep-warm", "10 minutes")) == LocalSpark(keep_warm=ten)
    kept = _given("--keep-warm", "10 minutes", "--master", "local[2]")
    assert _how(kept) == LocalSpark(master="local[2]", keep_warm=ten)
    with pytest.raises(OptionError, match="leave out --spark-remote"):
        _how(_given("--keep-warm", "10 minutes", "--spark-remote", "sc://host"))


def test_a_time_that_is_none_is_said_before_anything_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        _given("--keep-warm", "soon")
    assert "--keep-warm must be an interval" in capsys.readouterr().err


def test_what_every_spark_prints_at_its_start_is_only_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = _Lines()
    with caplog.at_level("DEBUG", logger="airflow_cloudfiles"):
        lines.add(
            "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties"
        )
        lines.add("26/11/24 11:38:41 WARN TaskSetManager: Lost task 0.0")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"]
