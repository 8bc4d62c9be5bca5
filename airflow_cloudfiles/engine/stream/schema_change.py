"""Change the schema of a stream for records that do not fit it: in a task, or ahead of a run.

1. Nothing of the micro-batch is committed: the task that meets the field fails.
2. In the modes that add columns it first samples the files of the micro-batch again, within the
   sample limits, merges what is new behind the columns there are, widens types in
   `addNewColumnsWithTypeWidening`, and appends that to the schema log as the next version. Tasks
   that meet a change at the same moment race on a put-if-absent: one version is written (B45, B47).
3. It fails with `UnknownFieldException`, which says whether running again helps.

With `cloudFiles.requireApproval` it proposes the version instead, and fails with the error of
that (`approval`).

The reader of splits only says that there are new fields. Here the evolution mode decides what
follows: the schema log gets the next version where it may, and the task fails.

With `cloudFiles.evolveAhead` a run samples what it is going to read before it defines its
DataFrame, and evolves the schema once for all of it, so that it need not fail first. The files are
chosen as for inference: the newest ones, within the sample limits. What only reading finds (a file
beyond the limits, or one that arrives meanwhile) still fails once and heals as usual.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, archive_of
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.changed import note_refused
from airflow_cloudfiles.engine.messages import few_members, more
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext
from airflow_cloudfiles.engine.schema.log import SchemaLog, SchemaVersion
from airflow_cloudfiles.engine.schema.log_entry import author
from airflow_cloudfiles.engine.schema.widening import FILE_KEY, WiderTypes, can_widen, widen
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import approval
from airflow_cloudfiles.engine.stream.approval import (
    WIDENING_MODE,
    NewFields,
    described,
    detect_new_fields,
    types_of,
)
from airflow_cloudfiles.engine.stream.definition import ResolvedSchema, batch_context, intake_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.storage import StoreOpener


WIDER_TYPES_CLASS = "UNKNOWN_FIELD_EXCEPTION.WIDER_TYPES_IN_RECORD_WITH_FILE_PATH"
"""Ours: Databricks names no class for a type that is widened."""
_WITHOUT_FILE = "correct the file, or remove it, and the stream goes on without it"
_NO_COLUMN = (
    "No column can be made of them. Set cloudFiles.schemaEvolutionMode to rescue; or "
    f"{_WITHOUT_FILE}."
)
_log = logging.getLogger(__name__)


def react(context: BatchContext, fields: dict[str, object], file_uri: str) -> CloudFilesError:
    """Do what the evolution mode says about new fields, and return the error to fail with.

    Repeating it is harmless: a version that already has the fields is not written again.
    """
    if context.options.schema_evolution_mode not in ADDING_MODES or context.schema_uri is None:
        return _refused(context, fields, file_uri, _remedy(context))
    if _newer(context) is None:
        findings = _evolved(context, file_uri, lambda _: f"the new fields {sorted(fields)}")
        if isinstance(findings, CloudFilesError):
            return findings
        if not findings:
            return _refused(context, fields, file_uri, _NO_COLUMN)
    return UnknownFieldException.of(fields, file=file_uri, retry=True)


def widens(options: CloudFilesOptions) -> bool:
    """Tell whether rescued values may widen their columns."""
    return options.schema_evolution_mode == WIDENING_MODE and bool(options.rescued_data_column)


def widened(context: BatchContext, rescued: Iterable[str | None]) -> CloudFilesError | None:
    """Check whether rescued values ask for wider types, and widen the schema if they do.

    Cheap as long as they do not: text of numbers is checked for formats of strings, and each file
    once for formats whose files say their types.

    Args:
        context: The micro-batch.
        rescued: The rescued data column of rows that were read.

    Returns:
        The error to fail with, when the schema log has the wider types; `None` when the values stay
        rescued: there is no wider type for them, or this is another mode.
    """
    options = context.options
    if not widens(options) or context.schema_uri is None:
        return None
    schema = StructType.fromJson(json.loads(context.data_schema))
    if not can_widen(schema, options):
        return None
    asking = _asking_files(context, schema, rescued)
    if asking is None:
        return None
    latest = _newer(context)
    if latest is not None:
        return _widened_error(NewFields(schema, latest.data_schema), asking)
    wider = _evolved(context, asking, lambda found: f"wider types: {described(found)}")
    if isinstance(wider, CloudFilesError):
        return wider
    return _widened_error(wider, asking) if wider else None


def _evolved(
    context: BatchContext, file_uri: str, what: Callable[[NewFields], str]
) -> NewFields | CloudFilesError:
    """Evolve the schema as the files of the micro-batch ask, or propose that.

    Returns:
        What the newest version has besides, or nothing where they ask for nothing; or the error of
        a change that waits for somebody to decide.
    """
    approves = context.options.require_approval
    if waits := approval.known_proposal(context) if approves else None:
        return waits
    findings = _detect(context, file_uri)
    if findings and approves:
        return approval.ask(context, findings, _asked(context, file_uri), file_uri)
    if findings:
        latest = _append(context, findings, file=file_uri)
        _log.warning("Schema version %s has %s", latest.version, what(findings))
    return findings


def _asking_files(
    context: BatchContext, schema: StructType, rescued: Iterable[str | None]
) -> str | None:
    """Find the first file with values that ask for a wider type."""
    if not context.options.format_options.HAS_TYPES:
        wider = WiderTypes(schema, context.options)
        wider.add(rescued)
        return next(iter(wider.files.values()), None)
    met = dict.fromkeys(_file_of(text) for text in rescued if text is not None)
    return next((each for each in met if each and _is_wider(context, each)), None)


def _file_of(text: str) -> str | None:
    """Find the file that a row's rescued data names: its last member."""
    _, found, rest = text.rpartition(f'"{FILE_KEY}":')
    return json.loads(rest[: rest.rindex("}")]) if found else None


