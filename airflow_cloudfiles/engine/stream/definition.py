"""Define a stream: its schema and its state.

A definition that is older than the schema log is refused, not silently read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    StaleSchemaError,
    StateConflictError,
)
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_reader
from airflow_cloudfiles.engine.inference import InferredSchema, infer_source
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import own_locations, place_of
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.options.cloud_files import (
    ADDING_MODES,
    CloudFilesOptions,
    EvolutionMode,
)
from airflow_cloudfiles.engine.reading.splits import BatchContext
from airflow_cloudfiles.engine.schema.ddl import refuse_too_deep
from airflow_cloudfiles.engine.schema.diff import diff_json, in_words
from airflow_cloudfiles.engine.schema.inference import (
    TYPED,
    hinted_not_null,
    inferring_options,
    not_null_warning,
    restarted,
)
from airflow_cloudfiles.engine.schema.log import (
    SchemaLog,
    SchemaVersion,
    full_schema,
    in_order,
)
from airflow_cloudfiles.engine.schema.log_entry import NewFields, author
from airflow_cloudfiles.engine.schema.source_columns import (
    beside,
    check_names,
    given_metadata,
    with_metadata,
)
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import StoreOpener, normalize_uri, open_store
from airflow_cloudfiles.engine.stream.locations import QueryLocations, StreamPlaces
from airflow_cloudfiles.engine.types import as_nullable, has_variant, short_type

GIVEN = -1
"""Schema version of a schema that the user gave."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSchema:
    """The schema one query is read with.

    Attributes:
        version: Its number in the schema log; `GIVEN` when the user gave the schema.
        schema_uri: Location of the schema log; `None` when there is none (yet).
        data_schema: Columns found in the records.
        partition_schema: Columns found in the paths.
        created: Whether the version was written by this definition.
        sampled_files: Files the schema was inferred from, when it was inferred now.
        sampled_bytes: Their bytes.
        hints: What each hint has changed, in words, when the schema was inferred now.
        changes: How it differs from the version before, in words, when it was inferred again.
        pin: What new fields do while the schema is pinned; `None` when it may evolve.
        stay_rescued: Paths of fields that stay in the rescued data.
        warnings: Options that have no effect, and what would have.
        column_order: Names of all columns of a given schema, in its order.
        is_read_only: Whether what is not in the schema log was left unwritten.
    """

    version: int
    schema_uri: str | None
    data_schema: StructType
    partition_schema: StructType
    created: bool = False
    sampled_files: int = 0
    sampled_bytes: int = 0
    hints: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    pin: NewFields | None = None
    stay_rescued: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    column_order: tuple[str, ...] = ()
    is_read_only: bool = False

    def full_schema(self, options: CloudFilesOptions) -> StructType:
        """Return the schema of the DataFrame."""
        rescued = options.rescued_data_column
        full = full_schema(self.data_schema, self.partition_schema, rescued)
        return in_order(with_metadata(full, options.metadata_columns), self.column_order)


def resolve_schema(
    options: CloudFilesOptions,
    *,
    again: bool = False,
    writes: bool = True,
    on_found: Callable[[], None] | None = None,
    open_state: StoreOpener = open_store,
) -> ResolvedSchema:
    """Read the newest schema version, or infer the first and write it.

    A second start reads the log and samples nothing (B21). If its options ask for columns that the
    newest version lacks, these become the next version; what its options ask for in vain is logged
    as a warning (`schema.inference`). Two definitions at once write one version: the loser reads
    the winner's.

    Args:
        options: The options of the source.
        again: Infer also where there is a schema, and write what differs from it as a new version.
        writes: Whether the schema log gets what it lacks.
        on_found: Called when there is a file to infer a schema from, before any is read.
        open_state: Opens state and schemas (`OpenedState.open`).

    Raises:
        SchemaInferenceError: No schema yet and no file with a record to infer it from (B4).
        SchemaHintError: `cloudFiles.schemaHints` cannot be read, or does not fit.
        StateConflictError: The schema location belongs to another source (B22), or the schema is
            pinned and is to be inferred again.
    """
    found = partial(infer, options, on_found, open_state)
    resolved = _resolved(options, found, open_state, again=again, writes=writes)
    if warning := hinted_not_null(options):
        resolved = replace(resolved, warnings=(*resolved.warnings, warning))
    for warning in resolved.warnings:
        _log.warning("%s", warning)
    return resolved


