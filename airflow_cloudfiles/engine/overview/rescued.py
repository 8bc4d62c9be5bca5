"""Tell which fields are rescued at present, with which values, and what would promote them.

The newest data files of the table that have rescued data say it: their rescued data column alone is
read, until there are enough rows, or bytes. What a page costs is bounded, whatever the files hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.read.table_state import TableColumns
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.json.tokens import NotJsonError
from airflow_cloudfiles.engine.formats.parquet.rows import RecordTooLargeError
from airflow_cloudfiles.engine.names import dotted, parts_of
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.promotion.batches import kind_at
from airflow_cloudfiles.engine.promotion.values import (
    FILE_PATH,
    Converter,
    FieldTypeInference,
    key_name,
    members,
    reading_options,
)
from airflow_cloudfiles.engine.schema.widening import number_type, wider_type
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.uri import is_iceberg
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from airflow_cloudfiles.engine.delta.read.actions import AddFile
    from airflow_cloudfiles.engine.storage.access import Access

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


def counted_rows(target: str, *, column: str = RESCUED_DATA) -> tuple[int, int] | None:
    """Count the rows of a table, and those with rescued data, by the statistics of its log.

    Args:
        target: Path or URI of the Delta table.
        column: The rescued data column; where the table has none, no row has any.

    Returns:
        Both; `None` where there is no Delta table, or its statistics do not tell.

    Raises:
        SinkError: It cannot be opened.
    """
    table = None if is_iceberg(target) else open_table(target)
    if table is None or "deletionVectors" in (table.protocol().writer_features or ()):
        return None
    actions = table.get_add_actions(flatten=True)
    rows = actions.column("num_records").to_pylist()
    name = f"null_count.{column}"
    has_column = name in actions.schema.names
    nulls = actions.column(name).to_pylist() if has_column else rows
    if None in rows or None in nulls:
        return None
    return sum(rows), sum(rows) - sum(nulls)


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
