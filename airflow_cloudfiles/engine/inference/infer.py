"""Infer a schema from a sample of the files.

Introduces the files that discovery found to the format that infers their schema, and what it
infers to the rules that resolve it. Runs wherever it is called: in the process that defines the
DataFrame, or in a task that met a new field.

Where no field was found in a file, the error says why: a mistake in the first record is the most
frequent reason, after a file of another format.

From those that the file log holds: what a sensor has recorded is what will be ingested, and a log
is read faster than a source is listed. Where nothing is recorded yet, or nothing of it is there any
more, from those that a listing finds, without those that are not whole.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Final

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.settling.settling import WaitingReport, WholeFiles
from airflow_cloudfiles.engine.errors import ReadError, SampleGoneError, SchemaInferenceError
from airflow_cloudfiles.engine.files import START, FileEntry
from airflow_cloudfiles.engine.formats.recognize import (
    FORMAT_NAMES,
    HEAD_BYTES,
    kind_of_content,
    looks_like,
)
from airflow_cloudfiles.engine.formats.registry import fixed_schema
from airflow_cloudfiles.engine.inference.tasks import Sample, Workers, learn_sample
from airflow_cloudfiles.engine.inference.warnings import applied_hints, no_field, warnings_of
from airflow_cloudfiles.engine.intake.source_path import SourcePath
from airflow_cloudfiles.engine.messages import counted, cut, few
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.schema.inference import choose_sample, resolve
from airflow_cloudfiles.engine.schema.log_entry import Provenance
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, open_store

_ELEMENT: Final = re.compile(r"<([A-Za-z_][\w.:-]*)")
_TRAILING_COMMA: Final = re.compile(r",\s*[}\]]")


def why_nothing(head: bytes, options: FormatOptions, asked: str) -> str | None:
    """Why no field was found in a file, as a sentence; `None` when that is not known.

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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inferred:
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
        """As one process hands it to another."""
        return json.dumps(asdict(self), default=StructType.jsonValue)

    @classmethod
    def from_json(cls, text: str) -> Inferred:
        """Read what `to_json` has written."""
        found: dict[str, Any] = json.loads(text)
        for name in ("data_schema", "partition_schema"):
            found[name] = StructType.fromJson(found[name])
        for name in ("hints", "warnings"):
            found[name] = tuple(found[name])
        return cls(**found)


def infer_files(  # noqa: PLR0913 - it connects the packages
    store: ObjectStore,
    files: Iterable[FileEntry],
    options: CloudFilesOptions,
    known: StructType | None = None,
    workers: Workers | None = None,
    *,
    left_out: Callable[[], WaitingReport] = WaitingReport,
) -> Inferred:
    """Infer and resolve the schema of the newest files, within the sample limits (B1, B2).

    Nothing is written, so it may be interrupted and repeated at any time.

    Args:
        store: The source.
        files: Files to choose the sample from.
        options: The options of the source.
        known: The schema there is already: a value that does not fit it is a mismatch, and does
            not hide what else is new in the record.
        workers: Workers that may share a large sample; `None` for none. The schema
            is the same.
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
    observed = fixed or learn_sample(
        Sample(store, sample, options, known, provenance), counts, workers
    )
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
    return Inferred(
        data,
        partitions,
        counts.files,
        counts.bytes,
        hints,
        tuple(_incomplete(left_out())),
        provenance.by_file(data),
    )


def _why(store: ObjectStore, sample: Sequence[FileEntry], options: CloudFilesOptions) -> str | None:
    """Why nothing was found, as far as the first file that is not empty shows."""
    first = next((file for file in sample if file.size), None)
    if first is None:
        return None
    try:
        head = StoreFile(store, first).stream().read(HEAD_BYTES)
    except (OSError, EOFError, ValueError, ReadError):
        return None  # it is only for the message
    return why_nothing(head, options.format_options, options.format)


def _incomplete(left_out: WaitingReport) -> Iterator[str]:
    """Say that files which are not whole were not read."""
    if left_out.files:
        yield f"The schema was inferred without files that are not whole: {left_out}."


def _nothing(
    store: ObjectStore, options: CloudFilesOptions, left_out: WaitingReport, *, has_columns: bool
) -> str:
    if left_out.files:
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
    workers: Workers | None = None,
    on_found: Callable[[], None] | None = None,
) -> Inferred:
    """Infer the schema of a source from the newest of its files.

    Args:
        options: The options of the source; with its checkpoint location, where that is known.
        place: Where the files land.
        own: Locations below the source that are not input.
        workers: Workers that may share a large sample.
        on_found: Called when the first file is known, before any is read.

    Raises:
        SchemaInferenceError: There is no whole file, or none holds a record (B4).
        ReadError: As of `infer_files`.
        SchemaHintError: As of `infer_files`.
    """
    store = open_store(place.root)
    recorded = _recorded(options, place)
    first = next(recorded, None)
    if first is not None:
        _log.info("Inferring the schema from the recorded files of %s", store.uri)
        files = _noticed(chain((first,), recorded), on_found)
        try:
            return infer_files(store, files, options, workers=workers)
        except SampleGoneError as gone:
            _log.warning("%s Listing the source instead", gone)
    _log.info("Listing %s to infer its schema", store.uri)
    keys = [store.key_of(location) for location in own]
    wanted = FileFilter(store.uri, place.pattern, options.discovery, keys)
    whole = WholeFiles(store, wanted, options.discovery)
    files = _noticed(whole.discover(), on_found)
    return infer_files(store, files, options, workers=workers, left_out=whole.left_out)


def _noticed(
    files: Iterable[FileEntry], on_found: Callable[[], None] | None
) -> Iterator[FileEntry]:
    """The files; says so when there is one."""
    for number, file in enumerate(files):
        if number == 0 and on_found is not None:
            on_found()
        yield file


def _recorded(options: CloudFilesOptions, place: SourcePath) -> Iterator[FileEntry]:
    """The files to ingest that the file log of this source holds, ingested or not."""
    if options.checkpoint_location is None:
        return
    state: ObjectStore = open_store(options.checkpoint_location)
    metadata = read_metadata(state)
    if metadata is None or metadata.source != place.name:
        return
    log = FileLog(state)
    yield from log.slice(START, log.head())
