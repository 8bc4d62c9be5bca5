"""Find a stream of a command line by its name: in a file of streams, or in Airflow.

Airflow is imported when it is asked, not before.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.extensions.streams_file import NamedStream, read_streams
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.storage.vendors import import_with_extra
from airflow_cloudfiles.hooks.arguments import StreamArguments, has_template, options_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.plugins.tasks import TaskStream

_ARGUMENTS = ("source", "format", "checkpoint_location", "schema_location", "target")
_REDACTED = "***"
_log = logging.getLogger(__name__)


def in_file(path: str) -> list[NamedStream]:
    """Read the streams of a file, in their order.

    Args:
        path: A file as `streams_from_file` takes it.

    Raises:
        OptionError: The file has mistakes, or templates, which only Airflow renders; or a stream
            has a connection, and Airflow is not installed.
    """
    return [_of_file(name, stream, path) for name, stream in read_streams(path).items()]


def in_airflow() -> list[NamedStream]:
    """Find the streams of all tasks that Airflow has run, each once, in the order of their names.

    What Airflow's record of one does not tell here is logged.

    Raises:
        OptionError: Airflow is not installed.
    """
    tasks = _tasks("Without --streams-file, --all")
    found: dict[str, list[TaskStream]] = {}
    hooks: dict[str | None, Any] = {}
    for each in tasks.newest_of_each_task(None):
        try:
            task = each.located(hooks)
        except CloudFilesError as failure:
            _log.warning("%s is left out: %s", each.name, failure)
            continue
        if task is not None:
            found.setdefault(task.stream.checkpoint_location, []).append(task)
    main = [tasks.main_of(each) for each in found.values()]
    return [_named(task.name, task.stream, task.access) for task in main]


def find(name: str, path: str | None) -> NamedStream:
    """Find one stream.

    Args:
        name: A name in the file; without a file, `dag_id/task_id`, or the id of a task group; of a
            mapped task `dag_id/task_id[label]`.
        path: The file of streams; `None` or nothing to ask Airflow.

    Raises:
        OptionError: There is no such stream, what is known of it is of no use here, or Airflow is
            needed and not installed.
    """
    if not path:
        return _in_airflow(name)
    streams = read_streams(path)
    if name not in streams:
        near = difflib.get_close_matches(name, streams, n=1)
        raise OptionError(
            f"{path} has no stream {name!r}. "
            + (f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(streams) or 'none'}.")
        )
    return _of_file(name, streams[name], path)


def access_of(conn_id: str) -> Access | None:
    """Look a connection of Airflow's up, and say how its cloud is reached.

    Raises:
        OptionError: There is no such connection, it cannot be used, or Airflow is not installed.
    """
    return _hook(conn_id).access


def _of_file(name: str, given: Mapping[str, Any], path: str) -> NamedStream:
    known = {key: given[key] for key in _ARGUMENTS if given.get(key) is not None}
    stream = StreamArguments(**known, options=given.get("options") or {})
    found = _named(name, stream, None)
    for key, text in [*found.arguments.items(), *found.options.items()]:
        if has_template(text):
            raise OptionError(
                f"{key} of the stream {name!r} in {path} is a template, {text!r}, which only "
                f"Airflow renders. Name its task instead, without a file: --stream dag_id/task_id."
            )
    if not (conn_id := given.get("conn_id")):
        return found
    hook = _hook(str(conn_id))
    return _named(name, stream.located(hook.absolute), hook.access)


def _named(name: str, stream: StreamArguments, access: Access | None) -> NamedStream:
    known = {key: getattr(stream, key) for key in _ARGUMENTS}
    arguments = {key: str(value) for key, value in known.items() if value is not None}
    return NamedStream(name, arguments, stream.engine_options(), access)


def _in_airflow(name: str) -> NamedStream:
    dag_id, _, task_id = name.partition("/")
    if not dag_id or not task_id:
        raise OptionError(
            f"The stream {name!r} is neither in a file (--streams-file) nor written "
            "dag_id/task_id, as Airflow's tasks are named here."
        )
    tasks = _tasks(f"The stream {printable(name)}")
    newest = tasks.newest_of_each_task([dag_id])
    wanted = [each for each in newest if name in {each.name, f"{dag_id}/{each.key.task_id}"}]
    wanted = wanted or [each for each in newest if each.key.task_id.startswith(f"{task_id}.")]
    hooks: dict[str | None, Any] = {}
    if found := [task for each in wanted if (task := each.located(hooks))]:
        main = tasks.main_of(found)
        return _named(name, _with_options(name, main), main.access)
    known = sorted({each.name for each in newest})
    raise OptionError(
        f"Airflow has no record of a stream {name!r}: a task of this package that has run. "
        + (f"The DAG has {', '.join(known)}." if known else "The DAG has no such task.")
    )


def _with_options(name: str, task: TaskStream) -> StreamArguments:
    """Add the options of a stream as Airflow keeps them."""
    try:
        options = options_of(task.options)
    except OptionError:  # of a long text it keeps the beginning
        options = None
    if options is None or _REDACTED in options.values():
        raise OptionError(
            f"Airflow keeps the options of {name!r} shortened or redacted, so that they are not "
            "known here. Give the locations and options of the stream instead of its name."
        )
    return replace(task.stream, options=options)


def _hook(conn_id: str) -> CloudFilesHook:
    what = f"The connection {conn_id!r}"
    tasks = _tasks(what)
    hook: CloudFilesHook = tasks.ServerHook(conn_id)
    try:
        _ = hook.access  # it is looked up now
    except import_with_extra("airflow.exceptions", "airflow", needed_for=what).AirflowException:
        raise OptionError(
            f"Airflow has no connection {conn_id!r}: `airflow connections list` shows those of its "
            f"database; others come from AIRFLOW_CONN_{conn_id.upper()} and secrets backends."
        ) from None
    return hook


def _tasks(what: str) -> Any:
    """Import the module of this package that knows Airflow's tasks."""
    import_with_extra("airflow", "airflow", needed_for=what)
    return import_with_extra("airflow_cloudfiles.plugins.tasks", "airflow", needed_for=what)
