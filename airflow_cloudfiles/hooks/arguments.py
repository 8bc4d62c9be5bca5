"""Find the stream that a task speaks of, and check its arguments.

The arguments all tasks have in common, as one frozen value. What is written plainly in a DAG is
checked when the DAG is parsed; what is templated is checked when it has been rendered.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from airflow_cloudfiles.engine.errors import OptionError, StateConflictError
from airflow_cloudfiles.engine.job.spec import JobKind, JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.options.metadata_columns import NAME as METADATA_COLUMNS
from airflow_cloudfiles.engine.options.metadata_columns import metadata_option
from airflow_cloudfiles.engine.options.row_rules import ACTION, read_rules
from airflow_cloudfiles.engine.options.row_rules import PREFIX as RULE
from airflow_cloudfiles.engine.options.values import CREDENTIALS, option_text
from airflow_cloudfiles.engine.source import ARGUMENTS, FileSource, source_of
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.versions import FIELD, require_version

if TYPE_CHECKING:
    from airflow_cloudfiles.hooks.keywords import Location

_TEMPLATE_MARKS = ("{{", "{%", "{#")
BATCH_VERSION = 1
"""Of the reference to a batch that a sensor leaves in XCom."""
_LOCATION = "badrecordspath"
"""The option that is a location, and no argument of a task."""
_CREDENTIALS = {each.name.lower(): each for each in CREDENTIALS}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamArguments:
    """One stream, as the arguments of a task describe it."""

    source: str
    """Path or URI of the folder the files land in; may have a pattern. Or a Delta table."""
    format: str
    """The format of the files: `cloudFiles.format`; `delta` for a table."""
    checkpoint_location: str
    """Where the state of the stream lives."""
    schema_location: str | None = None
    """Where the schema log lives; the checkpoint location when left out."""
    target: str | None = None
    """The table the rows go to."""
    options: Mapping[str, object] = field(default_factory=dict)
    """`cloudFiles.*` and format options under Auto Loader's names."""

    def as_keywords(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal value."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def job(self, kind: JobKind, *, run_id: str, **details: Any) -> JobSpec:
        """Build the spec of a run of this stream.

        Args:
            kind: What to do.
            run_id: Names the run's report.
            details: Further fields of the `JobSpec`.

        Raises:
            OptionError: The options, or the details, are not valid.
        """
        options = self.engine_options()
        return JobSpec(
            kind=kind, run_id=run_id, **{**self.as_keywords(), "options": options}, **details
        )

    def located(self, locate: Callable[[str], str]) -> StreamArguments:
        """Make every location of the stream absolute by `locate`."""
        return replace(
            self,
            source=locate(self.source),
            checkpoint_location=locate(self.checkpoint_location),
            schema_location=locate(self.schema_location) if self.schema_location else None,
            target=locate(self.target) if self.target else None,
            options={
                name: locate(str(value)) if name.lower() == _LOCATION and value else value
                for name, value in self.options.items()
            },
        )

    def engine_options(self) -> dict[str, str]:
        """Return the options as strings, without those that are arguments of the task.

        Raises:
            OptionError: An option repeats an argument with another value.
        """
        strings = {}
        for name, value in self.options.items():
            text = option_text(value)
            argument = ARGUMENTS.get(name.lower())
            if argument is None:
                strings[name] = text
            elif text != getattr(self, argument):
                raise OptionError(
                    f"Option {name}={text!r} contradicts the task's argument {argument}="
                    f"{getattr(self, argument)!r}. Remove it from options."
                )
        return strings

    def validated(self) -> StreamArguments:
        """Return the same stream after checking that all options are valid.

        Raises:
            OptionError: Of the kind `CloudFilesOptions.parse` raises.
        """
        source_of(self.format).check(self.engine_options(), self.source)
        return self

    def discovery(self) -> DiscoveryOptions:
        """Parse what the options say about finding files.

        Raises:
            OptionError: Of the kind `CloudFilesOptions.parse` raises.
        """
        return self._parsed().discovery

    def own_locations(self) -> list[str]:
        """List locations other than the state that may lie below the source and are not input."""
        named = (self.target, self.schema_location, self._parsed().bad_records_path)
        return [location for location in named if location]

    def _parsed(self) -> CloudFilesOptions:
        return FileSource(self.format).parsed(self.engine_options(), self.source)


def as_text(location: Location) -> str:
    """Convert a location for templates and the state; leave what is not a path as it is.

    What another task returns (`XComArg`) Airflow replaces by its value when the task runs.
    """
    return os.fspath(location) if isinstance(location, os.PathLike) else cast("str", location)


def check_at_parse(
    *,
    source: object,
    format: str,  # noqa: A002 - Spark's word
    options: object,
    reads_tables: bool = False,
) -> None:
    """Refuse what is wrong with the plain arguments of a task when its DAG is parsed.

    A template, an `XComArg` or another value that is only known at run time is left for the
    execution; the name of an option is never a template, so credentials are refused here always,
    before a rendered value could be stored.

    Args:
        source: The task's source.
        format: Its format.
        options: Its options.
        reads_tables: Whether its source may be a Delta table.

    Raises:
        OptionError: An option is unknown, not offered, or has a bad value.
        SchemaHintError: The hints cannot be read.
    """
    _check_source(source)
    if options is None or (isinstance(options, str) and not has_template(options)):
        options = options_of(options)
    if not isinstance(options, Mapping) or not _is_plain(format):
        return
    for name in options:
        if credential := _CREDENTIALS.get(str(name).lower()):
            credential.refuse("")
    plain = {name: value for name, value in options.items() if _is_plain(value)}
    kind = source_of(format)
    if not reads_tables:
        kind.require_files(
            f"format={format}: only CloudFilesSensor and CloudFilesIngestOperator take a Delta "
            "table as their source."
        )
    kind.check_at_parse(plain, options.keys() - plain.keys(), str(source))


def _check_source(given: object) -> None:
    """Refuse what is not a location, where a user may think that several can be given."""
    if isinstance(given, list | tuple | set | Mapping):
        raise OptionError(
            f"source must be one path or URI, got {given!r}. A stream reads one folder, or what a "
            f"pattern such as s3://lake/{{orders,returns}} names; for folders that have nothing in "
            f"common, make a stream of each (CloudFilesIngestOperator.partial(...).expand_kwargs)."
        )


def check_fields(fields: object) -> dict[str, str | None]:
    """Read which fields a task is to promote.

    Args:
        fields: A mapping from path to type, a list of paths, or what a template makes of either.

    Raises:
        OptionError: It is something else.
    """
    if isinstance(fields, str):
        fields = from_template(fields)
    if isinstance(fields, list | tuple):
        fields = dict.fromkeys(fields)
    if isinstance(fields, Mapping) and all(
        isinstance(path, str) and (kind is None or isinstance(kind, str))
        for path, kind in fields.items()
    ):
        return dict(fields)
    raise OptionError(
        "fields must be paths, or paths with types, such as ['user.zip'] or "
        f"{{'user.zip': 'STRING', 'price': None}}; got {fields!r}."
    )


def check_batch(batch: object, checkpoint_location: str) -> dict[str, object] | None:
    """Read the reference to a batch that a sensor left in XCom.

    Args:
        batch: The sensor's dict, its text as a template renders it, or nothing.
        checkpoint_location: The checkpoint of the task that is to ingest it.

    Returns:
        The dict; `None` when there is none, which means everything outstanding.

    Raises:
        OptionError: It is not what a sensor returns.
        StateConflictError: It belongs to another checkpoint.
        IncompatibleStateError: A newer version of this package made it.
    """
    if isinstance(batch, str):
        batch = from_template(batch)
    if batch is None:
        return None
    if not isinstance(batch, Mapping) or not {"checkpoint_location", "last_entry"} <= set(batch):
        raise OptionError(
            f"batch must be what CloudFilesSensor returns (sensor.output), got {batch!r}. Leave it "
            "out to ingest everything outstanding."
        )
    upgrade = "Install one version of the package on all workers."
    require_version(batch.get(FIELD, 1), name="batch", understood=BATCH_VERSION, what_to_do=upgrade)
    theirs = str(batch["checkpoint_location"])
    if normalize_uri(theirs) != normalize_uri(checkpoint_location):
        raise StateConflictError(
            f"The batch belongs to checkpoint {theirs!r}, but this task ingests with checkpoint "
            f"{checkpoint_location!r}. Give the sensor and the operator the same "
            "checkpoint_location."
        )
    return dict(batch)


def _is_plain(value: object) -> bool:
    """Tell whether a value is known when the DAG is parsed."""
    if isinstance(value, str):
        return not has_template(value)
    return isinstance(value, bool | int | float)


def has_template(text: str) -> bool:
    """Tell whether a text has marks of Jinja to render."""
    return any(mark in text for mark in _TEMPLATE_MARKS)


def from_template(text: str) -> object:
    """Read the text that a template makes of a dict or of `None`; other text is given back.

    Args:
        text: As Python writes a value, or JSON.
    """
    if not text.strip():
        return None
    for read in (ast.literal_eval, json.loads):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError):
            continue
    return text


