"""What is the query of a run, and how does the run wait for it?

It goes from the source to the sink, and no row enters the JVM. The run says how far it is, and
stops cleanly at a signal.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.job.target import sink_format
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.tables.stream_writer import RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.spec import JobSpec

PROGRESS_SECONDS = 10


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


def follow(
    query: StreamingQuery,
    say: Callable[[], None],
    *,
    leave: Callable[[], None] | None = None,
    leave_after_seconds: float = PROGRESS_SECONDS,
) -> None:
    """Wait for the end of a query; a termination signal stops it.

    Args:
        query: What runs.
        say: Called every few seconds.
        leave: Called once instead, if the query goes on after some time; then nobody waits for it.
        leave_after_seconds: After which time.

    Raises:
        RunFailedError: A signal has stopped it.
        CloudFilesError: What it failed with.
    """
    stopped: list[int] = []
    wait: Any = query.awaitTermination  # Spark takes fractions of a second, too

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a call to the JVM.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    try:
        if leave is None:
            while not wait(PROGRESS_SECONDS):
                say()
        elif not wait(leave_after_seconds):
            leave()
    finally:
        if stopped:
            raise RunFailedError(
                f"The run was stopped by signal {stopped[0]}. What was committed stays; run again "
                "for the rest."
            )
