"""One measured run in a process of its own: `python -m benchmarks.contender '<json>'`.

Prints one line of JSON: what the run says of itself, such as the seconds of its query. Wall and CPU
seconds and the memory of the whole are measured from outside, by `benchmarks.measure`. So this
imports only what a caller of the engine, or a script for PySpark, would import.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
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


def spec_of(task: dict[str, Any]) -> JobSpec:
    """The ingest run that a task describes."""
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


def ingest(task: dict[str, Any]) -> dict[str, Any]:
    """The ingest job as its operator starts it; inference is in its first run."""
    from airflow_cloudfiles.engine.job.launch import LocalSpark  # noqa: PLC0415

    return _launched(task, LocalSpark(master=task["master"]))


def _local(task: dict[str, Any]) -> dict[str, Any]:
    """The same without a JVM."""
    from airflow_cloudfiles.engine.job.launch import LocalPython  # noqa: PLC0415

    return _launched(task, LocalPython())


def _connect(task: dict[str, Any]) -> dict[str, Any]:
    """The same on a Spark Connect server."""
    from airflow_cloudfiles.engine.job.launch import SparkConnect  # noqa: PLC0415

    return _launched(task, SparkConnect(os.environ["SPARK_REMOTE"]))


def _launched(task: dict[str, Any], how: Any) -> dict[str, Any]:
    from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess  # noqa: PLC0415
    from airflow_cloudfiles.engine.errors import CloudFilesError  # noqa: PLC0415
    from airflow_cloudfiles.engine.job.launch import launch  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415

    spec = spec_of(task)
    failed = None
    try:
        launch(
            spec,
            how,
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


def _query(task: dict[str, Any]) -> dict[str, Any]:
    """`readStream` of `cloudFiles` to Delta, whose tasks write what they read."""
    return _of_cloud_files(task, lambda frame: frame)


def _rows(task: dict[str, Any]) -> dict[str, Any]:
    """The same with a condition, which needs the rows: they pass through the JVM."""
    return _of_cloud_files(task, lambda frame: frame.where("id IS NOT NULL"))


def _of_cloud_files(task: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    from airflow_cloudfiles import register  # noqa: PLC0415

    started, spark = _plain_session(task)
    register(spark)
    reader = spark.readStream.format("cloudFiles").options(**spec_of(task).source_options())
    writer = change(reader.load(task["source"])).writeStream
    writer = writer.format(task.get("sink", "deltalake"))
    return {**started, **_run(writer, task, spark)}


def _spark(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's own file source to Parquet, with the schema given."""
    started, spark = _plain_session(task)
    return {**started, **_run(_own_stream(spark, task), task, spark)}


def _spark_warm(task: dict[str, Any]) -> dict[str, Any]:
    """The same once more in its session; `query_cpu_seconds` is what the second time took."""
    started, spark = _plain_session(task)
    first = {**task, "state": f"{task['state']}-first", "target": f"{task['target']}-first"}
    _carry_out(_own_stream(spark, task), first)
    before = _cpu_seconds()
    seconds = _carry_out(_own_stream(spark, task), task)
    figures = {"query_seconds": seconds, "query_cpu_seconds": _cpu_seconds() - before}
    spark.stop()
    return {**started, **figures}


def _cpu_seconds() -> float:
    """What this process and those below it have taken, and those of them that have ended."""
    import psutil  # noqa: PLC0415 - few contenders look at themselves

    own = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in (own, *own.children(recursive=True)))


def _own_stream(spark: SparkSession, task: dict[str, Any]) -> Any:
    reader = spark.readStream.schema(TYPES if task["types"] == "typed" else STRINGS)
    reader = reader.option("maxFilesPerTrigger", task["files_a_trigger"])
    reader = reader.option("recursiveFileLookup", "true")
    writer = reader.json(task["source"]).writeStream.format(task.get("sink", "parquet"))
    return writer.partitionBy(task["partition_by"]) if "partition_by" in task else writer


def _spark_infers(task: dict[str, Any]) -> dict[str, Any]:
    """Spark's own file source to Parquet; the schema is inferred by `spark.read` before."""
    started, spark = _plain_session(task)
    clock = time.monotonic()
    files = spark.read.option("recursiveFileLookup", "true")
    files = files.option("primitivesAsString", str(task["types"] != "typed").lower())
    schema = files.json(task["source"]).schema
    inferred = {"infer_seconds": time.monotonic() - clock}
    reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
    reader = reader.option("maxFilesPerTrigger", task["files_a_trigger"])
    writer = reader.json(task["source"]).writeStream.format("parquet")
    return {**started, **inferred, **_run(writer, task, spark)}


def _run(writer: Any, task: dict[str, Any], spark: SparkSession) -> dict[str, Any]:
    """Run a stream to its end, then stop Spark."""
    seconds = _carry_out(writer, task)
    spark.stop()
    return {"query_seconds": seconds}


def _carry_out(writer: Any, task: dict[str, Any]) -> float:
    """Run a stream to its end; how many seconds it took."""
    clock = time.monotonic()
    writer = writer.option("checkpointLocation", task["state"]).trigger(availableNow=True)
    writer.start(task["target"]).awaitTermination()
    return time.monotonic() - clock


