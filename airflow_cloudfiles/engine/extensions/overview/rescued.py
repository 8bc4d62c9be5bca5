"""Tell which fields are rescued at present, with which values, and what would promote them.

The newest data files of the table that have rescued data say it: their rescued data column alone is
read, until there are enough rows, or bytes. What a page costs is bounded, whatever the files hold.

Explain why values were rescued: what their column expects, and what helps.

Of the newest rescued data of a table, or of one row, each field is held against the version of the
schema that its file was read with.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.extensions.overview.runs import newest_files
from airflow_cloudfiles.engine.extensions.overview.summary import html_table
from airflow_cloudfiles.engine.extensions.promotion.batches import kind_at
from airflow_cloudfiles.engine.extensions.promotion.values import (
    FILE_PATH,
    Converter,
    FieldTypeInference,
    key_name,
    members,
    reading_options,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.formats.json.tokens import NotJsonError
from airflow_cloudfiles.engine.formats.parquet.rows import RecordTooLargeError
from airflow_cloudfiles.engine.intake.file_states import FileQuery
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.names import dotted, parts_of
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.schema.widening import number_type, wider_type
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from airflow_cloudfiles.engine.schema.history import SchemaEntry
    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile


RESCUED_DATA: Final = "_rescued_data"
"""The rescued data column, unless an option names another."""
MOST_DATA_FILES: Final = 20
"""So many of the newest data files are looked through."""
MOST_FILE_BYTES: Final = 64 << 20
"""Data files that are larger are left out."""
MOST_RECORD_BYTES: Final = 8 << 20
"""Data files are left out whose rescued data of a row, with the pages it is in, may take more."""
MOST_BYTES: Final = 16 << 20
"""So many bytes of rescued data are read, in all."""
MOST_ROWS: Final = 500
"""So many rows with rescued data are read."""
MOST_VALUES: Final = 3
MOST_DEPTH: Final = 6
_MOST_TEXT: Final = 200


def shortened(value: bytes) -> str:
    """Write a rescued value for people, as the record has it."""
    text = value.decode("utf-8", "replace")
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


@dataclass(slots=True)
class RescuedField:
    """A field that is rescued.

    Attributes:
        path: Its dotted path, as `cloudfiles promote` takes it.
        rows: How many of the rows that were read have it.
        values: Some values, as the records have them, shortened.
        file: The file of the newest of them; `None` where the row does not say.
        column: The type of the column that has this path already; `None` where none has.
        fitting: How many of the values fit that column.
        wider: The type that the column can be widened to, for all of them; `None` where none is.
    """

    path: str
    rows: int = 0
    values: list[str] = field(default_factory=list)
    file: str | None = None
    column: str | None = None
    fitting: int = 0
    wider: str | None = None
    _met: list[bytes] = field(default_factory=list, repr=False)

    def compare(self, schema: StructType, format_name: str) -> None:
        """Find the column that has this path, and whether the values fit it.

        Args:
            schema: The columns.
            format_name: Of the files: values of CSV and XML are strings.
        """
        try:
            _, kind = kind_at(schema, parts_of(self.path))
        except OptionError:  # the path leads into a column that has no fields
            self.column = "of no fields"
            return
        if kind is None:
            return
        options = {"cloudFiles.format": format_name, "cloudFiles.inferColumnTypes": "true"}
        stream = CloudFilesOptions.parse(options, path="/")
        reading = reading_options(stream, {"cloudFiles.inferColumnTypes": "true"})
        _, left = Converter(kind, reading, stream).read(self._met)
        self.column, self.fitting = short_type(kind), left.count(None)
        inferred = FieldTypeInference(reading, stream)
        inferred.add(self._met)
        try:
            wider = wider_type(kind, inferred.result(self.path), is_parquet=True)
        except OptionError:  # no value shows a type
            return
        if wider is None and kind.typeName() == "decimal":  # fractions are inferred as doubles
            wider = self._wider_decimal(kind)
        if wider is not None and wider != kind:
            self.wider = short_type(wider)

    def _wider_decimal(self, kind: DataType) -> DataType | None:
        """Find the decimal with the digits of the column and of all values."""
        wider: DataType | None = kind
        for value in self._met:
            try:
                number = number_type(Decimal(value.strip(b'"').decode()))
            except (InvalidOperation, UnicodeDecodeError):
                return None
            wider = wider and number and wider_type(wider, number, is_parquet=False)
        return wider

    def meet(self, value: bytes, file: str | None) -> None:
        """Count a row."""
        self.rows += 1
        self._met.append(value)
        self.file = self.file or file
        shown = shortened(value)
        if shown not in self.values and len(self.values) < MOST_VALUES:
            self.values.append(shown)


@dataclass(slots=True)
class RescuedFields:
    """What the newest rescued data of a table has.

    Attributes:
        fields: The most frequent first.
        rows: Rows with rescued data that were read.
        has_more: Whether there is more that was not read.
        left_out: How many data files were left out, of those that were looked at, since they or
            their rescued values are too large for a page.
        schema: The columns of the table; `None` where it has no such column.
    """

    fields: list[RescuedField]
    rows: int = 0
    has_more: bool = False
    left_out: int = 0
    schema: StructType | None = None


def rescued_fields(
    target: str,
    access: Access | None = None,
    *,
    column: str = RESCUED_DATA,
    format_name: str = "json",
) -> RescuedFields:
    """Read the newest rescued data of a table.

    Args:
        target: Path or URI of the Delta table.
        access: How its cloud is reached; `None` for the environment's own chain.
        column: The rescued data column.
        format_name: Of the files: values of CSV and XML are strings.

    Returns:
        The fields; none where the table has no such column.

    Raises:
        TargetNotDeltaError: There is no table.
        CloudFilesError: It cannot be read.
    """
    fields: dict[str, RescuedField] = {}
    found = RescuedFields([])
    for text in newest_rescued(target, found, access, column=column):
        file, leaves = fields_in(text)
        for path, value in leaves:
            fields.setdefault(path, RescuedField(path)).meet(value, file)
    if found.schema is not None:
        for each in fields.values():
            each.compare(found.schema, format_name)
    found.fields = sorted(fields.values(), key=lambda each: (-each.rows, each.path))
    return found


def newest_rescued(
    target: str, found: RescuedFields, access: Access | None = None, *, column: str = RESCUED_DATA
) -> Iterator[bytes]:
    """Yield the newest rescued data of a table, a row at a time, and count in `found`.

    Args:
        target: Path or URI of the Delta table.
        found: Gets the columns, how many rows there were, and whether there is more.
        access: How its cloud is reached.
        column: The rescued data column.

    Raises:
        TargetNotDeltaError: There is no table.
        CloudFilesError: It cannot be read.
    """
    store = open_store(target, access)
    snapshot = TableLog(DeltaLocation.to_read(target), store).snapshot()
    columns = TableColumns.of(snapshot)
    if column not in {each.name for each in columns.schema.fields}:
        return
    found.schema = columns.public_schema
    newest = sorted(snapshot.files, key=lambda each: each.modification_time, reverse=True)
    reader = DataFileReader(columns, [column], store, max_record_bytes=MOST_RECORD_BYTES)
    found.has_more = len(newest) > MOST_DATA_FILES
    size = 0
    for text in _texts(reader, newest[:MOST_DATA_FILES], found):
        if found.rows == MOST_ROWS or size > MOST_BYTES:
            found.has_more = True
            break
        found.rows += 1
        size += len(text)
        yield text.encode("utf-8", "surrogatepass")
    found.has_more |= found.left_out > 0


def _texts(reader: DataFileReader, files: Iterable[AddFile], found: RescuedFields) -> Iterator[str]:
    """Give the rescued data of some data files, and count in `found` those that are too large."""
    for file in files:
        if file.size > MOST_FILE_BYTES:
            found.left_out += 1
            continue
        try:
            for batch in reader.read(file):
                yield from (str(each) for each in batch.column(0).drop_null())
        except RecordTooLargeError:
            found.left_out += 1


def fields_in(text: bytes) -> tuple[str | None, list[tuple[str, bytes]]]:
    """Take the rescued data of a row apart.

    Returns:
        The file; and the fields with their values, as the record has them. Nothing of what another
        writer wrote into the column.
    """
    try:
        found = [(key_name(key), value) for key, value in members(text)] if text[:1] == b"{" else []
    except NotJsonError:
        return None, []
    file = next((_as_text(value) for name, value in found if name == FILE_PATH), None)
    return file, list(_leaves((), [each for each in found if each[0] != FILE_PATH]))


def _leaves(at: tuple[str, ...], found: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of an object that are not objects, or lie too deep."""
    for name, value in found:
        here = (*at, name)
        inner: list[tuple[str, bytes]] = []
        if value[:1] == b"{" and len(here) < MOST_DEPTH:
            inner = [(key_name(key), each) for key, each in members(value)]
        if inner:
            yield from _leaves(here, inner)
        else:
            yield dotted(here), value


