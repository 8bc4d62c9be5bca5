"""How does a task run one of our jobs on Spark?

What the operators have in common: their arguments, starting the job, its log, its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_cloudfiles.engine.job.launch import JobSpec, Run
from airflow_cloudfiles.hooks.arguments import StreamArguments, check_at_parse, check_batch
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.spark import SparkArguments
from airflow_cloudfiles.hooks.task import run_id_of, set_retry_defaults, task_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context


class CloudFilesSparkJobOperator(BaseOperator):
    """Base of the operators that start Spark; use one of its subclasses.

    Args:
        source: Path or URI of the folder the files land in; may have a pattern. (templated)
        format: The format of the files, for instance `json`.
        checkpoint_location: Where the state of the stream lives. (templated)
        schema_location: Where the schema log lives; the checkpoint location when left out.
            (templated)
        target: The table the rows go to. (templated)
        options: `cloudFiles.*` and format options, under Auto Loader's names. (templated)
        conn_id: Connection that says how the cloud is reached, or of type *File (path)*: relative
            locations are below its path.
        master: Where Spark runs: `local[*]` (the default), `local[2]`, `spark://host:7077`,
            `yarn`, `k8s://https://…`.
        deploy_mode: `client` or `cluster`, on a cluster.
        driver_memory: Memory of the driver, such as `2g`.
        spark_conf: Spark configuration.
        spark_conn_id: Connection of type *Spark* that names the cluster; arguments go before it.
        packages: Maven coordinates of jars.
        files: Files for the working directory of each executor.
        py_files: Python files and archives for the executors' path.
        kwargs: Airflow's own arguments of an operator. `retries` is 3 unless you say otherwise,
            and a schema change is retried at once (a mapped task needs `retries` spelt out:
            Airflow does not ask `__init__` there).
    """

    template_fields: Sequence[str] = (
        "source",
        "checkpoint_location",
        "schema_location",
        "target",
        "options",
    )
    template_fields_renderers = {"options": "json"}  # noqa: RUF012 - Airflow declares it so
    ui_color = "#f7e6c9"

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        source: str,
        format: str,  # noqa: A002 - Spark's word
        checkpoint_location: str,
        schema_location: str | None = None,
        target: str | None = None,
        options: Mapping[str, object] | None = None,
        conn_id: str | None = None,
        master: str | None = None,
        deploy_mode: str | None = None,
        driver_memory: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_conn_id: str | None = None,
        packages: Sequence[str] = (),
        files: Sequence[str] = (),
        py_files: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        check_at_parse(source=source, format=format, options=options)
        set_retry_defaults(kwargs, heals=True)
        super().__init__(**kwargs)
        self.source = source
        self.format = format
        self.checkpoint_location = checkpoint_location
        self.schema_location = schema_location
        self.target = target
        self.options = options
        self.conn_id = conn_id
        self.spark = SparkArguments(
            master=master,
            deploy_mode=deploy_mode,
            driver_memory=driver_memory,
            conf=dict(spark_conf or {}),
            packages=tuple(packages),
            files=tuple(files),
            py_files=tuple(py_files),
            conn_id=spark_conn_id,
        )
        self._run: Run | None = None

    def run_job(
        self,
        context: Context,
        kind: Literal["ingest", "infer"],
        *,
        batch: object = None,
        infer_again: bool = False,
    ) -> dict[str, Any]:
        """Run a job to its end, with its log in the task's log.

        Returns:
            The report of the job.

        Raises:
            UnknownFieldException: The schema has evolved; the next try succeeds.
            AirflowFailException: An error that a retry cannot help.
        """
        hook = CloudFilesHook(self.conn_id)
        with task_errors():
            stream = hook.locate(
                StreamArguments(
                    source=self.source,
                    format=self.format,
                    checkpoint_location=self.checkpoint_location,
                    schema_location=self.schema_location,
                    target=self.target,
                    options=self.options or {},
                )
            )
            spec = JobSpec(
                kind=kind,
                source=stream.source,
                format=stream.format,
                checkpoint_location=stream.checkpoint_location,
                schema_location=stream.schema_location,
                target=stream.target,
                options=stream.engine_options(),
                batch=check_batch(batch, stream.checkpoint_location),
                run_id=run_id_of(context),
                infer_again=infer_again,
            )
            self._run = hook.launch(spec, self.spark, on_log=self._log_line)
            return self._run.wait()

    def on_kill(self) -> None:
        """End the task's Spark, with every process it started."""
        if self._run is not None:
            self._run.kill()

    def _log_line(self, line: str) -> None:
        self.log.info("%s", line)