def options_of(given: object) -> Mapping[str, object]:
    """Give the options of a stream, also where a template has made a text of them all.

    Args:
        given: A mapping, its text, or nothing.

    Raises:
        OptionError: It is something else.
    """
    found = from_template(given) if isinstance(given, str) else given
    if found is None:
        return {}
    if isinstance(found, Mapping) and all(isinstance(name, str) for name in found):
        return found
    raise OptionError(
        f"options must be a mapping from names to values, or a template that gives one "
        f"('{{{{ var.json.my_options }}}}'); got {type(found).__name__}."
    )


def metadata_options(
    columns: Sequence[str] | Mapping[str, str],
    format: str,  # noqa: A002 - Spark's word
    options: object,
) -> dict[str, str]:
    """Build the option of the source for a task's `metadata_columns`.

    Args:
        columns: Fields of `_metadata`, or a mapping from names of columns to fields.
        format: Of the source.
        options: The options of the stream.

    Raises:
        OptionError: A field that `_metadata` lacks, two columns of one name, a source that is a
            table, or the option was given as well.
    """
    if not columns:
        return {}
    source_of(format).require_files(
        f"metadata_columns say what file a row came from, and format={format} reads a table, "
        "whose rows do not tell. Leave it out; or give it to the task that ingests the files."
    )
    found = {METADATA_COLUMNS: metadata_option(columns)}
    _refuse_twice(found, options, "metadata_columns")
    return found


