"""One measured run of the format benchmark: `python -m benchmarks.format_contender '<json>'`.

Prints one line of JSON like `benchmarks.contender`, and in place of figures why there are none when
an engine does not read a format.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.ingest import ingest
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED
from airflow_cloudfiles.engine.job.spec import JobSpec
from benchmarks import read_alone
from benchmarks.contender import STRINGS, TYPES
from benchmarks.data import row_count
from benchmarks.measure import tree_cpu

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIXED = {
    "text": "value string",
    "binaryFile": "path string, modificationTime timestamp, length long, content binary",
}
READ_OPTIONS = {"csv": {"header": "true"}, "excel": {"headerRows": "1"}, "xml": {"rowTag": "row"}}


class NotReadError(Exception):
    """An engine does not read a format."""


@contextmanager
def _unless_not_read() -> Iterator[None]:
    """Take for what it is that Spark lacks a jar."""
    try:
        yield
    except Exception as error:
        if "AVRO_NOT_LOADED" in str(error) or "Failed to find data source" in str(error):
            raise NotReadError("Spark needs a jar for it") from None
        raise


def main() -> None:
    """Run what the argument describes and print its figures."""
    task = json.loads(sys.argv[1])
    try:
        figures = _ENGINES[task["engine"]](task)
    except (NotReadError, ImportError) as reason:
        figures = {"not_read": f"{type(reason).__name__}: {reason}", "cpu_seconds": 0.0}
    print("FIGURES " + json.dumps(figures), flush=True)


def _spec(task: dict[str, Any], kind: str = "ingest") -> JobSpec:
    options = dict(READ_OPTIONS.get(task["format"], {}))
    if task["types"] == "typed":
        options["cloudFiles.inferColumnTypes"] = "true"
    if task["engine"] == "reader":
        # The schema is not what is measured, and all files look alike.
        options["cloudFiles.schemaInference.sampleSize.numFiles"] = "1"
    return JobSpec(
        kind=kind,  # type: ignore[arg-type]
        source=task["source"],
        format=task["format"],
        checkpoint_location=task["state"],
        target=task["target"],
        run_id=f"bench-{kind}",
        options=options,
        spark_conf={"spark.master": task["master"], "spark.driver.memory": "4g"},
    )


def _ingest(task: dict[str, Any]) -> dict[str, Any]:
    """Our job: files to Delta, with rescued data and evolution as they are by default."""
    _must_succeed(job.run(_spec(task, "infer")))
    os.environ[LAUNCHED] = "local"  # as the operator starts it: a JVM that only coordinates
    spec = _spec(task)
    spark = SparkStart(spec)
    spark.context()
    cpu, clock = tree_cpu(), time.monotonic()
    with _unless_not_read():
        ingest(spec, spark, {}, {}, None)
    return _figures(cpu, clock, row_count(task["target"], is_delta=True))


def _spark(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's file source to Parquet, with the schema given, and nothing rescued."""
    spark = SparkStart(_spec(task)).session()

    def start() -> StreamingQuery:
        reader = spark.readStream.format(task["format"]).schema(_schema(task))
        frame = reader.options(**READ_OPTIONS.get(task["format"], {})).load(task["source"])
        writer = frame.writeStream.format("parquet").option("checkpointLocation", task["state"])
        return writer.trigger(availableNow=True).start(task["target"])

    return _query_figures(task, spark, start)


def _query_figures(
    task: dict[str, Any],
    spark: SparkSession,
    start: Callable[[], StreamingQuery],
) -> dict[str, Any]:
    cpu, clock = tree_cpu(), time.monotonic()
    with _unless_not_read():
        query = start()
    query.awaitTermination()
    seconds, total = time.monotonic() - clock, tree_cpu()
    figures = {
        "seconds": seconds,
        "work_cpu_seconds": total - cpu,
        "cpu_seconds": total,
        "rows": row_count(task["target"], is_delta=False),
    }
    spark.stop()
    return figures


