"""What somebody in a notebook does with what README says to install for it."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from tests.support.landing import drop, run, stream

pytestmark = pytest.mark.spark


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
