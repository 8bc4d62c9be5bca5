"""Have a change of the schema approved by two tasks around one of Airflow's own.

For Airflow 3.1 and 3.2, where only Airflow's operators can wait for a person, and for DAGs that
show the question as a task of its own: propose, ask with the `HITLOperator`, decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import SkipMixin

from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.hooks.approval import Answer, decision_of, question_of
from airflow_cloudfiles.hooks.task import task_errors
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.spark_job import was_proposed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.common.compat.sdk import Context


class CloudFilesProposeSchemaOperator(CloudFilesIngestOperator, SkipMixin):
    """Ingest, and succeed with a question where a change of the schema needs somebody to agree.

    Where nothing needs that, everything is ingested, and the tasks directly behind this one are
    skipped: the one that asks, and with it the one that decides.

    Args:
        kwargs: The arguments of `CloudFilesIngestOperator`, without `require_approval`.

    Returns:
        XCom: `proposal`, the number, or `None`; `subject` and `body`, the question, of which the
        body is Markdown; `changes`, in words; `report`, of the run.
    """

    parks = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "require_approval": True})

    def run_or_come_back(self, context: Context) -> dict[str, Any]:
        """Ingest, and return what has to be decided."""
        try:
            report = super().run_or_come_back(context)
        except Exception as failure:
            if not was_proposed(failure):
                raise
            return self._question()
        found: dict[str, Any] = {
            "proposal": None,
            "subject": "",
            "body": "",
            "changes": [],
            "report": report,
        }
        self.log.info("Nothing has to be decided: what is behind this task is skipped.")
        context["ti"].xcom_push(key="return_value", value=found)
        self.skip(context["ti"], context["task"].get_direct_relatives(upstream=False))
        return found

    def _question(self) -> dict[str, Any]:
        with task_errors():
            found = self.proposals().waiting()
        if found is None:
            raise RuntimeError("The change was decided meanwhile; the next try goes on with it.")
        asked = question_of(found, self.source)
        changes = [each.in_words() for each in found.changes]
        self.log.info(
            "Proposal %s waits for a decision: %s.", found.number, counted(len(changes), "change")
        )
        return {
            "proposal": found.number,
            "subject": asked.subject,
            "body": asked.body,
            "changes": changes[:100],
            "report": dict(self.run_report or {}),
        }


class CloudFilesDecideSchemaOperator(CloudFilesIngestOperator):
    """Record what somebody has decided about a change of the schema, and ingest.

    Args:
        decision: `accept`, `rescue` or `refuse`, in any case; what Airflow's operators return
            (`["Accept"]`, `Approve`, `Reject`) is understood. (templated)
        proposal: Its number, from the XCom of `CloudFilesProposeSchemaOperator`; `None` for
            whichever waits. (templated)
        hints: Other types, to accept with, as `cloudFiles.schemaHints`. (templated)
        decided_by: Who has decided. (templated)
        kwargs: The arguments of `CloudFilesIngestOperator`, without `require_approval`.

    Returns:
        XCom: the report, as of `CloudFilesIngestOperator`.
    """

    parks = False
    template_fields: Sequence[str] = (
        *CloudFilesIngestOperator.template_fields,
        "decision",
        "proposal",
        "hints",
        "decided_by",
    )

    def __init__(
        self,
        *,
        decision: Any,
        proposal: Any = None,
        hints: Any = None,
        decided_by: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "require_approval": True})
        self.decision = decision
        self.proposal = proposal
        self.hints = hints
        self.decided_by = decided_by

    def execute(self, context: Context) -> dict[str, Any]:
        """Record the decision, unless an earlier try has, and ingest."""
        number = str("" if self.proposal is None else self.proposal).strip()
        with task_errors():
            by, hints = _text(self.decided_by) or "somebody", _text(self.hints)
            answer = Answer(decision_of(self.decision), by, hints=hints)
            if number.isdecimal() or self.proposals().waiting() is not None:
                self.record(context, answer, int(number) if number.isdecimal() else None)
            else:
                self.log.warning("The decision has no effect: no change of the schema waits.")
        return self.run_or_come_back(context)


def _text(value: object) -> str:
    """Convert a templated value; `None` and what a template makes of it become empty."""
    text = "" if value is None else str(value).strip()
    return "" if text == "None" else text
