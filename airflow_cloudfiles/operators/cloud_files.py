"""What can an Airflow task do with the files that arrived: learn their schema, ingest, recount."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.errors import OptionError, UnknownFieldException
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.spec import MOST_DDL
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.sink import PARTITION_BY, partition_option
from airflow_cloudfiles.hooks.arguments import merge_options, metadata_options, rule_options
from airflow_cloudfiles.hooks.assets import describe_events, with_asset
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.lineage import inferred, ingested
from airflow_cloudfiles.hooks.observability.metrics import emit_run
from airflow_cloudfiles.hooks.observability.run_events import (
    call_each,
    callbacks_of,
    has_evolved_ahead,
    is_schema_change,
    lost_files,
    rescued_data,
    schema_change,
)
from airflow_cloudfiles.hooks.silence import WatchedTask
from airflow_cloudfiles.hooks.stream_task import REQUIRED, StreamTask
from airflow_cloudfiles.hooks.task import run_id_of, task_errors
from airflow_cloudfiles.operators.spark_job import (
    CloudFilesSparkJobOperator,
    ParkingSparkJobOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.engine.schema.log_entry import SchemaEntry
    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.keywords import (
        AssetLocation,
        Callback,
        InferKeywords,
        ParkingKeywords,
        ReconcileKeywords,
    )
    from airflow_cloudfiles.hooks.observability.lineage import Lineage

MOST_LINES = 100
_INFERRED = (
    "schema_version",
    "schema",
    "schema_location",
    "created",
    "sampled_files",
    "sampled_bytes",
    "partition_columns",
    "hints",
    "changes",
)


class CloudFilesInferSchemaOperator(CloudFilesSparkJobOperator):
    """Write the first version of a stream's schema, inferred from a sample of its files.

    Does nothing when the schema log has a version already, so it may run before every ingestion.
    Without it the first ingestion infers the schema itself; with it the schema can be looked at
    (or approved) before any row is written.

    The sample is the newest of the files that the stream has recorded (a `CloudFilesSensor` records
    what it finds); where nothing is recorded yet, the source is listed. A large sample is read
    by the cluster, or by several processes of this machine. The task's log shows the schema as a
    tree. Killing the task is safe: nothing is written before all is known.

    Args:
        infer_again: Infer also when there is a schema. If what is found differs, it becomes a new
            version, in which a column that the sample lacks is gone: the next run of the stream
            reads with that. Data in the table stays. (templated)
        kwargs: The arguments of `CloudFilesSparkJobOperator`.

    Returns:
        XCom: `schema_version`; `schema`, as DDL; `schema_location`; `created`, whether the version
        is new; `sampled_files` and `sampled_bytes`, 0 when nothing was inferred;
        `partition_columns`; `hints`, what each hint has changed; `changes`, how a version that was
        inferred again differs from the one before.
    """

    template_fields: Sequence[str] = (*CloudFilesSparkJobOperator.template_fields, "infer_again")

    def __init__(self, *, infer_again: bool | str = False, **kwargs: Unpack[InferKeywords]) -> None:
        super().__init__(**kwargs)
        self.infer_again = infer_again

    def execute(self, context: Context) -> dict[str, Any]:
        """Infer, log the schema and return what was found."""
        report = self.run_job(context, "infer", infer_again=self._again())
        self.log.info(
            "Schema version %s is %s: %s, %s sampled.",
            report["schema_version"],
            "new" if report["created"] else "what there was",
            counted(report["sampled_files"], "file"),
            counted(report["sampled_bytes"], "byte"),
        )
        found = {name: report[name] for name in _INFERRED}
        for name in ("hints", "changes", "partition_columns"):
            found[name] = found[name][:MOST_LINES]
        if len(found["schema"]) > MOST_DDL:
            found["schema"] = f"{found['schema'][:MOST_DDL]}... (all of it: schema_location)"
        return found

    def lineage(self, stream: StreamArguments, report: Mapping[str, Any] | None) -> Lineage:
        """Name the source, of which a sample is read."""
        return inferred(stream, report)

    def _again(self) -> bool:
        """`infer_again`, which a template makes a text."""
        text = str(self.infer_again).strip().lower()
        if text not in {"true", "false"}:
            with task_errors():
                raise OptionError(f"infer_again must be true or false, got {self.infer_again!r}.")
        return text == "true"


class CloudFilesIngestOperator(ParkingSparkJobOperator, WatchedTask):
    """Land the files that arrived in a Delta table, each exactly once.

    A record with a field that the schema lacks fails the task with `UnknownFieldException` after
    the schema log has the evolved schema; Airflow retries at once and the retry succeeds. With
    `cloudFiles.schemaEvolutionMode=failOnNewColumns` the task fails without a retry.

    With `format="delta"` the source is a Delta table: the rows that its versions add are appended
    to the target, each exactly once (bronze to silver). Its options are those of a stream from a
    Delta table. Schemas are tracked below the checkpoint location: a new column fails the task with
    `TableEvolvedError`, and the retry goes on; a renamed, dropped or retyped column fails it until
    an option allows it. Without anything new no Spark is started.

    Args:
        batch: What `CloudFilesSensor` returned (`sensor.output`): ingest up to that batch. Left
            out, everything outstanding is ingested, after looking for new files. From a table,
            all versions are ingested in any case. (templated)
        write: `append` rows, or `merge` them by `keys`: a row updates the row of the table that has
            the same keys, or else is inserted.
        keys: Columns that identify a row; required to merge, and only then.
        order_by: To merge: the column whose greatest value is the newest state of a row. Without
            it, a micro-batch with two rows of the same keys fails.
        delete_when: To merge: a predicate such as `op = 'D'`; rows for which it is true delete.
        partition_by: Columns that a new table is partitioned by; a table that is there must be
            partitioned by them already. The option `partitionBy` is the same.
        metadata_columns: Columns of the table that say what file a row came from: names of fields
            of Spark's `_metadata` (`["file_path"]`, or `["_metadata"]` for the struct of all), or a
            mapping from columns to fields (`{"source_file": "file_path"}`). The option
            `cloudFiles.metadataColumns` is the same.
        row_rules: What is expected of each row: by the name of a rule a condition in SQL, or it and
            what becomes of a row that does not meet it: `{"positive": ("amount > 0", "drop")}`.
            The options `expect.row.<name>` and `expect.row.<name>.onViolation` are the same.
        transform: What makes of each micro-batch the rows that are written: a function that is
            given the rows of the micro-batch as a Spark DataFrame and returns a DataFrame, or where
            one is imported from, `"package.module:function"`. Of a function, the driver has the
            source only: it imports inside what it needs. (`@task.cloud_files` is the same.)
        transform_kwargs: What `transform` is called with besides the batch, by name: values of
            JSON, no credentials: a cluster shows arguments of a program. (templated)
        on_schema_change: What is called once for each change of the schema, when the state has it:
            a callable, a notifier, or a list of these. It gets the context with `schema_change`.
            One that fails is an error in the log, and fails no task.
        on_rescued: The same, for each run that has committed rows with rescued data. The context
            has `rescued`.
        on_lost_files: The same, for each run that found files gone when it was to read them: it has
            skipped them (`ignoreMissingFiles`), or has failed. The context has `lost_files`.
        kwargs: The arguments of `ParkingSparkJobOperator` and `WatchedTask`; `target` is required.

    Returns:
        XCom: the report of the run (files, bytes, rows, rescued rows, batches, schema version,
        target version, durations; of a merge inserted, updated, deleted and superseded rows), which
        is also written below the checkpoint location.
    """

    reads_tables = True
    template_fields: Sequence[str] = (
        *CloudFilesSparkJobOperator.template_fields,
        "batch",
        "transform_kwargs",
    )
    template_fields_renderers = {  # noqa: RUF012 - as Airflow
        "options": "json",
        "batch": "json",
        "transform_kwargs": "json",
    }

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        target: AssetLocation = REQUIRED,
        batch: object = None,
        write: Literal["append", "merge"] = "append",
        keys: Sequence[str] = (),
        order_by: str | None = None,
        delete_when: str | None = None,
        partition_by: Sequence[str] = (),
        metadata_columns: Sequence[str] | Mapping[str, str] = (),
        row_rules: Mapping[str, str | tuple[str, str]] | None = None,
        transform: str | Callable[..., Any] | None = None,
        transform_kwargs: Mapping[str, Any] | None = None,
        on_schema_change: Callback | Collection[Callback] | None = None,
        on_rescued: Callback | Collection[Callback] | None = None,
        on_lost_files: Callback | Collection[Callback] | None = None,
        **kwargs: Unpack[ParkingKeywords],
    ) -> None:
        # A mistake fails when the DAG is parsed.
        merge_options(write, keys, order_by, delete_when)
        metadata_options(metadata_columns, str(kwargs.get("format")), kwargs.get("options"))
        rule_options(row_rules or {}, kwargs.get("options"))
        if transform is not None:
            BatchFunction.of(transform)
        super().__init__(target=target, **kwargs)
        self.inlets = with_asset(self.inlets, kwargs.get("source"))
        self.outlets = with_asset(self.outlets, target)
        self.batch = batch
        self.write = write
        self.keys = keys
        self.order_by = order_by
        self.delete_when = delete_when
        self.partition_by = partition_by
        self.metadata_columns = metadata_columns
        self.row_rules = row_rules
        self.transform = transform
        self.transform_kwargs = transform_kwargs
        self.on_schema_change = callbacks_of("on_schema_change", on_schema_change)
        self.on_rescued = callbacks_of("on_rescued", on_rescued)
        self.on_lost_files = callbacks_of("on_lost_files", on_lost_files)

    def stream_arguments(self) -> StreamArguments:
        """Describe the stream, with how its rows are written among its options."""
        given = super().stream_arguments()
        more = merge_options(self.write, self.keys, self.order_by, self.delete_when)
        if self.partition_by:
            more = {**more, PARTITION_BY: partition_option(self.partition_by)}
        more |= metadata_options(self.metadata_columns, given.format, given.options)
        more |= rule_options(self.row_rules or {}, given.options)
        return replace(given, options={**given.options, **more})

    def execute(self, context: Context) -> dict[str, Any]:
        """Ingest and return the report."""
        return self.run_or_come_back(context)

    def run_or_come_back(self, context: Context) -> dict[str, Any]:
        """Ingest, unless the task defers, and return the report."""
        try:
            more = self._transform()
            report = self.run_or_defer(context, "ingest", batch=self.batch, **more)
        except Exception as failure:
            self._notify(context, self.run_report or {}, failure)
            self.ask_if_proposed(context, failure)
            raise
        self._notify(context, report)
        hook, has_rows = CloudFilesHook(self.conn_id), bool(report.get("files"))
        self.look_for_silence(hook, context, has_rows=has_rows)
        if change := self._schema_change(context):
            report["schema_change"] = change
            self.log.info(
                "Try %s failed because of new fields, which are columns now: %s (first in %s).",
                change["try_number"],
                ", ".join(change["fields"]),
                change["file"],
            )
        describe_events(self.outlets, context, report)
        if "versions" in report:
            self.log.info(
                "%s of %s, up to %s, in %s: table version %s.",
                counted(report["rows"], "row"),
                counted(report["versions"], "version"),
                report["source_version"],
                counted(report["batches"], "batch"),
                report["target_version"],
            )
            return report
        self.log.info(
            "%s of %s, %s rescued, %s corrupt, in %s: table version %s.",
            counted(report["rows"], "row"),
            counted(report["files"], "file"),
            report["rescued_rows"],
            report.get("corrupt_records", 0),
            counted(report["batches"], "batch"),
            report["target_version"],
        )
        return report

    def transform_arguments(self) -> Mapping[str, Any]:
        """Return what `transform` is called with besides the batch, rendered."""
        return self.transform_kwargs or {}

    def _transform(self) -> dict[str, Any]:
        """Build the field of the `JobSpec` that has the function; return nothing without one."""
        if self.transform is None:
            return {}
        with task_errors():
            function = BatchFunction.of(self.transform, self.transform_arguments())
        return {"transform": function.to_json()}

    def on_accepted(self, context: Context, entry: SchemaEntry) -> None:
        """Call who wants to know of a change of the schema."""
        try:
            self._notify_change(context, version=entry.version)
        except Exception:
            self.log.exception("No one could be notified of the change; the task goes on.")

    def lineage(self, stream: StreamArguments, report: Mapping[str, Any] | None) -> Lineage:
        """Name the source that is read and the table that is written."""
        return ingested(stream, report)

    def _notify(
        self, context: Context, report: Mapping[str, Any], failure: BaseException | None = None
    ) -> None:
        """Emit metrics and call callbacks for what a run has reported; none fails the task."""
        if not report:
            return
        stopped, evolved = is_schema_change(failure), has_evolved_ahead(report)
        lost = lost_files(report)
        count = None if lost is None else lost["count"]
        emit_run(context["ti"], report, schema_changes=stopped + evolved, lost_files=count)
        try:
            if evolved:
                self._notify_change(context, version=report["schema_version"])
            if stopped:
                self._notify_change(context, failure=failure)
            if report.get("rescued_rows") and self.on_rescued:
                hook = CloudFilesHook(self.conn_id)
                found = rescued_data(hook, self.stream_arguments(), report)
                call_each(self.on_rescued, context, self.log, rescued=found)
            if count:
                call_each(self.on_lost_files, context, self.log, lost_files=lost)
        except Exception:
            self.log.exception(
                "No one could be notified of what the run has met; the task goes on."
            )

    def _notify_change(self, context: Context, **which: Any) -> None:
        """Call who wants to know of a change of the schema."""
        if self.on_schema_change:
            hook = CloudFilesHook(self.conn_id)
            change = schema_change(hook, self.stream_arguments(), **which)
            call_each(self.on_schema_change, context, self.log, schema_change=change)

    def _schema_change(self, context: Context) -> dict[str, Any] | None:
        """Return the schema change that an earlier try of this task failed for, if it was one."""
        hook, stream = CloudFilesHook(self.conn_id), self.stream_arguments()
        for number in range(int(context["ti"].try_number) - 1, 0, -1):
            failure = hook.failure_of(stream, run_id_of(context, try_number=number))
            if isinstance(failure, UnknownFieldException):
                return {"try_number": number, "fields": [*failure.fields], "file": failure.file}
        return None


class CloudFilesReconcileOperator(StreamTask):
    """List everything once, and say what notifications or incremental listings had lost.

    First it looks for new files as the stream always does, so that what is merely on its way is not
    called lost; then it lists the whole source. What it finds is recorded, each file once, and
    ingested by the stream's next run. It starts no Spark.

    Args:
        kwargs: The arguments of `StreamTask`.

    Returns:
        XCom: `{"checkpoint_location", "listed", "files", "bytes", "sample", "outstanding_files"}`:
        `files` is how many had been lost, `sample` has at most five of their paths.
    """

    ui_color = "#e4f0e2"

    def __init__(self, **kwargs: Unpack[ReconcileKeywords]) -> None:
        super().__init__(**kwargs)

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """List everything and return what was missing."""
        with task_errors():
            report = CloudFilesHook(self.conn_id).reconcile(self.stream_arguments())
        if report["files"]:
            self.log.warning(
                "%s of %s in %s had been lost, such as %s. The next run ingests what was lost.",
                report["files"],
                counted(report["listed"], "file"),
                self.source,
                report["sample"],
            )
        else:
            self.log.info(
                "Nothing lost among %s in %s.", counted(report["listed"], "file"), self.source
            )
        return report
