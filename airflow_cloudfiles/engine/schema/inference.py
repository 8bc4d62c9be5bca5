"""From which files is a schema inferred, and what is resolved in the end?

The sample is the newest files (B1 to B3). What a format observed in them becomes the schema of
the stream in this order: hints, then strings for what never had a value, then the partition
columns of the sampled paths.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.schema.ddl import ColumnDefinition, parse_columns
from airflow_cloudfiles.engine.schema.depth import refuse_too_deep_hints
from airflow_cloudfiles.engine.schema.hints import apply_hints
from airflow_cloudfiles.engine.schema.partitions import beside, partition_schema
from airflow_cloudfiles.engine.types import canonical_struct, short_type, too_deep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_cloudfiles.engine.casing import NameMatcher
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


def choose_sample(files: Iterable[FileEntry], max_files: int, max_bytes: int) -> list[FileEntry]:
    """Choose the newest files, until one of the limits is reached.

    The file that reaches `max_bytes` is the last one, so there is at least one if there is any.
    Memory is bounded by `max_files`, however many files are offered.

    Args:
        files: Candidates, in any order.
        max_files: Most files.
        max_bytes: No further file once this many bytes are in the sample.

    Returns:
        The sample, newest first by modification time, then by path backwards.
    """
    newest = heapq.nlargest(
        max_files, files, key=lambda file: (file.modification_time_us, file.path)
    )
    total = 0
    for position, file in enumerate(newest):
        total += file.size
        if total >= max_bytes:
            return newest[: position + 1]
    return newest


def resolve(
    observed: StructType, *, options: CloudFilesOptions, paths: Sequence[str]
) -> tuple[StructType, StructType]:
    """Make the schema of a stream from what a format observed in a sample.

    Args:
        observed: Fields in order of appearance; `NullType` where no value showed the type.
        options: The stream's options: hints, partition columns, column names it reserves.
        paths: Paths of the sample, relative to the source.

    Returns:
        The columns of the records and the columns of the paths.

    Raises:
        SchemaHintError: A hint cannot be parsed, or does not fit.
    """
    matcher = options.matcher
    hints = parse_columns(options.schema_hints, matcher) if options.schema_hints else []
    check_reserved(hints, options)
    refuse_too_deep_hints(hints)
    observed = _without_reserved(observed, options)
    found = partition_schema(
        paths,
        columns=options.partition_columns,
        typed=options.infer_column_types,
        matcher=matcher,
    )
    partitions = beside(canonical_struct(observed), found, matcher)
    keys = matcher.keys(partitions.names)
    for_paths = [hint for hint in hints if matcher.key(hint.path[0]) in keys]
    for_records = [hint for hint in hints if matcher.key(hint.path[0]) not in keys]
    data = canonical_struct(apply_hints(observed, for_records, matcher))
    return (
        data if data.fields else _texts_of_deep(observed),
        hinted_partitions(partitions, for_paths, matcher),
    )


def _texts_of_deep(observed: StructType) -> StructType:
    """Make strings of columns that are nested too deep, where there is no other to start with."""
    deep = [each.name for each in observed.fields if too_deep(StructType([each]))]
    return StructType([StructField(name, StringType()) for name in deep])


def hinted_partitions(
    partitions: StructType, hints: Sequence[ColumnDefinition], matcher: NameMatcher
) -> StructType:
    """Give partition columns the hinted types, which must be atomic: a path holds only text.

    Raises:
        SchemaHintError: A hinted type is not atomic.
    """
    hinted = apply_hints(partitions, hints, matcher)
    for field in hinted.fields:
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            raise SchemaHintError(
                f"cloudFiles.schemaHints gives the partition column {field.name} the type "
                f"{short_type(field.dataType)}. A path holds text: hint an atomic type."
            )
    return hinted


def _without_reserved(observed: StructType, options: CloudFilesOptions) -> StructType:
    """Leave out fields named as the columns the reader itself fills; it rescues their values."""
    key = options.matcher.key
    reserved = {key(options.corrupt_record_column), key(options.rescued_data_column or "")}
    reserved |= {key(each.name) for each in options.metadata_columns}
    return StructType([field for field in observed.fields if key(field.name) not in reserved])


def check_reserved(hints: Sequence[ColumnDefinition], options: CloudFilesOptions) -> None:
    """Refuse hints that would change the columns the reader itself fills.

    Raises:
        SchemaHintError: There is one.
    """
    rescued, corrupt = options.rescued_data_column, options.corrupt_record_column
    matcher = options.matcher
    made = matcher.keys(each.name for each in options.metadata_columns)
    for hint in hints:
        if matcher.key(hint.path[0]) in made:
            raise SchemaHintError(
                f"cloudFiles.schemaHints names {hint.path[0]!r}, which cloudFiles.metadataColumns "
                "makes, with the type that it has in Spark. Remove the hint."
            )
        if rescued is not None and matcher.same(hint.path[0], rescued):
            raise SchemaHintError(
                f"cloudFiles.schemaHints names {rescued!r}, which is the rescued data column and "
                "always a string. Remove the hint."
            )
        if not matcher.same(hint.path[0], corrupt):
            continue
        if hint.path != (corrupt,) or not isinstance(hint.data_type, StringType):
            raise SchemaHintError(
                f"cloudFiles.schemaHints names {'.'.join(hint.path)!r}, but {corrupt!r} is the "
                f"corrupt record column, a string. Write: {corrupt} STRING."
            )
