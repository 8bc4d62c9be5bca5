"""Have an ingestion wait until somebody agrees to a change of the schema.

The run fails with a proposal in the schema log. The task then asks, and leaves its worker; with the
answer it comes back in the same try, records the decision, and ingests.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SchemaHintError,
    SchemaProposedError,
    StateConflictError,
)
from airflow_cloudfiles.hooks.approval import (
    Answer,
    Decision,
    answer_of,
    check_approval,
    question_of,
    wait_for_answer,
)
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import task_errors
from airflow_cloudfiles.operators.deferrable import DeferrableSparkJobOperator

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.engine.schema.log_entry import SchemaEntry
    from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
    from airflow_cloudfiles.hooks.arguments import StreamArguments

REQUIRE_APPROVAL = "cloudFiles.requireApproval"


class ApprovingSparkJobOperator(DeferrableSparkJobOperator):
    """Base of the operators whose stream may wait for a person; use a subclass.

    Args:
        require_approval: Whether a change of the schema waits until somebody has agreed (Airflow
            3.3): the task shows what would change, with files and values, and takes *Accept*,
            *Rescue* or *Refuse* for an answer. `cloudFiles.approvalSamples=0` among the options
            leaves the values out. It sets `cloudFiles.requireApproval`.
        approval_timeout: How long the task waits for an answer; `None` for ever.
        approval_default: What counts when nobody has answered by then: `accept`, `rescue` or
            `refuse`. `None`: the task fails, the change still waits, and the next run asks again.
        kwargs: The arguments of `DeferrableSparkJobOperator`.
    """

    parks = True
    """Whether the task itself waits for the answer."""

    def __init__(
        self,
        *,
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
        self.require_approval = require_approval
        self.approval_timeout = approval_timeout
        self.approval_default = approval_default

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
