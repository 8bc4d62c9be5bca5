"""Turn a field of the rescued data into a column, or tell what that would fill.

1. The type is resolved: what was asked for, or the column there is, or what the rescued values of
   the whole table show, by the rules of the stream's inference.
2. All rescued values of the fields are converted, as step 4 will do it, and thrown away: what
   fails, fails before anything has changed.
3. The table gets the column, then the schema log (`batches`): the stream's next run fills
   it by itself.
4. File by file, rows that have the field in their rescued data get it into the column, as far as it
   fits, and out of the rescued data. Files without such a row are not touched. A commit replaces a
   group of files; no reader sees a row with the value in both places, or in neither.
5. Files that came meanwhile, from a run that began before step 3, are rewritten as well, until a
   whole pass finds nothing.

Each step finds out by itself what is done. So a promotion can be killed anywhere and run again, run
twice at once, and run while the stream writes: the second to commit to one file reads it again.
It notes no application transaction in the table: the stream's batches are not its business.

Before a table or a schema log is changed, every rescued value of the fields is converted as the
promotion will convert it. What fails then, for instance a file that cannot be read or a type that
no reader makes, fails while nothing has changed; and a column that no value fits is known in time
to be reported.

The files of a table get what was promoted, each row once (`Backfill`):

1. A file whose rescued data has none of the fields is done: files never change.
2. One that has is read again, changed batch by batch, and written to new files.
3. A commit puts a group of new files in the place of the old ones. Another writer that came before
   makes it fail; the new files are given up, and the table is read again.
4. When all files are done, those that came meanwhile are rewritten too, until there are none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import DataType, StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    SinkError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.extensions.promotion.batches import (
    OUTCOMES,
    PromotedField,
    Promoter,
    PromotionCounts,
    RequestedField,
    kind_at,
    parse_fields,
    path_text,
    resolved_kind,
    values_of,
    with_column,
    write_version,
)
from airflow_cloudfiles.engine.extensions.promotion.values import (
    FieldTypeInference,
    reading_options,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import TableOptions, is_of_sink
from airflow_cloudfiles.engine.schema.log import SchemaLog, SchemaVersion
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.commit import add_columns
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import (
    make_durable,
    open_existing,
    open_to_write,
)
from airflow_cloudfiles.engine.tables.delta.read.columns import schema_of
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles, names_of
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.job.spec import JobSpec


def tried(snapshot: TableFiles, promoter: Promoter, schema: StructType) -> PromotionCounts:
    """Convert all rescued values of a table, and write nothing.

    Args:
        snapshot: The table as it is.
        promoter: What will be promoted.
        schema: The table's columns as they will be.

    Returns:
        What a promotion would find now.

    Raises:
        SinkError: A file is damaged, or gone.
        TargetUnreachableError: The storage failed.
    """
    found = PromotionCounts()
    for file in snapshot.files.values():
        if not snapshot.has_only_nulls(file, promoter.rescued_column):
            for batch in snapshot.batches(file, promoter.columns, schema):
                found.add(promoter.apply(batch)[1])
    return found


def unfilled(fields: Sequence[PromotedField], found: PromotionCounts) -> list[str]:
    """Write warnings for fields whose rescued values fit their columns in no row."""
    return [
        f"None of the {found.values[each.name, 'unfit']:,} rescued values of {each.name} fits the "
        f"column {path_text(each.column)}, a {each.kind.simpleString()}: they stay rescued. Check "
        "the type, and that options are those of the stream; or leave the type out."
        for each in fields
        if found.values[each.name, "unfit"] and not found.values[each.name, "promoted"]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What to promote, and where.

    Attributes:
        target: Path or URI of the Delta table.
        checkpoint_location: The state of the stream that writes it.
        fields: Dotted paths of fields of the rescued data, each with a type in DDL, or `None` to
            have it inferred; or a list of paths.
        schema_location: Where the schema log is; the checkpoint location when left out.
        options: The options of the stream, and of its sink `typeWideningMaxBytes`.
    """

    target: str
    checkpoint_location: str
    fields: Mapping[str, str | None] | Sequence[str]
    schema_location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def promote_for_run(spec: JobSpec) -> dict[str, Any]:
    """Promote what a run is asked to, for its report; see `promote`."""
    asked = Promotion(
        target=str(spec.target),
        checkpoint_location=spec.checkpoint_location,
        fields=spec.promote,
        schema_location=spec.schema_location,
        options=spec.options,
    )
    return asdict(promote(asked))


