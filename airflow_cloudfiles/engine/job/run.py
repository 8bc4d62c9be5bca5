"""Carry out one run, from its specification to its report.

Carry out what the specification asks for, then write the report beside the state, whatever
happened. An error is in it by class and message.
"""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.job.ingest import ingest
from airflow_cloudfiles.engine.job.session import NoSpark, SparkStart
from airflow_cloudfiles.engine.job.spark_command import CONNECT, LAUNCHED, WITHOUT_SPARK
from airflow_cloudfiles.engine.job.spec import BESIDE, REPORT, JobSpec
from airflow_cloudfiles.engine.options.discovery import UpkeepOptions
from airflow_cloudfiles.engine.reading.split_reader import names_of_the_dead
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.locks.run_lock import end_releases
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state, unexpected
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.tables.delta.opening import opened_once
from airflow_cloudfiles.engine.types import schema_tree, simple_ddl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.spark.forked_python import ForkedDaemon

_log = logging.getLogger(__name__)


def run(spec: JobSpec, daemon: ForkedDaemon | None = None) -> dict[str, Any]:
    """Carry out one run and write its report.

    Args:
        spec: The run.
        daemon: What becomes Spark's Python daemon in a local run, if there is one.

    Returns:
        The report; `outcome` is `succeeded`, or `failed`, and then `error` says why, or `left`, and
        then `query` says which query was left on a server.
    """
    started = datetime.now(tz=UTC)
    clock = time.monotonic()
    durations: dict[str, float] = {}
    compacts = False
    report: dict[str, Any] = {"run_id": spec.run_id, "kind": spec.kind}
    if spec.transform is not None:
        report["transform"] = str(spec.transform.get("name"))
    with closing(_spark_of(spec, daemon)) as spark:
        try:
            spark.check()
            with opened_once():
                compacts = _carry_out(spec, spark, report, durations)
            report["outcome"] = "left" if "query" in report else "succeeded"
        except BaseException as error:  # the report has it, whatever it was
            if not (isinstance(error, Exception) or errors.is_panic(error)):
                raise
            ours = _put_aside(spec, _as_ours(error, spark, spec))
            trace = ours is not error and error
            _log.log(
                logging.ERROR, "%s: %s", type(ours).__name__, errors.with_code(ours), exc_info=trace
            )
            report |= {"outcome": "failed", "error": errors.to_record(ours)}
        began = datetime.fromisoformat(report.pop("started", started.isoformat()))
        if spark.warnings:
            report["warnings"] = [*report.get("warnings", []), *spark.warnings]
        before = max(0.0, (started - began).total_seconds())  # of a run that came back
        durations["total_seconds"] = round(before + time.monotonic() - clock, 3)
        store = open_store(spec.checkpoint_location)
        report |= {
            "durations": durations,
            "started": began.isoformat(),
            "ended": datetime.now(tz=UTC).isoformat(),
            "report_uri": store.child_uri(spec.report_key),
        }
        try:
            with reaching_state(store):
                run_history.write_report(store, spec.report_key, report)
        finally:
            end_releases()
        _hand_back(report)
    if report["outcome"] == "succeeded" and spec.kind == "ingest":
        _keep_small(spec, compacts=compacts)
    return report


def _hand_back(report: Mapping[str, Any]) -> None:
    """Give whoever started this driver the report, which the state has; else they read it there."""
    folder = os.environ.get(BESIDE)
    if folder is None:
        return
    try:
        handoff.put(f"{folder}/{REPORT}", report)
    except OSError as failure:
        _log.info("The report was not handed back, and is read from the state: %s", failure)


def _keep_small(spec: JobSpec, *, compacts: bool) -> None:
    """Keep the state from growing with the number of runs."""
    sweeps = run_history.sweeps(spec.run_id)
    if not compacts and not sweeps:
        return
    options = _upkeep(spec)
    upkeep.after_run(
        spec.checkpoint_location,
        compacts=compacts,
        least=options.state_compact_interval,
        sweeps=sweeps,
        retention_seconds=options.run_retention_seconds,
    )


def _carry_out(
    spec: JobSpec, spark: SparkStart, report: dict[str, Any], durations: dict[str, float]
) -> bool:
    """Do what a run is for; what it has done is in the report also when it fails.

    Returns:
        Whether the logs of the state are to be compacted.
    """
    # Each kind imports what no other needs: starting is most of a small run.
    if spec.kind == "infer":
        report |= _infer(spec)
    elif spec.kind != "ingest":
        report |= extension(spec.kind)(spec)
    elif not source_of(spec.format).records_arrivals:
        from airflow_cloudfiles.engine.job.table_ingest import ingest_table  # noqa: PLC0415

        ingest_table(spec, spark, report, durations)
        return bool(report.get("batches")) and _is_due_of_table(spec)
    else:
        return ingest(spec, spark, report, durations)
    return False


def _is_due_of_table(spec: JobSpec) -> bool:
    """Tell whether a run from a table, which has committed something, is to compact the state."""
    state = open_store(spec.checkpoint_location)
    return upkeep.is_due_of_table(state, _upkeep(spec).state_compact_interval)


def _upkeep(spec: JobSpec) -> UpkeepOptions:
    return UpkeepOptions.read({key.lower(): each for key, each in spec.source_options().items()})


def _spark_of(spec: JobSpec, daemon: ForkedDaemon | None) -> SparkStart:
    """Choose the Spark that the driver was started for: its own, a cluster's or a server's."""
    launched = os.environ.get(LAUNCHED)
    if launched == WITHOUT_SPARK:
        return NoSpark(spec)
    if launched != CONNECT:
        return SparkStart(spec, daemon)
    from airflow_cloudfiles.engine.job.connect.session import ConnectStart  # noqa: PLC0415

    return ConnectStart(spec)


def _as_ours(error: BaseException, spark: SparkStart, spec: JobSpec) -> CloudFilesError:
    """Find the error of ours that caused a failure; else build one that says the reason."""
    if isinstance(error, CloudFilesError):
        return error
    found = errors.from_text(str(error))
    if found is None and isinstance(error, Exception):
        found = spark.as_ours(error)
    found = found or unexpected(error)
    if found is not None:
        is_unexplained = isinstance(error, BrokenExecutor) or errors.has_no_reason(found)
        return _with_files(found, spec) if is_unexplained else found
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    kind = type(error).__name__
    return RunFailedError(f"{spark.name} failed: {kind}: {first[:500]}. See the log above.")


def _with_files(error: CloudFilesError, spec: JobSpec) -> CloudFilesError:
    """Build the error of a process that has died without one, with the files that it had."""
    names = names_of_the_dead(normalize_uri(spec.checkpoint_location))
    if not names:
        return error
    return type(error)(f"{error.message} The process had: {'; '.join(names)}.")


def _put_aside(spec: JobSpec, failure: CloudFilesError) -> CloudFilesError:
    """Quarantine the files that an error names, if any; return what the run fails with."""
    if not getattr(failure, "blamed", ""):
        return failure
    error: CloudFilesError = extension("quarantine")(spec, failure)
    return error


def _infer(spec: JobSpec) -> dict[str, Any]:
    """Write the first schema version, unless there is one; or a new one when asked to."""
    options = spec.parsed()
    resolved = definition.resolve_schema(options, again=spec.infer_again)
    schema = resolved.full_schema(options)
    _log.info("Schema version %s:\n%s", resolved.version, schema_tree(schema))
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
