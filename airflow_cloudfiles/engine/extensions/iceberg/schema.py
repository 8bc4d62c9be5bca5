"""Change the schema of an Iceberg table as a stream needs it, and divide rows among its partitions.

Nothing, as a rule. Columns it lacks are added; a column whose type the stream's has wider is
widened where Iceberg allows it (int to long, float to double, more digits of a decimal), which
changes metadata only; everything else is refused before anything is written. A stream whose type
is the narrower one is written with the table's.

Iceberg computes the values of partitions from columns: the column itself, a part of a time, a
bucket, a prefix. pyiceberg computes them for whole columns with a compiled package of its own, and
for single values without. So the different values of a column are found first, and few of them
remain: a time counts by its hour where its day, month or year is asked for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from airflow_cloudfiles.engine.formats.columnar.types import is_variant
from airflow_cloudfiles.engine.messages import cut, few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted, quoted

_FIRST_FIELD_ID = 1000
_HOUR = 3600 * 10**6
_COLUMN = r"(?P<{}>`[^`]+`|[^\s,()`]+)"
_ITEM = re.compile(
    rf"\s*(?:(?P<transform>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?{_COLUMN.format('inside')}\s*\)"
    rf"|{_COLUMN.format('plain')})\s*(?:,|$)"
)
_TIMES: dict[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """A partition field that was asked for: its column, its transform, and the field's name."""

    column: str
    transform: Transform[Any, Any]
    name: str


def parse(text: str) -> list[RequestedPartition]:
    """Read the option `partitionBy`.

    Args:
        text: Columns, or `year`, `month`, `day`, `hour` of one, `bucket(16, id)` or
            `truncate(4, name)`, with commas between them; a name may be in backquotes.

    Raises:
        OptionError: It is something else.
    """
    found, at = [], 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise OptionError(
                f"partitionBy={text!r} cannot be read from {text[at:]!r} on. Give columns, "
                "year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c), with commas "
                "between them."
            )
        found.append(_wanted(item, text))
        at = item.end()
    if not found:
        raise OptionError("partitionBy names no column.")
    return found


def _wanted(item: re.Match[str], text: str) -> RequestedPartition:
    column = (item["inside"] or item["plain"]).strip("`")
    name, width = (item["transform"] or "").lower().rstrip("s"), item["width"]
    if not name and width is None:
        return RequestedPartition(column, IdentityTransform(), column)
    if name in _TIMES and width is None:
        return RequestedPartition(column, _TIMES[name], f"{column}_{name}")
    if name == "bucket" and width and int(width):
        return RequestedPartition(column, BucketTransform(int(width)), f"{column}_bucket")
    if name == "truncate" and width and int(width):
        return RequestedPartition(column, TruncateTransform(int(width)), f"{column}_trunc")
    raise OptionError(
        f"partitionBy={text!r} has {item[0].strip(' ,')!r}, which is no partitioning of Iceberg. "
        "Give a column, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)."
    )


def new_spec(partition_by: str | None, schema: Schema, target: str) -> PartitionSpec:
    """Build the partitioning of a new table.

    Raises:
        OptionError: It cannot be read.
        SchemaMismatchError: A column is not there, or of a type that cannot be partitioned by.
    """
    fields = []
    columns = {each.name: each for each in schema.fields}
    for number, each in enumerate(parse(partition_by) if partition_by else []):
        column = columns.get(each.column)
        if column is None or not each.transform.can_transform(column.field_type):
            why = "which the stream lacks" if column is None else f"a {column.field_type}"
            raise SchemaMismatchError(
                f"{target} cannot be partitioned by {each.transform} of {each.column}, {why}. "
                "Correct partitionBy."
            )
        fields.append(
            PartitionField(column.field_id, _FIRST_FIELD_ID + number, each.transform, each.name)
        )
    return PartitionSpec(*fields)


def check_spec(partition_by: str | None, spec: PartitionSpec, schema: Schema, target: str) -> None:
    """Refuse a table that is partitioned otherwise than it was asked for.

    Raises:
        OptionError: It is.
    """
    if not partition_by:
        return
    wanted = [(each.column, str(each.transform)) for each in parse(partition_by)]
    have = [
        (str(schema.find_column_name(each.source_id)), str(each.transform)) for each in spec.fields
    ]
    if wanted != have:
        shown = ", ".join(f"{transform}({column})" for column, transform in have) or "nothing"
        raise OptionError(
            f"{target} is partitioned by {shown}, and partitionBy={partition_by!r} asks for "
            "another partitioning. Remove the option, or change the table."
        )


