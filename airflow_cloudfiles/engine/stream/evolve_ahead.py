"""What will the files of this run ask of the schema?

With `cloudFiles.evolveAhead` a run samples what it is going to read before it defines its
DataFrame, and evolves the schema once for all of it, so that it need not fail first. The files are
chosen as for inference: the newest ones, within the sample limits. What only reading finds (a file
beyond the limits, or one that arrives meanwhile) still fails once and heals as usual.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.inference.tasks import Workers
from airflow_cloudfiles.engine.inference.workers import local_workers
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.reading.splits import BatchContext
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.schema.log_entry import author
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import approval
from airflow_cloudfiles.engine.stream.definition import ResolvedSchema, batch_context
from airflow_cloudfiles.engine.stream.new_fields import detect_new_fields
from airflow_cloudfiles.engine.stream.own_locations import own_locations

_log = logging.getLogger(__name__)


def evolve_ahead(
    options: CloudFilesOptions,
    intake: Intake,
    resolved: ResolvedSchema,
    workers: Workers | None = None,
) -> ResolvedSchema | None:
    """Evolve the schema for the files that are recorded and not committed.

    Costs one pass over them (a second one for text formats in the widening mode). Repeating it is
    harmless: what the schema has is not new. Several runs at once write one version.

    Args:
        options: The options of the source.
        intake: The state, after discovery.
        resolved: The schema so far.
        workers: Who may help when there is much to sample; `None` for nobody.

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
    context = _context(options, intake, resolved)
    findings = detect_new_fields(context, intake.files.slice(start, end), workers)
    if not findings:
        return None
    if options.require_approval:
        raise approval.ask(context, findings, intake.files.slice(start, end), ahead=True)
    crash_point("before-schema-append")
    log = SchemaLog(open_store(resolved.schema_uri), intake.name, options.matcher)
    written = log.append(
        resolved.version + 1,
        data_schema=findings.after,
        partition_schema=resolved.partition_schema,
        reason={**findings.reason(), "ahead": True, "by": author()},
    )
    crash_point("after-schema-append")
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
    with closing(_opened(options, checkpoint)) as intake:
        if options.up_to_entry is None:
            intake.discover()
        return evolve_ahead(options, intake, resolved, local_workers()) or resolved


def _opened(options: CloudFilesOptions, checkpoint: str) -> Intake:
    return Intake.open(
        source=options.path,
        format=options.format,
        checkpoint_location=checkpoint,
        exclude=own_locations(options, checkpoint),
        discovery=options.discovery,
    )


def _end(options: CloudFilesOptions, intake: Intake) -> Offset:
    """Where the files of the run end."""
    return intake.head() if options.up_to_entry is None else Offset(options.up_to_entry + 1, 0)


def _context(options: CloudFilesOptions, intake: Intake, resolved: ResolvedSchema) -> BatchContext:
    """The schema to sample with; what belongs to a micro-batch is not asked for."""
    return batch_context(
        options,
        resolved,
        intake,
        start=START,
        end=START,
    )
