"""Run a job on Spark, as a task."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.hooks.arguments import check_batch
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.openlineage import operator_lineage
from airflow_cloudfiles.hooks.spark import Engine, SparkArguments
from airflow_cloudfiles.hooks.task import HEALING_POLICY, healing_arguments, run_id_of, task_errors
from airflow_cloudfiles.operators.job import JobTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context, RetryPolicy
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.observability.lineage import Lineage


class CloudFilesSparkJobOperator(JobTask):
    """Base of the operators that start Spark; use one of its subclasses.

    Args:
        engine: What carries the tasks: `spark` (the default), or `local`, processes of the worker
            without a JVM, for small streams of files.
        master: Where Spark runs: `local[*]` (the default), `local[2]`, `spark://host:7077`,
            `yarn`, `k8s://https://…`.
        deploy_mode: `client` or `cluster`, on a cluster.
        driver_memory: Memory of the driver, such as `2g`.
        spark_conf: Spark configuration.
        spark_conn_id: Connection of type *Spark* that names the cluster, or *Spark Connect* that
            names a server; the task's arguments take precedence over it.
        spark_remote: A Spark Connect server, `sc://host:port`. A token belongs in a connection:
            arguments of a task are shown.
        packages: Maven coordinates of jars.
        files: Files for the working directory of each executor.
        py_files: Python files and archives for the executors' path.
        retry_policy: As of every task of Airflow 3.3; by default a schema change is retried at
            once, and every other error after the task's `retry_delay`.
        kwargs: The arguments of `StreamTask`.
    """

    ui_color = "#f7e6c9"

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        engine: Engine = "spark",
        master: str | None = None,
        deploy_mode: str | None = None,
        driver_memory: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_conn_id: str | None = None,
        spark_remote: str | None = None,
        packages: Sequence[str] = (),
        files: Sequence[str] = (),
        py_files: Sequence[str] = (),
        retry_policy: RetryPolicy | None = HEALING_POLICY,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs, **healing_arguments(retry_policy, kwargs))
        self.spark = SparkArguments(
            engine=engine,
            master=master,
            deploy_mode=deploy_mode,
            driver_memory=driver_memory,
            conf=dict(spark_conf or {}),
            packages=tuple(packages),
            files=tuple(files),
            py_files=tuple(py_files),
            conn_id=spark_conn_id,
            remote=spark_remote,
        )
        self._located: StreamArguments | None = None

    @abstractmethod
    def lineage(self, stream: StreamArguments, report: Mapping[str, Any] | None) -> Lineage:
        """Say what the task reads and writes.

        Args:
            stream: The stream, with absolute locations as far as they are known.
            report: Of the job of this try; `None` before its end.
        """

    def get_openlineage_facets_on_start(
        self,
        task_instance: object = None,  # noqa: ARG002 - the report is here
    ) -> OperatorLineage[Any, Any] | None:
        """Name the datasets as far as the arguments do; a report says more later."""
        return operator_lineage(self._lineage)

    get_openlineage_facets_on_complete = get_openlineage_facets_on_start
    get_openlineage_facets_on_failure = get_openlineage_facets_on_start

    def _lineage(self) -> Lineage:
        return self.lineage(self._located or self.stream_arguments(), self.run_report)

    def run_job(
        self,
        context: Context,
        kind: Literal["ingest", "infer"],
        *,
        batch: object = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Run a job to its end, with its log in the task's log.

        Args:
            context: Airflow's.
            kind: What to do.
            batch: Reference to a batch, as the task was given it.
            more: Further fields of the `JobSpec`.

        Returns:
            The report of the job.

        Raises:
            UnknownFieldException: The schema has evolved; the next try succeeds.
            AirflowFailException: An error that a retry cannot help.
        """
        self._run = None
        hook = CloudFilesHook(self.conn_id)
        with task_errors():
            stream = self._located = hook.locate(self.stream_arguments())
            given = source_of(stream.format).batch(batch)
            checked = check_batch(given, stream.checkpoint_location)
            spec = stream.job(kind, run_id=run_id_of(context), batch=checked, **more)
            earlier = [
                run_id_of(context, try_number=number)
                for number in range(context["ti"].try_number - 1, 0, -1)
            ]
            run = hook.launch(spec, self.spark, on_log=self.log_line, earlier=earlier)
            return self.follow(run)
