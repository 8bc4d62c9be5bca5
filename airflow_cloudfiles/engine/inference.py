"""Infer a schema from a sample of the files, and warn of what a person should know besides.

Introduces the files that discovery found to the format that infers their schema, and what it
infers to the rules that resolve it. Runs wherever it is called: in the process that defines the
DataFrame, or in a task that met a new field.

The sample is of the files that the file log holds: what a sensor has recorded is what will be
ingested, and a log is read faster than a source is listed. Where nothing is recorded yet, or
nothing of it is there any more, it is of those that a listing finds, without those that are not
whole.

Files are read from the newest on. A large sample is not read to its end: after `QUIET_BYTES` that
showed nothing new, each further file is read as far as its first block. So every file is looked at,
and what a first run samples from gigabytes is not read twice. What only the rest of a file has is
found when its rows are read, as any later change is: a field makes the next schema version, and a
value that does not fit its column is rescued. Members of archives are files like others, but that
of an archive no further member is read then.

Where no field was found in a file, the error says why: a mistake in the first record is the most
frequent reason, after a file of another format.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, NullType, StructField, StructType

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.errors import ReadError, SampleGoneError, SchemaInferenceError
from airflow_cloudfiles.engine.files import START, FileEntry, printable_path
from airflow_cloudfiles.engine.formats.base import OpenedFile
from airflow_cloudfiles.engine.formats.recognize import (
    FORMAT_NAMES,
    HEAD_BYTES,
    kind_of_content,
    looks_like,
)
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_inference
from airflow_cloudfiles.engine.intake.opening import SourcePath
from airflow_cloudfiles.engine.messages import Progress, counted, cut, few, sentence, size_text
from airflow_cloudfiles.engine.names import NameMatcher, dotted
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions, XmlOptions
from airflow_cloudfiles.engine.reading.fetch import (
    FetchCounts,
    fetch,
    fetched_ahead,
    files_in,
    first_range,
)
from airflow_cloudfiles.engine.reading.opened import TEXT_BYTES, StoreFile
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.schema.inference import choose_sample, resolve
from airflow_cloudfiles.engine.schema.log_entry import Provenance
from airflow_cloudfiles.engine.schema.source_columns import path_partitions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, StoreOpener, open_store
from airflow_cloudfiles.engine.types import inside_of, simple_ddl

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.settling import WaitingReport


QUIET_BYTES = 128 * 2**20
"""So many bytes of records (half a million of 250 bytes) tell nothing new before the rest of a
sample is skipped. A field in one of 100,000 records is missed in them once in a hundred samples."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a schema is inferred from.

    Attributes:
        store: The source.
        files: The files, newest first.
        options: The options of the source.
        known: The schema there is already.
        provenance: Notes which file had which column first.
        is_read_whole: Whether every file is read to its end, however little it tells.
    """

    store: ObjectStore
    files: Sequence[FileEntry]
    options: CloudFilesOptions
    known: StructType | None = None
    provenance: Provenance = field(default_factory=Provenance)
    is_read_whole: bool = False


class _Learner:
    """Learns from files in order, until enough of them has shown nothing new."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._range = first_range(sample.options, schema_only=True)
        self._quiet = 0
        self.inference = open_inference(sample.options, sample.known)

    @property
    def has_enough(self) -> bool:
        """Whether only the first block of each further file is read."""
        return self._quiet >= QUIET_BYTES and not self._sample.is_read_whole

    def first_range(self, size: int) -> tuple[int, int]:
        """Return the range of a file of some size that is read first (`FirstRange`)."""
        start, length = self._range(size)
        return start, min(length, TEXT_BYTES) if self.has_enough else length

    def learn(self, file: OpenedFile) -> Iterator[None]:
        """Learn from a file, or from the members of an archive; yields nothing."""
        for each in files_in(file, self._sample.options):
            with closing(self.inference.add_file(each)) as parts:
                for size in parts:
                    is_new = self._sample.provenance.note(self.inference.result, each.uri)
                    self._quiet = 0 if is_new else self._quiet + size
                    if self.has_enough:
                        return
        yield from ()