def _refuse_twice(found: Mapping[str, str], options: object, argument: str) -> None:
    """Refuse options that an argument of the task makes, too."""
    given = {str(name).lower() for name in options} if isinstance(options, Mapping) else set()
    for name in found:
        if name.lower() in given:
            raise OptionError(
                f"{name} is given as an option and as the argument {argument}. Give the argument "
                "only."
            )


def rule_options(rules: Mapping[str, str | tuple[str, str]], options: object) -> dict[str, str]:
    """Build the options of the sink for a task's `row_rules`.

    Args:
        rules: By name a condition in SQL, or it and what becomes of a row that does not meet it.
        options: The options of the stream.

    Raises:
        OptionError: A rule is something else, or was given as an option as well.
    """
    found: dict[str, str] = {}
    for name, rule in rules.items():
        match rule:
            case str(predicate):
                found[f"{RULE}{name}"] = predicate
            case (str(predicate), str(action)):
                found |= {f"{RULE}{name}": predicate, f"{RULE}{name}.{ACTION}": action}
            case _:
                raise OptionError(
                    f"row_rules must have a condition by each name, such as 'amount > 0', or a "
                    f"condition and an action, such as ('amount > 0', 'drop'); {name} has {rule!r}."
                )
    _refuse_twice(found, options, "row_rules")
    read_rules({name: text for name, text in found.items() if not has_template(text)})
    return found


def merge_options(
    write: str, keys: Sequence[str], order_by: str | None, delete_when: str | None
) -> dict[str, str]:
    """Build the options of the sink for a task's arguments of a merge.

    Args:
        write: `append` or `merge`.
        keys: Columns that identify a row.
        order_by: Column that says which state of a row is newer.
        delete_when: Predicate of the rows that delete.

    Raises:
        OptionError: They contradict each other.
    """
    if write not in {"append", "merge"}:
        raise OptionError(f"write must be append or merge, got {write!r}.")
    if isinstance(keys, str) or any(not name or "," in name for name in keys):
        raise OptionError(f"keys must be a list of names of columns, without commas, got {keys!r}.")
    if write == "append":
        if keys or order_by or delete_when:
            raise OptionError("keys, order_by and delete_when need write='merge'.")
        return {}
    if not keys:
        raise OptionError("write='merge' needs keys: the columns that identify a row.")
    given = {"mergeOrderBy": order_by, "mergeDeleteWhen": delete_when}
    return {"mergeKeys": ",".join(keys), **{name: value for name, value in given.items() if value}}
