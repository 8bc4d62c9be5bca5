"""Explain what the options of a stream amount to.

Which value each option has, and whether it was given; then, in sentences, what follows from them
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.declared import OptionGroup, options_of
from airflow_cloudfiles.engine.options.values import option_text

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