def _resolved(
    options: CloudFilesOptions,
    infer: Callable[[], InferredSchema],
    open_state: StoreOpener,
    *,
    again: bool,
    writes: bool,
) -> ResolvedSchema:
    """Build the schema as the log and the options have it."""
    location = options.schema_location or options.checkpoint_location
    if location is None:
        return _unlogged(infer())
    uri = normalize_uri(location)
    place = place_of(options, options.checkpoint_location, open_state)
    log = SchemaLog(open_state(uri), place.name, options.matcher)
    latest = _latest(log, options, open_state)
    if latest is not None and not again:
        return _restarted(log, latest, options, uri=uri, writes=writes)
    if not writes:
        return replace(_unlogged(infer()), is_read_only=True)
    if latest is not None and latest.pin is not None:
        raise StateConflictError(
            f"The schema in {uri} is pinned at version {latest.version}. Unpin it before it is "
            "inferred again."
        )
    return _written(log, uri, latest, infer(), options)


def _latest(
    log: SchemaLog, options: CloudFilesOptions, open_state: StoreOpener
) -> SchemaVersion | None:
    """Find the newest version; none where it is of a source that lost its state to this one."""
    try:
        return log.latest()
    except StateConflictError:
        if options.schema_location is not None or options.checkpoint_location is None:
            raise
        stream = read_metadata(open_state(options.checkpoint_location))
        if stream is not None and stream.is_bound:
            raise
        return None


def _restarted(
    log: SchemaLog, latest: SchemaVersion, options: CloudFilesOptions, *, uri: str, writes: bool
) -> ResolvedSchema:
    """Build the newest version, with what the present options add to it."""
    wanted = restarted(latest, options)
    check_names(wanted.data_schema, wanted.partition_schema, options)
    resolved = replace(_as_logged(latest, uri), warnings=wanted.warnings)
    if not wanted.changes:
        return resolved
    changes = tuple(map(in_words, wanted.changes))
    if not writes:
        return replace(
            resolved,
            data_schema=wanted.data_schema,
            partition_schema=wanted.partition_schema,
            changes=changes,
            is_read_only=True,
        )
    written = log.append(
        latest.version + 1,
        data_schema=wanted.data_schema,
        partition_schema=wanted.partition_schema,
        reason={"change": "optionsChanged", "differences": list(changes), "by": author()},
        options={**inferring_options(options), TYPED: (latest.options or {}).get(TYPED)},
    )
    _log.warning("Schema version %s follows the changed options: %s", written.version, few(changes))
    return replace(
        _as_logged(written, uri), created=True, changes=changes, warnings=wanted.warnings
    )


def check_readable(resolved: ResolvedSchema, options: CloudFilesOptions) -> None:
    """Find out before any file is read whether the format can be read into the schema.

    Raises:
        IncompatibleSchemaError: A column has a type that the format cannot be read into.
        OptionError: A pattern of dates or times is not valid, or a package is not installed.
    """
    for column in resolved.data_schema.fields:
        is_whole = column.name == options.single_variant_column
        if is_whole or options.format == "parquet" or not has_variant(column.dataType):
            continue
        raise IncompatibleSchemaError(
            f"Column {column.name} has type {short_type(column.dataType)}, but no part of a "
            f"record of {options.format} is read as a VARIANT. Declare it as string; or, with JSON "
            "or XML, leave the schema out and set singleVariantColumn, which takes whole records."
        )
    refuse_too_deep(resolved.data_schema, None if resolved.version == GIVEN else resolved.version)
    open_reader(resolved.data_schema, options)


def _as_logged(latest: SchemaVersion, uri: str) -> ResolvedSchema:
    return ResolvedSchema(
        version=latest.version,
        schema_uri=uri,
        data_schema=latest.data_schema,
        partition_schema=latest.partition_schema,
        pin=latest.pin,
        stay_rescued=latest.stay_rescued,
    )


def _written(
    log: SchemaLog,
    uri: str,
    latest: SchemaVersion | None,
    inferred: InferredSchema,
    options: CloudFilesOptions,
) -> ResolvedSchema:
    """Write what was inferred as the next version; the latest stays where nothing differs."""
    changes = _changes(latest, inferred, options.matcher)
    inferring = inferring_options(options)
    if latest is not None and not changes and (latest.options or inferring) == inferring:
        return _with_sample(_as_logged(latest, uri), inferred)
    reason = {**_reason(inferred.files, inferred.bytes), "brought": inferred.provenance}
    if latest is not None:
        reason |= {"change": "inferredAgain", "differences": list(changes)}
    written = log.append(
        log.next_version,
        data_schema=inferred.data_schema,
        partition_schema=inferred.partition_schema,
        reason=reason,
        options=inferring,
    )
    resolved = replace(_as_logged(written, uri), created=True, changes=changes)
    return _with_sample(resolved, inferred)