def learn_sample(sample: Sample, counts: FetchCounts) -> StructType:
    """Learn what the files of a sample hold.

    Args:
        sample: The files, and how they are read.
        counts: Added to; a file that is read in part counts as a whole.

    Returns:
        What the format observed.

    Raises:
        ReadError: A file cannot be read. One that is gone is passed over, and a damaged one with
            `ignoreCorruptFiles`.
    """
    learner = _Learner(sample)
    parts = [FileRange(file) for file in sample.files]
    size = sum(file.size for file in sample.files)
    with (
        Progress("Inferring the schema", len(sample.files), size) as progress,
        closing(fetched_ahead(sample.store, parts, learner.first_range)) as coming,
    ):
        for part, first in coming:
            for _ in fetch(
                sample.store,
                part,
                counts,
                learner.learn,
                ignore_missing=True,
                ignore_corrupt=sample.options.ignore_corrupt_files,
                first=first,
                range_of=learner.first_range,
                keep_parts=True,
            ):
                pass
            progress.add(1, part.size)
    if learner.has_enough:
        _log.info(
            "%s in a row showed nothing new: not all of the sample was read", size_text(QUIET_BYTES)
        )
    return learner.inference.result()


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
    hints = parse_columns(options.schema_hints or "", matcher)
    return tuple(
        f"{dotted(hint.path)} {_ddl(hint.data_type)} "
        f"({_before(observed, partitions, hint.path, matcher)})"
        for hint in hints
    )


def no_field(
    uri: str, sample: Sequence[FileEntry], options: CloudFilesOptions, why: str | None
) -> str:
    """Write the message for a sample that has files, but nothing that could be a column.

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
    """Find the type at the end of a dotted path; `None` when nothing is there."""
    for name in path:
        if isinstance(kind, StructType):
            field = matcher.find(kind, name)
            inside = None if field is None else field.dataType
        else:
            inside = dict(inside_of(kind)).get(matcher.key(name))
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
    """List what may surprise readers of the schema."""
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
    """Find two paths whose folders contradict each other (B38), and say how; else `None`."""
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


_ELEMENT: Final = re.compile(r"<([A-Za-z_][\w.:-]*)")
_TRAILING_COMMA: Final = re.compile(r",\s*[}\]]")


def why_nothing(head: bytes, options: FormatOptions, asked: str) -> str | None:
    """Say in a sentence why no field was found in a file; `None` when that is not known.

    Args:
        head: Its first bytes, decompressed.
        options: The options of the format.
        asked: `cloudFiles.format`.
    """
    kind = kind_of_content(head)
    if kind is not None and FORMAT_NAMES.get(kind) != asked:
        return f"It {looks_like(kind)}"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    if isinstance(options, JsonOptions):
        return _json_reason(text, is_whole=options.multi_line)
    return _xml_reason(text, options) if isinstance(options, XmlOptions) else None


def _json_reason(text: str, *, is_whole: bool) -> str | None:
    if not is_whole and _json_error(text) is None:
        return "The file is one JSON document: set multiLine=true."
    lines = ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    number, record = (1, text) if is_whole else next(lines, (1, ""))
    error = _json_error(record)
    if error is None:
        return None
    if _TRAILING_COMMA.match(record, record.rfind(",", 0, error.pos + 1)):
        reason = "a comma stands before a closing bracket"
    elif not is_whole and error.pos >= len(record.rstrip()):
        return f"Line {number} ends in the middle of a record: set multiLine=true."
    else:
        reason = error.msg[0].lower() + error.msg[1:]
    at = f"line {error.lineno if is_whole else number}, character {error.colno}"
    return f"Its first record is not valid JSON: {reason} ({at})."


def _json_error(text: str) -> json.JSONDecodeError | None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error
    except RecursionError:
        return None
    return None


def _xml_reason(text: str, options: XmlOptions) -> str | None:
    from airflow_cloudfiles.engine.formats.xml.tree import (  # noqa: PLC0415 - of no other format
        NotXmlError,
        parse,
    )

    tag = re.escape(options.row_tag)
    row = re.search(rf"<{tag}(?:\s[^>]*)?>.*?</{tag}\s*>|<{tag}(?:\s[^>]*)?/>", text, re.DOTALL)
    if row is None:
        names = [name for name in dict.fromkeys(_ELEMENT.findall(text)) if name != options.row_tag]
        return f"Elements there are {few(names)}: set rowTag to that of a row." if names else None
    try:
        parse(row[0].encode())
    except NotXmlError as error:
        entity = "undefined entity" in str(error)
        mend = " Write it as a character, or as a number such as &#160;." if entity else ""
        return f"Its first <{cut(options.row_tag)}> is not well-formed XML: {error}.{mend}"
    return None


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """A resolved schema and what it was inferred from.

    Attributes:
        data_schema: Columns found in the records.
        partition_schema: Columns found in the paths.
        files: Files that were read.
        bytes: Their size.
        hints: What each hint has changed, in words.
        warnings: What a person should know besides.
        provenance: For files the columns they were the first to have, as far as that was noted.
    """

    data_schema: StructType
    partition_schema: StructType
    files: int
    bytes: int
    hints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Encode the result for another process."""
        return json.dumps(asdict(self), default=StructType.jsonValue)

    @classmethod
    def from_json(cls, text: str) -> InferredSchema:
        """Read what `to_json` has written."""
        found: dict[str, Any] = json.loads(text)
        for name in ("data_schema", "partition_schema"):
            found[name] = StructType.fromJson(found[name])
        for name in ("hints", "warnings"):
            found[name] = tuple(found[name])
        return cls(**found)


