"""Iceberg's own runtime, on a Spark that it supports, and its handlers of a REST catalog.

`make iceberg-spark` installs that PySpark; Spark fetches Iceberg's jars itself, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from airflow_cloudfiles.engine.job.java import find_java
from tests.support import delta_spark
from tests.support.iceberg_tables import LocalCatalog

HOME = Path(sys.prefix) / "iceberg-spark"
PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


class IcebergSpark(delta_spark.DeltaSpark):
    """A session with Iceberg's jars; a context, at whose end its process ends."""

    home, packages = HOME, ",".join(PACKAGES)
    conf = {  # noqa: RUF012 - never changed
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.extensions": _EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }

    def __enter__(self) -> Self:
        super().__enter__()
        # Its source loads the driver where Iceberg's client of a catalog finds it.
        driver = "url 'jdbc:sqlite::memory:', driver 'org.sqlite.JDBC', query 'SELECT 1 AS one'"
        self.run(f"CREATE TEMPORARY VIEW one USING jdbc OPTIONS ({driver})")
        return self

    def use(self, lake: LocalCatalog) -> None:
        """Make a catalog known under the name that it has for pyiceberg."""
        name = f"spark.sql.catalog.{lake.name}"
        self.run(f"SET `{name}` = org.apache.iceberg.spark.SparkCatalog")
        for key, value in {**_as_java(lake), "cache-enabled": "false"}.items():
            self.run(f"SET `{name}.{key}` = `{value}`")


class RestServer:
    """Iceberg's handlers of a REST catalog, over SQLite; a context.

    Args:
        folder: For the database and the log.
        warehouse: Where the tables are.
    """

    def __init__(self, folder: Path, warehouse: Path) -> None:
        if shutil.which("javac") is None:
            pytest.skip("A JDK is missing, whose compiler runs the REST catalog: install one")
        jars = [HOME / "pyspark" / "jars" / "*", *sorted((HOME / "ivy" / "jars").glob("*.jar"))]
        self._log = (folder / "rest.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(str(Path(find_java()) / "bin" / "java"), "-Xmx256m", "-cp"),
                os.pathsep.join(map(str, jars)),
                str(Path(__file__).with_name("IcebergRestServer.java")),
                *(f"jdbc:sqlite:{folder / 'rest.db'}", f"file://{warehouse}"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        self.uri = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process, self._log:  # which end when its input does
            pass


def _as_java(lake: LocalCatalog) -> dict[str, str]:
    """What Iceberg's own properties of a catalog are."""
    uri, warehouse = lake.environment.values()
    if uri.startswith("http"):
        return {"type": "rest", "uri": uri}
    return {"type": "jdbc", "uri": f"jdbc:{uri.replace('///', '', 1)}", "warehouse": warehouse}
