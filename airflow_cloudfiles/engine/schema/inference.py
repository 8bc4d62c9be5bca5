"""Choose the files to infer a schema from, and tell what new options ask of one that is logged.

The sample is the newest files (B1 to B3). What a format observed in them becomes the schema of
the stream in this order: hints, then strings for what never had a value, then the partition
columns of the sampled paths.

Options may change between two starts of a stream, and the schema log outlives both. At each start:

1. A column or field that a hint names and the schema lacks is added, as if the first inference had
   seen the hint (B31, B52).
2. The columns of the paths become those that `cloudFiles.partitionColumns` names, if it is given
   (B42, B43).
3. What cannot be done to columns that have rows already is a warning, every time: another type for
   one of them, a hint that was taken away, another `cloudFiles.inferColumnTypes`. The types of
   columns do not change by themselves (B50); inferring again changes them.

A pinned schema stays as it is: then 1 and 2 are warnings, too.

A schema that records have more than grows behind the columns that it has.

Only additions: a new field becomes a column at the end of its struct; what is there keeps its
name, its type and its place for ever (B46 to B50). A name that differs only in case is not new.
The types with which a proposed change is accepted are checked here, too.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher, dotted
from airflow_cloudfiles.engine.schema.ddl import (
    ColumnDefinition,
    apply_hints,
    parse_columns,
    refuse_too_deep_hints,
)
from airflow_cloudfiles.engine.schema.diff import SchemaChange, diff_json, paths_of, without
from airflow_cloudfiles.engine.schema.source_columns import beside, partition_schema
from airflow_cloudfiles.engine.types import (
    as_nullable,
    canonical_struct,
    grown,
    short_type,
    too_deep,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.schema.log import SchemaVersion


__all__ = ["SchemaChange", "diff", "evolve"]


def evolve(
    current: StructType, observed: StructType, matcher: NameMatcher = CASE_INSENSITIVE
) -> StructType:
    """Add the columns of `observed` that `current` lacks.

    Doing it twice changes nothing more. New fields of a nested struct go to that struct's end
    (B48), also inside arrays and maps.

    Args:
        current: The schema that is evolved.
        observed: A resolved schema of newer records.
        matcher: How names are compared.

    Returns:
        A schema of which `current` is a part, field by field and in the same order.
    """
    found: StructType = grown(current, observed, matcher, maps_take_structs=True)
    return found


def diff(old: StructType, new: StructType) -> list[SchemaChange]:
    """List how two schemas differ, in the order of the old one, additions last in each struct."""
    return diff_json(old.jsonValue(), new.jsonValue())


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
    hints = parse_columns(options.schema_hints or "", matcher)
    check_reserved(hints, options)
    refuse_too_deep_hints(hints)
    # A field named as a column that the reader fills itself is left out: its values are rescued.
    own = (options.corrupt_record_column, options.rescued_data_column or "")
    reserved = matcher.keys((*own, *(each.name for each in options.metadata_columns)))
    observed = StructType(
        [each for each in observed.fields if matcher.key(each.name) not in reserved]
    )
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
    hinted = apply_hints(observed, for_records, matcher) if for_records else observed
    data = canonical_struct(hinted)
    if not data.fields:
        # Columns that are nested too deep become strings where there is no other to start with.
        deep = [each.name for each in observed.fields if too_deep(StructType([each]))]
        data = StructType([StructField(name, StringType()) for name in deep])
    return data, hinted_partitions(partitions, for_paths, matcher)


def hinted_partitions(
    partitions: StructType, hints: Sequence[ColumnDefinition], matcher: NameMatcher
) -> StructType:
    """Give partition columns the hinted types, which must be atomic: a path holds only text.

    Raises:
        SchemaHintError: A hinted type is not atomic.
    """
    if not hints:
        return partitions
    hinted = apply_hints(partitions, hints, matcher)
    for field in hinted.fields:
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            raise SchemaHintError(
                f"cloudFiles.schemaHints gives the partition column {field.name} the type "
                f"{short_type(field.dataType)}. A path holds text: hint an atomic type."
            )
    return hinted


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


HINTS, TYPED, PARTITIONS = "schemaHints", "inferColumnTypes", "partitionColumns"
_AGAIN = (
    "To apply it, infer the schema again: `cloudfiles infer --again`, or infer_again=True of "
    "CloudFilesInferSchemaOperator."
)
_NO_EFFECT = f"The hint has no effect. {_AGAIN}"


@dataclass(frozen=True, slots=True)
class RestartedSchema:
    """A schema as the options of now want it.

    Attributes:
        data_schema: Columns of the records.
        partition_schema: Columns of the paths.
        changes: How it differs from the version in the log.
        warnings: What has no effect, and what would have.
    """

    data_schema: StructType
    partition_schema: StructType
    changes: tuple[SchemaChange, ...]
    warnings: tuple[str, ...]


def inferring_options(options: CloudFilesOptions) -> dict[str, Any]:
    """Return the options that a version was inferred with, as the schema log keeps them."""
    partitions = options.partition_columns
    return {
        HINTS: options.schema_hints,
        TYPED: options.infer_column_types,
        PARTITIONS: None if partitions is None else ",".join(partitions),
    }


def restarted(latest: SchemaVersion, options: CloudFilesOptions) -> RestartedSchema:
    """Put the options of now over the newest version.

    Doing it again with the result changes nothing more.

    Args:
        latest: The newest version.
        options: The options of the stream.

    Raises:
        SchemaHintError: `cloudFiles.schemaHints` cannot be read.
    """
    matcher = options.matcher
    hints = parse_columns(options.schema_hints or "", matcher)
    check_reserved(hints, options)
    of_paths = latest.partition_schema
    if options.partition_columns is not None:
        of_paths = _partitions(latest, options.partition_columns, hints, matcher)
    keys = matcher.keys(of_paths.names)
    data, warnings = latest.data_schema, []
    for hint in hints:
        if matcher.key(hint.path[0]) in keys:
            of_paths, ignored = _hinted(of_paths, hint, latest, matcher)
        else:
            data, ignored = _hinted(data, hint, latest, matcher)
        warnings += ignored
    of_paths = beside(data, of_paths, matcher)
    changes = (*diff(latest.data_schema, data), *diff(latest.partition_schema, of_paths))
    warnings += _forgotten(latest, hints, matcher) + _retyped(latest, options)
    if latest.pin is None or not changes:
        return RestartedSchema(data, of_paths, changes, tuple(warnings))
    warnings.append(
        f"The schema is pinned at version {latest.version}, so cloudFiles.schemaHints and "
        f"cloudFiles.partitionColumns change nothing: {few([each.path for each in changes])}. To "
        "apply them: `cloudfiles schema unpin`, then start the stream again."
    )
    return RestartedSchema(latest.data_schema, latest.partition_schema, (), tuple(warnings))


def not_null_warning(columns: Mapping[str, tuple[bool, DataType]], where: str) -> str | None:
    """Build the warning that `NOT NULL` is not enforced; `None` when nothing is `NOT NULL`.

    Args:
        columns: By name whether a column may be NULL, and its type.
        where: Where it is declared.
    """
    found = [
        name
        for name, (nullable, kind) in columns.items()
        if not nullable or as_nullable(kind) != kind
    ]
    if not found:
        return None
    return (
        f"NOT NULL is not enforced, for {few(found)} of {where}: a file may lack any field, which "
        "is NULL then. Check for NULL in a later step."
    )


def hinted_not_null(options: CloudFilesOptions) -> str | None:
    """Build the same warning for `cloudFiles.schemaHints`."""
    hints = parse_columns(options.schema_hints or "", options.matcher)
    columns = {dotted(hint.path): (hint.nullable, hint.data_type) for hint in hints}
    return not_null_warning(columns, "cloudFiles.schemaHints")


def _hinted(
    schema: StructType, hint: ColumnDefinition, latest: SchemaVersion, matcher: NameMatcher
) -> tuple[StructType, list[str]]:
    """Add to the schema what a hint adds; return it with what of the hint has no effect."""
    try:
        wanted = canonical_struct(apply_hints(schema, [hint], matcher))
    except SchemaHintError as error:
        return schema, [f"Schema version {latest.version}: {error} {_NO_EFFECT}"]
    added = evolve(schema, wanted, matcher)
    others = [each for each in diff(added, wanted) if each.kind in {"retyped", "respelled"}]
    return added, [
        f"{each.path} is {each.before} in schema version {latest.version}, but "
        f"cloudFiles.schemaHints says {each.after}. {_NO_EFFECT}"
        for each in others
    ]


def _partitions(
    latest: SchemaVersion,
    wanted: Sequence[str],
    hints: Sequence[ColumnDefinition],
    matcher: NameMatcher,
) -> StructType:
    """Choose the wanted columns of the paths: existing ones first, then new ones.

    New ones are strings, unless they are hinted: no path is inspected for their types.
    """
    key = matcher.key
    names = {key(name): name for name in wanted}
    fields = [each for each in latest.partition_schema.fields if key(each.name) in names]
    missing = names.keys() - matcher.keys(latest.partition_schema.names)
    new = [StructField(name, StringType()) for each, name in names.items() if each in missing]
    of_new = [hint for hint in hints if key(hint.path[0]) in missing]
    fields += hinted_partitions(StructType(new), of_new, matcher).fields if new else []
    return beside(latest.data_schema, StructType(fields), matcher)


def _forgotten(
    latest: SchemaVersion, hints: Sequence[ColumnDefinition], matcher: NameMatcher
) -> list[str]:
    """Warn of hints that were there when the schema was inferred and are not any more."""
    before = (latest.options or {}).get(HINTS)
    now = {tuple(map(matcher.key, hint.path)) for hint in hints}
    known = parse_columns(before, matcher) if isinstance(before, str) else []
    gone = [dotted(hint.path) for hint in known if tuple(map(matcher.key, hint.path)) not in now]
    if not gone:
        return []
    return [
        (
            f"cloudFiles.schemaHints no longer names {few(gone)}, which schema version "
            f"{latest.version} has from an earlier hint and keeps. {_AGAIN}"
        )
    ]


def _retyped(latest: SchemaVersion, options: CloudFilesOptions) -> list[str]:
    """Warn that types are inferred otherwise than they were."""
    before, now = (latest.options or {}).get(TYPED), options.infer_column_types
    if not isinstance(before, bool) or before == now:
        return []
    return [
        (
            f"cloudFiles.inferColumnTypes is {_word(now)}, but schema version {latest.version} was "
            f"inferred with {_word(before)}: its columns keep their types, only new columns are "
            f"inferred with {_word(now)}. {_AGAIN}"
        )
    ]


def _word(value: bool) -> str:  # noqa: FBT001 - the word for a boolean
    return str(value).lower()


Schemas = tuple[dict[str, Any], dict[str, Any]]


def accepted_types(
    proposed: Schemas,
    paths: Collection[str],
    before: Mapping[str, Any],
    hints: str,
    left_out: Collection[str],
) -> Schemas:
    """Put hints over what a proposal adds or widens.

    Args:
        proposed: Columns of the records and of the paths with the change.
        paths: Of what would change.
        before: Columns of the records of the version it changes, in Spark's schema JSON.
        hints: As `cloudFiles.schemaHints`; empty for none.
        left_out: Those paths that are not accepted: they stay as they are.

    Returns:
        Columns of the records and of the paths.

    Raises:
        SchemaHintError: A hint cannot be read, does not fit, or names something else.
    """
    data, partitions = proposed
    columns = parse_columns(hints)
    known = {path.lower() for path in paths_of(data)}
    missing = [dotted(each.path) for each in columns if dotted(each.path).lower() not in known]
    if missing:
        raise SchemaHintError(
            f"The hints name {few(missing)}, which this change does not have. It has {few(paths)}."
        )
    kept = StructType.fromJson(without(data, before, left_out))
    accepted = canonical_struct(apply_hints(kept, columns))
    others = [
        each.path
        for each in diff(StructType.fromJson(dict(before)), accepted)
        if each.kind != "added" and each.path not in paths
    ]
    if others:
        raise SchemaHintError(
            f"The hints change {few(others)}, which the schema has already: columns keep their "
            f"types. Hints for this change may name {few(paths)}."
        )
    of_paths = beside(accepted, StructType.fromJson(partitions))
    return accepted.jsonValue(), of_paths.jsonValue()
