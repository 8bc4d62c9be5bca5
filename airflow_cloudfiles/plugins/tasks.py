"""Find the stream that a task instance works on.

Airflow's own record says: the rendered fields that it has stored of the task instance. Nothing of a
request but its key is used, so a client cannot name a location.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from airflow.models.connection import Connection
from airflow.models.hitl import HITLDetail
from airflow.models.renderedtifields import RenderedTaskInstanceFields as _Rendered
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import and_, func, or_, select, true

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import run_id_of

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_cloudfiles.engine.storage.access import Access

_OPERATORS = "CloudFiles%"
"""How the names of this package's sensors and operators begin."""
_AT_WORK = frozenset({"running", "deferred", "restarting"})
_UNFINISHED = _AT_WORK | {"awaiting_input", "up_for_retry", "scheduled", "queued"}
_KEY = ("dag_id", "run_id", "task_id", "map_index")


def _alike(one: Any, other: Any, *names: str) -> Any:
    """Build the condition that columns of these names are the same."""
    return and_(*(getattr(one, name) == getattr(other, name) for name in names))


_SAME = _alike(_Rendered, TaskInstance, *_KEY)


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Names a task instance; `map_index` is -1 where it is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


@dataclass(frozen=True, slots=True)
class UnfinishedTask:
    """A task instance of a stream that has not ended.

    Attributes:
        key: The task instance.
        state: In Airflow's words.
        started: When its try began; `None` before.
        try_number: Which try.
        is_asking: Whether it has asked a person, who has not answered.
        is_own: Whether it is a task of this package; else one of Airflow's that asks beside it.
    """

    key: TaskKey
    state: str
    started: datetime | None
    try_number: int
    is_asking: bool = False
    is_own: bool = True

    @property
    def is_at_work(self) -> bool:
        """Whether it is ingesting, or its query is, on a server."""
        return self.is_own and self.state in _AT_WORK

    @property
    def run_id(self) -> str:
        """The id of its run, by which the state knows it."""
        return run_id_of({"ti": self.key}, try_number=self.try_number)


class ServerHook(CloudFilesHook):
    """The hook in the API server, which asks Airflow's database for connections itself."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Give a connection from the backends of the server."""
        return Connection.get_connection_from_secrets(conn_id)


Hooks = dict[str | None, ServerHook]
"""By connection, so that each is looked up once."""


@dataclass(frozen=True, slots=True)
class RenderedTask:
    """A task instance as Airflow has stored it.

    Attributes:
        key: The task instance.
        fields: What was rendered.
        state: The state of the task instance, in Airflow's words.
        operator: The name of its class.
        try_number: Its newest try.
        label: What tells it from the others of a mapped task: what `map_index_template` gives, or
            its index; empty where it is not mapped.
    """

    key: TaskKey
    fields: Mapping[str, Any]
    state: str
    operator: str
    try_number: int
    label: str

    @classmethod
    def of(cls, row: Any) -> Self:
        """Take a row of what `_rendered` selects."""
        key = TaskKey(row.dag_id, row.run_id, row.task_id, row.map_index)
        # Airflow 3.1 gives no label where the task has no `map_index_template`.
        index = str(row.map_index) if row.map_index >= 0 else ""
        state, label = row.state or "none", row.label or index
        return cls(key, row.rendered_fields, state, row.operator, row.try_number, label)

    @property
    def name(self) -> str:
        """The name of the task instance for people."""
        return name_of(self.key, self.label)

    def located(self, hooks: Hooks) -> TaskStream | None:
        """Find its stream; `None` where it has none.

        Args:
            hooks: Those that are known; gets its own.

        Raises:
            CloudFilesError: The record is not valid here: a location is relative, or the connection
                cannot be used.
            AirflowNotFoundException: There is no such connection any more.
        """
        fields = self.fields
        if not {"source", "format", "checkpoint_location"} <= set(fields):
            return None
        conn_id = _text(fields.get("conn_id"))
        hook = hooks.setdefault(conn_id, ServerHook(conn_id))
        stream = StreamArguments(
            source=str(fields["source"]),
            format=str(fields["format"]),
            checkpoint_location=str(fields["checkpoint_location"]),
            schema_location=_text(fields.get("schema_location")),
            target=_text(fields.get("target")),
        )
        return TaskStream(
            self.key,
            fields,
            self.state,
            self.operator,
            self.try_number,
            self.label,
            stream.located(hook.absolute),
            hook.access,
        )


@dataclass(frozen=True, slots=True)
class TaskStream(RenderedTask):
    """A task instance with its stream.

    Attributes:
        stream: Its arguments, located.
        access: How its cloud is reached; it holds secrets.
    """

    stream: StreamArguments
    access: Access | None

    @property
    def options(self) -> object:
        """The options of the stream, as Airflow keeps them: shortened where they are long."""
        return self.fields.get("options")

    @property
    def checkpoint(self) -> str:
        """Its checkpoint location as the task names it."""
        return str(self.fields["checkpoint_location"])


def name_of(key: TaskKey, label: str = "") -> str:
    """Name a task instance for people, as `--stream` takes it: `dag_id/task_id[label]`."""
    return f"{key.dag_id}/{key.task_id}{f'[{label}]' if label else ''}"


