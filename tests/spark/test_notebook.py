"""What somebody in a notebook does with what README says to install for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

import airflow_cloudfiles
from airflow_cloudfiles import Options
from airflow_cloudfiles.engine.errors import OptionError, StateLockedError, TargetNotDeltaError
from tests.support.landing import drop, rows, run, stream
from tests.support.shared_spark import FAST_START

pytestmark = pytest.mark.spark

SESSION = """
import sys
from pathlib import Path
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions
import airflow_cloudfiles

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
root = Path(sys.argv[1])
reader = spark.read.format("CLOUDFILES").option("cloudFiles.format", "json")
print(sorted(row.id for row in reader.load(str(root / "in")).collect()))
reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
try:
    writer = reader.load(str(root / "in")).writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "noop")).start().awaitTermination()
except Exception as error:
    print("airflow_cloudfiles.register(spark)" in str(error))

for _ in range(2):
    airflow_cloudfiles.register(spark)

def write(frame, way, sink):
    writer = frame.writeStream.format(sink).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(root / way))
    try:
        writer.start(None if sink == "noop" else str(root / way / "table")).awaitTermination()
    except StreamingQueryException:
        print("=== caught", file=sys.stderr, flush=True)

def ingest(way, change, records):
    source = root / way / "in"
    source.mkdir(parents=True, exist_ok=True)
    (source / f"{len(records)}.json").write_text(records)
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
    reader = reader.option("cloudFiles.schemaLocation", str(root / way))
    write(change(reader.load(str(source))), way, "deltalake")

ways = {"moved": lambda frame: frame, "passed": lambda frame: frame.where("id > 0")}
for way, change in ways.items():
    ingest(way, change, '{"id": 1}')
    print(f"=== {way}, new", file=sys.stderr, flush=True)
    ingest(way, change, '{"id": 1, "more": 2}')
    print(f"=== {way}, again", file=sys.stderr, flush=True)
    ingest(way, change, '{"id": 1, "more": 23}')
print("=== of others", file=sys.stderr, flush=True)

@functions.udf
def fail(value):
    raise ValueError("of others")