def promote(promotion: Promotion) -> PromotionResult:
    """Turn fields of the rescued data into columns, and fill them.

    Repeating it, after it was killed or for what was rescued since, does what is left to do.

    Returns:
        What this call has done.

    Raises:
        OptionError: A field that cannot be promoted, or whose type cannot be inferred.
        TargetNotDeltaError: There is no table.
        IncompatibleSchemaError: There is a column of another type.
        SchemaMismatchError: The table is too large to be widened.
        StateError: There is no stream in the checkpoint location.
        StateConflictError: The schema is pinned.
        SinkError: The table's files cannot be replaced, or other writers won every race.
        TargetUnreachableError: The table's storage failed; run it again.
    """
    stream = _Stream.of(promotion)
    asked = parse_fields(promotion.fields)
    latest = stream.log.latest()
    stream.check(asked, latest)
    open_to_write(promotion.target)
    table = open_existing(promotion.target)
    if latest is not None and latest.pin is not None:
        raise StateConflictError(
            f"The schema is pinned at version {latest.version}, so no column is added to it. To "
            "let it evolve again: cloudfiles schema unpin."
        )
    snapshot = TableFiles(table, DeltaLocation.of(promotion.target), "promoted")
    stream.check_rescued(snapshot)
    known = StructType([]) if latest is None else latest.data_schema
    fields = _resolved(asked, snapshot, known, stream)
    promoter = Promoter(fields, stream.rescued_column, stream.reading, stream.options)
    wanted = _with_columns(snapshot.columns, fields)
    found = tried(snapshot, promoter, wanted)
    _grow_table(promotion, fields)
    crash_point("after-promotion-columns")
    version = write_version(stream.log, [(each.column, each.kind) for each in fields])
    crash_point("after-promotion-schema")
    promoted = PromotionResult(
        columns={path_text(each.column): each.kind.simpleString() for each in fields},
        schema_version=None if version is None else version.version,
        warnings=unfilled(fields, found),
    )
    if version is None:
        promoted.warnings.append(
            "The stream has no schema log: its schema was given. Add the columns to it, so that "
            "new files fill them."
        )
    Backfill(promotion.target, promoter, promoted).run()
    return promoted


@dataclass(frozen=True, slots=True)
class _Stream:
    """The stream whose rescued data is promoted."""

    options: CloudFilesOptions
    reading: CloudFilesOptions
    rescued_column: str
    log: SchemaLog

    @classmethod
    def of(cls, promotion: Promotion) -> _Stream:
        state = open_store(promotion.checkpoint_location)
        metadata = read_metadata(state)
        if metadata is None:
            raise StateError(
                f"There is no stream in {printable_path(state.uri)}: nothing was discovered with "
                "it yet. Name the checkpoint location of the stream that writes the table."
            )
        given = {name: value for name, value in promotion.options.items() if not is_of_sink(name)}
        given["cloudFiles.format"] = metadata.format
        options = CloudFilesOptions.parse(given, path=metadata.source)
        rescued = options.rescued_data_column
        if rescued is None:
            raise OptionError(
                "The stream has no rescued data column, so there is nothing to promote. Give its "
                "name in options as rescuedDataColumn, as the stream has it."
            )
        location = promotion.schema_location or promotion.checkpoint_location
        log = SchemaLog(open_store(location), metadata.source, options.matcher)
        return cls(options, reading_options(options, given), rescued, log)

    def check(self, asked: Sequence[RequestedField], latest: SchemaVersion | None) -> None:
        """Refuse fields that are not fields of records."""
        key = CASE_INSENSITIVE.key
        own = {key(self.rescued_column), "_file_path"}
        named = self.options.partition_columns or ()
        in_log = latest.partition_schema.names if latest else ()
        partitions = CASE_INSENSITIVE.keys((*named, *in_log))
        made = CASE_INSENSITIVE.keys(each.name for each in self.options.metadata_columns)
        for each in asked:
            if key(each.path[0]) in own:
                raise OptionError(
                    f"{each.name} is part of the rescued data itself and cannot be promoted. Name "
                    "a field of your records."
                )
            if key(each.path[0]) in made:
                raise OptionError(
                    f"{each.name} has the name of a column of cloudFiles.metadataColumns, which "
                    "says what file a row came from. Give that column another name first."
                )
            if key(each.path[0]) in partitions:
                raise OptionError(
                    f"{each.name} is a partition column: its values are in the paths of the files, "
                    "and a column of that name from the records would take its place. Name a field "
                    "of your records."
                )

    def check_rescued(self, snapshot: TableFiles) -> None:
        """Refuse a table without rescued data."""
        if self.rescued_column not in snapshot.schema.names:
            raise SinkError(
                f"{snapshot.location.target} has no column {self.rescued_column}, so there is "
                "nothing to promote. Name the stream's rescuedDataColumn in options, or the table "
                "that the stream writes."
            )


