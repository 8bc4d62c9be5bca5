"""Have a server carry the micro-batches of a run by itself, with or without its client.

A query of Structured Streaming lives on a server as long as it has something to do. This one has no
rows: its function, which the server's Python calls once, is the loop of the run (`batches.run`),
and the tasks of its micro-batches are Spark jobs as those of every run. So whoever asks for the
query asks for the run, and stopping it ends the loop.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.connect_tasks import ConnectTasks, start_query
from airflow_cloudfiles.engine.batches.run import write_by_tasks
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr, marking
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import SparkServerError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.connect.coming_back import BatchLines
from airflow_cloudfiles.engine.job.counts import carry, files_of, stopped_by
from airflow_cloudfiles.engine.job.target import new_writer
from airflow_cloudfiles.engine.spark_versions import numbers
from airflow_cloudfiles.engine.tables.delta.opening import opened_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.connect.coming_back import QueryHandover
    from airflow_cloudfiles.engine.job.connect.session import ConnectStart
    from airflow_cloudfiles.engine.job.spec import JobSpec

OLDEST_SPARK = (4, 0)
"""The oldest Spark whose servers were seen to carry a run by themselves."""
_LOOK_SECONDS = 1.0
_END_SECONDS = 20.0


def run_on_server(
    spark: ConnectStart,
    leaving: QueryHandover,
    after_batch: int,
    last_entry: int,
    durations: dict[str, float],
) -> None:
    """Start the query of a run, follow it for a while, and leave it if it goes on.

    Args:
        spark: Where.
        leaving: The run, which may leave (`JobSpec.leave_after_seconds`).
        after_batch: The last committed batch; -1 for none.
        last_entry: Last entry of the file log that the run ingests.
        durations: Gets how long the run has waited for Spark, and for the query, in seconds.

    Raises:
        SparkServerError: The server's Spark is too old for that.
        RunFailedError: A signal has stopped it.
        CloudFilesError: What the query failed with. What was committed stays.
    """
    clock = time.monotonic()
    spec, session = leaving.spec, spark.session()
    if numbers(session.version) < OLDEST_SPARK:
        raise SparkServerError(
            f"The Spark Connect server has Spark {session.version}, and a deferred run needs "
            f"{'.'.join(map(str, OLDEST_SPARK))} or later there. Leave deferrable=True out."
        )
    lines = BatchLines(spec, after_batch + 1)
    parallelism = spark.parallelism()
    durations["spark_start_seconds"] = spark.waited_seconds
    try:
        # Where this driver is killed, others find the query, too.
        leaving.started(after_batch, spark.identify(None))
        crash_point("before-query-start")
        query = _started(session, spec, last_entry, parallelism)
        crash_point("after-query-start")
        leaving.note(spark.identify(query), lines.next_batch, durations)
        crash_point("after-query-note")
        goes_on = not _awaited(query, float(spec.leave_after_seconds or 0))
        lines.log_new()
        if goes_on:
            leaving.leave(spark.identify(query), lines.next_batch, durations)
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock - spark.waited_seconds, 3)
        if leaving.query is not None:
            spark.leave_session()
        else:
            leaving.forget()
            spark.stop_session()


def _started(
    session: SparkSession, spec: JobSpec, last_entry: int, parallelism: int
) -> StreamingQuery:
    # In the server's temporary directory: all that is in it is in the state. The server may name a
    # class that writes to its object store only.
    session.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    session.conf.set("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
    loop = marking(partial(_loop, spec, last_entry, parallelism))

    def start() -> StreamingQuery:
        no_rows = session.readStream.format("rate").load()
        return no_rows.writeStream.trigger(once=True).foreachBatch(loop).start()

    return start_query(start)


def _loop(
    spec: JobSpec,
    last_entry: int,
    parallelism: int,
    no_rows: DataFrame,
    _number: int,
) -> None:
    """Carry the micro-batches of a run, in a Python process of the server."""
    over = threading.Event()
    threading.Thread(target=_end_with, args=(os.getppid(), over), daemon=True).start()
    atexit.register(os._exit, 0)  # what Python does after that may wait for the client for ever
    log_to_stderr()
    session: Any = no_rows.sparkSession
    source = files_of(spec, last_entry, parallelism)
    tasks = ConnectTasks(lambda: session, printable_path(str(spec.target)))
    writer = partial(new_writer, spec, written="files")
    write = partial(write_by_tasks, tasks, source, writer)
    try:
        with opened_once():
            carry(source, write)
    finally:
        over.set()


def _end_with(server: int, over: threading.Event) -> None:
    """End this process when its server has, or its main thread, or its work.

    Threads of the client outlive the main thread, and may wait for each other for ever where a
    signal has interrupted it.
    """
    while os.getppid() == server and threading.main_thread().is_alive():
        if over.wait(_LOOK_SECONDS):
            time.sleep(_END_SECONDS)  # in which the main thread hands Spark its answer
            break
    os._exit(1)


def _awaited(query: StreamingQuery, seconds: float) -> bool:
    """Wait for the end of a query; a termination signal stops it.

    Returns:
        Whether it has ended in that time.
    """
    stopped: list[int] = []
    wait: Any = query.awaitTermination  # Spark takes fractions of a second, too

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a request.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    try:
        return bool(wait(seconds))
    except PySparkException as error:
        raise errors.from_text(str(error)) or error from None
    finally:
        if stopped:
            raise stopped_by(stopped[0])
