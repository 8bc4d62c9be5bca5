"""Carry the micro-batches of a run to their end, and stop between two steps at a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.file_source import FileBatches
from airflow_cloudfiles.engine.batches.run import (
    PROGRESS_SECONDS,
    BatchSource,
    Planned,
    WrittenByTasks,
    run_batches,
)
from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.job.target import new_writer
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.intake.opening import Opened
    from airflow_cloudfiles.engine.job.session import SparkStart
    from airflow_cloudfiles.engine.job.spec import JobSpec


def files_of(
    spec: JobSpec,
    after_batch: int,
    last_entry: int,
    parallelism: int,
    known: Opened | None = None,
) -> FileBatches:
    """The micro-batches of a run whose source is files.

    Args:
        spec: The run.
        after_batch: The last committed batch; -1 for none.
        last_entry: Last entry of the file log that the run ingests.
        parallelism: How many tasks can run at a time.
        known: As for `FileBatches`.
    """
    return FileBatches(
        CloudFilesOptions.parse(spec.source_options(), path=spec.source),
        spec.checkpoint_location,
        after_batch=after_batch,
        up_to=Offset(last_entry + 1, 0),
        parallelism=parallelism,
        known=known,
    )


def carry_out(  # noqa: PLR0913 - the parts of a run
    spec: JobSpec,
    spark: SparkStart,
    source: BatchSource,
    durations: dict[str, float],
    *,
    schema: StructType,
    stream: Mapping[str, Any],
    on_schema: Callable[[StructType], None] | None = None,
    say: Callable[[], None] | None = None,
) -> None:
    """Ingest what a run has before it, with its function if it has one.

    Args:
        spec: The run.
        spark: Its Spark, which is stopped in the end.
        source: What the micro-batches are made of.
        durations: Gets how long it has waited for Spark, and how long the rest took, in seconds.
        schema: Of the rows that a function is given.
        stream: What else there is to say of the stream to its writer (`TableWriter`).
        on_schema: Called with the schema of what a function makes of them.
        say: As for `carry`.

    Raises:
        CloudFilesError: As of `carry`.
    """
    clock, waited = time.monotonic(), spark.waited_seconds
    try:
        if spec.transform is None:
            with spark.executor() as executor:
                writer = partial(new_writer, spec, **stream)
                carry(source, WrittenByTasks(executor, source, writer), say)
        else:
            from airflow_cloudfiles.engine.job.transform.batches import (  # noqa: PLC0415 - needs Spark
                TransformedBatches,
            )

            write = TransformedBatches(
                spec, spark.session, source, schema=schema, stream=stream, on_schema=on_schema
            )
            carry(source, write, say)
    finally:
        durations["spark_start_seconds"] = spark.waited_seconds
        waited = spark.waited_seconds - waited  # a cluster is asked before what it can do at once
        durations["query_seconds"] = round(time.monotonic() - clock - waited, 3)
        spark.stop_session()


def carry(
    source: BatchSource, write: Callable[[Planned], None], say: Callable[[], None] | None = None
) -> None:
    """Ingest what a run has before it; a termination signal ends that.

    Args:
        source: What the micro-batches are made of.
        write: Writes and commits one.
        say: Called between micro-batches, every few seconds, to say how far the run is.

    Raises:
        RunFailedError: A signal has stopped it.
        CloudFilesError: What it failed with. What was committed stays.
    """
    stopped: list[int] = []
    said = time.monotonic()

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        raise stopped_by(number)

    def check() -> None:
        nonlocal said
        if stopped:  # where the error of the signal was caught on its way
            raise stopped_by(stopped[0])
        if say is not None and time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            say()

    signal.signal(signal.SIGTERM, stop)
    run_batches(source, write, check=check)


def stopped_by(number: int) -> RunFailedError:
    """Give the error of a run that a signal has stopped."""
    return RunFailedError(
        f"The run was stopped by signal {number}. What was committed stays; run again for the rest."
    )
