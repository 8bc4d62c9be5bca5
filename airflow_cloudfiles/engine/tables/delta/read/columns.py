"""Turn the columns of data files into those of a table, and the columns of rows into Delta's.

By name, or as the column mapping of the table has it: by physical name, or by the ids that Parquet
gives to fields. Where no name is the same, one is that differs only in case: files that were there
before the table (CONVERT TO DELTA) are spelled as Hive has it. A column that a file lacks is null,
at any depth. Values of a narrower type, from
before the column was widened, are cast. A type that the column never had is refused, never guessed.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#reader-requirements-for-column-mapping

Arrow's schema of rows becomes Spark's, in which Delta keeps it and in which schemas are merged
(`merge_schema`). What no Delta table can have, and tables whose files cannot be replaced here, are
refused.

A VARIANT is a struct of two binary columns in the data files.

As a column of the type `variant` in its schema, with the table feature `variantType`, which
`deltalake` adds in the commit that creates the table or adds the column. Its data files have a
struct of the two parts `value` and `metadata`, neither of which is ever null: a VARIANT that is
null is a struct that is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.types import (
    holds_variant,
    is_bytes,
    is_list,
    is_text,
)
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.types import VARIANT, VariantType, to_arrow, with_inside, with_type


def schema_of(table: DeltaTable) -> StructType:
    """Read the columns of a table, which Delta stores as Spark's schema JSON."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def delta_schema(columns: StructType) -> Schema:
    """Convert the columns of a table to the schema that `deltalake` takes."""
    return Schema.from_json(json.dumps(columns.jsonValue()))


def rows_columns(schema: pa.Schema) -> StructType:
    """Convert the columns of rows to those of a Delta table."""
    # A later file may lack a column, so all may be null.
    nullable = pa.schema([each.with_nullable(True).remove_metadata() for each in schema])
    found = StructType.fromJson(json.loads(Schema.from_arrow(nullable).to_json()))
    return StructType([with_type(each, _marked("", each.dataType)) for each in found.fields])


def check_columns(
    columns: Iterable[pa.Field], target: str, within: str = "", *, takes_void: bool = False
) -> None:
    """Refuse columns that no Delta table can have.

    Args:
        columns: Of the rows.
        target: The table, for errors.
        within: The column they are inside of, with a dot behind it.
        takes_void: Whether columns and fields of structs may have no type, as in a batch write.

    Raises:
        SchemaMismatchError: One never had a value, so that it has no type (B129), or two differ
            only in case (B127), or a map has VARIANTs as keys.
    """
    # Whether or not the session is case-sensitive: to Delta, two spellings are always one column.
    seen: dict[str, str] = {}
    for column in columns:
        twin = seen.setdefault(CASE_INSENSITIVE.key(column.name), column.name)
        if twin != column.name:
            raise SchemaMismatchError(
                f"Columns {within}{twin} and {within}{column.name} differ only in case, so "
                f"{target} cannot have both. Rename one of them."
            )
        if pa.types.is_null(column.type) and not takes_void:
            raise SchemaMismatchError(
                f"Column {within}{column.name} has no type (void), so {target} cannot take it. "
                "Give it one with a schema hint (cloudFiles.schemaHints) or a cast."
            )
        if pa.types.is_map(column.type) and holds_variant(column.type.key_type):
            raise SchemaMismatchError(
                f"Column {within}{column.name} is a map whose keys are VARIANTs, so {target} "
                "cannot take it: Spark has no such map. Leave the column out."
            )
        if pa.types.is_nested(column.type):
            inner = [column.type.field(index) for index in range(column.type.num_fields)]
            inner_void = takes_void and pa.types.is_struct(column.type)
            check_columns(inner, target, f"{within}{column.name}.", takes_void=inner_void)


_MARK = {"variant": "true"}
"""Metadata of the second part of a VARIANT in Arrow, as `deltalake` hands it on."""


def _marked(_: str, kind: DataType) -> DataType:
    fields = kind.fields if isinstance(kind, StructType) else []
    if [each.name for each in fields] == [each.name for each in VARIANT] and (
        fields[1].metadata == _MARK
    ):
        return VariantType()
    return with_inside(kind, _marked)


