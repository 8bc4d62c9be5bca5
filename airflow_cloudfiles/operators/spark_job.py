"""Run a job on Spark, as a task, which may leave its worker.

1. While its query goes on, on a Spark Connect server. The driver starts the query and leaves it
   there (`engine.job.connect.coming_back`); the task defers, and its trigger asks the server. Then
   the task does the same once more: its driver finds the query that it has left, and has its error,
   or its success. So the event need not bring anything.
2. Until somebody agrees to a change of the schema. The run fails with a proposal in the schema log.
   The task then asks; with the answer it comes back in the same try, records the decision, and
   ingests.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, conf

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SchemaHintError,
    SchemaProposedError,
    StateConflictError,
)
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.hooks.approval import (
    Answer,
    Decision,
    answer_of,
    check_approval,
    question_of,
    wait_for_answer,
)
from airflow_cloudfiles.hooks.arguments import check_batch
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.lineage import operator_lineage
from airflow_cloudfiles.hooks.spark import (
    Engine,
    SparkArguments,
    check_deferrable,
    server_of,
)
from airflow_cloudfiles.hooks.task import HEALING_POLICY, healing_arguments, run_id_of, task_errors
from airflow_cloudfiles.operators.job import JobTask
from airflow_cloudfiles.triggers.spark_connect import SparkConnectQueryTrigger

try:
    from airflow.sdk.exceptions import TaskDeferralTimeout
except ImportError:  # below Airflow 3.2
    from airflow.exceptions import TaskDeferralTimeout  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context, RetryPolicy
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_cloudfiles.engine.schema.log_entry import SchemaEntry
    from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.observability.lineage import Lineage

REQUIRE_APPROVAL = "cloudFiles.requireApproval"


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


class ParkingSparkJobOperator(CloudFilesSparkJobOperator):
    """Base of the operators that ingest, whose tasks may leave their workers; use a subclass.

    Args:
        deferrable: Whether the task leaves its worker while its query goes on, which needs a Spark
            Connect server (`spark_conn_id` or `spark_remote`). Default is Airflow's `[operators]
            default_deferrable`, for tasks that have a server. A query that ends within seconds is
            not left. `execution_timeout` is for all of a try, the time in which it is deferred
            included.
        poke_interval: Seconds between two questions of the trigger to the server.
        require_approval: Whether a change of the schema waits until somebody has agreed (Airflow
            3.3): the task shows what would change, with files and values, and takes *Accept*,
            *Rescue* or *Refuse* for an answer. `cloudFiles.approvalSamples=0` among the options
            leaves the values out. It sets `cloudFiles.requireApproval`.
        approval_timeout: How long the task waits for an answer; `None` for ever.
        approval_default: What counts when nobody has answered by then: `accept`, `rescue` or
            `refuse`. `None`: the task fails, the change still waits, and the next run asks again.
        kwargs: The arguments of `CloudFilesSparkJobOperator`.
    """

    leave_after_seconds: ClassVar[float] = 10.0
    """How long a driver follows its query before it leaves it."""
    parks = True
    """Whether the task itself waits for the answer."""

    def __init__(
        self,
        *,
        deferrable: bool | None = None,
        poke_interval: float = 60.0,
        require_approval: bool = False,
        approval_timeout: timedelta | None = None,
        approval_default: Decision | None = None,
        **kwargs: Any,
    ) -> None:
        check_approval(
            require_approval,
            approval_timeout,
            approval_default,
            str(kwargs.get("format")),
            parks=self.parks,
        )
        super().__init__(**kwargs)
        self.poke_interval = poke_interval
        self.require_approval = require_approval
        self.approval_timeout = approval_timeout
        self.approval_default = approval_default
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
        with task_errors():
            try:
                server_of(self.spark)
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
                left_query.stop(server_of(self.spark), LeftQuery(**query))
        except CloudFilesError as failure:
            self.log.warning("The query could not be stopped, and ends by itself: %s", failure)

    @abstractmethod
    def on_accepted(self, context: Context, entry: SchemaEntry) -> None:
        """Tell whoever wants to know that the schema has another version."""

    def stream_arguments(self) -> StreamArguments:
        """Describe the stream, which waits where that is asked for."""
        given = super().stream_arguments()
        if not self.require_approval:
            return given
        return replace(given, options={**given.options, REQUIRE_APPROVAL: True})

    def ask_if_proposed(self, context: Context, failure: BaseException) -> None:
        """Ask, and leave the worker, where a run has failed for a change that waits.

        Raises:
            TaskAwaitingInput: The task waits for an answer.
            AirflowFailException: It cannot ask again in this DAG run.
        """
        if not (self.require_approval and self.parks and was_proposed(failure)):
            return
        with task_errors():
            found = self.proposals().waiting()
        if found is None or found.refused_by is not None:
            return  # decided by now; the next try goes on with it
        self.log.info("Proposal %s waits for an answer; the task leaves its worker.", found.number)
        wait_for_answer(
            context["ti"].id,
            question_of(found, self.source),
            method_name="resume_after_decision",
            kwargs={"proposal": found.number},
            timeout=self.approval_timeout,
            default=self.approval_default,
        )

    def resume_after_decision(
        self, context: Context, proposal: int, event: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Record the answer, and ingest."""
        with task_errors():
            answer = answer_of(event)
            try:
                self.record(context, answer, proposal)
            except SchemaHintError as mistake:
                # Airflow would show the question as it was, without a word about the mistake.
                raise SchemaHintError(
                    f"The answer cannot be taken, and nothing is decided: {mistake.message} Clear "
                    "the task, and it asks again; or decide with `cloudfiles schema accept`."
                ) from mistake
        return self.run_or_come_back(context)

    def record(self, context: Context, answer: Answer, proposal: int | None) -> None:
        """Write a decision to the schema log, unless somebody else has decided.

        Raises:
            SchemaHintError: The hints cannot be accepted with.
            AirflowFailException: The change is refused.
        """
        ti, proposals = context["ti"], self.proposals()
        who = answer.by or f"nobody in {self.approval_timeout}, so by default"
        by = f"{who} ({ti.dag_id}.{ti.task_id})"
        try:
            if answer.decision == "accept" and answer.hints:
                entry = proposals.accept(answer.hints, proposal=proposal, by=by)
            elif answer.decision == "accept":
                entry = proposals.decide(answer.columns, proposal=proposal, by=by)
            elif answer.decision == "rescue":
                entry = proposals.rescue(proposal=proposal, by=by)
            else:
                entry = proposals.refuse(proposal=proposal, by=by)
            if entry.reason["change"] == "accepted":
                self.on_accepted(context, entry)
            self.log.info("Schema version %s: %s, by %s.", entry.version, answer.decision, by)
        except StateConflictError as other:
            self.log.warning("The answer has no effect. %s", other)
        found = proposals.waiting()
        if found is not None and found.refused_by is not None:
            raise AirflowFailException(
                f"{found.refused_by} has refused the change of the schema. The next run reads the "
                "files again, and fails unless they are corrected or removed; or decide anew with "
                f"`cloudfiles schema accept` or `rescue` --schema-location {proposals.uri}."
            )

    def proposals(self) -> SchemaProposals:
        """Open the changes of the stream's schema that wait."""
        from airflow_cloudfiles.engine.schema.proposals import SchemaProposals  # noqa: PLC0415

        hook = CloudFilesHook(self.conn_id)
        stream = hook.locate(self.stream_arguments())
        location = stream.schema_location or stream.checkpoint_location
        return SchemaProposals(location, access=hook.access)


def was_proposed(failure: BaseException) -> bool:
    """Tell whether a run has failed because a change waits for a decision."""
    kinds: tuple[type[CloudFilesError], ...] = (SchemaProposedError,)
    return isinstance(failure, kinds) or isinstance(failure.__cause__, kinds)
