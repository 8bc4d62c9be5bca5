"""From which files may a schema be inferred?

From those that the file log holds: what a sensor has recorded is what will be ingested, and a log
is read faster than a source is listed. Where nothing is recorded yet, or nothing of it is there any
more, from those that a listing finds, without those that are not whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.settling.whole import WholeFiles
from airflow_cloudfiles.engine.errors import SampleGoneError
from airflow_cloudfiles.engine.files import START, FileEntry
from airflow_cloudfiles.engine.inference.infer import Inferred, infer_files
from airflow_cloudfiles.engine.inference.tasks import Workers
from airflow_cloudfiles.engine.intake.source_path import SourcePath
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, open_store

_log = logging.getLogger(__name__)


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