def as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows to what a data file takes.

    The library refuses a part that is null, though the VARIANT is null as a whole: such a row comes
    from Spark, and from columns that a file lacks.
    """
    columns = [
        _filled(column, field.type)
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _filled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Fill the parts of an array with empty values where a VARIANT is null.

    Args:
        array: Values; Spark's own carry no mark of what is a VARIANT.
        kind: Their type, with the marks.
    """
    if not holds_variant(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [array.field(place) for place in range(kind.num_fields)]
        is_null = array.is_null()
        if kind.equals(VARIANT, check_metadata=True):
            parts = [pc.if_else(is_null, pa.scalar(b""), part) for part in parts]
        else:
            parts = [_filled(part, each.type) for part, each in zip(parts, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=is_null)
    if pa.types.is_map(kind):
        pairs = [array.keys, _filled(array.items, kind.item_type)]
        inner = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    else:
        inner = _filled(array.values, kind.value_type)
    return types.with_inner(array, kind, inner)


def as_read(column: pa.Array, field: pa.Field, target: str) -> pa.Array:
    """Convert a column of a data file, of whatever layout, to the column of the table.

    Args:
        column: Of a VARIANT it has all the parts that the file has.
        field: The column, as `types.to_arrow` makes it.
        target: The table, for errors.

    Raises:
        SinkError: A VARIANT cannot be put together.
    """
    if not holds_variant(field.type):
        return column.cast(field.type)
    parts, whole = pa.schema([pa.field(field.name, column.type)]), pa.schema([field])
    from airflow_cloudfiles.engine.formats.columnar.fit import (  # noqa: PLC0415 - few values
        Matching,
        compile_file,
    )

    matching = Matching(case_sensitive=True, rescues_unknown_fields=False, reserved=frozenset())
    arrays, bads = compile_file(parts, whole, matching).root.fit_fields([column], len(column))
    if any(bad is not None for bad in bads):
        raise SinkError(
            f"Column {field.name} of {target} has a VARIANT that is not valid: its parts "
            "contradict each other. Read the table with Spark's own reader, or restore the data "
            "file from its source."
        )
    return arrays[0]


ID: Final = "delta.columnMapping.id"
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_Kind = TypeVar("_Kind", bound=DataType)
_DOUBLE_BITS: Final = 53
"""An integer of fewer bits is exact as a double."""
_FIELD_ID: Final = b"PARQUET:field_id"
_INTERNAL: Final = ("delta.", "CURRENT_DEFAULT", "cloudFiles.")
"""How keys begin that are Delta's own, or this package's, in the metadata of a column."""


def physical_name(field: StructField, mode: str) -> str:
    """Return the name of a column in data files and in partition values."""
    if mode == "none":
        return str(field.name)
    return str((field.metadata or {}).get(PHYSICAL_NAME, field.name))


def without_internals(kind: _Kind) -> _Kind:
    """Strip a type of Delta's internal metadata, which means nothing outside its table."""
    found = cast("_Kind", with_inside(kind, lambda _, each: without_internals(each)))
    for each in found.fields if isinstance(found, StructType) else ():
        notes = (each.metadata or {}).items()
        each.metadata = {key: note for key, note in notes if not key.startswith(_INTERNAL)}
    return found


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Brings arrays of a data file into the table's types.

    Attributes:
        mode: The table's column mapping: `none`, `name` or `id`.
        target: The table, for errors.
        file: The data file, for errors.
    """

    mode: str
    target: str
    file: str

    def find(self, field: StructField, fields: Iterable[pa.Field]) -> int | None:
        """Find the place of a column among those of a file; `None` when the file lacks it.

        Args:
            field: Of the table.
            fields: Of the file, with their ids.

        Raises:
            SinkError: Several differ from its name only in case.
        """
        found = list(fields)
        if self.mode == "id":
            texts = [(each.metadata or {}).get(_FIELD_ID) for each in found]
            ids = [None if text is None else int(text) for text in texts]
            if any(each is not None for each in ids):
                wanted = (field.metadata or {}).get(ID)
                return ids.index(wanted) if wanted in ids and wanted is not None else None
        names = [each.name for each in found]
        name = physical_name(field, self.mode)
        if name in names:
            return names.index(name)
        alike = [place for place, each in enumerate(names) if CASE_INSENSITIVE.same(each, name)]
        if len(alike) > 1:
            raise SinkError(
                f"Found duplicate fields {few([names[each] for each in alike])} in the data file "
                f"{self.file} of the Delta table {self.target}, which has the column {name}: they "
                "differ only in case. Write the file anew with one of them."
            )
        return alike[0] if alike else None

    def conform(
        self, array: pa.Array, own: pa.DataType | None, field: StructField, within: str = ""
    ) -> pa.Array:
        """Convert the values of a column to the table's type.

        Args:
            array: Of the file.
            own: Their type as the library has it, with the ids of fields; `None` where its shape is
                another than that of `array`.
            field: Of the table.
            within: The column it is inside of, with a dot behind it.

        Raises:
            SinkError: The file has another type there.
        """
        return self._values(array, own, field.dataType, f"{within}{field.name}")

    def _values(
        self, array: pa.Array, own: pa.DataType | None, kind: DataType, path: str
    ) -> pa.Array:
        wanted = arrow_type(kind)
        if isinstance(kind, VariantType):
            return as_read(array, pa.field(path, VARIANT), self.target)
        array = types.plain(array)
        found = array.type
        if isinstance(kind, NullType) or pa.types.is_null(found):
            # Parquet, too, has columns that never had a value.
            return pa.nulls(len(array), wanted)
        if isinstance(kind, StructType) and pa.types.is_struct(found):
            return self._struct(array, own, kind, path)
        if isinstance(kind, ArrayType) and is_list(found):
            return self._list(array, own, kind, path)
        if isinstance(kind, MapType) and pa.types.is_map(found):
            return self._map(array, own, kind, path)
        return self._leaf(array, wanted, path)

    def _list(
        self, array: pa.Array, own: pa.DataType | None, kind: ArrayType, path: str
    ) -> pa.Array:
        array = types.listed(array)
        inside = own.value_type if own is not None and is_list(own) else None
        inner = self._values(array.values, inside, kind.elementType, f"{path}.element")
        return types.with_inner(array, arrow_type(kind), inner)

    def _map(self, array: pa.Array, own: pa.DataType | None, kind: MapType, path: str) -> pa.Array:
        key = item = None
        if own is not None and pa.types.is_map(own):
            key, item = own.key_type, own.item_type
        pairs = [
            self._values(array.keys, key, kind.keyType, f"{path}.key"),
            self._values(array.items, item, kind.valueType, f"{path}.value"),
        ]
        wanted = arrow_type(kind)
        fields = [wanted.key_field, wanted.item_field]
        return types.with_inner(array, wanted, pa.StructArray.from_arrays(pairs, fields=fields))

    def _struct(
        self, array: pa.Array, own: pa.DataType | None, kind: StructType, path: str
    ) -> pa.Array:
        seen = list(array.type)
        owned = list(own) if own is not None and pa.types.is_struct(own) else []
        fields = owned if len(owned) == len(seen) else seen
        parts = []
        for each in kind.fields:
            place = self.find(each, fields)
            if place is None:
                parts.append(pa.nulls(len(array), arrow_type(each.dataType)))
            else:
                inside = fields[place].type if fields is owned else None
                parts.append(self.conform(array.field(place), inside, each, f"{path}."))
        wanted = list(arrow_type(kind))
        if not wanted:
            return pa.array([{}] * len(array), pa.struct([]), mask=array.is_null())
        return pa.StructArray.from_arrays(parts, fields=wanted, mask=array.is_null())

    def _leaf(self, array: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
        found = array.type
        if found == wanted:
            return array
        if not _is_readable(found, wanted):
            raise SinkError(
                f"Column {path} of the Delta table {self.target} is {wanted}, but the data file "
                f"{self.file} has {found}. No change of a column's type leads there: restore the "
                "file or the table from a backup."
            )
        try:
            # Spark truncates a fraction of a microsecond, too.
            return array.cast(wanted, safe=not pa.types.is_timestamp(wanted))
        except pa.ArrowException as error:
            raise SinkError(
                f"Column {path} of the Delta table {self.target} is {wanted}, and a value of the "
                f"data file {self.file} does not fit: {error}. Restore the file from its source."
            ) from error


def arrow_type(kind: DataType) -> pa.DataType:
    """Convert a type of a table to Arrow's, as Spark takes it."""
    return to_arrow(StructType([StructField("value", kind)])).field(0).type


def _is_readable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a column of a file can be read as a type: of one kind, or widened since.

    References:
        https://github.com/delta-io/delta/blob/master/PROTOCOL.md#type-widening
    """
    types = pa.types
    if types.is_integer(found):
        is_exact = types.is_float64(wanted) and found.bit_width < _DOUBLE_BITS
        return bool(types.is_integer(wanted) or types.is_decimal(wanted) or is_exact)
    if types.is_date(found):
        return bool(types.is_date(wanted) or wanted == pa.timestamp("us"))
    if is_text(found) or is_bytes(found):
        return bool(types.is_string(wanted) or types.is_binary(wanted))
    kinds = (types.is_floating, types.is_decimal, types.is_timestamp)
    return any(is_kind(found) and is_kind(wanted) for is_kind in kinds)
