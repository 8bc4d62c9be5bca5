"""Spark with Hadoop's own client of S3, S3A, in a process of its own.

`make other-servers` brings its jars. What a test asks of it is a function of this module: it is
called in that process, with the session.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import pytest

from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.emulators.aws import REGION, Aws
from tests.support.emulators.other_servers import HOME

_JARS = (HOME / "s3a", HOME / "committers")
_PROTOCOL = "org.apache.spark.internal.io.cloud"
COMMITTERS = ("file", "directory", "partitioned", "magic")
"""How S3A brings what tasks have written to its place: by copies, or by uploads that are completed
when the job commits."""

_spark: Any = None


class S3aSpark:
    """A session; a context, at whose end its process ends.

    Args:
        server: What S3A reaches.
        folder: For what it writes to disk.
    """

    def __init__(self, server: Aws, folder: Path) -> None:
        if not all(folder.exists() for folder in _JARS):
            pytest.skip("Hadoop's S3A is not here: `make other-servers` brings it")
        environment = {
            **to_environment(server.access),
            "JAVA_HOME": find_java(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._pool = ProcessPoolExecutor(
            1, get_context("spawn"), _start, (server.endpoint, str(folder), environment)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.submit(_stop).result()
        self._pool.shutdown()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with the session and what else is given."""
        return self._pool.submit(_call, function, *arguments).result()


def names(spark: Any, location: str) -> list[str]:
    """The files below a location, as S3A names them."""
    jvm = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(location)
    found = root.getFileSystem(spark._jsc.hadoopConfiguration()).listFiles(root, True)
    paths = []
    while found.hasNext():
        paths.append(found.next().getPath().toUri().getPath())
    return sorted(paths)


def read_parquet(spark: Any, files: list[str], columns: list[str]) -> list[tuple[Any, ...]]:
    """The rows of Parquet files."""
    return sorted(tuple(row) for row in spark.read.parquet(*files).select(*columns).collect())


def write_json(spark: Any, location: str, start: int, end: int, committer: str) -> None:
    """Append numbers as JSON, in four files, with one of S3A's committers."""
    spark.conf.set("fs.s3a.committer.name", committer)
    rows = spark.range(start, end, 1, 4)
    writer = rows.selectExpr("id AS a", "id % 2 AS half").write.mode("append")
    if committer == "partitioned":  # it has no other use
        writer = writer.partitionBy("half")
    writer.option("fs.s3a.committer.name", committer).json(location)


def stream(spark: Any, source: str, state: str, target: str) -> tuple[int, int]:
    """Ingest what is there by a plain query; how many rows it read, in which last batch."""
    frame = (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .option("cloudFiles.schemaLocation", state)
        .load(source)
    )
    query = (
        frame.writeStream.format("deltalake")
        .option("checkpointLocation", state)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    progress = query.recentProgress
    return sum(each.numInputRows for each in progress), progress[-1].batchId if progress else -1


def _start(endpoint: str, folder: str, environment: dict[str, str]) -> None:
    global _spark  # noqa: PLW0603 - the process has one
    os.environ.update(environment)
    from pyspark.sql import SparkSession

    s3a = {
        "access.key": "test",
        "secret.key": "test-secret",
        "endpoint": endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "buffer.dir": folder,
        "committer.staging.conflict-mode": "append",
    }
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(f"{folder}/*" for folder in _JARS),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.parquet.output.committer.class": f"{_PROTOCOL}.BindingParquetOutputCommitter",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.commitProtocolClass": f"{_PROTOCOL}.PathOutputCommitProtocol",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.hadoop.hadoop.tmp.dir": folder,
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
            "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
        ),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }
    builder = SparkSession.builder.master("local[2]")  # type: ignore[attr-defined]
    for name, value in conf.items():
        builder = builder.config(name, value)
    _spark = builder.getOrCreate()
    _spark.sparkContext.setLogLevel("ERROR")
    import airflow_cloudfiles

    airflow_cloudfiles.register(_spark)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_spark, *arguments)


def _stop() -> None:
    _spark.stop()