@functools.lru_cache(maxsize=4096)
def _is_wider(context: BatchContext, file_uri: str) -> bool:
    """Tell whether a file says wider types than the schema has; it is read once."""
    schema = StructType.fromJson(json.loads(context.data_schema))
    return any(
        widen(schema, types_of(context, file), context.options) != schema
        for file in _named(context, file_uri)
    )


def _newer(context: BatchContext) -> SchemaVersion | None:
    """Read the newest version of the log, when this micro-batch is not read with it."""
    latest = _log_of(context).latest()
    return None if latest is None or latest.version == context.schema_version else latest


def _asked(context: BatchContext, file_uri: str) -> list[FileEntry]:
    """List the files of the micro-batch, and the one that was met."""
    files = _files(context)
    return [*files, *(file for file in _named(context, file_uri) if file not in files)]


def _log_of(context: BatchContext, open_state: StoreOpener = open_store) -> SchemaLog:
    store = open_state(str(context.schema_uri))
    return SchemaLog(store, context.source_name, context.options.matcher)


def _detect(context: BatchContext, file_uri: str) -> NewFields:
    """Detect the new fields of the files of the micro-batch.

    The file that has what is new may lie outside the sample; it is then read by itself.
    """
    findings = detect_new_fields(context, _files(context))
    if not findings:
        _log.info("The sample has no new fields. Detecting new fields in %s", file_uri)
        findings = detect_new_fields(context, _named(context, file_uri))
    return findings


def _files(context: BatchContext) -> list[FileEntry]:
    return list(FileLog(open_store(context.state_uri)).slice(context.start, context.end))


def _named(context: BatchContext, file_uri: str) -> list[FileEntry]:
    """List the files of the micro-batch that have a URI as it is printed, or a member with it.

    Where files are known by their content, one outside of it may be read in the place of one that
    is gone.
    """
    store = open_store(context.source_uri)
    files = [(file, store.child_uri(file.path)) for file in _files(context)]
    found = [file for file, uri in files if uri in {file_uri, archive_of(file_uri)}]
    if found or context.options.discovery.identity != "content":
        return found
    key = store.key_of(file_uri)
    there = store.head(key) if key else None
    return [] if there is None else [there]


def _append(
    context: BatchContext,
    findings: NewFields,
    open_state: StoreOpener = open_store,
    **reason: object,
) -> SchemaVersion:
    crash_point("before-schema-append")
    latest = _log_of(context, open_state).append(
        context.schema_version + 1,
        data_schema=findings.after,
        partition_schema=StructType.fromJson(json.loads(context.partition_schema)),
        reason={**findings.reason(), **reason, "by": author()},
    )
    crash_point("after-schema-append")
    return latest


def _refused(
    context: BatchContext, fields: dict[str, object], file_uri: str, remedy: str
) -> UnknownFieldException:
    """Build the error of new fields that fail the stream until somebody acts.

    The file may be removed then, so it is noted in the state.
    """
    _log.error("New fields %s are refused in this mode: %s", sorted(fields), file_uri)
    note_refused(context.state_uri, _named(context, file_uri), fields)
    return UnknownFieldException.of(fields, file=file_uri, retry=False, remedy=remedy)


def _remedy(context: BatchContext) -> str:
    """Say what its user can do about a stream that fails on new columns."""
    if context.schema_uri is None:
        return (
            "Add the fields to the schema that .schema(...) is given; or "
            f"{_WITHOUT_FILE}; or set cloudFiles.schemaEvolutionMode to rescue or none."
        )
    latest = _log_of(context).latest()
    if latest is not None and latest.pin is not None:
        return (
            f"The schema is pinned at version {latest.version}: `cloudfiles schema unpin` lets it "
            f"evolve again. Or {_WITHOUT_FILE}."
        )
    return (
        f"Add the fields with cloudFiles.schemaHints; or {_WITHOUT_FILE}; or set "
        "cloudFiles.schemaEvolutionMode to addNewColumns or rescue."
    )


