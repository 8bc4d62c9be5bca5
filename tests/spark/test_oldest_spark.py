"""Jobs run with the oldest supported Spark, and what needs a newer one says so by version.

Whole runs, as operators start them, in processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SparkVersionError, UnknownFieldException
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark, launch
from tests.support import pyspark_versions
from tests.support.driver import Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OLDEST = "3.5.0"


class Stream(Driver):
    """A stream whose runs choose their Spark."""

    log: list[str]

    def ran(self, how: Any = None, **more: Any) -> dict[str, Any]:
        """Run to the end, with the PySpark that `PYTHONPATH` has."""
        self.log = []
        spec = replace(self.spec(), **more)
        report: dict[str, Any] = launch(
            spec, how or LocalSpark(master="local[2]"), on_log=self.log.append
        ).wait()
        return report


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


@pytest.fixture
def with_oldest(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: pyspark_versions.choose("oldest", monkeypatch)


def test_a_stream_goes_on_with_the_oldest_spark_without_spark_and_back(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        drop(stream.source, f"{name}.json", [{"id": f"{name}{row}"} for row in range(20)])
    assert stream.ran()["rows"] == 40
    with monkeypatch.context() as context:
        pyspark_versions.choose("oldest", context)
        drop(stream.source, "c.json", [{"id": "c0", "currency": "USD"}])
        with pytest.raises(UnknownFieldException) as raised:
            stream.ran()
        assert raised.value.is_retryable
        healed = stream.ran()
        assert (healed["rows"], healed["schema_version"]) == (1, 1)
        assert any(f"Spark {OLDEST} is ready" in line for line in stream.log)
        drop(stream.source, "d.json", [{"id": "d0"}])
        assert stream.ran(LocalPython())["rows"] == 1
    drop(stream.source, "e.json", [{"id": "e0"}])
    assert stream.ran()["rows"] == 1
    found = sorted(row["id"] for row in rows(stream.target))
    assert found == sorted(
        [f"{name}{row}" for name in "ab" for row in range(20)] + ["c0", "d0", "e0"]
    )


def unchanged(batch: Any) -> Any:
    return batch


def double(batch: Any) -> Any:
    return batch.selectExpr("id", "n * 2 AS n")


def test_a_function_over_micro_batches_gets_their_rows(
    stream: Stream, with_oldest: Callable[[], None]
) -> None:
    with_oldest()
    drop(stream.source, "a.json", [{"id": f"a{row}", "n": row} for row in range(3)])
    transform = BatchFunction.of(double).to_json()
    stream.options = {"cloudFiles.inferColumnTypes": "true"}
    assert stream.ran(kind="infer")["schema"].startswith("id STRING, n BIGINT")
    assert stream.ran(transform=transform)["rows"] == 3
    assert sorted((row["id"], row["n"]) for row in rows(stream.target)) == [
        ("a0", 0),
        ("a1", 2),
        ("a2", 4),
    ]


def test_a_table_gets_variants_and_a_function_over_them_is_refused_by_version(
    stream: Stream, with_oldest: Callable[[], None]
) -> None:
    with_oldest()
    drop(stream.source, "a.json", [{"id": "a"}, {"id": "b"}])
    stream.options = {"singleVariantColumn": "value"}
    assert stream.ran()["rows"] == 2
    schema = json.loads(DeltaTable(str(stream.target)).schema().to_json())
    assert schema["fields"][0]["type"] == "variant"
    drop(stream.source, "b.json", [{"id": "c"}])
    refused = rf"Column value is VARIANT, which Spark {OLDEST} does not have"
    with pytest.raises(SparkVersionError, match=refused):
        stream.ran(transform=BatchFunction.of(unchanged).to_json())


@pytest.mark.parametrize(
    "code",
    [
        "from airflow_cloudfiles import register",
        "import airflow_cloudfiles.engine.spark.source",
        "import airflow_cloudfiles.engine.spark.tables.sink",
    ],
)
def test_what_queries_need_says_which_spark_has_it(
    code: str, with_oldest: Callable[[], None]
) -> None:
    with_oldest()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = [line for line in done.stderr.splitlines() if "SparkVersionError" in line][-1]
    assert f"need Spark 4.2 or later, for its Python data sources; this is Spark {OLDEST}" in last
    assert "CloudFilesIngestOperator" in last
