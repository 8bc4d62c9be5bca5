"""What can an Airflow task do with the files that arrived: learn their schema, ingest, recount."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.stream_task import StreamTask
from airflow_cloudfiles.hooks.task import task_errors
from airflow_cloudfiles.operators.spark_job import CloudFilesSparkJobOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.common.compat.sdk import Context

MOST_DDL = 20_000
"""Characters of a schema in XCom, which is no place for more."""
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

    def __init__(self, *, infer_again: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.infer_again = infer_again

    def execute(self, context: Context) -> dict[str, Any]:
        """Infer, log the schema and return what was found."""
        report = self.run_job(context, "infer", infer_again=self._again())
        self.log.info(
            "Schema version %s is %s: %s files, %s bytes sampled.",
            report["schema_version"],
            "new" if report["created"] else "what there was",
            report["sampled_files"],
            report["sampled_bytes"],
        )
        found = {name: report[name] for name in _INFERRED}
        for name in ("hints", "changes", "partition_columns"):
            found[name] = found[name][:MOST_LINES]
        if len(found["schema"]) > MOST_DDL:
            found["schema"] = f"{found['schema'][:MOST_DDL]}... (all of it: schema_location)"
        return found

    def _again(self) -> bool:
        """`infer_again`, which a template makes a text."""
        text = str(self.infer_again).strip().lower()
        if text not in {"true", "false"}:
            with task_errors():
                raise OptionError(f"infer_again must be true or false, got {self.infer_again!r}.")
        return text == "true"


class CloudFilesIngestOperator(CloudFilesSparkJobOperator):
    """Land the files that arrived in a Delta table, each exactly once.

    A record with a field that the schema lacks fails the task with `UnknownFieldException` after
    the schema log has the evolved schema; Airflow retries at once and the retry succeeds. With
    `cloudFiles.schemaEvolutionMode=failOnNewColumns` the task fails without a retry.

    Args:
        batch: What `CloudFilesSensor` returned (`sensor.output`): ingest up to that batch. Left
            out, everything outstanding is ingested, after looking for new files. (templated)
        kwargs: The arguments of `CloudFilesSparkJobOperator`; `target` is required.

    Returns:
        XCom: the report of the run (files, bytes, rows, rescued rows, batches, schema version,
        target version, durations), which is also written below the checkpoint location.
    """

    template_fields: Sequence[str] = (*CloudFilesSparkJobOperator.template_fields, "batch")
    template_fields_renderers = {"options": "json", "batch": "json"}  # noqa: RUF012 - as Airflow

    def __init__(self, *, target: str, batch: object = None, **kwargs: Any) -> None:
        super().__init__(target=target, **kwargs)
        self.batch = batch

    def execute(self, context: Context) -> dict[str, Any]:
        """Ingest and return the report."""
        report = self.run_job(context, "ingest", batch=self.batch)
        self.log.info(
            "%s rows of %s files, %s rescued, in %s batches: table version %s.",
            report["rows"],
            report["files"],
            report["rescued_rows"],
            report["batches"],
            report["target_version"],
        )
        return report


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

    def execute(self, context: Context) -> dict[str, object]:  # noqa: ARG002 - Airflow's signature
        """List everything and return what was missing."""
        with task_errors():
            report = CloudFilesHook(self.conn_id).reconcile(self.stream_arguments())
        if report["files"]:
            self.log.warning(
                "%s of %s files in %s had been lost, such as %s. The next run ingests them.",
                report["files"],
                report["listed"],
                self.source,
                report["sample"],
            )
        else:
            self.log.info("Nothing lost among %s files in %s.", report["listed"], self.source)
        return report
