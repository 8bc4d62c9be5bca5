"""What should a person know of an inference, besides the schema?

Which hints were applied, and to what; why paths with `key=value` folders gave no columns; how much
of the sample could not be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import sentence
from airflow_cloudfiles.engine.names import NameMatcher, dotted
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.schema.source_columns import path_partitions
from airflow_cloudfiles.engine.types import simple_ddl

_INSIDES = {"element": "elementType", "key": "keyType", "value": "valueType"}


def applied_hints(
    observed: StructType, partitions: StructType, options: CloudFilesOptions
) -> tuple[str, ...]:
    """Describe what each hint has changed.

    Args:
        observed: What the sample showed, without hints.
        partitions: The partition columns.
        options: The options with the hints, which fit.

    Returns:
        One text a hint, such as `user.dob DATE (was STRING)`, in their order.
    """
    matcher = options.matcher
    hints = parse_columns(options.schema_hints, matcher) if options.schema_hints else []
    return tuple(
        f"{dotted(hint.path)} {_ddl(hint.data_type)} "
        f"({_before(observed, partitions, hint.path, matcher)})"
        for hint in hints
    )


def no_field(
    uri: str, sample: Sequence[FileEntry], options: CloudFilesOptions, why: str | None
) -> str:
    """The message for a sample that has files, but nothing that could be a column.

    Args:
        uri: The source.
        sample: The files that were read, at least one.
        options: The options, of which one may be the reason.
        why: What the first file that is not empty shows, in a sentence.
    """
    own = options.format_options
    row, reason = "a record with a field", ""
    if isinstance(own, XmlOptions):
        row = f"an element <{own.row_tag}> with content that can be read"
        reason = f"Correct rowTag={own.row_tag} if rows have another name (case matters). "
    elif isinstance(own, JsonOptions):
        row = "a JSON object with a field"
        reason = "" if own.multi_line else "Set multiLine=true if a record spans several lines. "
    elif isinstance(own, CsvOptions):
        row = "a line of CSV"
    files, lacks = len(sample), f"lacks {row}"
    named = next((file for file in sample if file.size), sample[0])
    if not any(file.size for file in sample):
        lacks, reason = "is empty", ""
    reason = reason if why is None else f"{why} "
    sampled = "The one sampled file" if files == 1 else f"Each of the {files:,} sampled files"
    return (
        f"{sampled} in {printable_path(uri)} (such as {printable_path(named.path)}) {lacks}. "
        f"{reason}Give a schema with .schema(...) or cloudFiles.schemaHints, or start when files "
        "with records have arrived."
    )


def _before(
    observed: StructType, partitions: StructType, path: Sequence[str], matcher: NameMatcher
) -> str:
    if matcher.find(partitions, path[0]) is not None:
        return "a partition column"
    found = _type_at(observed, path, matcher)
    if found is None:
        return "not in the sample"
    return "no value in the sample" if isinstance(found, NullType) else f"was {_ddl(found)}"


def _type_at(kind: DataType, path: Sequence[str], matcher: NameMatcher) -> DataType | None:
    """The type at the end of a dotted path; `None` when nothing is there."""
    for name in path:
        if isinstance(kind, StructType):
            field = matcher.find(kind, name)
            inside = None if field is None else field.dataType
        else:
            known = isinstance(kind, ArrayType | MapType)
            inside = getattr(kind, _INSIDES.get(matcher.key(name), ""), None) if known else None
        if inside is None:
            return None
        kind = inside
    return kind


def _ddl(kind: DataType) -> str:
    return simple_ddl(StructType([StructField("c", kind)])).removeprefix("c ")


def warnings_of(
    paths: Sequence[str],
    observed: StructType,
    partitions: StructType,
    options: CloudFilesOptions,
    counts: FetchCounts,
) -> list[str]:
    """What may surprise readers of the schema."""
    found = []
    matcher = options.matcher
    if options.partition_columns is None and not partitions.fields:
        contradiction = _contradiction(paths, options)
        found += [contradiction] if contradiction else []
    keys = [key for key, _ in path_partitions(paths[0])] if paths else []
    if options.partition_columns is None or options.partition_columns:
        found += [
            f"{key} is both a field of the records and a key in the paths: the column holds the "
            "values of the records."
            for key in options.partition_columns or keys
            if matcher.find(observed, key) is not None and matcher.find(partitions, key) is None
        ]
    if counts.missing_files:
        text = "{file} of the sample {is} gone and {was} skipped."
        found.append(sentence(counts.missing_files, text))
    if counts.corrupt_files:
        text = "{file} of the sample {is} damaged and {was} skipped (ignoreCorruptFiles)."
        found.append(sentence(counts.corrupt_files, text))
    return found


def _contradiction(paths: Sequence[str], options: CloudFilesOptions) -> str | None:
    """Two paths whose folders contradict each other (B38), if there are."""
    first = paths[0] if paths else ""
    key = options.matcher.key
    names = [key(name) for name, _ in path_partitions(first)]
    for path in paths:
        others = [key(name) for name, _ in path_partitions(path)]
        if others != names or len(set(others)) < len(others):
            return (
                f"The folders in {options.path} give no partition columns, because they contradict "
                f"each other: {_keys(names)} in {printable_path(first)}, {_keys(others)} in "
                f"{printable_path(path)}. Name those you want in cloudFiles.partitionColumns."
            )
    return None


def _keys(names: Sequence[str]) -> str:
    return "/".join(names) or "none"
