"""How does one run go, from its specification to its report?

1. Read the specification, start Spark, make `cloudFiles` known.
2. Resolve the schema (and stop there, for `infer`).
3. Start an available-now query from the source to the Delta table; the tasks read, parse and
   write, so no row enters the JVM.
4. Follow it: a line whenever something moved, at least every few seconds.
5. Write the report beside the state, whatever happened. An error is in it by class and message.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import check_target
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.widening import WideningRule, widening_rule
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError
from airflow_cloudfiles.engine.inference.workers import SparkWorkers, local_workers
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.replay import replay
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, LAUNCHED, default_conf
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.promotion.promote import Promotion, promote
from airflow_cloudfiles.engine.spark import handoff, split_rows
from airflow_cloudfiles.engine.spark.session_zone import CONF as SESSION_ZONE
from airflow_cloudfiles.engine.spark.session_zone import zone_warning
from airflow_cloudfiles.engine.spark.source import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.stream import definition, evolve_ahead
from airflow_cloudfiles.engine.types import simple_ddl, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.inference.tasks import Workers

PROGRESS_SECONDS = 10
ASSUMED_WORKERS = 8
"""Tasks at a time on a cluster of which nothing is known before its session is there."""
_log = logging.getLogger(__name__)


def run(spec: JobSpec) -> dict[str, Any]:
    """Carry out one run and write its report.

    Returns:
        The report; `outcome` is `succeeded` or `failed`, and then `error` says why.
    """
    started = datetime.now(tz=UTC)
    clock = time.monotonic()
    durations: dict[str, float] = {}
    report: dict[str, Any] = {"run_id": spec.run_id, "kind": spec.kind}
    try:
        if spec.kind == "infer":
            report |= _infer(spec)
        elif spec.kind == "promote":
            report |= promote(_promotion(spec)).to_json()
        elif spec.kind == "replay":
            report |= replay(spec)
        else:
            _ingest(spec, report, durations)
        report["outcome"] = "succeeded"
    except Exception as error:  # noqa: BLE001 - the report has it, whatever it was
        ours = _as_ours(error)
        _log.log(
            logging.ERROR, "%s: %s", type(ours).__name__, ours, exc_info=ours is not error and error
        )
        report |= {
            "outcome": "failed",
            "error": errors.to_record(ours),
        }
    durations["total_seconds"] = round(time.monotonic() - clock, 3)
    store = open_store(spec.checkpoint_location)
    report |= {
        "durations": durations,
        "started": started.isoformat(),
        "ended": datetime.now(tz=UTC).isoformat(),
        "report_uri": store.child_uri(spec.report_key),
    }
    with reaching_state(store):
        store.put(spec.report_key, json.dumps(report, indent=1).encode())
    return report


def _as_ours(error: Exception) -> CloudFilesError:
    """The error of ours that caused a failure; else one that carries the reason in a sentence."""
    if isinstance(error, CloudFilesError):
        return error
    found = errors.from_text(str(error))
    if found is not None:
        return found
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    kind = type(error).__name__
    return RunFailedError(f"Spark failed: {kind}: {first[:500]}. See the log above.")


def _infer(spec: JobSpec) -> dict[str, Any]:
    """Write the first schema version, unless there is one; or a new one when asked to."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    workers = _workers(spec)
    try:
        resolved = definition.resolve_schema(options, workers=workers, again=spec.infer_again)
    finally:
        if isinstance(workers, SparkWorkers):
            workers.stop()
    schema = resolved.full_schema(options.rescued_data_column)
    _log.info("Schema version %s:\n%s", resolved.version, schema.treeString())
    for line in (*resolved.hints, *resolved.changes):
        _log.info("%s: %s", "Hint" if line in resolved.hints else "Changed", line)
    return {
        "schema_version": resolved.version,
        "schema": simple_ddl(schema),
        "schema_location": resolved.schema_uri,
        "created": resolved.created,
        "sampled_files": resolved.sampled_files,
        "sampled_bytes": resolved.sampled_bytes,
        "partition_columns": resolved.partition_schema.names,
        "hints": list(resolved.hints),
        "changes": list(resolved.changes),
        "warnings": list(resolved.warnings),
    }


