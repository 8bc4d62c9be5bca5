"""What does a sample of the files look like?

Introduces the files that discovery found to the format that infers their schema, and what it
infers to the rules that settle it. Runs wherever it is called: in the process that defines the
DataFrame, or in a task that met a new field.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.types import StructType  # noqa: TC002 - a field of a dataclass

from airflow_cloudfiles.engine.errors import SchemaInferenceError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.base import Inference, OpenedFile
from airflow_cloudfiles.engine.formats.table import fixed_schema, open_inference
from airflow_cloudfiles.engine.options import CloudFilesOptions
from airflow_cloudfiles.engine.schema.inference import choose_sample, settle
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.stream.fetch import FetchCounts, fetch
from airflow_cloudfiles.engine.stream.splits import FileRange

PROGRESS_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inferred:
    """A settled schema and what it was inferred from."""

    data_schema: StructType
    partition_schema: StructType
    files: int
    bytes: int


def infer_files(
    store: ObjectStore,
    files: Iterable[FileEntry],
    options: CloudFilesOptions,
    known: StructType | None = None,
) -> Inferred:
    """Infer and settle the schema of the newest files, within the sample limits (B1, B2).

    Args:
        store: The source.
        files: Files to choose the sample from.
        options: The options of the source.
        known: The schema there is already: a value that does not fit it is a mismatch, and does
            not hide what else is new in the record.

    Raises:
        SchemaInferenceError: There is no file, or none holds a record (B4).
        SchemaHintError: `cloudFiles.schemaHints` does not fit.
    """
    sample = choose_sample(files, options.sample_files, options.sample_bytes)
    fixed = fixed_schema(options)
    if not sample and (fixed is None or options.partition_columns is None):
        raise SchemaInferenceError(_nothing(store, options, has_columns=fixed is not None))
    counts = FetchCounts()
    observed = fixed or _learnt(store, sample, options, known, counts)
    data, partitions = settle(observed, options=options, paths=[file.path for file in sample])
    if not data.fields:
        raise SchemaInferenceError(
            f"None of the {len(sample)} sampled files in {store.uri} holds a record with a field. "
            "Give a schema with .schema(...) or cloudFiles.schemaHints, or start when files "
            "with records have arrived."
        )
    return Inferred(data, partitions, counts.files, counts.bytes)


def _nothing(store: ObjectStore, options: CloudFilesOptions, *, has_columns: bool) -> str:
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


def _learnt(
    store: ObjectStore,
    sample: list[FileEntry],
    options: CloudFilesOptions,
    known: StructType | None,
    counts: FetchCounts,
) -> StructType:
    """What the sample holds, with a line in the log every few seconds."""
    inference = open_inference(options, known)
    last = time.monotonic()
    for number, file in enumerate(sample, start=1):
        for _ in fetch(
            store,
            FileRange(file),
            counts,
            _learning(inference),
            ignore_missing=True,
            ignore_corrupt=options.ignore_corrupt_files,
        ):
            pass
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            _log.info(
                "Inferring: %s of %s files, %s MB", number, len(sample), counts.bytes // 10**6
            )
    return inference.result()


def _learning(inference: Inference) -> Callable[[OpenedFile], Iterator[None]]:
    """What `fetch` is to do with a file: learn from it; there is nothing to give out."""

    def learn(file: OpenedFile) -> Iterator[None]:
        inference.add_file(file)
        yield from ()

    return learn
