"""How does a run ingest what a Delta table has got?

From bronze to silver: a plain query from the table to the target, with Spark's checkpoint in the
state. Nothing is discovered: the log of the table is the list of what is new. A run that finds
nothing new starts no Spark. Each version is read exactly once: Spark's log has the offsets of a
micro-batch before it is read, and the target has its number.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.stream.backlog import Backlog, backlog
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SparkServerError
from airflow_cloudfiles.engine.job.following import follow
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.table_stream import table_options
from airflow_cloudfiles.engine.spark.source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.storage import normalize_uri, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.session import SparkStart
    from airflow_cloudfiles.engine.job.spec import JobSpec

_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
_log = logging.getLogger(__name__)


def ingest_table(
    spec: JobSpec, spark: SparkStart, report: dict[str, Any], durations: dict[str, float]
) -> None:
    """Ingest every version that the table had when the run began.

    Repeating it is harmless. What was committed goes into the report also when the run then fails.

    Args:
        spec: The run.
        spark: Its Spark, not begun yet.
        report: Gets what the run did.
        durations: Gets how long its parts took, in seconds.

    Raises:
        CloudFilesError: What stopped it.
    """
    if spark.is_elsewhere:
        raise SparkServerError(
            "A Delta table as the source of a run does not work over Spark Connect in this "
            "version: the server cannot keep the checkpoint in the state. Use a local Spark or "
            "spark-submit."
        )
    if spec.batch is not None:
        raise OptionError(
            "batch is for a source of files: a run whose source is a Delta table ingests every "
            "version there is. Leave it out."
        )
    state = open_store(spec.checkpoint_location)
    lock = RunLock(state, JOB_KEY)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock:
        sink_state.check_before_run(state, str(spec.target))
        before = backlog(state, spec.source)
        if not before.has_work:
            _log.info("Version %s is the newest and was read: no Spark is started", before.newest)
            report |= _summary(spec, before, before, [])
            return
        spark.begin()
        progress: list[dict[str, Any]] = []
        try:
            _query(spark, spec, durations, progress)
        finally:
            try:
                report |= _summary(spec, before, backlog(state, spec.source), progress)
            except (CloudFilesError, OSError, ValueError) as error:
                _log.warning("The counts of this run cannot be read: %s", error)


def _query(
    spark: SparkStart,
    spec: JobSpec,
    durations: dict[str, float],
    progress: list[dict[str, Any]],
) -> None:
    """Run the query to its end."""
    clock = time.monotonic()
    session = spark.session()
    durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
    clock = time.monotonic()
    try:
        query = start(session, spec)
        try:
            follow(query, lambda: _log.info("%s", _line(query)))
        finally:
            progress += [json.loads(each.json) for each in query.recentProgress]
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        spark.stop_session()


def start(spark: SparkSession, spec: JobSpec) -> StreamingQuery:
    """Start the available-now query of a run.

    Args:
        spark: The session, with `deltalake` registered.
        spec: The run.
    """
    spark.conf.set(_KEPT, "100000")
    checkpoint = normalize_uri(spec.checkpoint_location)
    source = table_options(spec.options, checkpoint, spec.schema_location)
    reader = spark.readStream.format("deltalake").options(**source)
    writer = reader.load(spec.source).writeStream.format("deltalake").options(**spec.sink_options())
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return writer.start(str(spec.target))


def _line(query: StreamingQuery) -> str:
    last = query.lastProgress
    if last is None:
        return "No micro-batch has ended yet"
    return f"Micro-batch {last.batchId}: {last.numInputRows} rows"


def _summary(
    spec: JobSpec, before: Backlog, after: Backlog, progress: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the run did."""
    rows: Mapping[int, int] = {int(each["batchId"]): int(each["numInputRows"]) for each in progress}
    table = open_table(str(spec.target))
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "rows": sum(rows.values()),
        "batches": after.batch - before.batch,
        "source_version": after.newest,
        "first_version": before.next_version,
        "next_version": after.next_version,
        "versions": (after.next_version or 0) - (before.next_version or 0),
        "target_version": table.version() if table else None,
        "warnings": [],
    }