def _promotion(spec: JobSpec) -> Promotion:
    """What a run is asked to promote."""
    return Promotion(
        target=str(spec.target),
        checkpoint_location=spec.checkpoint_location,
        fields=spec.promote,
        schema_location=spec.schema_location,
        options=spec.options,
    )


def _workers(spec: JobSpec) -> Workers | None:
    """Who may help to read a large sample: the cluster if there is one, else this machine."""
    if os.environ.get(LAUNCHED) == "submit":
        return SparkWorkers(partial(session, spec), count=ASSUMED_WORKERS, start_seconds=15.0)
    given = f"{spec.spark_conf.get('spark.master')} {os.environ.get('PYSPARK_SUBMIT_ARGS')}"
    limit = re.search(r"local\[(\d+)", given)
    return local_workers(int(limit[1]) if limit else None)


def _ingest(spec: JobSpec, report: dict[str, Any], durations: dict[str, float]) -> None:
    """Run the query until everything that was there is in the table.

    What was committed goes into the report also when the run then fails.
    """
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    lock = RunLock(open_store(spec.checkpoint_location), JOB_KEY)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock:
        began = time.time()
        sink_state.check_before_run(open_store(spec.checkpoint_location), str(spec.target))
        resolved = definition.resolve_schema(options, workers=_workers(spec))
        if options.evolve_ahead:
            resolved, last = evolve_ahead.before_run(options, resolved, spec.checkpoint_location)
            if spec.batch is None and last >= 0:
                spec = replace(spec, batch={"last_entry": last})
        report["schema_version"] = resolved.version
        columns = resolved.full_schema(options.rescued_data_column)
        zone = zone_warning(columns, options, spec.spark_conf.get(SESSION_ZONE))
        schema = to_arrow(columns)
        check_target(
            str(spec.target), schema, merge_schema=spec.merge_schema, widening=_widening(spec)
        )
        before = _last_batch(spec)
        clock = time.monotonic()
        spark = session(spec)
        durations["spark_start_seconds"] = round(time.monotonic() - clock, 3)
        clock = time.monotonic()
        try:
            _follow(start(spark, spec), spec)
        finally:
            durations["query_seconds"] = round(time.monotonic() - clock, 3)
            spark.stop()
            _add_counts(report, spec, before, began)
            noticed = filter(None, (*resolved.warnings, zone))
            report["warnings"] = [*noticed, *report.get("warnings", [])]


def _widening(spec: JobSpec) -> WideningRule | None:
    """Whether the sink may rewrite the table."""
    return widening_rule(spec.table_options, default=False)


