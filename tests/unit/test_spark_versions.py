"""What a Spark is too old for, found without importing it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import SparkVersionError
from airflow_cloudfiles.engine.spark_versions import (
    installed,
    require_for_jobs,
    require_for_queries,
)


@pytest.mark.parametrize("version", ["3.5.0", "3.5.6-amzn-2", "4.3.0", "10.0.0"])
def test_jobs_run_with_it(version: str) -> None:
    require_for_jobs(version)


@pytest.mark.parametrize("version", ["3.4.4", "3.4.1-amzn-2", "2.4.8"])
def test_jobs_do_not_run_with_it(version: str) -> None:
    with pytest.raises(SparkVersionError, match=f"PySpark {version} is too old: .*3.5 or later"):
        require_for_jobs(version)


@pytest.mark.parametrize(("version", "is_new"), [("4.1.4", False), ("4.2.0", True), ("5.0", True)])
def test_queries_need_a_newer_one(version: str, is_new: bool) -> None:
    if is_new:
        require_for_queries(version)
        return
    with pytest.raises(SparkVersionError, match=f"need Spark 4.2 or later, .*is Spark {version}"):
        require_for_queries(version)


def test_the_version_is_that_of_what_would_be_imported() -> None:
    code = "from airflow_cloudfiles.engine.spark_versions import installed; print(installed())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    import pyspark

    assert done.stdout.strip() == pyspark.__version__ == installed()


def test_a_spark_of_a_cluster_in_an_archive_is_found_and_is_not_called_damaged(
    tmp_path: Path,
) -> None:
    """EMR and others put `pyspark.zip` on the path, which no metadata goes with."""
    archive, home = tmp_path / "pyspark.zip", tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("pyspark/__init__.py", "")
        written.writestr("pyspark/version.py", '__version__: str = "3.5.6"\n')
    code = """
import importlib.metadata, sys
from airflow_cloudfiles.engine import spark_versions
from airflow_cloudfiles.engine.job import spark_command

def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.version = missing
spark_command.check_pyspark()
print(spark_versions.installed(), spark_command.spark_home())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive), "SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["3.5.6", str(home)], done.stderr


def test_without_a_pyspark_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert installed() is None