class Partitioner:
    """Divides batches of one schema among the partitions of a table.

    Args:
        spec: The partitioning.
        schema: The table's columns.
        target: The table, for errors.

    Raises:
        UnsupportedTableError: The table is partitioned by a transform that is not known.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, target: str) -> None:
        self._spec = spec
        self._schema = schema
        self._paths = []
        sources = [each.source_id for each in spec.fields]
        for each in spec.fields:
            kind = schema.find_field(each.source_id).field_type
            if not each.transform.can_transform(kind) or sources.count(each.source_id) > 1:
                raise UnsupportedTableError(
                    f"{target} is partitioned by {each.transform} of {kind}, or by one column "
                    "twice, which pyiceberg does not compute. Choose another target."
                )
            self._paths.append(_path(schema, each.source_id))

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey | None, pa.RecordBatch]]:
        """Give the rows of each partition, in their order."""
        if not self._spec.fields:
            yield None, batch
            return
        columns = [
            self._values(batch, path, each)
            for path, each in zip(self._paths, self._spec.fields, strict=True)
        ]
        codes = np.stack([codes for codes, _ in columns])
        groups, of_row = np.unique(codes, axis=1, return_inverse=True)
        order = np.argsort(of_row, kind="stable")
        ends = np.cumsum(np.bincount(of_row.ravel(), minlength=groups.shape[1]))
        begin = 0
        for group, end in zip(groups.T, ends, strict=True):
            values = [values[code] for code, (_, values) in zip(group, columns, strict=True)]
            yield self._key(values), batch.take(pa.array(order.ravel()[begin:end]))
            begin = end

    def _values(
        self, batch: pa.RecordBatch, path: Sequence[str], field: PartitionField
    ) -> tuple[np.ndarray[Any, Any], list[Any]]:
        """Encode a column's partition values: a code for each row, and the value of each code."""
        column = _column(batch, path)
        distinct = _fewer(_plain(column), field.transform).dictionary_encode()
        source = self._schema.find_field(field.source_id).field_type
        transform = field.transform.transform(source)
        found = [_wrapped(transform(each), source) for each in distinct.dictionary.to_pylist()]
        indices = distinct.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        merged: dict[Any, int] = {}
        codes = [merged.setdefault(each, len(merged)) for each in [*found, transform(None)]]
        return np.asarray(codes)[indices], list(merged)

    def _key(self, values: Sequence[Any]) -> PartitionKey:
        pairs = zip(self._spec.fields, values, strict=True)
        found = [PartitionFieldValue(field, value) for field, value in pairs]
        return PartitionKey(found, self._spec, self._schema)


def _path(schema: Schema, field_id: int) -> list[str]:
    """Find the names that lead to a column, or to a field inside structs."""
    for each in schema.fields:
        if each.field_id == field_id:
            return [each.name]
        inside = getattr(each.field_type, "fields", ())
        if inside:
            below = _path(Schema(*inside), field_id)
            if below:
                return [each.name, *below]
    return []


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Get the values of a column or of a field inside structs: nulls where the rows lack it."""
    fields: Any = batch.schema
    for name in path:
        if fields.get_field_index(name) < 0:
            return pa.nulls(batch.num_rows)
        fields = fields.field(name).type
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if path[1:] else column


def _plain(column: pa.Array) -> pa.Array:
    """Convert values to what Iceberg computes with: days and microseconds as numbers."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.cast(pa.int64())
    return column


def _wrapped(value: Any, kind: IcebergType) -> Any:
    """Let a truncated integer below its type's range overflow, as Iceberg's own runtime does."""
    bits = _BITS.get(type(kind))
    if bits is None or not isinstance(value, int):
        return value
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


_BITS: dict[type[IcebergType], int] = {IntegerType: 32, LongType: 64}