def session(spec: JobSpec) -> SparkSession:
    """A Spark session for a run, with `cloudFiles` registered.

    The master comes from `spark-submit` or the specification; the default is `local[*]`.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from airflow_cloudfiles.engine.spark.register import register  # noqa: PLC0415

    builder = SparkSession.builder.appName(f"cloudfiles-{spec.run_id}")
    # Whoever launched the driver has set master and defaults already, before the user's own.
    launched = os.environ.get(LAUNCHED)
    master = spec.spark_conf.get("spark.master", "local[*]")
    defaults = {} if launched else {"spark.master": master, **default_conf(master)}
    if launched == "local":
        # Where Spark keeps blocks that it spills, unless `spark.local.dir` says another place: it
        # leaves the folder open to whom the umask does.
        temporary = f'"-Djava.io.tmpdir={handoff.process_folder()}"'
        defaults["spark.driver.extraJavaOptions"] = f"{COORDINATOR_JVM} {temporary}"
    for key, value in {**defaults, **spec.spark_conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("CLOUDFILES_SPARK_LOG_LEVEL", "FATAL"))
    register(spark)
    return spark


def start(spark: SparkSession, spec: JobSpec) -> StreamingQuery:
    """Start the available-now query of a run; its rows never enter the JVM."""
    token = split_rows.new_token()
    options = {**spec.source_options(), split_rows.SPLIT_TOKEN: token}
    reader = spark.readStream.format("cloudFiles").options(**options)
    writer = (
        reader.load(spec.source)
        .writeStream.format("deltalake")
        # With its scheme, so that Spark's checkpoint is where the rest of the state is, whatever
        # file system is Hadoop's default.
        .option("checkpointLocation", normalize_uri(spec.checkpoint_location))
        .options(**spec.sink_options(), **{split_rows.SPLIT_TOKEN: token})
        .trigger(availableNow=True)
    )
    return writer.start(str(spec.target))


def _follow(query: StreamingQuery, spec: JobSpec) -> None:
    """Wait for the end, saying how far it is; a termination signal stops the query cleanly."""
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a call to the JVM.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    opened = Intake.open(
        source=spec.source,
        format=spec.format,
        checkpoint_location=spec.checkpoint_location,
        discovery=options.discovery,
    )
    try:
        with closing(opened) as intake:
            while not query.awaitTermination(PROGRESS_SECONDS):
                left = intake.outstanding()
                _log.info("Still to ingest: %s files, %s bytes", left.files, left.bytes)
    finally:
        if stopped:
            raise RunFailedError(
                f"The run was stopped by signal {stopped[0]}. What was committed stays; run again "
                "for the rest."
            )


def _last_batch(spec: JobSpec) -> int:
    """The last micro-batch that Spark has committed; -1 before the first."""
    store = open_store(spec.checkpoint_location)
    with reaching_state(store):
        names = [file.path.rpartition("/")[2] for file in store.list("commits/")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _add_counts(report: dict[str, Any], spec: JobSpec, before: int, began: float) -> None:
    """Put what was committed into the report; a run is not failed by its bookkeeping."""
    try:
        report |= _summary(spec, before)
        found = progress.discovery_since(open_store(spec.checkpoint_location), began)
        report["discovery"] = found
        report["warnings"] += _discovery_warnings(found or {})
    except (CloudFilesError, OSError, ValueError) as error:
        _log.warning("The counts of this run cannot be read: %s", error)


def _discovery_warnings(found: dict[str, Any]) -> list[str]:
    """What a person should know of a discovery."""
    listing, queue = found.get("listing") or {}, found.get("notifications") or {}
    warnings = []
    if missed := listing.get("missed_by_incremental"):
        warnings.append(
            f"{missed} new files lie where an incremental listing does not list, such as "
            f"{listing['missed_sample'][0]}."
        )
    if lost := found.get("found_by", {}).get("backfill"):
        warnings.append(f"{lost} files were found by a full listing only.")
    if poison := queue.get("poison"):
        warnings.append(f"{poison} messages were not understood and are still in the queue.")
    if failed := queue.get("failed_deletes"):
        warnings.append(f"{failed} messages could not be deleted; they come back, harmlessly.")
    return warnings


def _summary(spec: JobSpec, before: int) -> dict[str, Any]:
    """Add up what the micro-batches of this run noted."""
    done = progress.notes(spec.checkpoint_location, range(before + 1, _last_batch(spec) + 1))
    total: dict[str, int] = {}
    for batch in done:
        for key, value in batch.counts.items():
            total[key] = total.get(key, 0) + value
    table = open_table(str(spec.target))
    return {
        "source": normalize_uri(spec.source),
        "target": normalize_uri(str(spec.target)),
        "files": total.get("files", 0),
        "bytes": total.get("bytes", 0),
        "rows": total.get("rows", 0),
        "rescued_rows": total.get("rescued_rows", 0),
        "corrupt_records": total.get("corrupt_records", 0),
        "dropped_records": total.get("dropped_records", 0),
        "batches": len(done),
        "batches_recovered": sum(not batch.is_new for batch in done),
        "target_version": table.version() if table else None,
        "warnings": _batch_warnings(spec, total),
    }


def _batch_warnings(spec: JobSpec, total: dict[str, int]) -> list[str]:
    """What of the input is not in the table, or is not what was discovered."""
    apart = "badrecordspath" in {name.lower() for name in spec.options}
    sentences = {
        "missing_files": "files were gone and were skipped.",
        "corrupt_files": "damaged files, or parts of large ones, were given up where the damage "
        "begins (ignoreCorruptFiles); the task's log names them.",
        "changed_files": "files had changed since they were discovered.",
        "superseded_files": "files had been overwritten before they were read (allowOverwrites): "
        "the newer versions are ingested as files of their own, those before are gone.",
        "dropped_records": "invalid records are in badRecordsPath."
        if apart
        else "invalid records were dropped (DROPMALFORMED).",
    }
    return [f"{total[key]} {what}" for key, what in sentences.items() if total.get(key)]