def _with_sample(resolved: ResolvedSchema, inferred: InferredSchema) -> ResolvedSchema:
    """Add to the schema what it was inferred from."""
    return replace(
        resolved,
        sampled_files=inferred.files,
        sampled_bytes=inferred.bytes,
        hints=inferred.hints,
        warnings=(*resolved.warnings, *inferred.warnings),
    )


def _changes(
    latest: SchemaVersion | None, inferred: InferredSchema, matcher: NameMatcher
) -> tuple[str, ...]:
    """Say in words how what was inferred differs from a version."""
    if latest is None:
        return ()
    before = full_schema(latest.data_schema, latest.partition_schema, None)
    partitions = beside(inferred.data_schema, inferred.partition_schema, matcher)
    after = full_schema(inferred.data_schema, partitions, None)
    return tuple(map(in_words, diff_json(before.jsonValue(), after.jsonValue())))


def given_schema(schema: StructType, options: CloudFilesOptions) -> ResolvedSchema:
    """Take apart a schema that the user gave: data, partition and rescued data columns.

    Its columns stay in their order, wherever their values come from. A data column may be in the
    path of some files (`file_columns`).

    Raises:
        OptionError: It lacks a partition column, or the rescued data column.
        IncompatibleSchemaError: Something is `NOT NULL`, which `register` takes away.
    """
    _refuse_not_null(schema)
    rescued = options.rescued_data_column
    if options.has_schema and rescued is not None and rescued not in schema.names:
        raise OptionError(
            f"The given schema lacks the rescued data column {rescued}. Add `{rescued} STRING` to "
            "it, or call register(spark), which does."
        )
    key = options.matcher.key
    in_paths = {key(name) for name in options.partition_columns or ()}
    made = given_metadata(schema, options)
    columns = [each for each in schema.fields if each.name != rescued and each.name not in made]
    there = {key(column.name) for column in columns}
    missing = [name for name in options.partition_columns or () if key(name) not in there]
    if missing:  # B44
        raise OptionError(
            f"cloudFiles.partitionColumns names {few(missing)}, which the given schema lacks. Add "
            "the columns to the schema."
        )
    fixed = fixed_schema(options)
    if fixed is not None and set(fixed.names) & set(schema.names):
        # The records of the format have no other columns: the rest can only be in the paths.
        in_paths |= {key(each.name) for each in columns if each.name not in fixed.names}
    return ResolvedSchema(
        version=GIVEN,
        schema_uri=None,
        data_schema=StructType([each for each in columns if key(each.name) not in in_paths]),
        partition_schema=StructType([each for each in columns if key(each.name) in in_paths]),
        column_order=tuple(schema.names),
    )


def in_vain(schema: StructType, options: CloudFilesOptions) -> list[str]:
    """List what has no effect beside a schema that the user gave."""
    columns = {each.name: (each.nullable, each.dataType) for each in schema.fields}
    warnings = [not_null_warning(columns, "the given schema")]
    if options.schema_hints is not None:
        warnings.append(
            "cloudFiles.schemaHints has no effect, because a schema is given. Change the schema, "
            "or leave .schema(...) out to have it inferred."
        )
    return [each for each in warnings if each is not None]


def _refuse_not_null(schema: StructType) -> None:
    for column in schema.fields:
        if not column.nullable or as_nullable(column.dataType) != column.dataType:
            raise IncompatibleSchemaError(
                f"Column {column.name} of the given schema is NOT NULL, or has a NOT NULL field. "
                "Files may lack the value, and Spark would not check. Leave NOT NULL out, or call "
                "register(spark), which removes it."
            )


def bind(
    resolved: ResolvedSchema,
    options: CloudFilesOptions,
    checkpoint: str,
    open_state: StoreOpener = open_store,
) -> ResolvedSchema:
    """Tie a definition to the checkpoint location that its query was started with.

    Raises:
        StaleSchemaError: The schema log has a newer version than the DataFrame.
    """
    if resolved.version == GIVEN:
        return resolved
    if resolved.is_read_only:
        resolved = _written_now(resolved, options, open_state)
    uri = resolved.schema_uri or normalize_uri(checkpoint)
    place = place_of(options, checkpoint, open_state)
    log = SchemaLog(open_state(uri), place.name, options.matcher)
    latest = log.latest()
    if latest is None and resolved.schema_uri is None:
        latest = log.append(
            0,
            data_schema=resolved.data_schema,
            partition_schema=resolved.partition_schema,
            reason=_reason(resolved.sampled_files, resolved.sampled_bytes),
            options=inferring_options(options),
        )
    same = latest is not None and (
        latest.version == resolved.version
        if resolved.schema_uri
        else latest.data_schema == resolved.data_schema
    )
    if latest is None or not same:
        raise StaleSchemaError(
            f"The schema log in {uri} is at version {latest.version if latest else 'none'}, but "
            "this DataFrame was defined with another schema. Call load() again to define it with "
            "the newest one; set cloudFiles.schemaLocation if it is not set."
        )
    return replace(resolved, schema_uri=uri, version=latest.version, pin=latest.pin)


