"""Read the files once, without a stream.

As `read_files` does it: what a listing finds is read by the stream's own reader, with the schema
that a stream with these options would begin with. There is no state: nothing is remembered, nothing
is written, and the next read gives the same rows again. So an option of a stream

- that says when and how files are found, or how many at a time, has nothing to say here and is
  passed over: the options of a stream can be tried out as they are;
- that says which files are wanted, or how they are read, holds; with `minFileAge` or
  `completionMarker`, files that are not whole are left out and a warning names them, and one that
  has changed since it was listed is refused;
- that would write (`badRecordsPath`), or leave nothing to read, is refused.

A schema location is only read. Where it has a schema, that is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.settling import WholeFiles
from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.intake.opening import locate, own_locations
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

_log = logging.getLogger(__name__)


def plan(options: CloudFilesOptions, resolved: ResolvedSchema) -> list[Split]:
    """List the files there are, and share them out.

    Args:
        options: Those of the source.
        resolved: The schema to read with.

    Raises:
        OptionError: As of `CloudFilesOptions.check_batch`.
        SourceNotFoundError: There is no such folder.
    """
    options.check_batch()
    discovery, options = options.discovery, _reading(options)
    place = locate(options.path)
    store = open_store(place.root)
    keys = [store.key_of(location) for location in own_locations(options)]
    wanted = FileFilter(store.uri, place.pattern, options.discovery, keys)
    whole = WholeFiles(store, wanted, discovery)
    files = sorted(whole.discover(), key=lambda file: file.path)
    left_out = whole.left_out()
    if left_out.files:
        _log.warning("Batch read of %s leaves out what is not whole: %s", store.uri, left_out)
    can_cut = options.format_options.can_split()
    splits = packed(store, files, parallelism=options.parallelism, can_cut=can_cut)
    _log.info(
        "Batch read of %s: %s, %s",
        store.uri,
        counted(len(files), "file"),
        counted(len(splits), "split"),
    )
    context = BatchContext(
        source_uri=store.uri,
        source_name=place.name,
        state_uri="",
        schema_uri=None,
        schema_version=resolved.version,
        data_schema=resolved.data_schema.json(),
        partition_schema=resolved.partition_schema.json(),
        start=START,
        end=START,
        options=options,
        column_order=resolved.column_order,
    )
    return [Split(context, ranges) for ranges in splits]


def read(split: Split) -> Iterator[pa.RecordBatch]:
    """Read one split.

    Raises:
        UnknownFieldException: A record has a field that the schema lacks, in the mode that fails.
        FileChangedError: A file that had to be whole has changed since it was listed.
        ReadError: A file cannot be read, or a record is not valid (`FAILFAST`).
    """
    try:
        yield from SplitReader(split).read()
    except UnknownFields as found:
        raise UnknownFieldException.of(
            found.fields,
            file=found.file_uri,
            retry=False,
            remedy="Add the fields with cloudFiles.schemaHints, or to the given schema; or set "
            "cloudFiles.schemaEvolutionMode to rescue.",
        ) from None


def _reading(options: CloudFilesOptions) -> CloudFilesOptions:
    """Build the options to read with: no schema evolves; the version that is there is read."""
    mode = options.schema_evolution_mode
    return replace(
        options,
        schema_evolution_mode="rescue" if mode in ADDING_MODES else mode,
        discovery=replace(options.discovery, allow_overwrites=False, file_identity=None),
    )
