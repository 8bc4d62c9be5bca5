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

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.delta.merge.commit import MERGED
from airflow_cloudfiles.engine.delta.optimize import COMPACTED
from airflow_cloudfiles.engine.delta.stream.backlog import Backlog, backlog
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SparkServerError
from airflow_cloudfiles.engine.job.query import follow
from airflow_cloudfiles.engine.job.target import check_before_run, newest_version, sink_format
from airflow_cloudfiles.engine.job.transform.batches import TransformedBatches, as_callback
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.table_stream import table_options
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.spark.tables.stream_reader import COUNTS
from airflow_cloudfiles.engine.spark.tables.stream_writer import NOTES, STATE
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.storage import normalize_uri, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.session import SparkStart
    from airflow_cloudfiles.engine.job.spec import JobSpec

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
    lock = RunLock(state, JOB_KEY, run_id=spec.run_id)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock:
        check_before_run(state, str(spec.target))
        before = backlog(state, spec.source)
        if not before.has_work:
            _log.info("Version %s is the newest and was read: no Spark is started", before.newest)
            report |= _summary(spec, before, before, [])
            return
        spark.begin()
        counts = handoff.new_token()
        try:
            _query(spark, spec, durations, counts)
        finally:
            try:
                report |= _summary(
                    spec, before, backlog(state, spec.source), handoff.lines_of(counts)
                )
            except (CloudFilesError, OSError, ValueError) as error:
                _log.warning("The counts of this run cannot be read: %s", error)


def _query(spark: SparkStart, spec: JobSpec, durations: dict[str, float], counts: str) -> None:
    """Run the query to its end."""
    clock = time.monotonic()
    session = spark.session()
    durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
    clock = time.monotonic()
    try:
        query = start(session, spec, counts)
        follow(query, lambda: _log.info("%s", _line(query)))
    finally:
        durations["query_seconds"] = round(time.monotonic() - clock, 3)
        spark.stop_session()


def start(spark: SparkSession, spec: JobSpec, counts: str) -> StreamingQuery:
    """Start the available-now query of a run.

    Args:
        spark: The session, with `deltalake` registered.
        spec: The run.
        counts: Path of a file that gets what each micro-batch reads.
    """
    checkpoint = normalize_uri(spec.checkpoint_location)
    source = table_options(spec.options, checkpoint, spec.schema_location)
    reader = spark.readStream.format("deltalake").options(**source, **{COUNTS: counts})
    writer = reader.load(spec.source).writeStream
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    sink = {**spec.sink_options(), NOTES: "true"}
    if spec.transform is not None:
        batches = TransformedBatches(spec, {**sink, STATE: checkpoint})
        return writer.foreachBatch(as_callback(batches)).start()
    writer = writer.format(sink_format(str(spec.target))).options(**sink)
    return writer.start(str(spec.target))


def _line(query: StreamingQuery) -> str:
    last = query.lastProgress
    if last is None:
        return "No micro-batch has ended yet"
    return f"Micro-batch {last.batchId}: {counted(last.numInputRows, 'row')}"


def _summary(
    spec: JobSpec, before: Backlog, after: Backlog, counts: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the run did.

    Args:
        spec: The run.
        before: What was left before it.
        after: What is left.
        counts: What each micro-batch reads, as the source has planned it.
    """
    batches = range(before.batch + 1, after.batch + 1)
    done = progress.notes(spec.checkpoint_location, batches)
    total = progress.total(done)
    # A micro-batch that is planned once more, and one that was not committed, are left out.
    planned = {json.dumps(each["end"]): each for each in counts}
    read = list(planned.values())[: len(batches)]
    seen = [each for each in read if int(each["start"]["reservoirVersion"]) >= 0]
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": sum(each["files"] for each in read),
        "bytes": sum(each["bytes"] for each in read),
        "rows": total.get("rows", 0),
        **{name: total[name] for name in (*MERGED, *COMPACTED) if name in total},
        "batches": len(batches),
        "batches_recovered": sum(not each.is_new for each in done),
        "first_version": _first_version(seen[0]["start"]) if seen else None,
        "last_version": _last_version(seen[-1]["end"]) if seen else None,
        "versions": (after.next_version or 0) - (before.next_version or 0),
        "source_version": after.newest,
        "next_version": after.next_version,
        "target_version": newest_version(str(spec.target)),
        "warnings": [],
    }


def _first_version(start: Mapping[str, Any]) -> int:
    """The first version that a micro-batch has read; an initial snapshot has the rows of all."""
    return 0 if start["isStartingVersion"] else int(start["reservoirVersion"])


def _last_version(end: Mapping[str, Any]) -> int:
    """The last version that a micro-batch has read, at least in part."""
    return int(end["reservoirVersion"]) - (int(end["index"]) < 0)
