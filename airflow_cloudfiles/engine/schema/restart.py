"""What do the options of now ask of a schema that is in the log already?

Options may change between two starts of a stream, and the schema log outlives both. At each start:

1. A column or field that a hint names and the schema lacks is added, as if the first inference had
   seen the hint (B31, B52).
2. The columns of the paths become those that `cloudFiles.partitionColumns` names, if it is given
   (B42, B43).
3. What cannot be done to columns that have rows already is a warning, every time: another type for
   one of them, a hint that was taken away, another `cloudFiles.inferColumnTypes`. The types of
   columns do not change by themselves (B50); inferring again changes them.

A pinned schema stays as it is: then 1 and 2 are warnings, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.naming import dotted
from airflow_cloudfiles.engine.schema.ddl import ColumnDefinition, parse_columns
from airflow_cloudfiles.engine.schema.diff import SchemaChange
from airflow_cloudfiles.engine.schema.evolution import diff, evolve
from airflow_cloudfiles.engine.schema.hints import apply_hints
from airflow_cloudfiles.engine.schema.inference import check_reserved, hinted_partitions
from airflow_cloudfiles.engine.schema.partitions import beside
from airflow_cloudfiles.engine.shortened import few
from airflow_cloudfiles.engine.types import as_nullable, canonical_struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_cloudfiles.engine.casing import NameMatcher
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.schema.log import SchemaVersion

HINTS, TYPED, PARTITIONS = "schemaHints", "inferColumnTypes", "partitionColumns"
_AGAIN = (
    "To apply it, infer the schema again: `cloudfiles infer --again`, or infer_again=True of "
    "CloudFilesInferSchemaOperator."
)
_NO_EFFECT = f"The hint has no effect. {_AGAIN}"


@dataclass(frozen=True, slots=True)
class Restarted:
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
    """The options that a version was inferred with, as the schema log keeps them."""
    partitions = options.partition_columns
    return {
        HINTS: options.schema_hints,
        TYPED: options.infer_column_types,
        PARTITIONS: None if partitions is None else ",".join(partitions),
    }


def restarted(latest: SchemaVersion, options: CloudFilesOptions) -> Restarted:
    """Put the options of now over the newest version.

    Doing it again with the result changes nothing more.

    Args:
        latest: The newest version.
        options: The options of the stream.

    Raises:
        SchemaHintError: `cloudFiles.schemaHints` cannot be read.
    """
    matcher = options.matcher
    hints = parse_columns(options.schema_hints, matcher) if options.schema_hints else []
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
        return Restarted(data, of_paths, changes, tuple(warnings))
    warnings.append(
        f"The schema is pinned at version {latest.version}, so cloudFiles.schemaHints and "
        f"cloudFiles.partitionColumns change nothing: {few([each.path for each in changes])}. To "
        "apply them: `cloudfiles schema unpin`, then start the stream again."
    )
    return Restarted(latest.data_schema, latest.partition_schema, (), tuple(warnings))


def not_null_warning(columns: Mapping[str, tuple[bool, DataType]], where: str) -> str | None:
    """The warning that `NOT NULL` is not enforced; `None` when nothing is `NOT NULL`.

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
    """The same for `cloudFiles.schemaHints`."""
    hints = parse_columns(options.schema_hints, options.matcher) if options.schema_hints else []
    columns = {_name(hint): (hint.nullable, hint.data_type) for hint in hints}
    return not_null_warning(columns, "cloudFiles.schemaHints")


def _hinted(
    schema: StructType, hint: ColumnDefinition, latest: SchemaVersion, matcher: NameMatcher
) -> tuple[StructType, list[str]]:
    """The schema with what a hint adds, and what of the hint has no effect."""
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
    """The columns of the paths that are wanted: those there are, then new ones.

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
    before = _recorded(latest).get(HINTS)
    now = {tuple(map(matcher.key, hint.path)) for hint in hints}
    known = parse_columns(before, matcher) if isinstance(before, str) else []
    gone = [_name(hint) for hint in known if tuple(map(matcher.key, hint.path)) not in now]
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
    before, now = _recorded(latest).get(TYPED), options.infer_column_types
    if not isinstance(before, bool) or before == now:
        return []
    return [
        (
            f"cloudFiles.inferColumnTypes is {_word(now)}, but schema version {latest.version} was "
            f"inferred with {_word(before)}: its columns keep their types, only new columns are "
            f"inferred with {_word(now)}. {_AGAIN}"
        )
    ]


def _recorded(latest: SchemaVersion) -> Mapping[str, Any]:
    return latest.options or {}


def _name(hint: ColumnDefinition) -> str:
    return dotted(hint.path)


def _word(value: bool) -> str:  # noqa: FBT001 - the word for a boolean
    return str(value).lower()
