"""One measured run in a process of its own: `python -m benchmarks.contender '<json>'`.

Prints one line of JSON: what the run says of itself, such as the seconds of its query. Wall and CPU
seconds and the memory of the whole are measured from outside, by `benchmarks.measure`. So this
imports only what a caller of the engine, or a script for PySpark, would import.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_cloudfiles.engine.job.spec import JobSpec

TYPES = (
    "id long, user_id long, event string, time string, price double, quantity long, city string, "
    "url string, comment string, member boolean"
)
STRINGS = ", ".join(f"{column.split()[0]} string" for column in TYPES.split(", "))


def main() -> None:
    """Run what the argument describes and print its figures."""
    task = json.loads(sys.argv[1])
    print("FIGURES " + json.dumps(_ENGINES[task["engine"]](task)), flush=True)


def _spec(task: dict[str, Any]) -> JobSpec:
    from airflow_cloudfiles.engine.job.spec import JobSpec  # noqa: PLC0415

    options = {"cloudFiles.maxFilesPerTrigger": str(task["files_a_trigger"])}
    if task.get("types") == "typed":
        options["cloudFiles.inferColumnTypes"] = "true"
    return JobSpec(
        kind="ingest",
        source=task["source"],
        format="json",
        checkpoint_location=task["state"],
        target=task["target"],
        run_id="bench",
        options=options | task.get("options", {}),
        spark_conf=task.get("spark_conf", {}),
    )


def _ingest(task: dict[str, Any]) -> dict[str, Any]:
    """The ingest job as its operator starts it; inference is in its first run."""
    from airflow_cloudfiles.engine.errors import CloudFilesError  # noqa: PLC0415
    from airflow_cloudfiles.engine.job.launch import LocalSpark, launch  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage.access import AwsAccess  # noqa: PLC0415

    spec = _spec(task)
    failed = None
    try:
        launch(
            spec,
            LocalSpark(master=task["master"]),
            on_log=lambda line: print(line, file=sys.stderr),
            access=AwsAccess(**task["s3"]) if "s3" in task else None,
        ).wait()
    except CloudFilesError as error:
        failed = type(error).__name__
        if failed != task.get("fails_with"):
            raise
    if failed is None and "fails_with" in task:
        sys.exit(f"The run did not fail with {task['fails_with']}")
    report = json.loads(open_store(spec.checkpoint_location).get(spec.report_key))
    kept = ("started", "ended", "durations", "files", "batches", "discovery")
    return {
        "failed_with": failed,
        "query_seconds": report["durations"].get("query_seconds", 0.0),
        **{name: report.get(name) for name in kept},
    }


def _rows(task: dict[str, Any]) -> dict[str, Any]:
    """`readStream` of `cloudFiles` to Delta: rows pass through the JVM."""
    from airflow_cloudfiles import register  # noqa: PLC0415

    started, spark = _plain_session(task)
    register(spark)
    reader = spark.readStream.format("cloudFiles").options(**_spec(task).source_options())
    writer = reader.load(task["source"]).writeStream.format("deltalake")
    return {**started, **_run(writer, task, spark)}


def _spark(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's own file source to Parquet, with the schema given."""
    started, spark = _plain_session(task)
    reader = spark.readStream.schema(TYPES if task["types"] == "typed" else STRINGS)
    reader = reader.option("maxFilesPerTrigger", task["files_a_trigger"])
    reader = reader.option("recursiveFileLookup", "true")
    writer = reader.json(task["source"]).writeStream.format("parquet")
    return {**started, **_run(writer, task, spark)}


def _run(writer: Any, task: dict[str, Any], spark: SparkSession) -> dict[str, Any]:
    """Run a stream to its end, then stop Spark."""
    clock = time.monotonic()
    writer = writer.option("checkpointLocation", task["state"]).trigger(availableNow=True)
    writer.start(task["target"]).awaitTermination()
    seconds = time.monotonic() - clock
    spark.stop()
    return {"query_seconds": seconds}


def _plain_session(task: dict[str, Any]) -> tuple[dict[str, Any], SparkSession]:
    """Spark as a script for PySpark starts it, with PySpark's defaults but for its web page."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    clock = time.monotonic()
    builder = SparkSession.builder.master(task["master"]).config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return {"spark_start_seconds": time.monotonic() - clock}, spark


def _jvm(task: dict[str, Any]) -> dict[str, Any]:
    """Spark as PySpark starts it, stopped at once."""
    started, spark = _plain_session(task)
    spark.stop()
    return started


def _our_jvm(task: dict[str, Any]) -> dict[str, Any]:
    """Spark as a local run of this engine starts it, stopped at once."""
    from airflow_cloudfiles.engine.job.launch import LocalSpark  # noqa: PLC0415

    os.environ.update(LocalSpark(master=task["master"]).environment())
    from airflow_cloudfiles.engine.job.session import SparkStart  # noqa: PLC0415

    clock = time.monotonic()
    spark = SparkStart(_spec(task))
    spark.session()
    seconds = time.monotonic() - clock
    spark.close()
    return {"spark_start_seconds": seconds}


def _reader(task: dict[str, Any]) -> dict[str, Any]:
    """This engine's reader alone, with discovery and inference: no Spark, nothing written."""
    from benchmarks import read_alone  # noqa: PLC0415

    clock = time.monotonic()
    rows = read_alone.read(read_alone.splits(_spec(task)))
    return {"rows": rows, "read_seconds": time.monotonic() - clock}


def _one_at_a_time(task: dict[str, Any]) -> dict[str, Any]:
    """Get files from a store one after another, with the client that the engine uses."""
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage.access import AwsAccess  # noqa: PLC0415

    store = open_store(task["source"], AwsAccess(**task["s3"]))
    paths = [file.path for file in store.list("")][: task["files"]]
    clock = time.monotonic()
    for path in paths:
        store.get(path)
    return {"files": len(paths), "read_seconds": time.monotonic() - clock}


_ENGINES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ingest": _ingest,
    "rows": _rows,
    "spark": _spark,
    "jvm": _jvm,
    "our-jvm": _our_jvm,
    "reader": _reader,
    "one-at-a-time": _one_at_a_time,
}


if __name__ == "__main__":
    main()
