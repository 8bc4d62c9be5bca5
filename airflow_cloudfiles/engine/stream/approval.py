"""What does a stream do whose schema changes only when somebody agrees?

With `cloudFiles.requireApproval`, what would be the next version of the schema is written as a
proposal, with some values for who decides, and the run fails. Until it is decided, each run fails
at its start, after it has looked for new files: messages of a queue do not wait for ever. After a
refusal each run reads, and fails if files still ask for what was refused.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.names import parts_of
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES
from airflow_cloudfiles.engine.schema.inference import diff
from airflow_cloudfiles.engine.schema.log_entry import author
from airflow_cloudfiles.engine.schema.proposals import (
    Proposal,
    ProposedChange,
    error_of,
    find_proposal,
    propose,
    waiting_proposal,
)
from airflow_cloudfiles.engine.schema.source_columns import beside
from airflow_cloudfiles.engine.state import refused
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.new_fields import NewFields, rescued_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.errors import CloudFilesError
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.reading.splits import BatchContext
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

SAMPLE_CHARACTERS: Final = 100
"""A longer value is cut off."""
MOST_SAMPLED: Final = 100
"""Values are kept of so many fields of a change."""
_MOST_FILES: Final = 20
_MOST_SECONDS: Final = 10.0
"""Values are for people: reading files for them ends when it has taken so long."""
_log = logging.getLogger(__name__)


def undecided(options: CloudFilesOptions, resolved: ResolvedSchema) -> CloudFilesError | None:
    """Give the error of a run whose schema waits for a decision; `None` where it may go on.

    A change that was refused is none of these: it may be asked for no more.
    """
    if not options.require_approval or resolved.schema_uri is None or resolved.pin is not None:
        return None
    if options.schema_evolution_mode not in ADDING_MODES:
        return None
    found = find_proposal(open_store(resolved.schema_uri), resolved.version)
    return None if found is None else error_of(found, resolved.schema_uri)


def known_proposal(context: BatchContext) -> CloudFilesError | None:
    """Give the error of a change that another task of this run has proposed already."""
    uri = str(context.schema_uri)
    found = find_proposal(open_store(uri), context.schema_version)
    return None if found is None else error_of(found, uri)


def ask(
    context: BatchContext,
    findings: NewFields,
    files: Iterable[FileEntry],
    file_uri: str | None = None,
    **reason: Any,
) -> CloudFilesError:
    """Propose a change, unless it was refused, and return the error to fail with.

    The files are noted as refused, so that the stream goes on without them when they are removed.
    Repeating it is harmless: the first proposal for a version stays.

    Args:
        context: The schema, the options and the state.
        findings: What the files have that the schema lacks.
        files: Where it was found.
        file_uri: The file that was met first, if it is known.
        reason: More of what the schema log is to say when the change is accepted.
    """
    uri = str(context.schema_uri)
    store = open_store(uri)
    asking = _asking(context, findings, files, file_uri)
    changes = _changes(findings, file_uri)
    found = waiting_proposal(store)
    if found is None or not _is_refused(found, changes):
        if file_uri is not None:
            reason["file"] = file_uri
        samples = tuple(_with_samples(context, changes, asking))
        found = propose(store, _proposal(context, findings, samples, reason))
        _log.warning("Proposal %s waits for somebody to decide: %s", found.number, found.paths)
    refused.note_refused(context.state_uri, asking, dict.fromkeys(found.paths))
    return error_of(found, uri)


def _is_refused(found: Proposal, changes: Sequence[ProposedChange]) -> bool:
    """Whether changes are among those that were refused."""
    known = {(each.path, each.after) for each in found.changes}
    return found.refused_by is not None and {(e.path, e.after) for e in changes} <= known


def _asking(
    context: BatchContext, findings: NewFields, files: Iterable[FileEntry], file_uri: str | None
) -> list[FileEntry]:
    """The first files that are known to ask for the change."""
    source = open_store(context.source_uri)
    named = {*findings.provenance.files.values(), file_uri}
    found = [file for file in files if source.child_uri(file.path) in named]
    # The one that was met may be behind many others.
    found.sort(key=lambda file: source.child_uri(file.path) != file_uri)
    return found[:_MOST_FILES]


def _changes(findings: NewFields, file_uri: str | None) -> list[ProposedChange]:
    """What would change, without values."""
    brought = findings.provenance.files
    return [
        ProposedChange(
            each.kind, each.path, each.before, each.after, brought.get(each.path, file_uri)
        )
        for each in diff(findings.before, findings.after)
    ]


def _proposal(
    context: BatchContext,
    findings: NewFields,
    changes: tuple[ProposedChange, ...],
    reason: dict[str, Any],
) -> Proposal:
    partitions = StructType.fromJson(json.loads(context.partition_schema))
    return Proposal(
        number=context.schema_version,
        created="",
        source=context.source_name,
        by=author(),
        changes=changes,
        reason={**findings.reason(), **reason},
        data_schema=findings.after.jsonValue(),
        partition_schema=beside(findings.after, partitions, context.options.matcher).jsonValue(),
    )


def _with_samples(
    context: BatchContext, changes: Sequence[ProposedChange], files: Sequence[FileEntry]
) -> Iterator[ProposedChange]:
    """The changes, each with some values that the files have."""
    most = context.options.approval_samples
    wanted = {parts_of(each.path): each for each in changes[:MOST_SAMPLED]} if most else {}
    found: dict[tuple[str, ...], dict[str, None]] = {path: {} for path in wanted}
    if wanted and files:
        _collect(context, files, found, most)
    for each in changes:
        samples = tuple(found.get(parts_of(each.path), ()))
        yield ProposedChange(each.kind, each.path, each.before, each.after, each.file, samples)


def _collect(
    context: BatchContext,
    files: Sequence[FileEntry],
    found: dict[tuple[str, ...], dict[str, None]],
    most: int,
) -> None:
    """Add values of the rescued data of files, until there are enough of each."""
    end = time.monotonic() + _MOST_SECONDS
    key = context.options.matcher.key
    for texts in rescued_of(context, files):
        for text in texts:
            record = _parsed(text)
            for path, samples in found.items():
                for value in _values(record, path, key):
                    if len(samples) < most:
                        samples.setdefault(_shown(value))
            if time.monotonic() > end or all(len(each) >= most for each in found.values()):
                return


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _values(value: object, path: Sequence[str], key: Callable[[str], str]) -> Iterator[object]:
    """The values at a path of rescued data."""
    if not path:
        if value is not None:
            yield value
        return
    name, *rest = path
    if isinstance(value, list):
        for each in value:
            yield from _values(each, rest if name == "element" else path, key)
    elif isinstance(value, dict):
        members = [each for known, each in value.items() if key(known) == key(name)]
        if not members and name == "value":  # of a map
            members = list(value.values())
        for each in members:
            yield from _values(each, rest, key)


def _shown(value: object) -> str:
    """A value as JSON that can be printed."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= SAMPLE_CHARACTERS else text[:SAMPLE_CHARACTERS] + "…"
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