def _resolved(
    asked: Sequence[RequestedField], snapshot: TableFiles, known: StructType, stream: _Stream
) -> list[PromotedField]:
    """Resolve the fields to their columns and types; infer the types that are not given."""
    columns: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, DataType | None] = {}
    for each in asked:
        column, in_table = kind_at(snapshot.columns, each.path)
        spelled, in_log = kind_at(known, each.path)
        columns[each.name] = column if in_log is None or in_table is not None else spelled
        kinds[each.name] = resolved_kind(each, in_table=in_table, in_log=in_log)
    finders = {
        each.name: (each, FieldTypeInference(stream.reading, stream.options))
        for each in asked
        if kinds[each.name] is None
    }
    if finders:
        for batch in _rescued_batches(snapshot, stream.rescued_column):
            for each, finder in finders.values():
                sensitive = stream.reading.reader_case_sensitive
                finder.add(values_of(batch.column(0), each.path, case_sensitive=sensitive))
    fields = []
    for each in asked:
        kind = kinds[each.name] or finders[each.name][1].result(each.name)
        column = to_arrow(StructType().add(each.path[-1], kind))  # refuses what no column can be
        if holds_variant(column.field(0).type):
            raise IncompatibleSchemaError(
                f"{each.name} is a column of type {kind.simpleString()} and cannot be promoted: "
                "rescued values are not made into VARIANTs. They stay rescued; read them there "
                "with get_json_object, or parse them with parse_json in a query."
            )
        fields.append(PromotedField(each.path, columns[each.name], kind))
    return fields


def _rescued_batches(snapshot: TableFiles, column: str) -> Iterator[pa.RecordBatch]:
    """Yield the rescued data of a table, where it has any."""
    for file in snapshot.files.values():
        if not snapshot.has_only_nulls(file, column):
            yield from snapshot.batches(file, [column])


def _grow_table(promotion: Promotion, fields: Sequence[PromotedField]) -> None:
    """Give the table the columns; again is harmless."""
    given = {name.lower(): str(value) for name, value in promotion.options.items()}
    wanted = _with_columns(schema_of(open_existing(promotion.target)), fields)
    heads = {each.column[0] for each in fields}
    schema = to_arrow(StructType([each for each in wanted.fields if each.name in heads]))
    options = TableOptions.read(given)
    widens = options.type_widening is not False
    widened_bytes = options.type_widening_max_bytes if widens else None
    add_columns(promotion.target, schema, widened_bytes=widened_bytes)


def _with_columns(schema: StructType, fields: Sequence[PromotedField]) -> StructType:
    """Add the fields to the columns of a table."""
    for each in fields:
        schema = with_column(schema, each.column, each.kind)
    return schema


PROMOTION_NOTE = "cloudfilesPromotion"
"""Key of what was promoted in a commit's own metadata."""
GROUP_BYTES = 2 * 2**30
"""Files are replaced in commits of about so many bytes, so that a killed promotion has done
something, and one that another writer came before has little to do again."""
MOST_PASSES = 20
"""How often files that came meanwhile are listed."""
COMMIT_TRIES = 20
"""How often a commit is tried against other writers before giving up."""
LOG_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PromotionResult:
    """What a promotion amounted to.

    Attributes:
        columns: The columns, with their types.
        schema_version: The version of the schema log that has them; `None` where there is no log.
        target_version: The newest version of the table.
        rows: Rows that changed.
        values: By field: how many values went into the column (`promoted`), how many of these left
            something behind (`partly`), how many do not fit (`unfit`), and how many are in rows
            whose column has a value (`occupied`). The last two stay rescued.
        files_rewritten: Data files that were replaced.
        files_read: Data files whose rescued data was read.
        bytes_rewritten: Size of the replaced files.
        warnings: For people.
    """

    columns: dict[str, str]
    schema_version: int | None
    target_version: int = -1
    rows: int = 0
    values: dict[str, dict[str, int]] = field(default_factory=dict)
    files_rewritten: int = 0
    files_read: int = 0
    bytes_rewritten: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Replacement:
    """A file and what takes its place."""

    file: TableFile
    added: list[DataFile]
    found: PromotionCounts


