"""What somebody in a notebook does with what README says to install for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from tests.support.landing import drop, run, stream
from tests.support.shared_spark import FAST_START

pytestmark = pytest.mark.spark

UNREGISTERED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
source, state = sys.argv[1:]
reader = spark.read.format("CLOUDFILES").option("cloudFiles.format", "json")
print(sorted(row.id for row in reader.load(source).collect()))
reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
try:
    writer = reader.load(source).writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", state).start().awaitTermination()
except Exception as error:
    print("airflow_cloudfiles.register(spark)" in str(error))
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


def test_the_extra_for_notebooks_has_the_pandas_that_pyspark_asks_for(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    named = [Requirement(each) for each in project["optional-dependencies"]["notebook"]]
    [pandas] = [each for each in named if each.name == "pandas"]
    assert version("pandas") in pandas.specifier
    assert "notebook]" in (repository / "README.md").read_text()
    require_minimum_pandas_version()


@pytest.mark.slow
def test_a_session_that_is_not_registered_finds_the_source_and_a_stream_says_what_is_missing(
    tmp_path: Path,
) -> None:
    drop(tmp_path / "in", "a.json", [{"id": 1}, {"id": 2}])
    command = [sys.executable, "-c", UNREGISTERED, str(tmp_path / "in"), str(tmp_path / "state")]
    submitted = f"--driver-java-options '{FAST_START}' pyspark-shell"
    done = subprocess.run(
        command,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": submitted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["['1', '2']", "True"], done.stderr[-3000:]
