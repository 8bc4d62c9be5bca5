"""Notify people of what a run has met: new columns, rescued data, lost files.

Callbacks of a task: callables and Airflow's notifiers, called with the context of the task as those
of Airflow (`on_failure_callback`) are. They inform people, so none decides how a task ends.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileMissingError,
    OptionError,
    TableEvolvedError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.cloud_files import DEFAULT_RESCUED_DATA_COLUMN
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.engine.schema.history import SchemaEntry
    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.hooks.keywords import Callback

_RESCUED: Final = (
    "rescued_rows", "corrupt_records", "rows", "files", "target", "target_version",
    "schema_version", "run_id", "report_uri",
)  # fmt: skip
"""What a callback gets of rescued data, under the names of the report of the run."""
_COLUMN: Final = "rescueddatacolumn"
_MOST_FIELDS: Final = 20
_PATH_CHARACTERS: Final = 200
_DISCOVERED: Final = " was discovered "
"""Behind the URI of a file that is gone, in the message of `FileMissingError`."""


def callbacks_of(name: str, given: Callback | Collection[Callback] | None) -> list[Callback]:
    """Check the callbacks that a task is given.

    Args:
        name: Of the argument.
        given: One callback, several, or none.

    Raises:
        OptionError: It is something else.
    """
    if given is None:
        return []
    if callable(given):
        return [given]
    several: Any = given
    is_list = isinstance(several, Collection) and not isinstance(several, str | Mapping)
    if not is_list or not all(callable(each) for each in several):
        raise OptionError(
            f"{name} must be a callable, a notifier or a list of these, got {several!r:.80}."
        )
    return list(several)


def call_each(
    callbacks: Sequence[Callback], context: Mapping[str, Any], log: Any, **met: object
) -> None:
    """Call callbacks; one that fails is logged as an error, and the next is called.

    Args:
        callbacks: Of the task. A notifier is called as a copy, because rendering changes it.
        context: Airflow's. Each callback gets a copy, so that it changes nothing for the others.
        log: The log of the task.
        met: What was met, for the context.
    """
    for callback in callbacks:
        is_rendered = hasattr(callback, "template_fields")
        called: Any = copy.copy(callback) if is_rendered else callback
        try:
            called({**context, **met})
        except Exception:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            log.exception("The callback %s failed; the task goes on.", name)


def has_evolved_ahead(report: Mapping[str, Any]) -> bool:
    """Tell whether the run changed the schema before it read (`cloudFiles.evolveAhead`)."""
    return bool(report.get("evolved_ahead"))


def is_schema_change(failure: BaseException | None) -> bool:
    """Tell whether a run failed for a recorded change of the schema: its retry succeeds."""
    kinds = (UnknownFieldException, TableEvolvedError)
    return isinstance(failure, kinds) and failure.is_retryable


def schema_change(
    hook: CloudFilesHook,
    stream: StreamArguments,
    *,
    version: int | None = None,
    failure: BaseException | None = None,
) -> dict[str, Any]:
    """Describe a change of the schema, by the version that the schema log has of it.

    Args:
        hook: Of the task.
        stream: The stream.
        version: The new version; `None` for the newest.
        failure: What the run failed with; it has all that is known of a change of a table that is
            the source, and of a schema log that cannot be read.

    Returns:
        `schema_version`, the new one, or `None`; `fields`, the new columns; `files`, the URI of
        each file that has some, with the paths of these; `changes`, in words; `message`, of
        the failure, or empty.
    """
    known: dict[str, Any] = {"schema_version": None, "fields": [], "files": {}, "changes": []}
    known["message"] = str(failure or "")
    if isinstance(failure, TableEvolvedError):
        return known
    if isinstance(failure, UnknownFieldException):
        known["fields"] = [*failure.fields]
        known["files"] = {failure.file: known["fields"]} if failure.file else {}
    try:
        return known | _of_version(hook, stream, version)
    except (CloudFilesError, OSError) as error:
        hook.log.warning(
            "The schema log cannot be read, so callbacks get less of the change: %s", error
        )
        return known


def rescued_data(
    hook: CloudFilesHook, stream: StreamArguments, report: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe what a run has rescued.

    Returns:
        `column`, the rescued data column; what the report says of the run: how many rows have
        something in it is `rescued_rows`; and `fields`, which fields the newest rescued rows of the
        table have: `path` and `rows` of each, the most frequent first.
    """
    given = {name.lower(): value for name, value in stream.options.items()}
    column = str(given.get(_COLUMN) or DEFAULT_RESCUED_DATA_COLUMN)
    known = {name: report.get(name) for name in _RESCUED}
    return {"column": column, **known, "fields": _rescued_fields(hook, known["target"], column)}


def lost_files(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describe the files that were gone when a run was to read them.

    Returns:
        `count`; `files`, the URIs of the first of them; `message`, of the error that the run failed
        with for one of them, or empty; `target`, `run_id`, `report_uri`. `None` where the run does
        not count such files, as from a table.
    """
    error = report.get("error") or {}
    is_missing = error.get("class") == FileMissingError.__name__
    if "missing_files" not in report and not is_missing:
        return None
    count, files = int(report.get("missing_files", 0)), [*report.get("missing", ())]
    message = str(error["message"]) if is_missing else ""
    if is_missing:
        count, files = count + 1, [*files, message.partition(_DISCOVERED)[0]]
    known = {name: report.get(name) for name in ("target", "run_id", "report_uri")}
    return {"count": count, "files": files, "message": message, **known}


def _rescued_fields(hook: CloudFilesHook, target: Any, column: str) -> list[dict[str, Any]]:
    """List the fields of the newest rescued data of a Delta table, without any value."""
    if not target or target_of(target).layer != "delta":
        return []
    try:
        from airflow_cloudfiles.engine.extensions.overview.rescued import rescued_fields  # noqa: PLC0415 - needs extras

        found = rescued_fields(target, hook.access, column=column)
    except (CloudFilesError, OSError, ImportError) as failure:
        hook.log.warning("Callbacks get no fields of the rescued data: %s", failure)
        return []
    return [
        {"path": cut(each.path, _PATH_CHARACTERS), "rows": each.rows}
        for each in found.fields[:_MOST_FIELDS]
    ]


def _of_version(
    hook: CloudFilesHook, stream: StreamArguments, version: int | None
) -> dict[str, Any]:
    """Read what the schema log has of a version."""
    from airflow_cloudfiles.engine.schema.diff import in_words  # noqa: PLC0415 - rarely needed
    from airflow_cloudfiles.engine.schema.history import SchemaHistory  # noqa: PLC0415 - the same

    located = hook.locate(stream)
    location = located.schema_location or located.checkpoint_location
    history = SchemaHistory(location, access=hook.access)
    entry = history.show(version)
    return {
        "schema_version": entry.version,
        "fields": [*entry.reason.get("fields", ())],
        "files": _files(entry),
        "changes": [in_words(each) for each in history.diff(new=entry.version)],
    }


def _files(entry: SchemaEntry) -> dict[str, list[str]]:
    """Map the files with new fields and wider types to the paths of these."""
    found = {file: [*paths] for file, paths in entry.reason.get("brought", {}).items()}
    for path, change in entry.reason.get("widened", {}).items():
        if change.get("file"):
            found.setdefault(change["file"], []).append(path)
    return found
