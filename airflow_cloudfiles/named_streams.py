"""Find a stream of a command line by its name: in a file of streams, or in Airflow.

Airflow is imported when it is asked, not before.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.storage.extras import import_with_extra
from airflow_cloudfiles.engine.streams_file import NamedStream, read_streams
from airflow_cloudfiles.hooks.arguments import has_template, options_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.plugins.tasks import TaskKey, TaskStream

_LOCATIONS = ("source", "checkpoint_location", "schema_location", "target")
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
    tasks = _airflow("plugins.tasks", "Without --streams-file, --all")
    found: dict[str, list[TaskStream]] = {}
    for key in tasks.newest_of_each_task(None):
        try:
            task = tasks.stream_of(key)
        except CloudFilesError as failure:
            _log.warning("%s is left out: %s", _name(key), failure)
            continue
        if task is not None:
            found.setdefault(task.stream.checkpoint_location, []).append(task)
    main = [tasks.main_of(each) for each in found.values()]
    return [_of_task(_name(task.key), task, {}) for task in main]


def find(name: str, path: str | None) -> NamedStream:
    """Find one stream.

    Args:
        name: A name in the file; without a file, `dag_id/task_id`, or the id of a task group.
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


def _of_file(name: str, stream: Mapping[str, Any], path: str) -> NamedStream:
    arguments = {
        key: str(stream[key]) for key in ("format", *_LOCATIONS) if stream.get(key) is not None
    }
    options = {key: _as_option(value) for key, value in (stream.get("options") or {}).items()}
    for key, text in [*arguments.items(), *options.items()]:
        if has_template(text):
            raise OptionError(
                f"{key} of the stream {name!r} in {path} is a template, {text!r}, which only "
                f"Airflow renders. Name its task instead, without a file: --stream dag_id/task_id."
            )
    if conn_id := stream.get("conn_id"):
        hook = _hook(str(conn_id))
        return NamedStream(name, _located(arguments, hook.absolute), options, hook.access)
    return NamedStream(name, arguments, options)


def _located(arguments: Mapping[str, str], locate: Callable[[str], str]) -> dict[str, str]:
    return {name: locate(text) if name in _LOCATIONS else text for name, text in arguments.items()}


def _as_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_airflow(name: str) -> NamedStream:
    dag_id, _, task_id = name.partition("/")
    if not dag_id or not task_id:
        raise OptionError(
            f"The stream {name!r} is neither in a file (--streams-file) nor written "
            "dag_id/task_id, as Airflow's tasks are named here."
        )
    tasks = _airflow("plugins.tasks", f"The stream {printable(name)}")
    keys = tasks.newest_of_each_task([dag_id])
    wanted = [key for key in keys if key.task_id == task_id]
    wanted = wanted or [key for key in keys if key.task_id.startswith(f"{task_id}.")]
    if found := [task for key in wanted if (task := tasks.stream_of(key))]:
        main = tasks.main_of(found)
        return _of_task(name, main, _options(name, main.options))
    known = sorted({_name(key) for key in keys})
    raise OptionError(
        f"Airflow has no record of a stream {name!r}: a task of this package that has run. "
        + (f"The DAG has {', '.join(known)}." if known else "The DAG has no such task.")
    )


def _name(key: TaskKey) -> str:
    return f"{key.dag_id}/{key.task_id}"


def _of_task(name: str, task: TaskStream, options: Mapping[str, str]) -> NamedStream:
    arguments = {
        key: str(value)
        for key in ("format", *_LOCATIONS)
        if (value := getattr(task.stream, key)) is not None
    }
    return NamedStream(name, arguments, options, task.access)


def _options(name: str, rendered: object) -> dict[str, str]:
    """Read options as Airflow keeps them."""
    try:
        options = {key: _as_option(value) for key, value in options_of(rendered).items()}
    except OptionError:
        options = {"": _REDACTED}  # a long text is kept shortened
    if _REDACTED in options.values():
        raise OptionError(
            f"Airflow keeps the options of {name!r} shortened or redacted, so that they are not "
            "known here. Give the locations and options of the stream instead of its name."
        )
    return options


def _hook(conn_id: str) -> CloudFilesHook:
    what = f"The connection {conn_id!r}"
    tasks = _airflow("plugins.tasks", what)
    hook: CloudFilesHook = tasks.ServerHook(conn_id)
    try:
        _ = hook.access  # it is looked up now
    except import_with_extra("airflow.exceptions", "airflow", needed_for=what).AirflowException:
        raise OptionError(
            f"Airflow has no connection {conn_id!r}: `airflow connections list` shows those of its "
            f"database; others come from AIRFLOW_CONN_{conn_id.upper()} and secrets backends."
        ) from None
    return hook


def _airflow(module: str, what: str) -> Any:
    """Import a module of this package that needs Airflow."""
    import_with_extra("airflow", "airflow", needed_for=what)
    return import_with_extra(f"airflow_cloudfiles.{module}", "airflow", needed_for=what)
