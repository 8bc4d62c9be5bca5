"""What a session with Delta's jars ingests by `cloudFiles`, as users write it.

As a process it ingests file after file, until it is killed.
"""

from __future__ import annotations

import sys
from typing import Any

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import be_the_driver
from tests.support.delta_spark import start_session


def _stream(spark: Any, landing: str, state: str, **options: str) -> Any:
    airflow_cloudfiles.register(spark)
    return (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .option("cloudFiles.schemaLocation", state)
        .options(**options)
        .load(landing)
        .writeStream.option("mergeSchema", "true")
        .option("checkpointLocation", state)
    )


def ingest(spark: Any, landing: str, state: str, target: str, sink: str = "delta") -> None:
    """Ingest what is there into the table in a folder."""
    stream = _stream(spark, landing, state).format(sink)
    stream.trigger(availableNow=True).start(target).awaitTermination()


def ingest_to_table(spark: Any, landing: str, state: str, name: str) -> None:
    """Ingest what is there into a table of the catalog."""
    stream = _stream(spark, landing, state).format("delta")
    stream.trigger(availableNow=True).toTable(name).awaitTermination()


def merge(spark: Any, landing: str, state: str, target: str) -> None:
    """Merge what is there into a table by its key `id`."""

    def merge_batch(batch: Any, _: int) -> None:
        batch.createOrReplaceTempView("batch")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{target}` t USING batch s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    stream = _stream(spark, landing, state).foreachBatch(merge_batch)
    stream.trigger(availableNow=True).start().awaitTermination()


def copy(spark: Any, source: str, state: str, target: str, sink: str) -> None:
    """Write the rows of a table, read by one format, into another by the stream of `sink`."""
    airflow_cloudfiles.register(spark)
    stream = spark.readStream.format("delta" if sink == "deltalake" else "deltalake").load(source)
    stream = stream.writeStream.format(sink).option("checkpointLocation", state)
    stream.trigger(availableNow=True).start(target).awaitTermination()


def _until_killed(landing: str, state: str, target: str) -> None:
    """Start Spark, wait for a line, then ingest a file in each batch."""
    be_the_driver()
    session = start_session()
    stream = _stream(session, landing, state, **{"cloudFiles.maxFilesPerTrigger": "1"})
    stream = stream.format("delta").trigger(availableNow=True)
    sys.stdin.readline()
    stream.start(target).awaitTermination()


if __name__ == "__main__":
    _until_killed(*sys.argv[1:])
