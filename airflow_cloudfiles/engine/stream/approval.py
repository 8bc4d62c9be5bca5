"""Ask for approval of a changed schema, with what the files have that the schema has not.

With `cloudFiles.requireApproval`, what would be the next version of the schema is written as a
proposal, with some values for who decides, and the run fails. Until it is decided, each run fails
at its start, after it has looked for new files: messages of a queue do not wait for ever. After a
refusal each run reads, and fails if files still ask for what was refused.

Compares files, within the sample limits, with the schema they are to be read with: those of a
micro-batch when a task has met something new, or those of a whole run before it begins
(`schema_change`). A file that cannot be read is left out here; reading it will say so.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructType

from airflow_cloudfiles.engine.errors import ReadError
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_inference
from airflow_cloudfiles.engine.inference import Sample, learn_sample
from airflow_cloudfiles.engine.intake.ledger.changed import note_refused
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.names import column_of, parts_of
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch, files_in
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.schema.inference import choose_sample, diff, evolve, resolve
from airflow_cloudfiles.engine.schema.log_entry import Provenance, author
from airflow_cloudfiles.engine.schema.proposals import (
    Proposal,
    ProposedChange,
    error_of,
    find_proposal,
    propose,
    waiting_proposal,
)
from airflow_cloudfiles.engine.schema.source_columns import beside
from airflow_cloudfiles.engine.schema.widening import WiderTypes, can_widen, widen
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.types import missing_fields, with_inside, with_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.errors import CloudFilesError
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.storage import StoreOpener
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

WIDENING_MODE = "addNewColumnsWithTypeWidening"


@dataclass(frozen=True, slots=True)
class NewFields:
    """What files have that a schema has not.

    Attributes:
        before: The schema they were compared with.
        after: The schema with what they have besides.
        provenance: Which file has what is new or wider.
    """

    before: StructType
    after: StructType
    provenance: Provenance = field(default_factory=Provenance)

    def __bool__(self) -> bool:
        return self.before != self.after

    def reason(self) -> dict[str, Any]:
        """Encode it as the schema log keeps it for people."""
        changes = diff(self.before, self.after)
        new = [each.path for each in changes if each.kind == "added"]
        files = self.provenance.files
        wider = {
            each.path: {"from": each.before, "to": each.after, "file": files.get(each.path)}
            for each in changes
            if each.kind == "retyped"
        }
        reason: dict[str, Any] = {"change": "widened" if wider else "addNewColumns"}
        if new:
            reason["fields"] = sorted({column_of(path) for path in new})
            reason["brought"] = self.provenance.by_file(self.after, self.before)
        return reason | ({"widened": wider} if wider else {})


def detect_new_fields(
    context: BatchContext, files: Iterable[FileEntry], *, is_read_whole: bool = True
) -> NewFields:
    """Detect new fields in the newest of some files, within the sample limits.

    Args:
        context: The schema and the options; what it says of a micro-batch does not matter.
        files: Where to choose from.
        is_read_whole: As of `Sample`.

    Returns:
        The schema with the new fields that they have and, in the widening mode, the wider types.

    Raises:
        SchemaHintError: A hint does not fit what is new.
    """
    store, options = open_store(context.source_uri), _whole(context.options)
    current = StructType.fromJson(json.loads(context.data_schema))
    sample = choose_sample(files, options.sample_files, options.sample_bytes)
    if not sample or fixed_schema(options) is not None:
        return NewFields(current, current)
    noted = Provenance()
    learned = learn_sample(
        Sample(store, sample, options, current, noted, is_read_whole=is_read_whole), FetchCounts()
    )
    matcher = options.matcher
    in_paths = matcher.keys(StructType.fromJson(json.loads(context.partition_schema)).names)
    learned = StructType([each for each in learned if matcher.key(each.name) not in in_paths])
    if options.stay_rescued:
        learned = _without(learned, missing_fields(options.stay_rescued, current, matcher), matcher)
    paths = [file.path for file in sample]
    evolved = current
    # A hint for a whole type hides what is new inside of it.
    for each in (options, dataclasses.replace(options, schema_hints=None)):
        observed, _ = resolve(learned, options=each, paths=paths)
        evolved = evolve(evolved, observed, matcher)
    if options.schema_evolution_mode == WIDENING_MODE and can_widen(current, options):
        widened_by = _widen_by_types if options.format_options.HAS_TYPES else _widen_by_values
        evolved = widened_by(context, sample, evolved, noted)
    return NewFields(current, evolved, noted)


def _without(
    learned: StructType, left_out: frozenset[tuple[str, ...]], matcher: NameMatcher
) -> StructType:
    """Remove from what was learned the fields that stay in the rescued data."""

    def inside(kind: DataType, at: tuple[str, ...]) -> DataType:
        if not isinstance(kind, StructType):
            return with_inside(kind, lambda _, each: inside(each, at))
        paths = [(each, (*at, matcher.key(each.name))) for each in kind.fields]
        kept = [(each, path) for each, path in paths if path not in left_out]
        return StructType([with_type(each, inside(each.dataType, path)) for each, path in kept])

    kept = inside(learned, ())
    return kept if isinstance(kept, StructType) else learned


def _whole(options: CloudFilesOptions) -> CloudFilesOptions:
    """Build the options with which only what cannot be read is passed over."""
    options = dataclasses.replace(options, ignore_corrupt_files=True)
    if not hasattr(options.format_options, "sampling_ratio"):
        return options
    own: Any = options.format_options
    return dataclasses.replace(options, format_options=dataclasses.replace(own, sampling_ratio=1.0))


def types_of(context: BatchContext, file: FileEntry) -> StructType:
    """Find the types that a file says its columns have; none where it cannot be read."""
    store = open_store(context.source_uri)
    inference = open_inference(dataclasses.replace(context.options, schema_hints=None))
    part = FileRange(file)

    def learn(file: OpenedFile) -> Iterator[int]:
        for each in files_in(file, context.options):
            yield from inference.add_file(each)

    try:
        for _ in fetch(store, part, FetchCounts(), learn, ignore_missing=True, keep_parts=True):
            pass
    except ReadError as error:
        _log.warning("Not sampled: %s", error)
    return inference.result()


def _widen_by_types(
    context: BatchContext, sample: Sequence[FileEntry], schema: StructType, noted: Provenance
) -> StructType:
    """Widen to the types that files say."""
    store = open_store(context.source_uri)
    for file in sample:
        wider = widen(schema, types_of(context, file), context.options)
        for change in diff(schema, wider):
            noted.files[change.path] = store.child_uri(file.path)
        schema = wider
    return schema


def _widen_by_values(
    context: BatchContext, sample: Sequence[FileEntry], schema: StructType, noted: Provenance
) -> StructType:
    """Widen to the types of the values that the reader would rescue."""
    wider = WiderTypes(schema, context.options)
    for strings in rescued_of(context, sample):
        wider.add(strings)
    noted.files.update(wider.files)
    return wider.schema


def rescued_of(context: BatchContext, sample: Sequence[FileEntry]) -> Iterator[list[str]]:
    """Give what the reader rescues of files, read as in mode `rescue`.

    Nothing fails, or is written.
    """
    lenient = dataclasses.replace(
        context.options,
        schema_evolution_mode="rescue",
        mode="PERMISSIVE",
        bad_records_path=None,
        ignore_missing_files=True,
        ignore_corrupt_files=True,
        metadata_columns=(),
    )
    reading = dataclasses.replace(context, options=lenient)
    try:
        for batch in SplitReader(Split(reading, tuple(map(FileRange, sample)))).read():
            yield batch.column(batch.num_columns - 1).drop_null().to_pylist()
    except ReadError as error:
        _log.warning("Stopped reading rescued data: %s", error)


def described(changes: NewFields) -> dict[str, str]:
    """Old and new type of every column that is wider, in one text each."""
    return {
        each.path: f"{each.before} -> {each.after}"
        for each in diff(changes.before, changes.after)
        if each.kind == "retyped"
    }


SAMPLE_CHARACTERS: Final = 100
"""A longer value is cut off."""
MOST_SAMPLED: Final = 100
"""Values are kept of so many fields of a change."""
_MOST_FILES: Final = 20
_MOST_SECONDS: Final = 10.0
"""Values are for people: reading files for them ends when it has taken so long."""
_log = logging.getLogger(__name__)


def undecided(
    options: CloudFilesOptions, resolved: ResolvedSchema, open_state: StoreOpener = open_store
) -> CloudFilesError | None:
    """Give the error of a run whose schema waits for a decision; `None` where it may go on.

    A change that was refused is none of these: it may be asked for no more.
    """
    if not options.require_approval or resolved.schema_uri is None or resolved.pin is not None:
        return None
    if options.schema_evolution_mode not in ADDING_MODES:
        return None
    found = find_proposal(open_state(resolved.schema_uri), resolved.version)
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
    brought = findings.provenance.files
    changes = [
        ProposedChange(
            each.kind, each.path, each.before, each.after, brought.get(each.path, file_uri)
        )
        for each in diff(findings.before, findings.after)
    ]
    found = waiting_proposal(store)
    if found is None or not _is_refused(found, changes):
        if file_uri is not None:
            reason["file"] = file_uri
        samples = tuple(_with_samples(context, changes, asking))
        found = propose(store, _proposal(context, findings, samples, reason))
        _log.warning("Proposal %s waits for somebody to decide: %s", found.number, found.paths)
    note_refused(context.state_uri, asking, dict.fromkeys(found.paths))
    return error_of(found, uri)


def _is_refused(found: Proposal, changes: Sequence[ProposedChange]) -> bool:
    """Tell whether changes are among those that were refused."""
    known = {(each.path, each.after) for each in found.changes}
    return found.refused_by is not None and {(e.path, e.after) for e in changes} <= known


def _asking(
    context: BatchContext, findings: NewFields, files: Iterable[FileEntry], file_uri: str | None
) -> list[FileEntry]:
    """List the first files that are known to ask for the change."""
    source = open_store(context.source_uri)
    named = {*findings.provenance.files.values(), file_uri}
    found = [file for file in files if source.child_uri(file.path) in named]
    # The one that was met may be behind many others.
    found.sort(key=lambda file: source.child_uri(file.path) != file_uri)
    return found[:_MOST_FILES]


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
    """Yield the changes, each with some values that the files have."""
    most = context.options.approval_samples
    wanted = {parts_of(each.path): each for each in changes[:MOST_SAMPLED]} if most else {}
    found: dict[tuple[str, ...], dict[str, None]] = {path: {} for path in wanted}
    if wanted and files:
        _collect(context, files, found, most)
    for each in changes:
        yield dataclasses.replace(each, samples=tuple(found.get(parts_of(each.path), ())))


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
    """Yield the values at a path of rescued data."""
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
    """Format a value as JSON that can be printed."""
    text = json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= SAMPLE_CHARACTERS else f"{text[:SAMPLE_CHARACTERS]}…")
