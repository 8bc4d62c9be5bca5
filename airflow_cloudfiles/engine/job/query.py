"""What is the query of a run? From the source to the sink, and no row enters the JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.job.target import sink_format
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.tables.stream_writer import RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.spec import JobSpec


def start_query(
    spark: SparkSession,
    spec: JobSpec,
    checkpoint: str,
    *,
    of_source: Mapping[str, str] | None = None,
    of_sink: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the available-now query of a run: the tasks read, parse and write.

    Args:
        spark: The session, with `cloudFiles` registered.
        spec: The run.
        checkpoint: URI of the folder where Spark keeps its checkpoint of the query.
        of_source: More options of the source.
        of_sink: More options of the sink.
    """
    token = {split_rows.SPLIT_TOKEN: split_rows.new_token()}
    source = {**spec.source_options(), **token, **(of_source or {})}
    sink = {**spec.sink_options(), **token, RUN: spec.run_id, **(of_sink or {})}
    reader = spark.readStream.format("cloudFiles").options(**source)
    writer = reader.load(spec.source).writeStream
    writer = writer.format(sink_format(str(spec.target))).options(**sink)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return writer.start(str(spec.target))