def _written_now(
    defined: ResolvedSchema, options: CloudFilesOptions, open_state: StoreOpener
) -> ResolvedSchema:
    """Write the schema of a query whose definition could not know that it is a stream.

    Raises:
        StaleSchemaError: It is another one by now.
    """
    found = resolve_schema(options, open_state=open_state)
    if found.full_schema(options) != defined.full_schema(options):
        raise StaleSchemaError(
            f"The schema of {options.path} has become another one since this DataFrame was "
            "defined. Call load() again; or call register(spark) first, which writes the schema "
            "when load() is called."
        )
    return found


def obeying_pin(options: CloudFilesOptions, resolved: ResolvedSchema) -> CloudFilesOptions:
    """Build the options to read with: a pinned schema does not evolve, whatever the mode says."""
    if resolved.pin is None or options.schema_evolution_mode not in ADDING_MODES:
        return options
    mode: EvolutionMode = "rescue" if resolved.pin == "rescue" else "failOnNewColumns"
    return replace(options, schema_evolution_mode=mode)


def batch_context(
    options: CloudFilesOptions,
    resolved: ResolvedSchema,
    places: StreamPlaces,
    start: Offset,
    end: Offset,
) -> BatchContext:
    """Describe how the tasks of a micro-batch read it.

    Args:
        options: Those of the source.
        resolved: The schema to read with.
        places: Those of the stream.
        start: Position of the first file.
        end: Position behind the last one.
    """
    return BatchContext(
        source_uri=places.source.uri,
        source_name=places.name,
        state_uri=places.state.uri,
        schema_uri=resolved.schema_uri,
        schema_version=resolved.version,
        data_schema=resolved.data_schema.json(),
        partition_schema=resolved.partition_schema.json(),
        start=start,
        end=end,
        options=replace(obeying_pin(options, resolved), stay_rescued=resolved.stay_rescued),
        column_order=resolved.column_order,
    )


def intake_of(
    options: CloudFilesOptions,
    checkpoint: str,
    target: str | None = None,
    open_state: StoreOpener = open_store,
) -> Intake:
    """Open the state of a stream.

    Args:
        options: Those of the source.
        checkpoint: Its checkpoint location.
        target: The table, which is not ingested where it is below the source.
        open_state: As for `resolve_schema`.

    Raises:
        StateConflictError: The state belongs to another source.
    """
    return Intake.open(
        source=options.path,
        format=options.format,
        checkpoint_location=checkpoint,
        exclude=own_locations(options, checkpoint, target),
        discovery=options.discovery,
        open_state=open_state,
    )


def open_intake(
    options: CloudFilesOptions,
    locations: QueryLocations,
    patience_seconds: float,
    open_state: StoreOpener = open_store,
) -> tuple[Intake, RunLock]:
    """Open the state of a query and take its run lock.

    Raises:
        StateLockedError: Another run holds the checkpoint location.
        StateConflictError: It belongs to another source.
    """
    intake = intake_of(options, locations.checkpoint, locations.target, open_state)
    lock = RunLock(intake.state)
    lock.acquire(timeout_seconds=patience_seconds)
    return intake, lock


def infer(
    options: CloudFilesOptions,
    on_found: Callable[[], None] | None = None,
    open_state: StoreOpener = open_store,
) -> InferredSchema:
    """Infer a schema as `resolve_schema` does, unless that was done for its DataFrame."""
    if options.inferred is not None:
        return InferredSchema.from_json(options.inferred)
    place = place_of(options, options.checkpoint_location, open_state)
    found = infer_source(options, place, own_locations(options), on_found, open_state)
    check_names(found.data_schema, found.partition_schema, options)
    return found


def _unlogged(inferred: InferredSchema) -> ResolvedSchema:
    """Build a schema that no log has yet: its query's checkpoint will."""
    resolved = ResolvedSchema(
        version=0,
        schema_uri=None,
        data_schema=inferred.data_schema,
        partition_schema=inferred.partition_schema,
        created=True,
    )
    return _with_sample(resolved, inferred)


def _reason(files: int, size: int) -> dict[str, object]:
    """Say why the first version was written, for people."""
    return {"change": "inferred", "files": files, "bytes": size, "by": author()}
