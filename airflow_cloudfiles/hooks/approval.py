"""Ask a person whether the schema of a stream may change.

A task of Airflow 3.3 waits for an answer without a worker. What is shown comes from the files of
others: it is in one fenced block, which neither Markdown nor HTML can leave, and has no character
that does not print. It is kept in Airflow's database.

Airflow keeps the first question of a task instance, whatever is asked later. A person must not
agree to a change that is not shown, so a second question that differs is refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, get_args

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.source import source_of

try:  # tasks that wait for an answer by themselves exist from Airflow 3.3
    from airflow.sdk.exceptions import TaskAwaitingInput
except ImportError:
    TaskAwaitingInput = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.schema.proposals import Proposal, ProposedChange

Decision = Literal["accept", "rescue", "refuse"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
RESCUE, REFUSE = DECISIONS[1:]
OPTIONS: Final = tuple(each.capitalize() for each in DECISIONS)
"""What a person chooses from."""
TYPES: Final = (
    "string",
    "boolean",
    "int",
    "bigint",
    "double",
    "decimal(18,2)",
    "decimal(38,10)",
    "date",
    "timestamp",
)
"""What a new column may become instead of what is proposed, where that is one of them."""
MOST_FIELDS: Final = 100
"""So many columns are decided by themselves; what comes behind is as the answer is."""
MOST_CHARACTERS: Final = 20_000
_WORDS: Final = {"approve": "accept", "reject": "refuse"}
"""What the options of Airflow's ApprovalOperator mean."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked.

    Attributes:
        subject: One line, without anything from a file.
        body: Markdown.
        fields: A field for each column, by its path, as Airflow's params.
    """

    subject: str
    body: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered.

    Attributes:
        decision: What to do.
        by: Who has answered; empty where nobody has in time, and the default counts.
        columns: To accept with: by the path of a column its type, `rescue` or `refuse`.
        hints: Other types, to accept with, as DDL; empty for none.
    """

    decision: Decision
    by: str
    columns: Mapping[str, str] = field(default_factory=dict)
    hints: str = ""


def check_approval(
    require: object, timeout: object, default: object, format_name: str, *, parks: bool = True
) -> None:
    """Refuse arguments of a task that cannot work, when its DAG is parsed.

    Raises:
        OptionError: They cannot.
    """
    if default is not None and default not in DECISIONS:
        raise OptionError(
            f"approval_default must be {', '.join(DECISIONS)} or None, got {default!r}."
        )
    if timeout is not None and not isinstance(timeout, timedelta):
        raise OptionError(f"approval_timeout must be a timedelta or None, got {timeout!r}.")
    if default is not None and timeout is None:
        raise OptionError("approval_default has no effect without approval_timeout. Give both.")
    if not require:
        return
    source_of(format_name).require_files(
        "require_approval is for streams of files. Of a Delta table, each change of a column "
        "but a new one has to be allowed anyway: allowSourceColumnRename and its neighbors."
    )
    if parks and TaskAwaitingInput is None:
        raise OptionError(
            "require_approval=True needs Airflow 3.3, whose tasks can wait for an answer. With "
            "this version use CloudFilesProposeSchemaOperator, Airflow's HITLOperator and "
            "CloudFilesDecideSchemaOperator instead: docs/how-to/approve-schema-changes.md."
        )


def question_of(proposal: Proposal, source: str) -> Question:
    """Ask about a proposal.

    Args:
        proposal: The change.
        source: The source as the DAG's author names it.
    """
    lines: list[str] = []
    for each in proposal.changes:
        sign = "+" if each.kind == "added" else "!"
        lines.append(f"{sign} {each.in_words()}")
        lines += [f"    in {each.file}"] if each.file else []
        lines += [f"    such as {', '.join(each.samples)}"] if each.samples else []
    text = "\n".join(map(printable, lines))
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS] + "\n... (all of it: cloudfiles schema proposed)"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    what = counted(len(proposal.changes), "change")
    return Question(
        f"Schema of {source}: {what}, proposal {proposal.number}",
        f"{fence}diff\n{text}\n{fence}\n\n"
        "**Accept**: each column becomes what its field says: of a type, rescued or refused. "
        "**Rescue** and **Refuse** are for all of them, whatever the fields say. What is rescued "
        "stays in the rescued data, from now on. What is refused fails the stream until the files "
        "are corrected or removed, or somebody decides otherwise. Until then nothing of the batch "
        "is committed.\n",
        {each.path: field_of(each) for each in proposal.changes[:MOST_FIELDS]},
    )


