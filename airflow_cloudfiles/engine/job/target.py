"""Find the kind of table that a run writes to, and ask it what a run has to know.

A Delta table at a path or URI, or a table of an Iceberg catalog (`iceberg://...`), whose code is
imported only then: it is an extra of this package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.delta_writer import DeltaWriter
from airflow_cloudfiles.engine.batches.iceberg_writer import IcebergWriter
from airflow_cloudfiles.engine.delta import commit as delta_commit
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import Committed
from airflow_cloudfiles.engine.delta.lineage import newest_known
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.write.creation import NewTable
from airflow_cloudfiles.engine.delta.write.evolve import widening_rule
from airflow_cloudfiles.engine.errors import LostBatchesError, OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state import metadata
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.run_history import BatchDone, note
from airflow_cloudfiles.engine.state.sink_log import Position, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.extras import import_with_extra
from airflow_cloudfiles.engine.storage.uri import is_iceberg

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.batches.table_writer import TableWriter
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.state.plan_log import PlanLog
    from airflow_cloudfiles.engine.storage import ObjectStore

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


def new_writer(spec: JobSpec, **stream: Any) -> TableWriter:
    """Make the writer of one micro-batch of a run.

    Args:
        spec: The run.
        stream: What else there is to say of it (`TableWriter`).

    Raises:
        OptionError: An option of the sink is not valid.
    """
    target = str(spec.target)
    kind = IcebergWriter if is_iceberg(target) else DeltaWriter
    options = {key.lower(): value for key, value in spec.sink_options().items()}
    state = normalize_uri(spec.checkpoint_location)
    return kind(target, SinkOptions.read(options), state=state, run_id=spec.run_id, **stream)


def check_before_run(state: ObjectStore, target: str, source: str | None = None) -> None:
    """Refuse to start a run into a table that lacks batches of the stream, or has them unknown.

    Args:
        state: The checkpoint location.
        target: The table.
        source: What the state knows, or will know, the files' source by; `None` for none.

    Raises:
        LostBatchesError: It lacks some.
        CorruptedStateError: The state is new, and the table has batches of this place and source.
        SinkError: The table cannot be opened, or is something else.
    """
    if source is not None and read_metadata(state) is None:
        _refuse_known_origin(state, target, source)
    if not is_iceberg(target):
        sink_state.check_before_run(state, target)
        return
    stream = sink_state.application(state)
    record = None if stream is None else SinkLog(state).must_have()
    if record is not None:
        _iceberg(target).check_expected(target, stream, record, printable_path(state.uri))


def _refuse_known_origin(state: ObjectStore, target: str, source: str) -> None:
    if not is_iceberg(target):
        sink_state.refuse_known_origin(state, target, source)
        return
    newest = _iceberg(target).newest_of_origin(target, metadata.origin(state, source))
    if newest is not None:
        what = f"{target} has batch {newest} of a stream with this checkpoint location and source"
        raise metadata.without_log(state, what)


def record_committed(spec: JobSpec, plans: PlanLog, before: Position) -> Position:
    """Record the micro-batches that the table has and the state does not know of.

    A killed run leaves one of them, and more where records were lost. Their files are not read
    again: they may be gone, or others by now.

    Args:
        spec: The run.
        plans: The plan log of its stream.
        before: Where the stream is, by its records.

    Returns:
        Where it is now; `before` when there was nothing to record.

    Raises:
        SinkError: The table cannot be opened, or is something else.
    """
    state, target = open_store(spec.checkpoint_location), str(spec.target)
    latest = plans.known()
    while latest is not None and before.batch < latest.number:
        plan = plans.at(before.batch + 1)
        plan_id = plans.id_of(plan.number)
        found = (
            _find_batch(state, target, plan.number, plan_id) if plan.start == before.end else None
        )
        if found is None:
            break
        committed = Committed(found.version, is_new=False, table_id=found.table_id)
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


def _find_batch(
    state: ObjectStore, target: str, batch: int, plan: str
) -> sink_state.FoundBatch | None:
    """Find a batch that has no record in a table (`sink_state.found_in_table`)."""
    if not is_iceberg(target):
        return sink_state.found_in_table(state, target, batch, plan)
    stream = sink_state.application(state)
    found = None if stream is None else _iceberg(target).find_batch(target, stream, batch)
    if found is None or found[1].plan != plan or not found[1].counts:
        return None
    table_id, noted = found
    return sink_state.FoundBatch(noted.sequence, table_id, noted.schema_version, noted.counts)


def lacks_batch(target: str, stream: str, batch: int) -> bool:
    """Whether a table has not committed a micro-batch of a stream.

    Args:
        target: The table.
        stream: Its application id.
        batch: Number of the batch.

    Raises:
        SinkError: The table cannot be opened, or is something else.
    """
    if is_iceberg(target):
        try:
            _iceberg(target).check_expected(target, stream, SinkRecord(batch=batch), "")
        except LostBatchesError:
            return True
        return False
    table = open_table(target)
    seen = None if table is None else newest_known(table, target, stream)
    return seen is None or seen < batch


def check_target(spec: JobSpec, columns: pa.Schema) -> None:
    """Find out before a run starts Spark whether its table can take rows of this schema.

    Raises:
        SchemaMismatchError: Its columns do not fit.
        OptionError: The files of an Iceberg table are below the source, or it is partitioned
            otherwise than it was asked for.
        SinkError: The table cannot be opened, or is something else.
    """
    target, options = str(spec.target), spec.table_options
    if not is_iceberg(target):
        delta_commit.check_target(
            target,
            columns,
            merge_schema=spec.merge_schema,
            widening=widening_rule(options, default=False),
            new=NewTable.of(options),
        )
        return
    commit = _iceberg(target)
    rules = commit.TableRules(
        merge_schema=spec.merge_schema,
        widens=options.type_widening is True,
        partition_by=", ".join(options.partition_by) or None,
    )
    location = commit.check_table(target, columns, rules)
    if location is not None and _is_below(location, spec.source):
        raise OptionError(
            f"The files of {target} are in {location}, below the source {spec.source}: they would "
            "be ingested as well. Move the table, or narrow the source."
        )


def newest_version(target: str) -> int | None:
    """The newest version of a Delta table, or the newest sequence number of an Iceberg table."""
    if is_iceberg(target):
        newest: int | None = _iceberg(target).newest_sequence(target)
        return newest
    table = open_table(target)
    return table.version() if table else None


def _iceberg(target: str) -> Any:
    return import_with_extra(
        "airflow_cloudfiles.engine.iceberg.commit", "iceberg", needed_for=target
    )


def _is_below(location: str, source: str) -> bool:
    """Whether a place is below a source, which may have a pattern."""
    fixed = normalize_uri(source)
    for mark in "*?[{":
        fixed = fixed.partition(mark)[0]
    return f"{normalize_uri(location)}/".startswith(f"{fixed.rstrip('/')}/")
