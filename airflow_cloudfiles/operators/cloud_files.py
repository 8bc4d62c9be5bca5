"""What can an Airflow task do with the files that arrived: learn their schema, ingest them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.operators.spark_job import CloudFilesSparkJobOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.common.compat.sdk import Context


class CloudFilesInferSchemaOperator(CloudFilesSparkJobOperator):
    """Write the first version of a stream's schema, inferred from a sample of its files.

    Does nothing when the schema log has a version already, so it may run before every ingestion.
    Without it the first ingestion infers the schema itself; with it the schema can be looked at
    (or approved) before any row is written.

    Arguments are those of `CloudFilesSparkJobOperator`.

    Returns:
        XCom: `{"schema_version", "schema", "sampled_files", "sampled_bytes", "created"}`; `schema`
        is DDL.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Infer, log the schema and return what was found."""
        report = self.run_job(context, "infer")
        self.log.info("Schema version %s: %s", report["schema_version"], report["schema"])
        names = ("schema_version", "schema", "sampled_files", "sampled_bytes", "created")
        return {name: report[name] for name in names}


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

    def __init__(
        self,
        *,
        target: str,
        batch: object = None,
        **kwargs: Any,
    ) -> None:
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
