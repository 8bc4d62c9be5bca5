"""Explain options for people and editors, and what those of a stream amount to.

Documentation, default, type and Python's name of an option come from its declaration. What is made
of them: the reference of options, the methods of `builders`, and the stub that shows these to
editors and type checkers.

Of a stream: which value each option has, and whether it was given; then, in sentences, what follows
from them together.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.declared import Option, OptionGroup, options_of
from airflow_cloudfiles.engine.options.metadata_columns import metadata_columns, metadata_option
from airflow_cloudfiles.engine.options.values import GIB, option_text, place, ratio, share, size

_PREFIX: Final = "cloudFiles."
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")
_BEHAVIOR: Final = re.compile(r" ?\(B\d+(, B\d+)*\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_TYPES: Final = {
    "true or false": "bool",
    "number": "int",
    "0 or 1": "int",
    "size": "int | str",
    "interval": "str | timedelta",
    "time": "str | datetime",
    "names, separated by commas": "str | Sequence[str]",
    "columns": "str | Sequence[str] | Mapping[str, str]",
    "JSON object": "str | Mapping[str, str]",
}
"""What Python has for the kinds of values that are more than a text, by their labels."""


def docs_of(group: type) -> Mapping[str, str]:
    """Read the docstrings below the fields of a dataclass and of its bases, by field.

    Returns:
        Each in one line; nothing where the source is not at hand.
    """
    found: dict[str, str] = {}
    for kind in group.__mro__[-2::-1]:
        for node, text in pairwise(_bodies(kind.__module__).get(kind.__name__, ())):
            if isinstance(node, ast.AnnAssign) and isinstance(text, ast.Expr):
                doc = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
                found[ast.unparse(node.target)] = _BEHAVIOR.sub("", doc)
    return found


@cache
def _bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Parse the classes of a module, by name; none where its source is not at hand."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without it
        return {}
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


def public_options(group: type[OptionGroup]) -> Iterable[tuple[Option[Any], str]]:
    """Yield the options of a class that users may set, with their documentation.

    Its own come before those that it has in common with others.
    """
    docs, declared = docs_of(group), options_of(group)
    own = [each for each in vars(group).get("__annotations__", ()) if each in declared]
    for name in dict.fromkeys([*own, *declared]):
        if not declared[name].is_internal:
            yield declared[name], docs.get(name, "")
    for declaration in group.WITHOUT_FIELD:
        yield declaration, declaration.doc


def default_of(declaration: Option[Any]) -> str:
    """Write a default as one would write it in an option."""
    value = declaration.default
    if declaration.shown:
        return declaration.shown
    if declaration.required:
        return "required"
    if value is None or value in {"", ()}:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if declaration.kind is size and isinstance(value, int) and value % GIB == 0:
        return f"`{value // GIB}g`"
    return f"`{value}`"


def python_name(name: str) -> str:
    """Give what an option is called in Python: `max_files_per_trigger`."""
    return _WORD.sub("_", name.removeprefix(_PREFIX)).lower()


def python_type(declaration: Option[Any]) -> str:
    """Write the type that Python has for the values of an option."""
    kind = declaration.kind
    if kind in {ratio, share}:
        return "float"
    if kind is place:
        return "str | PathLike[str]"
    words = re.findall(r"`([^`]*)`", kind.label)
    if words:
        return f"Literal[{', '.join(json.dumps(word) for word in words)}]"
    return _TYPES.get(kind.label, "str")


def described(declaration: Option[Any], doc: str) -> str:
    """Write the documentation of an option: its name, its values, its default, its meaning."""
    label = declaration.kind.label.replace(" / ", ", ")
    head = f"Set `{declaration.name}`: {label}. Default: {default_of(declaration)}."
    meaning = _LINK.sub(r"\1", doc)
    return f"{head}\n\n{meaning}" if doc else head


def as_text(declaration: Option[Any], value: object) -> str:
    """Write a value of Python as the text of an option.

    Raises:
        OptionError: A name in a list has a comma, which separates names there.
    """
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + " seconds"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return _of_several(declaration, value)
    return option_text(value)


def _of_several(declaration: Option[Any], value: Mapping[Any, Any] | Sequence[Any]) -> str:
    if declaration.kind is metadata_columns:
        return metadata_option(value)
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    names = [str(each) for each in value]
    odd = next((each for each in names if "," in each), None)
    if odd is not None:
        raise OptionError(
            f"{declaration.name} cannot name {odd!r}: a comma separates names. Rename it."
        )
    return ",".join(names)


_NEW_FIELD: Final[Mapping[str, str]] = {
    "addNewColumns": "A new field fails the run once the schema log has its column; the retry "
    "reads it.",
    "addNewColumnsWithTypeWidening": "A new field, or a value that a wider type would hold, fails "
    "the run once the schema log has it; the retry reads it.",
    "rescue": "A new field never changes the schema: it goes into the rescued data.",
    "failOnNewColumns": "A new field fails the run, and the schema stays as it is.",
    "none": "A new field changes nothing.",
}
_IDENTITY: Final[Mapping[str, str]] = {
    "path": "A file is known by its path: one that is overwritten is not ingested again.",
    "pathAndModificationTime": "A file is ingested again, as a whole, when its modification time, "
    "size or etag changes.",
    "pathAndVersion": "A file is ingested again, as a whole, when its size or etag changes.",
    "content": "A file is ingested when no file with the same bytes was, whatever its name; each "
    "new file is read once more for that.",
}
_INVALID: Final[Mapping[str, str]] = {
    "PERMISSIVE": "A record that is not valid goes into {place}.",
    "DROPMALFORMED": "A record that is not valid is dropped, and counted.",
    "FAILFAST": "A record that is not valid fails the run.",
}


@dataclass(frozen=True, slots=True)
class ExplainedOption:
    """An option and its value.

    Attributes:
        name: Its name in the reference.
        value: Its value, as it was given; else the default, sizes in bytes and intervals in
            seconds; `None` where there is none.
        is_given: Whether somebody gave it; otherwise it is the default, or follows from others.
    """

    name: str
    value: str | None
    is_given: bool


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """What the options of a stream amount to.

    Attributes:
        options: Those given first, in the order of their names, then all others.
        follows: What follows, in sentences.
    """

    options: tuple[ExplainedOption, ...] = field(default=())
    follows: tuple[str, ...] = field(default=())


def explain(source: str, given: Mapping[str, object]) -> StreamExplanation:
    """Explain the options of a stream of files.

    Args:
        source: The folder that the files land in.
        given: The options, with `cloudFiles.format`.

    Raises:
        OptionError: They are not valid; the error that a run would end with.
    """
    options = CloudFilesOptions.parse(given, path=source)
    texts = {key.lower(): _written(value) for key, value in given.items()}
    groups = (
        options,
        options.discovery,
        options.cleaning,
        options.upkeep,
        options.format_options,
    )
    found = [each for group in groups for each in _options(group, texts)]
    found.sort(key=lambda each: (not each.is_given, each.name.lower()))
    return StreamExplanation(tuple(found), tuple(_follows(options)))


def _options(group: OptionGroup, given: Mapping[str, str | None]) -> Iterator[ExplainedOption]:
    for name, declared in options_of(type(group)).items():
        if declared.is_internal or declared.name == "path":
            continue
        texts = [given[each.lower()] for each in declared.names if each.lower() in given]
        value = texts[0] if texts else _written(getattr(group, name))
        yield ExplainedOption(declared.name, value, bool(texts))


def _written(value: Any) -> str | None:
    if value is None or value == ():
        return None
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value)
    return option_text(value)


def _follows(options: CloudFilesOptions) -> Iterator[str]:
    yield _discovery(options)
    yield _IDENTITY[options.discovery.identity]
    if not options.discovery.include_existing_files:
        yield "Files that are there before the first start are never ingested."
    mode = options.schema_evolution_mode
    ahead = options.evolve_ahead and mode.startswith("addNewColumns")
    yield (
        "Each run reads its files for new fields first, and evolves the schema before it ingests."
        if ahead
        else _NEW_FIELD[mode]
    )
    if options.require_approval and mode.startswith("addNewColumns"):
        yield "A change of the schema waits until somebody accepts it, or decides otherwise."
    column = options.rescued_data_column
    yield (
        f"What does not fit its column, or has none, is in {column}."
        if column
        else "What does not fit its column, or has none, is lost: there is no rescued data column."
    )
    formats = options_of(CloudFilesOptions)["mode"].formats
    if not formats or options.format in formats:
        yield _invalid(options)
    limit = options.read_limit
    size = "" if limit.max_bytes is None else f", or about {limit.max_bytes} bytes"
    yield f"A micro-batch has {limit.max_files} files at most{size}."
    yield (
        "A file that is gone before it is read is skipped, and counted."
        if options.ignore_missing_files
        else "A file that is gone before it is read fails the run."
    )
    if options.cleaning.is_on:
        done = "moved" if options.cleaning.mode == "MOVE" else "deleted"
        yield f"Files are {done} after they were committed, when their retention has ended."


def _discovery(options: CloudFilesOptions) -> str:
    found = options.discovery
    if found.use_managed_file_events:
        return (
            "New files are found by the event log of the bucket; the source is listed at the first "
            "start, and when the log does not reach back to the last run."
        )
    if found.use_notifications:
        has_backfill = found.backfill_interval_seconds is not None
        also = " and, now and then, by a full listing" if has_backfill else ""
        return f"New files are found by a queue of notifications{also}."
    how = {
        "true": "Only what comes behind the newest file, by name, is listed.",
        "false": "The whole source is listed each time.",
        "auto": "The whole source is listed until it shows that new files come last by name; then "
        "only what comes behind them, with a full listing after seven of these.",
    }
    return how["false" if found.sees_overwrites else found.use_incremental_listing]


def _invalid(options: CloudFilesOptions) -> str:
    if options.bad_records_path is not None:
        return f"A record that is not valid goes to {options.bad_records_path}."
    rescued = options.rescued_data_column
    place = f"{options.corrupt_record_column} where the schema has it"
    place += f", else into {rescued}" if rescued else ""
    return _INVALID[options.mode].format(place=place)
