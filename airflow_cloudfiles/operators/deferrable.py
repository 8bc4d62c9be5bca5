"""Have a task leave its worker while its query goes on, on a Spark Connect server.

The driver starts the query and leaves it there (`engine.job.connect.coming_back`); the task
defers, and its trigger asks the server. Then the task does the same once more: its driver finds the
query that it has left, and has its error, or its success. So the event need not bring anything.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from airflow.providers.common.compat.sdk import BaseHook, conf

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.left_query import LeftQueryHook, check_deferrable, server_of
from airflow_cloudfiles.hooks.task import run_id_of, task_errors
from airflow_cloudfiles.operators.spark_job import CloudFilesSparkJobOperator
from airflow_cloudfiles.triggers.spark_connect import SparkConnectQueryTrigger

try:
    from airflow.sdk.exceptions import TaskDeferralTimeout
except ImportError:  # below Airflow 3.2
    from airflow.exceptions import TaskDeferralTimeout  # type: ignore[no-redef]

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class DeferrableSparkJobOperator(CloudFilesSparkJobOperator):
    """Base of the operators whose query may go on without their worker; use a subclass.

    Args:
        deferrable: Whether the task leaves its worker while its query goes on, which needs a Spark
            Connect server (`spark_conn_id` or `spark_remote`). Default is Airflow's `[operators]
            default_deferrable`, for tasks that have a server. A query that ends within seconds is
            not left. `execution_timeout` is for all of a try, the time in which it is deferred
            included.
        poke_interval: Seconds between two questions of the trigger to the server.
        kwargs: The arguments of `CloudFilesSparkJobOperator`.
    """

    leave_after_seconds: ClassVar[float] = 10.0
    """How long a driver follows its query before it leaves it."""

    def __init__(
        self, *, deferrable: bool | None = None, poke_interval: float = 60.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.poke_interval = poke_interval
        self._has_to_defer = bool(deferrable)
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if deferrable:
            try:
                check_deferrable(self.spark)
            except OptionError:
                if self._has_to_defer:
                    raise
                deferrable = False
        self.deferrable = deferrable

    @abstractmethod
    def run_or_come_back(self, context: Context) -> dict[str, Any]:
        """Do what the task is for, with `run_or_defer`."""

    def execute_complete(
        self,
        context: Context,
        event: object = None,  # noqa: ARG002 - the driver asks the server itself
    ) -> dict[str, Any]:
        """Come back to the query; it may turn out that it goes on."""
        return self.run_or_come_back(context)

    def run_or_defer(
        self, context: Context, kind: Literal["ingest"], *, batch: object = None, **fields: Any
    ) -> dict[str, Any]:
        """Run a job to its end, or leave it and defer; `fields` are further ones of the `JobSpec`.

        Returns:
            The report of the job.

        Raises:
            TaskDeferred: The query goes on.
        """
        more = {"leave_after_seconds": self.leave_after_seconds} if self._defers() else {}
        report = self.run_job(context, kind, batch=batch, **more, **fields)
        if report["outcome"] == "left":
            self._leave(context, report)
        return report

    def _leave(self, context: Context, report: dict[str, Any]) -> NoReturn:
        """Leave the worker, and have a trigger ask for the query."""
        query = dict(report["query"])
        is_own = query.pop("is_own")
        self.log.info("The query %s goes on; the task defers.", query["run_id"])
        self.defer(
            trigger=SparkConnectQueryTrigger(
                query=query,
                spark_conn_id=self.spark.conn_id,
                spark_remote=self.spark.remote,
                poke_interval=self.poke_interval,
                is_own=is_own,
            ),
            method_name="execute_complete",
            timeout=self._time_left(context),
        )

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Come back; a task that was deferred for too long stops its query before it fails."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._stop_left_query(context)
            raise

    def _defers(self) -> bool:
        """Tell whether the task has a server to leave its query on."""
        if not self.deferrable:
            return False
        conn_id = self.spark.conn_id
        with task_errors():
            try:
                server_of(self.spark, BaseHook.get_connection(conn_id) if conn_id else None)
            except OptionError:
                if self._has_to_defer:
                    raise
                return False
        return True

    def _time_left(self, context: Context) -> timedelta | None:
        """Compute what is left of `execution_timeout`; Airflow counts it anew when resuming."""
        if self.execution_timeout is None:
            return None
        started: datetime | None = getattr(context["ti"], "start_date", None)
        gone = datetime.now(tz=UTC) - started if started else timedelta(0)
        return max(timedelta(seconds=1), self.execution_timeout - gone)

    def _stop_left_query(self, context: Context) -> None:
        """Stop the query that this try has left, and no other."""
        try:
            hook = CloudFilesHook(self.conn_id)
            query = hook.left_query(self.stream_arguments(), run_id_of(context))
            if query is not None:
                LeftQueryHook(self.spark.conn_id, self.spark.remote, query).stop()
        except CloudFilesError as failure:
            self.log.warning("The query could not be stopped, and ends by itself: %s", failure)