def _reader(task: dict[str, Any]) -> dict[str, Any]:
    """Our reader alone, in this one process: files to Arrow, with rescued data and evolution.

    Once cold and once warm, as Spark's: a task is forked from a process that has imported it all.
    """
    _must_succeed(job.run(_spec(task, "infer")))
    planned = read_alone.splits(_spec(task))
    figures: dict[str, Any] = {}
    for _ in range(2):
        cpu, clock = tree_cpu(), time.monotonic()
        figures = {**_figures(cpu, clock, read_alone.read(planned)), "cold": figures}
    return figures


def _spark_reader(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's batch reader into its sink that does nothing, once cold and once warm."""
    if task["format"] == "excel":
        return _pandas_reader(task)
    spark = SparkStart(_spec(task)).session()
    reader = spark.read.format(task["format"]).schema(_schema(task))
    with _unless_not_read():
        frame = reader.options(**READ_OPTIONS.get(task["format"], {})).load(task["source"])
    figures: dict[str, Any] = {}
    for _ in range(2):
        cpu, clock = tree_cpu(), time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        figures = {**_figures(cpu, clock, 0), "cold": figures}
    figures["rows"] = frame.count()
    spark.stop()
    return figures


def _pandas_reader(task: dict[str, Any]) -> dict[str, Any]:
    """What reads workbooks beside Spark, which does not: pandas with openpyxl, file by file."""
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    dtype = None if task["types"] == "typed" else str
    figures: dict[str, Any] = {}
    for _ in range(2):
        cpu, clock, rows = tree_cpu(), time.monotonic(), 0
        for path in sorted(Path(task["source"]).glob("part-*")):
            frame = pd.read_excel(path, engine="openpyxl", dtype=dtype)
            rows += pa.Table.from_pandas(frame).num_rows
        figures = {**_figures(cpu, clock, rows), "cold": figures}
    return figures


def _infer(task: dict[str, Any]) -> dict[str, Any]:
    """Our inference, listing and schema log included."""
    cpu, clock = tree_cpu(), time.monotonic()
    report = job.run(_spec(task, "infer"))
    _must_succeed(report)
    return {**_figures(cpu, clock, 0), "files": report["sampled_files"], "ddl": report["schema"]}


def _spark_infer(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's inference of the same files, the first in a new JVM, as when a stream starts."""
    spark = SparkStart(_spec(task)).session()
    typed = task["types"] == "typed"
    reader = spark.read.options(**READ_OPTIONS.get(task["format"], {}))
    if task["format"] == "json":
        reader = reader.option("primitivesAsString", not typed)
    elif task["format"] == "parquet":
        reader = reader.option("mergeSchema", "true")
    else:
        reader = reader.option("inferSchema", typed)
    cpu, clock = tree_cpu(), time.monotonic()
    schema = reader.format(task["format"]).load(task["source"]).schema
    figures = _figures(cpu, clock, 0)
    files = len(list(Path(task["source"]).glob("part-*")))
    figures |= {"files": files, "ddl": schema.simpleString()}
    spark.stop()
    return figures


_ENGINES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ingest": _ingest,
    "spark": _spark,
    "reader": _reader,
    "spark reader": _spark_reader,
    "infer": _infer,
    "spark infer": _spark_infer,
}


def _figures(cpu: float, clock: float, rows: int) -> dict[str, Any]:
    total = tree_cpu()
    return {
        "seconds": time.monotonic() - clock,
        "work_cpu_seconds": total - cpu,
        "cpu_seconds": total,
        "rows": rows,
    }


def _schema(task: dict[str, Any]) -> str:
    return FIXED.get(task["format"], TYPES if task["types"] == "typed" else STRINGS)


def _must_succeed(report: dict[str, Any]) -> None:
    if report["outcome"] != "succeeded":
        error = report["error"]
        if "No module named" in error["message"] or error["class"] == "UnsupportedOptionError":
            raise NotReadError(error["message"])
        raise CloudFilesError(f"{report['kind']} failed: {error}")


if __name__ == "__main__":
    main()