def _plain_session(task: dict[str, Any]) -> tuple[dict[str, Any], SparkSession]:
    """Spark as a script for PySpark starts it, with PySpark's defaults but for its web page."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    clock = time.monotonic()
    if task.get("remote"):  # the address is in the environment: it has a token
        session = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
        return {"spark_start_seconds": time.monotonic() - clock}, session
    builder = SparkSession.builder.master(task["master"]).config("spark.ui.enabled", "false")
    for key, value in task.get("session_conf", {}).items():
        builder = builder.config(key, value)
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
    spark = SparkStart(spec_of(task))
    spark.session()
    seconds = time.monotonic() - clock
    spark.close()
    return {"spark_start_seconds": seconds}


def _reader(task: dict[str, Any]) -> dict[str, Any]:
    """This engine's reader alone, with discovery and inference: no Spark, nothing written."""
    from benchmarks import read_alone  # noqa: PLC0415

    clock = time.monotonic()
    rows = read_alone.read(read_alone.splits(spec_of(task)))
    return {"rows": rows, "read_seconds": time.monotonic() - clock}


def _disk(task: dict[str, Any]) -> dict[str, Any]:
    """Read the bytes of the source, and write as many to the disk; nothing is parsed."""
    clock = time.monotonic()
    with open(task["target"], "wb") as target:  # noqa: PTH123 - this process imports no more
        for folder, _, names in os.walk(task["source"]):
            for name in names:
                with open(os.path.join(folder, name), "rb") as source:  # noqa: PTH118, PTH123
                    shutil.copyfileobj(source, target, 2**20)
        target.flush()
        os.fsync(target.fileno())
    return {"copy_seconds": time.monotonic() - clock}


def _one_at_a_time(task: dict[str, Any]) -> dict[str, Any]:
    """Get files from a store one after another, with the client that the engine uses."""
    from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415

    store = open_store(task["source"], AwsAccess(**task["s3"]))
    paths = [file.path for file in store.list("")][: task["files"]]
    clock = time.monotonic()
    for path in paths:
        store.get(path)
    return {"files": len(paths), "read_seconds": time.monotonic() - clock}


def _read_table(task: dict[str, Any]) -> dict[str, Any]:
    """A batch read of all columns of a table, into nothing; the rows are counted after it."""
    from airflow_cloudfiles import register  # noqa: PLC0415

    started, spark = _plain_session(task)
    if task["format"] != "parquet":
        register(spark)
    clock = time.monotonic()
    frame = spark.read.format(task["format"]).load(task["source"])
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - clock
    rows = frame.count()
    spark.stop()
    return {**started, "query_seconds": seconds, "rows": rows}


def _stream_table(task: dict[str, Any]) -> dict[str, Any]:
    """A stream of all rows of a table to Parquet; Spark's file source is given its schema."""
    from airflow_cloudfiles import register  # noqa: PLC0415

    started, spark = _plain_session(task)
    reader = spark.readStream.format(task["format"])
    if task["format"] == "parquet":
        reader = reader.schema(spark.read.parquet(task["source"]).schema)
    else:
        register(spark)
    return {
        **started,
        **_run(reader.load(task["source"]).writeStream.format("parquet"), task, spark),
    }


def _open_table(task: dict[str, Any]) -> dict[str, Any]:
    """The newest version of a table and its files, once in a process."""
    if task["opened_by"] == "parquet":
        started, spark = _plain_session(task)
        clock = time.monotonic()
        files = len(spark.read.parquet(task["source"]).inputFiles())
        seconds = time.monotonic() - clock
        spark.stop()
        return {**started, "open_seconds": seconds, "files": files}
    if task["opened_by"] == "deltalake":
        from deltalake import DeltaTable  # noqa: PLC0415

        clock, cpu = time.monotonic(), time.process_time()
        files = len(DeltaTable(task["source"]).file_uris())
    else:
        from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation  # noqa: PLC0415
        from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog  # noqa: PLC0415

        clock, cpu = time.monotonic(), time.process_time()
        files = len(TableLog(DeltaLocation.to_read(task["source"])).snapshot().files)
    return {
        "open_seconds": time.monotonic() - clock,
        "open_cpu_seconds": time.process_time() - cpu,
        "files": files,
    }


def _at_once(task: dict[str, Any]) -> dict[str, Any]:
    """Several contenders at once, each in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.contender"]
    began = [subprocess.Popen([*command, json.dumps(each)]) for each in task["tasks"]]
    codes = [process.wait() for process in began]
    if any(codes):
        sys.exit("One of them failed")
    return {}


_ENGINES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ingest": ingest,
    "local": _local,
    "connect": _connect,
    "query": _query,
    "rows": _rows,
    "spark": _spark,
    "spark-infers": _spark_infers,
    "spark-warm": _spark_warm,
    "jvm": _jvm,
    "our-jvm": _our_jvm,
    "reader": _reader,
    "disk": _disk,
    "one-at-a-time": _one_at_a_time,
    "read-table": _read_table,
    "stream-table": _stream_table,
    "open-table": _open_table,
    "at-once": _at_once,
}


if __name__ == "__main__":
    main()
