"""One Spark session for all tests of a process (`spark`)."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.errors import SparkVersionError
from airflow_cloudfiles.engine.job.jvm import FOLDER as JVM_FOLDER
from airflow_cloudfiles.engine.job.jvm import Jvm
from airflow_cloudfiles.engine.spark.preload import JVM_ARCHIVE
from tests.support.stop_spark import stop_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for some minutes is best off with its quick compiler and simplest collector."""
_ENDING: list[Jvm] = []


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local Spark with our data source registered, for the whole run.

    Two cores, two shuffle partitions and one gigabyte are enough for any test here. A streaming
    query that a test leaves running is stopped by `no_query_is_left_running`.

    Its JVM starts as that of a local run, and its Python processes as for a user's `readStream`.
    """
    from pyspark.sql import SparkSession

    import airflow_cloudfiles

    root = tmp_path_factory.mktemp("spark")
    # Spark's Python processes have the environment of its JVM: a later change would not reach them.
    os.environ["PYICEBERG_HOME"] = str(root)
    conf = {
        "spark.app.name": "tests",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{FAST_START} -Dderby.system.home={root / 'derby'}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(root / "local"),
        "spark.master": "local[2]",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointLocation": str(root / "checkpoints"),
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
    }
    os.environ.update(dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable))
    # The classes of a run, if they are kept already: this JVM would keep its own, but late.
    are_kept = any(Path(os.environ[JVM_FOLDER]).glob("*.jsa"))
    jvm = Jvm(root, {**conf, JVM_ARCHIVE: str(are_kept).lower()})
    jvm.connect()
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # What else a test starts has a JVM of its own.
    jvm.forget()
    session.sparkContext.setLogLevel("FATAL")
    with contextlib.suppress(SparkVersionError):
        # Tests of jobs, which do without, run with an older Spark, too.
        airflow_cloudfiles.register(session)
    yield session
    stop_spark(session, jvm._process.kill)
    # It ends with this process, as PySpark's own does: Py4J still sends to it.
    _ENDING.append(jvm)


@contextlib.contextmanager
def with_variables(spark: SparkSession, variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process and every Python process of the session some environment variables."""
    import airflow_cloudfiles

    context = spark.sparkContext
    before = dict(context.environment)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
            context.environment[name] = value
        airflow_cloudfiles.register(spark)  # Spark keeps the environment of this moment
        try:
            yield
        finally:
            context.environment.clear()
            context.environment.update(before)
            airflow_cloudfiles.register(spark)