def choices_of(change: ProposedChange) -> list[str]:
    """List what a column may become: types, that which is proposed first, then what else."""
    after = str(change.after)
    others = TYPES if change.kind == "added" and after in TYPES else ()
    return [after, *(each for each in others if each != after), RESCUE, REFUSE]


def field_of(change: ProposedChange) -> dict[str, Any]:
    """Describe the field in which a column is decided, as one of Airflow's params."""
    choices = choices_of(change)
    shown = {choices[0]: f"{choices[0]} (proposed)", RESCUE: "rescue it", REFUSE: "refuse it"}
    said = [f"Such as {', '.join(change.samples)}."] if change.samples else []
    said += [f"Was {change.before}."] if change.before else []
    return {
        "value": choices[0],
        "description": printable(" ".join(said)) or None,
        "schema": {
            "type": "string",
            "title": printable(change.path),
            "enum": choices,
            "values_display": {each: shown.get(each, each) for each in choices},
        },
    }


def wait_for_answer(  # noqa: PLR0913 - what there is to say
    ti_id: Any,
    question: Question,
    *,
    method_name: str,
    kwargs: dict[str, Any],
    timeout: timedelta | None,
    default: Decision | None,
) -> NoReturn:
    """Leave the worker until somebody answers.

    Raises:
        TaskAwaitingInput: The task waits.
        AirflowFailException: This task instance has asked something else before.
    """
    from airflow.sdk.execution_time import task_runner  # noqa: PLC0415 - in a task only
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload  # noqa: PLC0415

    stored: Any = task_runner.SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=ti_id,
            options=list(OPTIONS),
            subject=question.subject,
            body=question.body,
            defaults=None if default is None else [default.capitalize()],
            multiple=False,
            params=dict(question.fields),
            assigned_users=[],
        )
    )
    if (stored.subject, stored.body) != (question.subject, question.body):
        raise AirflowFailException(
            "Another change of the schema waits, but Airflow shows for a task instance what was "
            "asked first, in this DAG run. Decide with `cloudfiles schema accept`, `rescue` or "
            "`refuse`; or start another run of the DAG, which asks."
        )
    raise TaskAwaitingInput(method_name=method_name, kwargs=kwargs, timeout=timeout)


def answer_of(event: Mapping[str, Any] | None) -> Answer:
    """Read an answer.

    Raises:
        AirflowFailException: No answer came in time, and there is no default.
    """
    given = event or {}
    chosen = [str(each) for each in given.get("chosen_options") or ()]
    if "error" in given or not chosen:
        raise AirflowFailException(
            f"No one has decided about the change of the schema: {given.get('error', 'no answer')} "
            "It waits; the next run of the stream asks again."
        )
    who = given.get("responded_by_user") or {}
    by = str(who.get("name") or who.get("id") or "") if isinstance(who, dict) else str(who)
    columns = (given.get("params_input") or {}).items()
    return Answer(decision_of(chosen), by, {path: str(text) for path, text in columns if text})


def decision_of(chosen: object) -> Decision:
    """Read what was chosen, here or in one of Airflow's operators.

    Raises:
        OptionError: It is not one of the decisions.
    """
    several = [chosen] if isinstance(chosen, str) else chosen
    words = [str(each) for each in several] if isinstance(several, list | tuple) else []
    word = words[0].strip().lower() if len(words) == 1 else ""
    word = _WORDS.get(word, word)
    for each in DECISIONS:
        if each == word:
            return each
    raise OptionError(f"decision must be {', '.join(DECISIONS)}, got {chosen!r:.80}.")
