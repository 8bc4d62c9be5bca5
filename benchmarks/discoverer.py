"""One discovery, in a process of its own: `python -m benchmarks.discoverer '{"engine": …}'`.

Prints one line of JSON figures. The time is that of the discovery alone; for Spark it is what its
own progress calls `latestOffset` of the first micro-batch, which lists the source and writes what
it found into Spark's log of files.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import closing
from typing import Any


def main(task: dict[str, Any]) -> None:
    """Discover once and tell what it took."""
    figures = _spark(task) if task["engine"] == "spark" else _ours(task)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    figures["resident_mb"] = usage.ru_maxrss / 1024
    print("FIGURES " + json.dumps(figures))


def _ours(task: dict[str, Any]) -> dict[str, Any]:
    from airflow_cloudfiles.engine.intake.intake import Intake  # noqa: PLC0415
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions  # noqa: PLC0415

    options = DiscoveryOptions(use_incremental_listing=task["incremental"])
    access = None
    if task.get("s3"):
        from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess  # noqa: PLC0415

        access = AwsAccess(**task["s3"])
    intake = Intake.open(
        source=task["source"],
        format="json",
        checkpoint_location=task["state"],
        discovery=options,
        access=access,
    )
    with closing(intake):
        clock = time.monotonic()
        found = intake.discover()
        seconds = time.monotonic() - clock
    listing = found.listing
    return {
        "seconds": seconds,
        "kind": listing.kind if listing else None,
        "listed": found.listed,
        "new": found.files,
        "list_calls": listing.list_calls if listing else 0,
    }


def _spark(task: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "6g").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    frame = spark.readStream.schema("a STRING").option("maxFilesPerTrigger", 1).json(task["source"])
    writer = frame.writeStream.format("noop").option("checkpointLocation", task["state"])
    query = writer.start()
    while not query.recentProgress:
        query.awaitTermination(1)
    progress = query.recentProgress[0]
    query.stop()
    spark.stop()
    return {
        "seconds": progress["durationMs"]["latestOffset"] / 1000,
        "kind": "full",
        "listed": task["files"],
        "new": task["files"],
        "list_calls": None,
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
