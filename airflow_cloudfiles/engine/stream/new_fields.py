"""What do these files have that the schema has not?

Compares files, within the sample limits, with the schema they are to be read with: those of a
micro-batch when a task has met something new, or those of a whole run before it begins
(`schema_change`). A file that cannot be read is left out here; reading it will say so.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.errors import ReadError
from airflow_cloudfiles.engine.formats.base import Inference, OpenedFile
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_inference
from airflow_cloudfiles.engine.inference.tasks import Sample, Workers, learn_sample
from airflow_cloudfiles.engine.names import column_of
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.schema.inference import choose_sample, diff, evolve, resolve
from airflow_cloudfiles.engine.schema.log_entry import Provenance
from airflow_cloudfiles.engine.schema.widening import can_widen, widen
from airflow_cloudfiles.engine.schema.wider_types import WiderTypes
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.types import missing_fields

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.storage import ObjectStore

WIDENING_MODE = "addNewColumnsWithTypeWidening"
TYPED = frozenset({"avro", "orc", "parquet"})
"""Formats whose files say of which types their columns are."""
_log = logging.getLogger(__name__)


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
        """As the schema log keeps it for people."""
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
    context: BatchContext, files: Iterable[FileEntry], workers: Workers | None = None
) -> NewFields:
    """Detect new fields in the newest of some files, within the sample limits.

    Args:
        context: The schema and the options; what it says of a micro-batch does not matter.
        files: Where to choose from.
        workers: Who may help when there is much to read; `None` for nobody.

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
    learned = learn_sample(Sample(store, sample, options, current, noted), FetchCounts(), workers)
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
        widened_by = _widen_by_types if options.format in TYPED else _widen_by_values
        evolved = widened_by(context, sample, evolved, noted)
    return NewFields(current, evolved, noted)


def _without(
    learned: StructType, left_out: frozenset[tuple[str, ...]], matcher: NameMatcher
) -> StructType:
    """What was learned, without fields that stay in the rescued data."""

    def inside(kind: DataType, at: tuple[str, ...]) -> DataType:
        if isinstance(kind, ArrayType):
            return ArrayType(inside(kind.elementType, at), kind.containsNull)
        if isinstance(kind, MapType):
            return MapType(kind.keyType, inside(kind.valueType, at), kind.valueContainsNull)
        if not isinstance(kind, StructType):
            return kind
        paths = [(each, (*at, matcher.key(each.name))) for each in kind.fields]
        return StructType(
            [
                StructField(each.name, inside(each.dataType, path), each.nullable, each.metadata)
                for each, path in paths
                if path not in left_out
            ]
        )

    kept = inside(learned, ())
    return kept if isinstance(kept, StructType) else learned


def _whole(options: CloudFilesOptions) -> CloudFilesOptions:
    """The options with which nothing is passed over but what cannot be read."""
    options = dataclasses.replace(options, ignore_corrupt_files=True)
    if not hasattr(options.format_options, "sampling_ratio"):
        return options
    own: Any = options.format_options
    return dataclasses.replace(options, format_options=dataclasses.replace(own, sampling_ratio=1.0))


def _use(store: ObjectStore, file: FileEntry, inference: Inference) -> None:
    """Learn from a file, unless it cannot be read."""

    def learn(opened: OpenedFile) -> Iterator[None]:
        inference.add_file(opened)
        yield from ()

    try:
        for _ in fetch(
            store, FileRange(file), FetchCounts(), learn, ignore_missing=True, keep_parts=True
        ):
            pass
    except ReadError as error:
        _log.warning("Not sampled: %s", error)


def types_of(context: BatchContext, file: FileEntry) -> StructType:
    """The types that a file says its columns have."""
    inference = open_inference(dataclasses.replace(context.options, schema_hints=None))
    _use(open_store(context.source_uri), file, inference)
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