class Backfill:
    """Fills the columns of one table.

    Args:
        target: The table, which has the columns.
        promoter: What is promoted.
        promoted: Gets what was done.
    """

    def __init__(self, target: str, promoter: Promoter, promoted: PromotionResult) -> None:
        self._target = target
        self._promoter = promoter
        self._promoted = promoted
        self._done: set[str] = set()
        self._total = PromotionCounts()
        self._conflicts = 0
        self._last_logged = time.monotonic()

    def run(self) -> None:
        """Go over the table until nothing is left to do."""
        for _ in range(MOST_PASSES):
            location = DeltaLocation.of(self._target)
            snapshot = TableFiles(open_existing(self._target), location, "promoted")
            left = [file for name, file in snapshot.files.items() if name not in self._done]
            self._promoted.target_version = snapshot.table.version()
            if not left:
                with snapshot.location.translate_errors("may lose a commit"):
                    make_durable(snapshot.location)  # also what a killed promotion has committed
                break
            self._pass(snapshot, left)
        else:
            self._promoted.warnings.append(
                f"Files of {self._target} still had the fields rescued after {MOST_PASSES} passes: "
                "a run that began before the columns were there is still writing. Promote again "
                "when it has ended."
            )
        self._promoted.rows = self._total.rows
        self._promoted.values = {
            each.name: {outcome: self._total.values[each.name, outcome] for outcome in OUTCOMES}
            for each in self._promoter.fields
        }

    def _pass(self, snapshot: TableFiles, files: Sequence[TableFile]) -> None:
        group: list[_Replacement] = []
        size = 0
        for number, file in enumerate(files):
            self._log_progress(number, len(files))
            replacement = self._rewritten(snapshot, file)
            if replacement is None:
                continue
            group.append(replacement)
            size += file.size
            if size >= GROUP_BYTES:
                self._commit(snapshot, group)
                group, size = [], 0
        if group:
            self._commit(snapshot, group)

    def _rewritten(self, snapshot: TableFiles, file: TableFile) -> _Replacement | None:
        """Rewrite a file with what can be promoted; return `None` when nothing can."""
        if snapshot.has_only_nulls(file, self._promoter.rescued_column):
            self._done.add(file.name)
            return None
        found = PromotionCounts()
        for batch in snapshot.batches(file, self._promoter.columns):
            found.add(self._promoter.apply(batch)[1])
        self._promoted.files_read += 1
        if not found.rows:
            self._done.add(file.name)
            self._total.add(found)
            return None
        rows = (self._promoter.apply(batch)[0] for batch in snapshot.batches(file))
        added = DataFileWriter(self._target, snapshot.schema).write(rows)
        return _Replacement(file, added, found)

    def _commit(self, snapshot: TableFiles, group: Sequence[_Replacement]) -> None:
        """Put a group in the place of its files, or leave it for the next pass."""
        fields = {each.name: path_text(each.column) for each in self._promoter.fields}
        crash_point("before-promotion-commit")
        try:
            snapshot.replace(
                [each.file for each in group],
                [file for each in group for file in each.added],
                {
                    PROMOTION_NOTE: {
                        "fields": fields,
                        "rows": sum(each.found.rows for each in group),
                    }
                },
                operation="WRITE",
            )
        except CommitFailedError as error:
            there = names_of(open_existing(self._target))
            if any(file.name not in there for each in group for file in each.added):
                self._lost(group, error)
                return  # else the answer was lost
        crash_point("after-promotion-commit")
        for each in group:
            self._done.update(file.name for file in each.added)
            self._done.add(each.file.name)
            self._total.add(each.found)
            self._promoted.files_rewritten += 1
            self._promoted.bytes_rewritten += each.file.size

    def _lost(self, group: Sequence[_Replacement], error: Exception) -> None:
        """Give up replacements that another writer came before."""
        self._conflicts += 1
        _log.info("Another writer committed first (%s); trying again", error)
        names = [file.name for each in group for file in each.added]
        data_files.remove(DeltaLocation.of(self._target), names)
        if self._conflicts >= COMMIT_TRIES:
            raise SinkError(
                f"Rescued data of {self._target} could not be promoted: other writers committed "
                f"first, {COMMIT_TRIES} times. What was promoted stays promoted. Run again when "
                "there are fewer writers."
            )

    def _log_progress(self, number: int, files: int) -> None:
        if time.monotonic() - self._last_logged > LOG_SECONDS:
            self._last_logged = time.monotonic()
            _log.info("Promoting: %s of %s", number, counted(files, "file"))
