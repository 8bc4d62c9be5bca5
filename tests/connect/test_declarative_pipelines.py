"""Spark Declarative Pipelines: cloudFiles fills a streaming table, a flow writes Delta."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.connect_server import ConnectServer
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = ROOT / "docs" / "how-to" / "declarative-pipelines.md"
COUNT = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).create()
found = [[list(row) for row in spark.table(name).collect()] for name in ("bronze", "by_kind")]
print(json.dumps([sorted(each, key=str) for each in found]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server with a catalog that lasts from one session to the next."""
    folder = tmp_path_factory.mktemp("pipelines")
    metastore = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    with ConnectServer(folder, conf=conf) as running:
        yield running


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """The project that the page has, below a folder of the test's."""
    project = tmp_path / "project"
    project.mkdir()
    found = {block.language: block.code for block in reversed(list(blocks(PAGE)))}
    for language, name in (("yaml", "spark-pipeline.yml"), ("py", "definitions.py")):
        text = found[language].replace("/data/orders", str(tmp_path))
        (project / name).write_text(text, encoding="utf-8")
    return project


def _run(server: ConnectServer, project: Path) -> subprocess.CompletedProcess[str]:
    spec = project / "spark-pipeline.yml"
    return subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", spec],
        env={**os.environ, "SPARK_REMOTE": server.remote},
        capture_output=True,
        text=True,
        check=False,
    )


def _completed(ended: subprocess.CompletedProcess[str]) -> bool:
    """Whether a run has come to its end; the exit code does not say so (Spark 4.3)."""
    return "Run is COMPLETED" in ended.stdout


def _tables(server: ConnectServer, project: Path) -> list[list[list[object]]]:
    program = project / "count.py"
    program.write_text(COUNT)
    ended = subprocess.run(
        [sys.executable, program, server.remote], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: list[list[list[object]]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_pipeline_fills_its_tables_and_the_sink_once_also_with_a_new_column(
    server: ConnectServer, pipeline: Path, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    drop(landing, "1.json", [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 3}])
    ended = _run(server, pipeline)
    assert _completed(ended), ended.stdout + ended.stderr[-3000:]
    drop(landing, "2.json", [{"id": 4, "kind": "a"}])
    ended = _run(server, pipeline)
    assert _completed(ended), ended.stdout + ended.stderr[-3000:]
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == ["1", "2", "4"]

    drop(landing, "3.json", [{"id": 5, "kind": "b", "color": "red"}])
    ended = _run(server, pipeline)
    assert not _completed(ended), "the run meets the new column, and a later one has it"
    assert re.search(r"UNKNOWN_FIELD_EXCEPTION|StaleSchemaError", ended.stdout + ended.stderr)
    ended = _run(server, pipeline)
    assert _completed(ended), ended.stdout + ended.stderr[-3000:]
    bronze, by_kind = _tables(server, pipeline)
    assert [row[0] for row in bronze] == ["1", "2", "3", "4", "5"]
    assert dict(map(tuple, by_kind)) == {"a": 2, "b": 2, None: 1}  # type: ignore[arg-type]
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == ["1", "2", "4", "5"]


def test_a_source_without_its_state_is_refused_when_the_flow_is_defined(
    server: ConnectServer, pipeline: Path
) -> None:
    definitions = pipeline / "definitions.py"
    text = re.sub(r"\n.*option\(\"checkpointLocation.*", "", definitions.read_text())
    definitions.write_text(text)
    ended = _run(server, pipeline)
    assert ended.returncode
    assert "needs .option('checkpointLocation', ...) on readStream" in ended.stderr