def _widened_error(findings: NewFields, file_uri: str) -> UnknownFieldException:
    """Say which columns are wider, from what to what, and that a retry helps."""
    every = described(findings)
    first = few_members(every)
    wider = json.dumps(first, ensure_ascii=True, separators=(",", ":"))
    return UnknownFieldException(
        f"[{WIDER_TYPES_CLASS}] Encountered values that need wider types during parsing: {wider}"
        f"{more(len(every) - len(first))}, which can be fixed by an automatic retry: true. "
        f"File: {json.dumps(file_uri)}. The schema log holds the wider types; run the stream "
        "again.",
        retry=True,
    )


class TaskReader(SplitReader):
    """Reads one split of a stream, and lets its schema evolve; use once."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split.

        Raises:
            UnknownFieldException: A record has a new field, or values need wider types, in the
                modes that fail on it. In the modes that evolve the schema, the schema log has the
                evolved version by then.
            ReadError: A file cannot be read, or a record is not valid (`FAILFAST`).
        """
        try:
            for batch in super().read():
                self._check_types(batch)
                yield batch
        except UnknownFields as found:
            raise react(self._split.context, found.fields, found.file_uri) from None

    def _check_types(self, batch: pa.RecordBatch) -> None:
        """Fail when rescued values ask for wider types and the schema log has them now."""
        context = self._split.context
        if not widens(context.options):
            return
        rescued = batch.column(context.options.rescued_data_column).drop_null()
        error = widened(context, rescued.to_pylist())
        if error is not None:
            raise error


def evolve_ahead(
    options: CloudFilesOptions,
    intake: Intake,
    resolved: ResolvedSchema,
    open_state: StoreOpener = open_store,
) -> ResolvedSchema | None:
    """Evolve the schema for the files that are recorded and not committed.

    Costs one pass over them (a second one for text formats in the widening mode). Repeating it is
    harmless: what the schema has is not new. Several runs at once write one version.

    Args:
        options: The options of the source.
        intake: The state, after discovery.
        resolved: The schema so far.
        open_state: As for `resolve_schema`.

    Returns:
        The schema to read with; `None` when that is `resolved`.

    Raises:
        SchemaProposedError: Somebody has to decide first.
        SchemaRefusedError: Somebody has refused what the files ask for.
        SchemaHintError: A hint does not fit what is new.
        CorruptedStateError: Checkpoint and file log do not belong together.
    """
    may_evolve = options.schema_evolution_mode in ADDING_MODES and resolved.pin is None
    if not options.evolve_ahead or resolved.schema_uri is None or not may_evolve:
        return None
    start, end = intake.committed(), _end(options, intake)
    if start >= end:
        return None
    _log.info(
        "Detecting new fields in the files of this run, beyond schema version %s", resolved.version
    )
    # What belongs to a micro-batch is not asked for.
    context = batch_context(options, resolved, intake, START, START)
    findings = detect_new_fields(context, intake.files.slice(start, end), is_read_whole=False)
    if not findings:
        return None
    if options.require_approval:
        raise approval.ask(context, findings, intake.files.slice(start, end), ahead=True)
    written = _append(context, findings, open_state, ahead=True)
    _log.warning("Schema version %s: evolved ahead of the run", written.version)
    return replace(
        resolved,
        version=written.version,
        data_schema=written.data_schema,
        partition_schema=written.partition_schema,
        pin=written.pin,
    )


def before_definition(options: CloudFilesOptions, resolved: ResolvedSchema) -> ResolvedSchema:
    """Discover and evolve ahead where a DataFrame is defined, if the state of the query is known.

    It is, when the reader is given the `checkpointLocation`, or the schema log is in it.
    """
    known = (options.checkpoint_location, options.schema_location)
    states = (uri for uri in known if uri and read_metadata(open_store(uri)) is not None)
    checkpoint = next(states, None)
    if checkpoint is None:
        _log.info(
            "cloudFiles.evolveAhead has no effect: there is no state yet, or load() does not know "
            "its location. Give readStream the option checkpointLocation too."
        )
        return resolved
    with closing(intake_of(options, checkpoint)) as intake:
        if options.up_to_entry is None:
            intake.discover()
        return evolve_ahead(options, intake, resolved) or resolved


def _end(options: CloudFilesOptions, intake: Intake) -> Offset:
    """Find where the files of the run end."""
    return intake.head() if options.up_to_entry is None else Offset(options.up_to_entry + 1, 0)
