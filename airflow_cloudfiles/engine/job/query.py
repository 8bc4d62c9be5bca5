"""What is the query of a run, and how does the run wait for it?

It goes from the source to the sink, and no row enters the JVM. The run says how far it is, and
stops cleanly at a signal.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.job.target import sink_format
from airflow_cloudfiles.engine.job.transform.batches import (
    ReadSplits,
    TransformedBatches,
    as_callback,
)
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.tables.stream_writer import (
    FUNCTION,
    RESCUED,
    RUN,
    SCHEMA_VERSION,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.job.spec import JobSpec

PROGRESS_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How the files of a run are read, for a function over its micro-batches.

    Attributes:
        schema: Of their rows.
        version: Its version in the schema log.
        rescued: The rescued data column; `None` where there is none.
        on_written: Called with the schema of what the function returns.
    """

    schema: StructType
    version: int
    rescued: str | None
    on_written: Callable[[StructType], None]


def start_query(  # noqa: PLR0913 - the parts of a query
    spark: SparkSession,
    spec: JobSpec,
    checkpoint: str,
    *,
    of_source: Mapping[str, str] | None = None,
    of_sink: Mapping[str, str] | None = None,
    read_as: ReadAs | None = None,
) -> StreamingQuery:
    """Start the available-now query of a run: the tasks read, parse and write.

    Args:
        spark: The session, with `cloudFiles` registered.
        spec: The run.
        checkpoint: URI of the folder where Spark keeps its checkpoint of the query.
        of_source: More options of the source.
        of_sink: More options of the sink.
        read_as: How the files are read, where a function is given their rows.
    """
    token = {split_rows.SPLIT_TOKEN: split_rows.new_token()}
    source = {**spec.source_options(), **token, **(of_source or {})}
    sink = {**spec.sink_options(), **token, RUN: spec.run_id, **(of_sink or {})}
    reader = spark.readStream.format("cloudFiles").options(**source)
    writer = reader.load(spec.source).writeStream
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if spec.transform is not None and read_as is not None:
        return writer.foreachBatch(_transformed(spec, sink, read_as)).start()
    writer = writer.format(sink_format(str(spec.target))).options(**sink)
    return writer.start(str(spec.target))


def _transformed(
    spec: JobSpec, sink: dict[str, str], read_as: ReadAs
) -> Callable[[DataFrame, int], None]:
    """What makes of each micro-batch of files what is written, and writes it."""
    token = sink.pop(split_rows.SPLIT_TOKEN)
    sink |= {FUNCTION: str((spec.transform or {}).get("name"))}
    sink |= {SCHEMA_VERSION: str(read_as.version)}
    if read_as.rescued is not None:
        sink[RESCUED] = read_as.rescued
    reads = (ReadSplits(token, read_as.schema), read_as.schema)
    return as_callback(TransformedBatches(spec, sink, reads=reads, on_schema=read_as.on_written))


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