def infer_files(
    store: ObjectStore,
    files: Iterable[FileEntry],
    options: CloudFilesOptions,
    *,
    left_out: Callable[[], WaitingReport | None] = lambda: None,
) -> InferredSchema:
    """Infer and resolve the schema of the newest files, within the sample limits (B1, B2).

    Nothing is written, so it may be interrupted and repeated at any time.

    Args:
        store: The source.
        files: Files to choose the sample from.
        options: The options of the source.
        left_out: Says which files are not among them because they are not whole; asked when all
            of them are known.

    Raises:
        SchemaInferenceError: There is no file, or none holds a record (B4).
        SampleGoneError: All files of the sample were deleted meanwhile.
        ReadError: A file cannot be read. One that is gone is passed over, and a damaged one with
            `ignoreCorruptFiles`.
        SchemaHintError: `cloudFiles.schemaHints` does not fit.
    """
    sample = choose_sample(files, options.sample_files, options.sample_bytes)
    fixed = fixed_schema(options)
    if not sample and (fixed is None or options.partition_columns is None):
        raise SchemaInferenceError(
            _nothing(store, options, left_out(), has_columns=fixed is not None)
        )
    counts = FetchCounts()
    began = time.monotonic()
    provenance = Provenance()
    observed = fixed or learn_sample(Sample(store, sample, options, provenance=provenance), counts)
    if sample and counts.missing_files == len(sample):
        raise SampleGoneError(
            f"All {len(sample)} sampled files of {store.uri} are gone. Give a schema with "
            ".schema(...), or start when files have arrived."
        )
    paths = [file.path for file in sample]
    data, partitions = resolve(observed, options=options, paths=paths)
    if not data.fields:
        raise SchemaInferenceError(
            no_field(store.uri, sample, options, _why(store, sample, options))
        )
    _log.info(
        "Inferred %s from %s, %.1f MB, in %.1f s",
        counted(len(data.fields) + len(partitions.fields), "column"),
        counted(counts.files, "file"),
        counts.bytes / 10**6,
        time.monotonic() - began,
    )
    for warning in warnings_of(paths, observed, partitions, options, counts):
        _log.warning("%s", warning)
    hints = applied_hints(observed, partitions, options)
    incomplete: tuple[str, ...] = ()
    waiting = left_out()
    if waiting is not None and waiting.files:
        incomplete = (f"The schema was inferred without files that are not whole: {waiting}.",)
    return InferredSchema(
        data,
        partitions,
        counts.files,
        counts.bytes,
        hints,
        incomplete,
        provenance.by_file(data),
    )


