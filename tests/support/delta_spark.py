"""Delta Lake's own implementation, on a Spark that it supports, in a process of its own.

`make delta-spark` installs that PySpark; Spark fetches Delta's jars itself, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.job.java import find_java
from tests.support.shared_spark import FAST_START

_RELEASES = {
    "delta-spark": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "older-delta-spark": "io.delta:delta-spark_2.12:3.3.2",
}
"""Delta for the PySpark of the lock of that name in `requirements`."""
RELEASE = os.environ.get("DELTA_RELEASE", "delta-spark")
HOME, PACKAGE = Path(sys.prefix) / RELEASE, _RELEASES[RELEASE]
IS_OLDER = RELEASE == "older-delta-spark"

SESSION = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}
"""What makes a session Delta's."""
_CONF = {
    **SESSION,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": FAST_START,
    "spark.driver.host": "127.0.0.1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_OLDER_CONF = {
    # The default of Spark 4: before it, dates before 1582 are written and read with this only.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    # It fails where files lack a field of an array's structs and columns are mapped by id.
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
}


def environment(home: Path = HOME) -> dict[str, str]:
    """Name the variables with which a process finds a PySpark, Delta's, and this package."""
    return {
        **os.environ,
        "JAVA_HOME": find_java(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(home), str(Path(__file__).parents[2])]),
        "SPARK_HOME": str(home / "pyspark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def start_session(conf: Mapping[str, str] | None = None) -> Any:
    """Start the session of a process that has this `environment`: Delta's, unless options say."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")  # type: ignore[attr-defined]
    warehouse = {"spark.sql.warehouse.dir": str(Path.cwd() / "warehouse")}
    for key, value in {**(conf or DeltaSpark.configured()), **warehouse}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class DeltaError(Exception):
    """What Delta raised; its text begins with the class of the error."""


class DeltaSpark:
    """A session with Delta's jars; a context, at whose end its process ends.

    Args:
        folder: For its warehouse and its log.
    """

    home, packages, conf = HOME, PACKAGE, {**_CONF, **(_OLDER_CONF if IS_OLDER else {})}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(self.configured())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            env=environment(self.home),
            text=True,
        )

    def __enter__(self) -> Self:
        if self._answer() is None:
            said = (self._folder / "log").read_text(encoding="utf-8")
            assert "unresolved dependenc" in said.lower(), said[-3000:]
            pytest.skip(f"{self.packages} can't be fetched here")
        return self

    def __exit__(self, *_: object) -> None:
        with self._process, self._log:  # which end when nothing more is asked
            pass

    def run(self, statement: str) -> None:
        """Carry out a statement.

        Raises:
            DeltaError: It fails.
        """
        self._asked({"run": statement})

    def rows(self, query: str) -> pa.Table:
        """The rows of a query.

        Raises:
            DeltaError: It fails.
        """
        return self._asked({"query": query})

    def table(self, target: Path, version: int | None = None) -> pa.Table:
        """The rows of a table, in its newest version unless another is named."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return self.rows(f"SELECT * FROM delta.`{target}`{at}")

    def call(self, function: Callable[..., None], **arguments: Any) -> None:
        """Call a function of a module with the session and with arguments that JSON can hold.

        Raises:
            DeltaError: It fails.
        """
        name = f"{function.__module__}:{function.__qualname__}"
        self._asked({"call": name, "arguments": arguments})

    @classmethod
    def configured(cls) -> dict[str, str]:
        """The options of the session: what Spark fetches stays beside the PySpark."""
        fetched = {"spark.jars.ivy": str(cls.home / "ivy"), "spark.jars.packages": cls.packages}
        return {**cls.conf, **fetched}

    def _asked(self, question: dict[str, Any]) -> pa.Table:
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({**question, "rows": file.name}) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
            assert answer is not None, (self._folder / "log").read_text(encoding="utf-8")[-3000:]
            if answer:
                raise DeltaError(answer)
            with pa.OSFile(file.name, "rb") as content:
                return pa.ipc.open_stream(content).read_all()

    def _answer(self) -> str | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def _serve() -> None:
    """Be the process: answer what is asked, line by line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else goes among the answers
    spark = start_session(json.loads(sys.argv[1]))
    print(json.dumps(""), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            table = _answered(spark, question)
            with (
                pa.OSFile(question["rows"], "wb") as file,
                pa.ipc.new_stream(file, table.schema) as to,
            ):
                to.write_table(table)
            answer = ""
        except Exception as error:  # noqa: BLE001 - the test judges it
            answer = f"{type(error).__name__}: {error}"[:20000]
        print(json.dumps(answer), file=answers, flush=True)


def _answered(spark: Any, question: dict[str, Any]) -> pa.Table:
    if "run" in question:
        spark.sql(question["run"]).collect()
        return pa.table({})
    if "call" in question:
        resolve_name(question["call"])(spark, **question["arguments"])
        return pa.table({})
    return as_arrow(spark.sql(question["query"]))


def as_arrow(found: Any) -> pa.Table:
    """Bring the rows of a DataFrame here."""
    if hasattr(found, "toArrow"):
        table: pa.Table = found.toArrow()
        return table
    from pyspark.sql.pandas.types import to_arrow_schema  # Spark 3.5

    batches = found._collect_as_arrow()
    return (
        pa.Table.from_batches(batches) if batches else to_arrow_schema(found.schema).empty_table()
    )


if __name__ == "__main__":
    _serve()
