"""Which kind of table does a run write to, and what does it ask of it?

A Delta table at a path or URI, or a table of an Iceberg catalog (`iceberg://...`), whose code is
imported only then: it is an extra of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.delta import commit as delta_commit
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.widening import widening_rule
from airflow_cloudfiles.engine.delta.write.creation import NewTable
from airflow_cloudfiles.engine.errors import LostBatchesError, OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.spark.tables.iceberg_sink import IcebergDataSource
from airflow_cloudfiles.engine.spark.tables.sink import DeltaLakeDataSource
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.storage.extras import import_with_extra
from airflow_cloudfiles.engine.storage.uri import is_iceberg

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.storage import ObjectStore


def sink_format(target: str) -> str:
    """The name of the sink that writes to a target."""
    return IcebergDataSource.name() if is_iceberg(target) else DeltaLakeDataSource.name()


def check_before_run(state: ObjectStore, target: str) -> None:
    """Refuse to start a run into a table that lacks batches of the stream.

    Raises:
        LostBatchesError: It does.
        SinkError: The table cannot be opened, or is something else.
    """
    if not is_iceberg(target):
        sink_state.check_before_run(state, target)
        return
    stream = sink_state.application(state)
    record = None if stream is None else SinkLog(state).must_have()
    if record is not None:
        _iceberg(target).check_expected(target, stream, record, printable_path(state.uri))


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
    seen = None if table is None else table.transaction_version(stream)
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