def _why(store: ObjectStore, sample: Sequence[FileEntry], options: CloudFilesOptions) -> str | None:
    """Say why nothing was found, as far as the first file that is not empty shows."""
    first = next((file for file in sample if file.size), None)
    if first is None:
        return None
    try:
        files = files_in(StoreFile(store, first), options)
        head = next((each.stream().read(HEAD_BYTES) for each in files), b"")
    except (OSError, ValueError, ReadError):
        return None  # it is only for the message
    return why_nothing(head, options.format_options, options.format)


def _nothing(
    store: ObjectStore,
    options: CloudFilesOptions,
    left_out: WaitingReport | None,
    *,
    has_columns: bool,
) -> str:
    if left_out is not None and left_out.files:
        return (
            f"No file in {store.uri} is whole yet, so there is nothing to infer the schema of "
            f"{options.format} from: {left_out}. Run again when they are whole, or give a schema "
            "with .schema(...)."
        )
    if has_columns:
        return (
            f"There is no file in {store.uri} to find partition columns from. Name them in "
            "cloudFiles.partitionColumns (an empty text for none), or start when the first files "
            "have arrived."
        )
    return (
        f"There is no file in {store.uri} to infer the schema of {options.format} from. Give a "
        "schema with .schema(...), or start when the first files have arrived."
    )


def infer_source(
    options: CloudFilesOptions,
    place: SourcePath,
    own: Sequence[str],
    on_found: Callable[[], None] | None = None,
    open_state: StoreOpener = open_store,
) -> InferredSchema:
    """Infer the schema of a source from the newest of its files.

    Args:
        options: The options of the source; with its checkpoint location, where that is known.
        place: Where the files land.
        own: Locations below the source that are not input.
        on_found: Called when the first file is known, before any is read.
        open_state: Opens the state (`OpenedState.open`).

    Raises:
        SchemaInferenceError: There is no whole file, or none holds a record (B4).
        ReadError: As of `infer_files`.
        SchemaHintError: As of `infer_files`.
    """
    store = open_store(place.root)
    recorded = _recorded(options, place, open_state)
    first = next(recorded, None)
    if first is not None:
        _log.info("Inferring the schema from the recorded files of %s", store.uri)
        files = _noticed(chain((first,), recorded), on_found)
        try:
            return infer_files(store, files, options)
        except SampleGoneError as gone:
            _log.warning("%s Listing the source instead", gone)
    _log.info("Listing %s to infer its schema", store.uri)
    keys = [store.key_of(location) for location in own]
    wanted = FileFilter(store.uri, place.pattern, options.discovery, keys)
    if not options.discovery.leaves_out:
        files = _noticed(DirectoryListing(store, wanted).discover(), on_found)
        return infer_files(store, files, options)
    from airflow_cloudfiles.engine.discovery.settling import (  # noqa: PLC0415 - few wait
        WholeFiles,
    )

    whole = WholeFiles(store, wanted, options.discovery)
    files = _noticed(whole.discover(), on_found)
    return infer_files(store, files, options, left_out=whole.left_out)


def _noticed(
    files: Iterable[FileEntry], on_found: Callable[[], None] | None
) -> Iterator[FileEntry]:
    """Yield the files; call `on_found` when there is one."""
    for number, file in enumerate(files):
        if number == 0 and on_found is not None:
            on_found()
        yield file


def _recorded(
    options: CloudFilesOptions, place: SourcePath, open_state: StoreOpener
) -> Iterator[FileEntry]:
    """Yield the files to ingest that the file log of this source holds, ingested or not."""
    if options.checkpoint_location is None:
        return
    state = open_state(options.checkpoint_location)
    metadata = read_metadata(state)
    if metadata is None or metadata.source != place.name:
        return
    log = FileLog(state)
    yield from log.slice(START, log.head())
