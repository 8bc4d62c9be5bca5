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
DIMENSIONS = ROOT / "docs" / "how-to" / "slowly-changing-dimensions.md"
COUNT = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).create()
found = [[list(row) for row in spark.sql(each).collect()] for each in sys.argv[2:]]
print(json.dumps([sorted(each, key=str) for each in found], default=str))
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
    return _project(PAGE, tmp_path)


def _project(page: Path, folder: Path, definitions: int = 0) -> Path:
    project = folder / "project"
    project.mkdir()
    [spec] = [block.code for block in blocks(page) if block.language == "yaml"]
    code = [block.code for block in blocks(page) if block.language == "py"][definitions]
    for name, text in (("spark-pipeline.yml", spec), ("definitions.py", code)):
        here = re.sub(r"/data/\w+", str(folder), text)
        (project / name).write_text(here, encoding="utf-8")
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


def _tables(server: ConnectServer, project: Path, *statements: str) -> list[list[list[object]]]:
    program = project / "count.py"
    program.write_text(COUNT)
    ended = subprocess.run(
        [sys.executable, program, server.remote, *statements],
        capture_output=True,
        text=True,
        check=False,
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
    bronze, by_kind = _tables(server, pipeline, "TABLE bronze", "TABLE by_kind")
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


def _change(number: int, day: int, city: str | None, op: str = "U") -> dict[str, object]:
    at = f"2026-01-0{day}T00:00:00Z"
    return {"id": number, "name": f"n{number}", "city": city, "op": op, "at": at}


def test_changes_become_both_types_of_slowly_changing_dimensions(
    server: ConnectServer, tmp_path: Path
) -> None:
    project = _project(DIMENSIONS, tmp_path)
    landing = tmp_path / "landing"
    drop(landing, "1.json", [_change(1, 1, "Oslo"), _change(2, 1, "Rome"), _change(1, 5, "Bonn")])
    ended = _run(server, project)
    assert _completed(ended), ended.stdout + ended.stderr[-3000:]
    late = _change(1, 3, "Lima")
    drop(landing, "2.json", [late, _change(2, 4, None, "D"), _change(3, 2, "Wien")])
    ended = _run(server, project)
    assert _completed(ended), ended.stdout + ended.stderr[-3000:]
    now = {row["id"]: row["city"] for row in rows(tmp_path / "table")}
    assert now == {1: "Bonn", 3: "Wien"}
    [view] = [block.code for block in blocks(DIMENSIONS) if block.language == "sql"]
    _, history = _tables(server, project, view, "TABLE customers_history")
    days = [
        (number, city, *(each and str(each)[:10] for each in times))
        for number, _, city, *times in history
    ]
    assert days == [
        (1, "Bonn", "2026-01-05", None),
        (1, "Lima", "2026-01-03", "2026-01-05"),
        (1, "Oslo", "2026-01-01", "2026-01-03"),
        (2, "Rome", "2026-01-01", "2026-01-04"),
        (3, "Wien", "2026-01-02", None),
    ]


def test_a_flow_of_auto_cdc_needs_a_target_that_sparks_own_formats_are_not(
    server: ConnectServer, tmp_path: Path
) -> None:
    project = _project(DIMENSIONS, tmp_path, definitions=1)
    drop(tmp_path / "landing", "1.json", [_change(1, 1, "Oslo")])
    ended = _run(server, project)
    assert not _completed(ended)
    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in ended.stdout + ended.stderr