write(spark.readStream.schema("id INT").json(str(root / "in")).select(fail("id")), "json", "noop")
print("=== end", file=sys.stderr, flush=True)
"""


def test_what_was_ingested_is_shown_as_a_frame_of_pandas(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, table = (tmp_path / name for name in ("in", "state", "table"))
    drop(source, "a.json", [{"id": 1}, {"id": 2}])
    assert run(stream(spark, source, state), state, table).exception() is None
    ingested = spark.read.format("deltalake").load(str(table)).toPandas()
    files = spark.read.format("cloudFiles").option("cloudFiles.format", "json").load(str(source))
    assert sorted(ingested["id"]) == sorted(files.toPandas()["id"]) == ["1", "2"]


def test_spark_starts_no_python_to_find_what_is_registered(spark: SparkSession) -> None:
    sources: Any = spark._jvm.org.apache.spark.sql.execution.datasources  # type: ignore[union-attr]
    to_be_found = getattr(getattr(sources, "DataSourceManager$"), "MODULE$").dataSourceBuilders()
    assert to_be_found.get().size() == 1
    pickled = to_be_found.get().apply("cloudfiles").dataSourceCls().command()
    # What Spark's Python finds is another class, `DefaultSource`.
    assert b"CloudFilesDataSource" in bytes(pickled.apply(at) % 256 for at in range(pickled.size()))


def test_another_session_finds_the_source_and_is_registered(
    spark: SparkSession, tmp_path: Path
) -> None:
    drop(tmp_path / "in", "a.json", [{"id": 1}, {"id": 2}])
    other = spark.newSession()
    for _ in range(2):
        reader = other.read.format("cloudFiles").option("cloudFiles.format", "json")
        assert reader.load(str(tmp_path / "in")).count() == 2
        airflow_cloudfiles.register(other)
    with pytest.raises(TargetNotDeltaError):
        other.read.format("deltalake").load(str(tmp_path / "in"))


def test_sources_send_this_process_something_only_for_a_profiler(spark: SparkSession) -> None:
    def accumulator(session: Any) -> object:
        sources = session._jsparkSession.sessionState().dataSourceManager()
        return sources.lookupDataSource("cloudfiles").dataSourceCls().accumulator()

    assert accumulator(spark) is None
    other = spark.newSession()
    other.conf.set("spark.sql.pyspark.dataSource.profiler", "perf")
    airflow_cloudfiles.register(other)
    assert accumulator(other) is not None


def test_the_extra_for_notebooks_has_the_pandas_that_pyspark_asks_for(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    named = [Requirement(each) for each in project["optional-dependencies"]["notebook"]]
    [pandas] = [each for each in named if each.name == "pandas"]
    assert version("pandas") in pandas.specifier
    assert "notebook]" in (repository / "README.md").read_text()
    require_minimum_pandas_version()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    root = tmp_path_factory.mktemp("session")
    drop(root / "in", "a.json", [{"id": 1}, {"id": 2}])
    submitted = f"--driver-java-options '{FAST_START}' pyspark-shell"
    return subprocess.run(
        [sys.executable, "-c", SESSION, str(root)],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": submitted},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_session_that_is_not_registered_finds_the_source_and_a_stream_says_what_is_missing(
    session: subprocess.CompletedProcess[str],
) -> None:
    assert session.stdout.splitlines() == ["['1', '2']", "True"], session.stderr[-3000:]


@pytest.mark.slow
def test_an_error_of_ours_is_a_line_of_spark_s_log_and_others_keep_their_stacks(
    session: subprocess.CompletedProcess[str],
) -> None:
    parts = dict(part.split("\n", 1) for part in session.stderr.split("=== ")[1:])
    assert session.stderr.count("=== caught") == 5
    said = {
        "moved, new": "Encountered unknown fields",
        "moved, again": "schema mismatch",
        "passed, new": "Encountered unknown fields",
        "passed, again": "schema mismatch",
    }
    for part, message in said.items():
        [last] = [line for line in parts[part].splitlines() if "MicroBatchExecution: " in line]
        assert message in last, parts[part]
        assert "\tat " not in parts[part]
        assert "Traceback" not in parts[part]
    assert "\tat org.apache.spark" in parts["of others"]
    assert "ValueError: of others" in parts["of others"]


def test_a_query_with_built_options_is_summed_up_from_its_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, table = (tmp_path / name for name in ("in", "state", "table"))
    drop(source, "a.json", [{"id": 1}, {"id": "x"}])
    options = Options.json().schema_location(state).schema_hints("id BIGINT")
    frame = spark.readStream.format("cloudFiles").options(**options).load(str(source))
    assert run(frame, state, table).exception() is None
    said = dict(airflow_cloudfiles.stream_summary(str(state)).lines())
    assert said["status"] == "ok"
    assert (said["files"], said["waits"]) == ("1 in 1 micro-batch", "0 files, 0 kB")
    assert (said["rows"], said["rescued"]) == ("2", "1 row")
    assert said["schema"] == "version 0, 1 column"


def test_a_query_starts_over_in_place_when_it_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, table, again = (tmp_path / name for name in ("in", "state", "table", "again"))
    drop(source, "a.json", [{"id": 1}])
    frame = stream(spark, source, state)
    assert run(frame, state, table).exception() is None
    query = frame.writeStream.format("deltalake").option("checkpointLocation", str(state))
    started = query.start(str(table))
    drop(source, "b.json", [{"id": 2}])
    started.processAllAvailable()
    with pytest.raises(StateLockedError):
        airflow_cloudfiles.start_over(str(state), target=str(again))
    started.stop()
    done = airflow_cloudfiles.start_over(str(state), target=str(again))
    assert (done.files, done.batches) == (2, 2)
    assert run(stream(spark, source, state), state, again).exception() is None
    assert sorted(row["id"] for row in rows(again)) == ["1", "2"]
    assert len(rows(table)) == 2


def test_a_relative_path_is_refused_where_the_notebook_has_changed_its_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(tmp_path / "in", "a.json", [{"id": 1}])
    monkeypatch.chdir(tmp_path)
    reader = spark.readStream.format("cloudFiles").options(**Options.json())
    with pytest.raises(OptionError, match=f"Give the whole path: '{tmp_path}/in'"):
        reader.load("in")
    frame = reader.option("cloudFiles.schemaLocation", f"{tmp_path}/state").load(f"{tmp_path}/in")
    for state, target in (("state", f"{tmp_path}/table"), (f"{tmp_path}/state", "table")):
        writer = frame.writeStream.format("deltalake").option("checkpointLocation", state)
        with pytest.raises(OptionError, match=r"in .* for this process, and in .* for Spark"):
            writer.start(target)
    assert [each.name for each in tmp_path.iterdir() if each.name != "state"] == ["in"]