def _as_text(value: bytes) -> str:
    """Decode the text that a JSON string stands for."""
    return str(msgspec.json.decode(value)) if value[:1] == b'"' else value.decode()


MOST_FILES: Final = 50
"""Of so many files it is looked up with which version of the schema they were read."""
_CORRUPT: Final = "_corrupt_record"
_REPLAY: Final = "Correct the file, and have it ingested again: cloudfiles file replay."
_HEADS: Final = ("field", "value", "file", "rows", "expected", "schema", "why", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedReason:
    """Why a field was rescued.

    Attributes:
        field: Its dotted path.
        value: A value, as the record has it, shortened.
        file: URI of its file; `None` where the row does not say.
        rows: How many of the rows that were read have it for this reason.
        expected: The type of its column; `None` where it has none.
        schema_version: Of the schema that the file was read with; `None` where there is none.
        why: A sentence.
        what_to_do: A sentence.
    """

    field: str
    value: str
    file: str | None
    rows: int = 1
    expected: str | None = None
    schema_version: int | None = None
    why: str = ""
    what_to_do: str = ""


class RescuedReasons(tuple[RescuedReason, ...]):
    """Reasons; a notebook shows them as a table, `print` as sentences."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(_sentence, self)) or "Nothing is rescued."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Write the table that a notebook shows; what comes from files is escaped."""
        rows = [_HEADS, *map(_cells, self)]
        return html_table(rows, has_heads=True) if self else "<p>Nothing is rescued.</p>"


def _cells(reason: RescuedReason) -> tuple[str, ...]:
    version = "-" if reason.schema_version is None else str(reason.schema_version)
    expected = reason.expected or "-"
    row = (reason.field, reason.value, reason.file or "-", f"{reason.rows:,}", expected, version)
    return (*row, reason.why, reason.what_to_do)


def _sentence(reason: RescuedReason) -> str:
    where = f" in {reason.file}" if reason.file else ""
    rows = counted(reason.rows, "row")
    said = f"{reason.field} = {reason.value}{where} ({rows}): {reason.why} {reason.what_to_do}"
    return printable(said)


def why_rescued(  # noqa: PLR0913 - what can be asked for
    checkpoint_location: str,
    *,
    rescued: str | None = None,
    field: str | None = None,
    file: str | None = None,
    target: str | None = None,
    schema_location: str | None = None,
    column: str = RESCUED_DATA,
    access: Access | None = None,
) -> RescuedReasons:
    """Explain why values of a stream were rescued; nothing is changed.

    Args:
        checkpoint_location: Path or URI of the state.
        rescued: The rescued data of one row; `None` for the newest rows of the table.
        field: Only this field, or what is inside it: a dotted path.
        file: Only rows of this file: its name, its URI, or a pattern for one of them.
        target: The table; `None` for the one that the stream wrote to last.
        schema_location: Where the schema log is, if elsewhere.
        column: The rescued data column.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        A reason for each field, type and version; the most frequent first.

    Raises:
        OptionError: No table is known, and none was given.
        StateError: There is no schema log.
        CloudFilesError: Schema log or table cannot be read.
    """
    history = SchemaHistory(schema_location or checkpoint_location, access=access)
    history.show()  # says what to do where there is none
    texts: Iterable[bytes]
    if rescued is None:
        table = target or _target(checkpoint_location, access)
        texts = newest_rescued(table, RescuedFields([]), access, column=column)
    else:
        texts = [rescued.encode("utf-8", "surrogatepass")]
    metadata = read_metadata(open_store(checkpoint_location, access))
    format_name = "json" if metadata is None else metadata.format
    versions = _SchemaVersions(history.versions(), format_name, checkpoint_location, access)
    found: dict[tuple[Any, ...], RescuedReason] = {}
    for text in texts:
        of_file, values = fields_in(text)
        if file is not None and not _is_of(of_file, file):
            continue
        for path, value in values:
            if field is None or path == field or path.startswith(f"{field}."):
                reason = versions.reason(path, value, of_file)
                key = (path, reason.expected, reason.schema_version, reason.why)
                before = found.get(key)
                found[key] = reason if before is None else replace(before, rows=before.rows + 1)
    return RescuedReasons(sorted(found.values(), key=lambda each: (-each.rows, each.field)))


def _target(checkpoint_location: str, access: Access | None) -> str:
    record = SinkLog(open_store(checkpoint_location, access)).newest()
    if record is None or not record.target:
        raise OptionError(
            f"The state in {printable_path(checkpoint_location)} names no table. Give it as "
            "target, or the rescued data of a row as rescued."
        )
    return record.target


def _is_of(uri: str | None, file: str) -> bool:
    name = (uri or "").rpartition("/")[2]
    return any(each == file or fnmatch.fnmatchcase(each, file) for each in (name, uri or ""))


class _SchemaVersions:
    """Holds fields against the versions of a schema that files were read with."""

    def __init__(
        self,
        entries: Sequence[SchemaEntry],
        format_name: str,
        checkpoint_location: str,
        access: Access | None,
    ) -> None:
        self._entries, self._format = entries, format_name
        self._location, self._access = checkpoint_location, access
        self._types = {each.version: _types(each) for each in entries}
        self._known: dict[str, tuple[int | None, datetime | None]] = {}

    def _of(self, file: str | None) -> SchemaEntry:
        """Find the version that a file was read with, as the state has it."""
        version, committed = self._read(file)
        before = []
        for each in self._entries:
            if each.version == version:
                return each
            if committed is None or datetime.fromisoformat(each.created) <= committed:
                before.append(each)
        return (before or self._entries)[-1]

    def _read(self, file: str | None) -> tuple[int | None, datetime | None]:
        """Read version and time of the commit of a file's batch; nothing where it is not known."""
        if file is None or (file not in self._known and len(self._known) >= MOST_FILES):
            return None, None
        if file not in self._known:
            try:
                found, _ = newest_files(self._location, FileQuery(path=file), self._access, most=1)
            except CloudFilesError:  # of another source, or a state without files
                found = []
            row: Mapping[str, Any] = found[0] if found else {}
            self._known[file] = row.get("schema_version"), row.get("commit_time")
        return self._known[file]

    def reason(self, path: str, value: bytes, file: str | None) -> RescuedReason:
        entry = self._of(file)
        expected, why, what_to_do = self._why(path, value, entry)
        return RescuedReason(
            field=path,
            value=shortened(value),
            file=file,
            expected=expected,
            schema_version=entry.version,
            why=why,
            what_to_do=what_to_do,
        )

    def _why(self, path: str, value: bytes, entry: SchemaEntry) -> tuple[str | None, str, str]:
        if path == _CORRUPT:
            return None, "The record is not valid: none of its values was read.", _REPLAY
        types = self._types[entry.version]
        column = next((each for each in _prefixes(path) if each in types), None)
        if column is not None and (column == path or not types[column].startswith("struct<")):
            what = "an object" if column != path else _kind_of(value)
            why = (
                f"{column} is {_upper(types[column])}, and the record has {what} that does not fit."
            )
            wider = _wider(column, value, entry, self._format) if column == path else None
            return types[column], why, _misfit(column, wider)
        spelled = next((each for each in types if each.lower() == path.lower()), None)
        if spelled is not None:
            why = f"It is spelled otherwise than the column {spelled}."
            return types[spelled], why, f"Set readerCaseSensitive=false. {_promote(path)}"
        return None, self._no_column(path, entry), _promote(path)

    def _no_column(self, path: str, entry: SchemaEntry) -> str:
        newest = self._entries[-1]
        if path in self._types[newest.version]:
            return f"It was no column yet; it is one since version {newest.version} or before."
        if entry.pin is not None:
            return f"It is no column, and the schema is pinned at version {entry.version}."
        if path in (entry.stay_rescued or ()):
            return "It is no column: somebody has decided to leave it in the rescued data."
        return "It is no column, and the stream adds none for it (cloudFiles.schemaEvolutionMode)."


def _types(entry: SchemaEntry) -> Mapping[str, str]:
    return {**paths_of(entry.partition_schema), **paths_of(entry.data_schema)}


def _prefixes(path: str) -> Iterator[str]:
    """Yield a path and the paths that it is inside of, the longest first."""
    names = parts_of(path)
    return (dotted(names[:end]) for end in range(len(names), 0, -1))


def _upper(kind: str) -> str:
    return kind if "<" in kind else kind.upper()


def _kind_of(value: bytes) -> str:
    """Say what a value is in JSON."""
    kinds = {b'"': "a string", b"{": "an object", b"[": "an array", b"t": "true", b"f": "false"}
    return kinds.get(value[:1], "a number")


def _promote(path: str) -> str:
    return (
        "To have it in a column, also in the rows that are there: cloudfiles promote --field "
        f"{shlex.quote(path)}"
    )


def _misfit(column: str, wider: str | None) -> str:
    """Say what helps where a value does not fit its column: a wider type, if one holds it."""
    if wider is None:
        return (
            f"{_REPLAY} Or start over (cloudfiles state start-over) with "
            f"cloudFiles.schemaHints='{column} STRING'."
        )
    return (
        "To widen the column, also in the rows that are there: cloudfiles promote --field "
        f"{shlex.quote(f'{column}={wider}')}; with "
        "cloudFiles.schemaEvolutionMode=addNewColumnsWithTypeWidening it is done by itself."
    )


def _wider(column: str, value: bytes, entry: SchemaEntry, format_name: str) -> str | None:
    """Find the type, in DDL, that a column may become and that holds a value."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - a page needs none

    field = RescuedField(column)
    field.meet(value, None)
    field.compare(StructType.fromJson(dict(entry.data_schema)), format_name)
    return field.wider and field.wider.upper()