def _fewer(values: pa.Array, transform: Transform[Any, Any]) -> pa.Array:
    """Replace times by their hour where that is all that counts."""
    if transform not in _TIMES.values() or not pa.types.is_int64(values.type):
        return values
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    hours = pa.array(plain // _HOUR * _HOUR)
    return pc.if_else(values.is_null(), pa.scalar(None, pa.int64()), hours)


_LEAVES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WiderColumn:
    """A column, or a field inside one, that is to be wider."""

    path: Path
    have: IcebergType
    want: IcebergType


@dataclass(slots=True)
class TablePlan:
    """What must become of a table.

    Attributes:
        widened: What must be wider.
        missing: Columns, or fields inside them, to add: where, and of which type.
    """

    widened: list[WiderColumn] = field(default_factory=list)
    missing: list[tuple[Path, IcebergType]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.widened or self.missing)

    def check(self, target: str, *, merge_schema: bool, widens: bool) -> None:
        """Refuse what was not asked for.

        Raises:
            SchemaMismatchError: The table must change, and may not.
        """
        if self.widened and not (merge_schema and widens):
            wider = [
                f"{dotted(each.path)} is {each.have} but {each.want} in the stream"
                for each in self.widened
            ]
            raise SchemaMismatchError(
                f"Failed to merge fields of {target}: {few(wider, characters=200)}. Set "
                "mergeSchema=true and typeWidening=true to widen the column (no file is "
                "rewritten), or give it the table's type with a schema hint "
                "(cloudFiles.schemaHints) and `cloudfiles infer --again`, or choose another target."
            )
        if self.missing and not merge_schema:
            raise SchemaMismatchError(
                f"{target} lacks {few([quoted(dotted(path)) for path, _ in self.missing])}. Set "
                "mergeSchema=true to add them to the table."
            )


def new_schema(columns: pa.Schema, target: str) -> Schema:
    """Build the columns of a table that is created for a stream; all may be null.

    Raises:
        SchemaMismatchError: One has a type that Iceberg lacks, or two differ only in case.
    """
    numbers = itertools.count(1)
    return Schema(*_fields(columns, (), target, numbers))


def plan_of(have: Schema, columns: pa.Schema, target: str) -> TablePlan:
    """Compare a table with what a stream writes; a column the stream lacks is null.

    Args:
        have: The table's columns.
        columns: The stream's.
        target: The table, for errors.

    Raises:
        SchemaMismatchError: A column has a type that neither is nor can become the stream's, or
            differs only in case from another, or must not be null and is not in the stream.
    """
    comparison = _SchemaComparison(target)
    comparison.struct(have.fields, columns, ())
    return comparison.plan


def _fields(
    columns: Iterable[pa.Field], at: Path, target: str, numbers: Iterator[int]
) -> list[NestedField]:
    found = list(columns)
    _refuse_twins([each.name for each in found], (), at, target)
    ids = [next(numbers) for _ in found]
    return [
        NestedField(
            number, each.name, iceberg_type(each.type, (*at, each.name), target, numbers), False
        )
        for number, each in zip(ids, found, strict=True)
    ]


def iceberg_type(
    kind: pa.DataType, at: Path, target: str, numbers: Iterator[int] | None = None
) -> IcebergType:
    """Find the type of Iceberg that holds the values of a column.

    Args:
        kind: Type of the stream's column.
        at: The column.
        target: The table, for errors.
        numbers: Ids for fields inside it.

    Raises:
        SchemaMismatchError: There is none.
    """
    numbers = itertools.count(1) if numbers is None else numbers
    if is_variant(kind):
        raise SchemaMismatchError(
            f"Column {dotted(at)} is a VARIANT, so {target} cannot take it: Iceberg has the type "
            "from format version 3 on, and pyiceberg does not write it. Read the column as a "
            "STRING (cloudFiles.schemaHints), or write to a Delta table."
        )
    if pa.types.is_struct(kind):
        return StructType(*_fields(list(kind), at, target, numbers))
    if pa.types.is_map(kind):
        key, value = next(numbers), next(numbers)
        return MapType(
            key,
            iceberg_type(kind.key_type, (*at, "key"), target, numbers),
            value,
            iceberg_type(kind.item_type, (*at, "value"), target, numbers),
            value_required=False,
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = next(numbers)
        inner = iceberg_type(kind.value_type, (*at, "element"), target, numbers)
        return ListType(element, inner, element_required=False)
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return DecimalType(kind.precision, kind.scale)
    if kind in _LEAVES:
        return _LEAVES[kind]
    what = "no type (void)" if pa.types.is_null(kind) else f"the type {kind}"
    raise SchemaMismatchError(
        f"Column {dotted(at)} has {what}, so {target} cannot take it. Give it another one with a "
        "schema hint (cloudFiles.schemaHints) or a cast."
    )


def _refuse_twins(names: Sequence[str], known: Iterable[str], at: Path, target: str) -> None:
    """Refuse names that differ only in case: to Iceberg they are two columns, to Spark one."""
    spelled = {CASE_INSENSITIVE.key(name): name for name in known}
    for name in names:
        twin = spelled.setdefault(CASE_INSENSITIVE.key(name), name)
        if twin != name:
            raise SchemaMismatchError(
                f"Column {dotted((*at, name))} differs only in case from {quoted(twin)} of "
                f"{target}, or of the stream. Name it {twin} with a schema hint "
                "(cloudFiles.schemaHints)."
            )


class _SchemaComparison:
    """Walks the columns of a table and of a stream at once."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.plan = TablePlan()

    def struct(self, have: Sequence[NestedField], want: Iterable[pa.Field], at: Path) -> None:
        wanted = {each.name: each for each in want}
        known = {each.name: each for each in have}
        _refuse_twins(list(wanted), known, at, self._target)
        for name, each in known.items():
            self._check_nulls(each, wanted.get(name), (*at, name))
        for name, column in wanted.items():
            path = (*at, name)
            if name in known:
                self._type(known[name].field_type, column.type, path)
            else:
                self.plan.missing.append((path, iceberg_type(column.type, path, self._target)))

    def _check_nulls(self, have: NestedField, want: pa.Field | None, path: Path) -> None:
        """Refuse nulls where there may be none; those of whole columns are counted in the tasks."""
        if not have.required or (want is not None and (len(path) == 1 or not want.nullable)):
            return
        lacks = "the stream lacks it" if want is None else "the stream may have nulls there"
        raise SchemaMismatchError(
            f"Column {dotted(path)} of {self._target} is required, and {lacks}. Make it optional, "
            "or choose another target."
        )

    def _type(self, have: IcebergType, want: pa.DataType, at: Path) -> None:
        if isinstance(have, StructType) and pa.types.is_struct(want) and not is_variant(want):
            self.struct(have.fields, list(want), at)
        elif isinstance(have, ListType) and isinstance(want, pa.ListType | pa.LargeListType):
            inside = have.element_field
            self._check_nulls(inside, want.value_field, (*at, "element"))
            self._type(inside.field_type, want.value_type, (*at, "element"))
        elif isinstance(have, MapType) and isinstance(want, pa.MapType):
            self._check_nulls(have.value_field, want.item_field, (*at, "value"))
            self._type(have.key_type, want.key_type, (*at, "key"))
            self._type(have.value_type, want.item_type, (*at, "value"))
        else:
            self._leaf(have, iceberg_type(want, at, self._target), at)

    def _leaf(self, have: IcebergType, want: IcebergType, at: Path) -> None:
        if have == want or _is_wider(have, than=want):
            return
        if _is_wider(want, than=have):
            self.plan.widened.append(WiderColumn(at, have, want))
            return
        raise SchemaMismatchError(
            f"Failed to merge fields: {dotted(at)} is {cut(str(have))} in {self._target} but "
            f"{cut(str(want))} in the stream, and Iceberg does not widen one to the other. Give "
            "the column the table's type with a schema hint (cloudFiles.schemaHints) and "
            "`cloudfiles infer --again`, or choose another target."
        )


def _is_wider(kind: IcebergType, *, than: IcebergType) -> bool:
    """Tell whether Iceberg promotes one type to another (its specification, "Schema Evolution")."""
    if isinstance(kind, DecimalType) and isinstance(than, DecimalType):
        return kind.scale == than.scale and kind.precision > than.precision
    return (type(than), type(kind)) in {(IntegerType, LongType), (FloatType, DoubleType)}