def stream_of(key: TaskKey) -> TaskStream | None:
    """Find the stream of a task instance.

    Returns:
        `None` where the task is none of this package, or Airflow keeps no rendered fields of it:
        before it started, and of runs that are older than the newest ones.

    Raises:
        CloudFilesError: As of `RenderedTask.located`.
        AirflowNotFoundException: There is no such connection any more.
    """
    wanted = _rendered().where(_alike(TaskInstance, key, *_KEY))
    with create_session() as session:
        row = session.execute(wanted).one_or_none()
    return None if row is None else RenderedTask.of(row).located({})


def main_of(tasks: Sequence[TaskStream]) -> TaskStream:
    """Choose, of the tasks of one stream, the one that ingests, or at least knows the table."""
    knowing = [each for each in tasks if each.stream.target] or tasks
    return next((each for each in knowing if not each.operator.endswith("Sensor")), knowing[0])


def newest_of_each_task(readable: Collection[str] | None) -> list[RenderedTask]:
    """Find the newest task instance of each task of this package.

    Args:
        readable: Ids of the DAGs that the user may read; `None` for all.

    Returns:
        In the order of DAGs and tasks; of a mapped task those of its newest run, each of which may
        be of another stream. Those of which Airflow keeps no rendered fields are left out.
    """
    newest = (
        select(
            TaskInstance.dag_id,
            TaskInstance.task_id,
            func.max(TaskInstance.start_date).label("start_date"),
        )
        .where(TaskInstance.operator.like(_OPERATORS))
        .where(true() if readable is None else TaskInstance.dag_id.in_(readable))
        .where(TaskInstance.start_date.is_not(None))
        .group_by(TaskInstance.dag_id, TaskInstance.task_id)
        .subquery()
    )
    begun = _alike(TaskInstance, newest.c, "dag_id", "task_id", "start_date")
    runs = select(TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id)
    run = runs.join(newest, begun).distinct().subquery()  # many of a mapped task begin at once
    wanted = _rendered().join(run, _alike(TaskInstance, run.c, "dag_id", "task_id", "run_id"))
    wanted = wanted.where(TaskInstance.start_date.is_not(None))
    with create_session() as session:
        found = [RenderedTask.of(row) for row in session.execute(wanted)]
    by_task = {(each.key.dag_id, each.key.task_id, each.key.map_index): each for each in found}
    return [by_task[each] for each in sorted(by_task)]


def unfinished_of(task: TaskStream) -> list[UnfinishedTask]:
    """Find the task instances of a stream that have not ended, in its DAG.

    Returns:
        Those of this package without sensors, the newest first; then Airflow's own that ask in the
        same DAG run.
    """
    live = select(TaskInstance.run_id).where(
        TaskInstance.dag_id == task.key.dag_id, TaskInstance.state.in_(_UNFINISHED)
    )
    asked = and_(HITLDetail.ti_id == TaskInstance.id, HITLDetail.responded_at.is_(None))
    wanted = (
        select(
            *_key_columns(),
            TaskInstance.state,
            TaskInstance.start_date,
            TaskInstance.try_number,
            TaskInstance.operator,
            HITLDetail.ti_id,
            _Rendered.rendered_fields,
        )
        .outerjoin(_Rendered, _SAME)
        .outerjoin(HITLDetail, asked)
        .where(TaskInstance.dag_id == task.key.dag_id, TaskInstance.run_id.in_(live))
        .where(
            or_(
                TaskInstance.operator.like(_OPERATORS),
                TaskInstance.task_id == task.key.task_id,
                HITLDetail.ti_id.is_not(None),
            )
        )
        .order_by(TaskInstance.start_date.desc())
    )
    with create_session() as session:
        rows = session.execute(wanted).all()
    found: dict[bool, list[UnfinishedTask]] = {True: [], False: []}
    runs: set[str] = set()
    for *key, state, started, number, operator, asking, rendered in rows:
        checkpoint = (rendered or {}).get("checkpoint_location")
        is_own = checkpoint is not None
        if str(checkpoint) != task.checkpoint if is_own else not asking:
            continue
        one = UnfinishedTask(TaskKey(*key), str(state), started, number, bool(asking), is_own)
        if is_own:
            runs.add(one.key.run_id)
        if state in _UNFINISHED and not str(operator).endswith("Sensor"):
            found[is_own].append(one)
    return [*found[True], *(each for each in found[False] if each.key.run_id in runs)]


def asking_of(task: TaskStream) -> UnfinishedTask | None:
    """Find the task that asks a person about a stream; `None` where none does."""
    return next((each for each in unfinished_of(task) if each.is_asking), None)


def _key_columns() -> list[Any]:
    return [getattr(TaskInstance, name) for name in _KEY]


def _rendered() -> Any:
    """Select what a `RenderedTask` is made of."""
    label: Any = TaskInstance.rendered_map_index
    wanted = select(
        *_key_columns(),
        TaskInstance.state,
        TaskInstance.operator,
        TaskInstance.try_number,
        label.label("label"),
        _Rendered.rendered_fields,
    )
    return wanted.select_from(TaskInstance).join(_Rendered, _SAME)


def _text(value: object) -> str | None:
    """Read a rendered field; Airflow stores None as it is, or as its text."""
    return None if value in {None, "", "None"} else str(value)
