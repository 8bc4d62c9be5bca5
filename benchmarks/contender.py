"""One measured run in a process of its own: `python -m benchmarks.contender '<json>'`.

Prints one line of JSON: seconds and CPU seconds of the query, CPU seconds since the process began
(Spark's start and, for this engine, inference included), and the rows that are in the target
afterwards. Wall time and memory of the whole are measured from outside, by `benchmarks.measure`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
from deltalake import DeltaTable
from pyarrow.dataset import dataset

from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.ingest import start as start_query
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED
from airflow_cloudfiles.engine.job.spec import JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TYPES = (
    "id long, user_id long, event string, time string, price double, quantity long, city string, "
    "url string, comment string, member boolean"
)
STRINGS = ", ".join(f"{column.split()[0]} string" for column in TYPES.split(", "))


def main() -> None:
    """Run what the argument describes and print its figures."""
    task = json.loads(sys.argv[1])
    spec = _spec(task)
    if task["engine"] != "spark" and task["first"]:
        report = job.run(JobSpec(**{**_fields(spec), "kind": "infer", "run_id": "infer"}))
        if report["outcome"] != "succeeded":
            sys.exit(f"inference failed: {report['error']}")
    if task["engine"] == "ingest":
        os.environ[LAUNCHED] = "local"  # as the operator starts it: a JVM that only coordinates
    spark = SparkStart(spec).session()
    cpu, clock = tree_cpu(), time.monotonic()
    query = _query(spark, spec, task)
    query.awaitTermination()
    seconds, total_cpu = time.monotonic() - clock, tree_cpu()
    figures = {
        "query_seconds": seconds,
        "query_cpu_seconds": total_cpu - cpu,
        "cpu_seconds": total_cpu,
        "batches": len([p for p in query.recentProgress if p["numInputRows"]]),
    }
    figures["rows"] = row_count(task["target"], is_delta=task["engine"] != "spark")
    print("FIGURES " + json.dumps(figures), flush=True)
    spark.stop()


def _spec(task: dict[str, Any]) -> JobSpec:
    options = {"cloudFiles.maxFilesPerTrigger": str(task["files_a_trigger"])}
    if task["types"] == "typed":
        options["cloudFiles.inferColumnTypes"] = "true"
    return JobSpec(
        kind="ingest",
        source=task["source"],
        format="json",
        checkpoint_location=task["state"],
        target=task["target"],
        run_id="bench",
        options=options,
        spark_conf={"spark.master": task["master"], "spark.driver.memory": "4g"},
    )


def _fields(spec: JobSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in JobSpec.__dataclass_fields__}


def _query(spark: SparkSession, spec: JobSpec, task: dict[str, Any]) -> StreamingQuery:
    """Start one of the three: the ingest job, the same through Spark rows, Spark's own source."""
    if task["engine"] == "ingest":
        return start_query(spark, spec)
    if task["engine"] == "rows":
        reader = spark.readStream.format("cloudFiles").options(**spec.source_options())
        writer = reader.load(task["source"]).writeStream.format("deltalake")
    else:
        reader = spark.readStream.schema(TYPES if task["types"] == "typed" else STRINGS)
        reader = reader.option("maxFilesPerTrigger", task["files_a_trigger"])
        reader = reader.option("recursiveFileLookup", "true")
        writer = reader.json(task["source"]).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", task["state"]).trigger(availableNow=True)
    return writer.start(task["target"])


def row_count(target: str, *, is_delta: bool) -> int:
    """Count the rows in a target without Spark, so that counting costs all the same."""
    if not is_delta:
        return int(dataset(target, format="parquet").count_rows())
    return int(DeltaTable(target).to_pyarrow_dataset().count_rows())


def tree_cpu() -> float:
    """CPU seconds of this process and everything below it, ended children included."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    main()
