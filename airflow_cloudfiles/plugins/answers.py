"""Give a person's answer to a task that asks, from a page of its stream.

The answer is checked first, so that a mistake is said where it was made. Then Airflow records it,
as from its own form, and the task goes on with it: no page writes to a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.utils.session import create_session

from airflow_cloudfiles.engine.errors import StateConflictError
from airflow_cloudfiles.hooks.approval import OPTIONS, decision_of
from airflow_cloudfiles.plugins.tasks import asking_of
from airflow_cloudfiles.plugins.views import proposals_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

    from airflow_cloudfiles.plugins.tasks import TaskStream


def answer(task: TaskStream, fields: Mapping[str, str], user: BaseUser) -> None:
    """Answer the task of a stream that asks.

    Args:
        task: The stream.
        fields: `answer`, one of the options; `proposal`, the number that was shown; for each change
            by its position `column<n>`, what was chosen, and `other<n>`, another type.
        user: Who answers.

    Raises:
        OptionError: It is no answer.
        SchemaHintError: A type cannot be read or does not fit.
        StateConflictError: Somebody else has decided, or no task asks any more.
        HTTPException: Airflow refuses the answer.
    """
    decision = decision_of(fields.get("answer"))
    asking = asking_of(task)
    proposals = proposals_of(task)
    found = proposals.waiting()
    if asking is None or not asking.is_own or found is None:
        raise StateConflictError("No task asks any more. Look at the versions below.")
    columns = {}
    for number, change in enumerate(found.changes):
        chosen = fields.get(f"other{number}", "").strip() or fields.get(f"column{number}", "")
        if chosen:
            columns[change.path] = chosen
    shown = int(fields["proposal"]) if fields.get("proposal", "").isdecimal() else -1
    proposals.check(columns if decision == "accept" else {}, proposal=shown)
    option = next(each for each in OPTIONS if each.lower() == decision)
    key = asking.key
    with create_session() as session:
        update_hitl_detail(
            dag_id=key.dag_id,
            dag_run_id=key.run_id,
            task_id=key.task_id,
            map_index=key.map_index,
            update_hitl_detail_payload=UpdateHITLDetailPayload(
                chosen_options=[option], params_input=columns
            ),
            user=user,
            session=session,
        )
