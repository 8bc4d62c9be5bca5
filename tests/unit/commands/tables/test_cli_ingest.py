"""`cloudfiles ingest` takes a Spark of its own, or a server whose token is in no command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands.tables.jobs import _how, _LogLines
from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark, SparkConnect

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


def test_the_engine_local_takes_nothing_that_is_for_spark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://of-the-environment")
    assert _how(_given("--engine", "local")) == LocalPython()
    with pytest.raises(SystemExit):
        _given("--engine", "local", "--master", "local[2]")
    assert "not allowed with argument --engine" in capsys.readouterr().err


@pytest.mark.slow
def test_without_spark_no_java_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state, table = (tmp_path / name for name in ("in", "state", "table"))
    stream = ["ingest", "--quiet", "--engine", "local", "--json", "--source", str(source)]
    stream += ["--checkpoint-location", str(state), "--target", str(table)]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    source.mkdir()
    for number in range(3):
        (source / f"{number}.json").write_text(json.dumps({"a": number}) + "\n")
    given = ["--option", "cloudFiles.maxFilesPerTrigger=2"]
    assert cli.main([*stream, "--format", "json", *given]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], report["rows"], report["batches"]) == (3, 3, 2)
    read = DeltaTable(str(table)).to_pyarrow_table()
    assert sorted(read["a"].to_pylist()) == ["0", "1", "2"]
    assert cli.main([*stream, "--format", "json", "--transform", "json:loads"]) == 2
    said = capsys.readouterr()
    assert "The engine local has no Spark, and cannot be used with transform" in said.out + said.err
    from_table = ["ingest", "--quiet", "--engine", "local", "--json", "--format", "delta"]
    from_table += ["--source", str(table), "--target", str(tmp_path / "silver")]
    assert cli.main([*from_table, "--checkpoint-location", str(state)]) == 1
    said = capsys.readouterr()
    assert "belongs to the source" in said.out + said.err
    assert cli.main([*from_table, "--checkpoint-location", str(tmp_path / "silver-state")]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3


def test_what_every_spark_prints_at_its_start_is_only_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = _LogLines()
    with caplog.at_level("DEBUG", logger="airflow_cloudfiles"):
        lines.add(
            "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties"
        )
        lines.add("26/11/24 11:38:41 WARN TaskSetManager: Lost task 0.0")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"]
