"""Find the kind of table that a run writes to, and ask it what a run has to know.

A Delta table at a path or URI, or a table of an Iceberg catalog (`iceberg://...`), whose code is
imported only then: it is an extra of this package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state.run_history import BatchDone, note
from airflow_cloudfiles.engine.state.sink_log import CommitResult, Position, SinkLog
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.tables import sink_state
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.tables.target_table import iceberg_table
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter
    from airflow_cloudfiles.engine.tables.target_table import TargetTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rows:
    """What there is to say of the rows of a run.

    Attributes:
        schema: As they are read, and given to the function of the run.
        stream: What their writer needs to know (`TableWriter`).
        on_schema: Called with the schema of what the function makes of them.
    """

    schema: StructType
    stream: Mapping[str, Any]
    on_schema: Callable[[StructType], None] | None = None


def target_table(target: str) -> TargetTable:
    """Give the table of a target; nothing is opened yet.

    Args:
        target: Path or URI of a Delta table, or `iceberg://catalog/namespace/table`.
    """
    is_delta = target_of(target).layer == "delta"
    return DeltaTargetTable(target) if is_delta else iceberg_table(target)


def new_writer(spec: JobSpec, **stream: Any) -> TableWriter:
    """Make the writer of one micro-batch of a run.

    Args:
        spec: The run.
        stream: What else there is to say of it (`TableWriter`).

    Raises:
        OptionError: An option of the sink is not valid.
    """
    target = str(spec.target)
    options = {key.lower(): value for key, value in spec.sink_options().items()}
    state = normalize_uri(spec.checkpoint_location)
    read = SinkOptions.read(options)
    return target_table(target).writer(read, state=state, run_id=spec.run_id, **stream)


def record_committed(
    spec: JobSpec, state: ObjectStore, plans: PlanLog, before: Position
) -> Position:
    """Record the micro-batches that the table has and the state does not know of.

    A killed run leaves one of them, and more where records were lost. Their files are not read
    again: they may be gone, or others by now.

    Args:
        spec: The run.
        state: Its state.
        plans: The plan log of its stream.
        before: Where the stream is, by its records.

    Returns:
        Where it is now; `before` when there was nothing to record.

    Raises:
        SinkError: The table cannot be opened, or is something else.
    """
    target = str(spec.target)
    latest = plans.known()
    while latest is not None and before.batch < latest.number:
        plan = plans.at(before.batch + 1)
        plan_id = plans.id_of(plan.number)
        found = None
        if plan.start == before.end:
            found = target_table(target).find_unrecorded(state, plan.number, plan_id)
        if found is None:
            break
        committed = CommitResult(found.version, is_new=False, table_id=found.table_id)
        done = BatchDone(
            batch_id=plan.number,
            table_version=found.version,
            is_new=False,
            schema_version=found.schema_version,
            counts=dict(found.counts),
            run_id=spec.run_id,
        )
        note(spec.checkpoint_location, done)
        log = SinkLog(state)
        sink_state.note(
            log,
            target,
            plan.number,
            committed,
            plan=plan_id,
            read_by="sink",
            end=plan.end,
            done=done,
        )
        _log.info("%s", done.line())
        before = Position(plan.number, plan.end, is_of_a_job=True)
    return before


def check_target(spec: JobSpec, columns: pa.Schema) -> None:
    """Find out before a run starts Spark whether its table can take rows of this schema.

    Raises:
        SchemaMismatchError: Its columns do not fit.
        OptionError: The files of an Iceberg table are below the source, or it is partitioned
            otherwise than it was asked for.
        SinkError: The table cannot be opened, or is something else.
    """
    target = str(spec.target)
    table, options = target_table(target), spec.table_options
    location = table.check(columns, options, merge_schema=spec.merge_schema)
    if options.row_rules:
        extension("row rules").of(options, target).check(columns)
    if location is not None and _is_below(location, spec.source):
        raise OptionError(
            f"The files of {target} are in {location}, below the source {spec.source}: they would "
            "be ingested as well. Move the table, or narrow the source."
        )


def _is_below(location: str, source: str) -> bool:
    """Tell whether a place is below a source, which may have a pattern."""
    fixed = normalize_uri(source)
    for mark in "*?[{":
        fixed = fixed.partition(mark)[0]
    return f"{normalize_uri(location)}/".startswith(f"{fixed.rstrip('/')}/")
