"""What must become of an Iceberg table so that it can take the rows of a stream?

Nothing, as a rule. Columns it lacks are added; a column whose type the stream's has wider is
widened where Iceberg allows it (int to long, float to double, more digits of a decimal), which
changes metadata only; everything else is refused before anything is written. A stream whose type
is the narrower one is written with the table's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema
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

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.messages import cut, few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted, quoted

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
    """The columns of a table that is created for a stream; all may be null.

    Raises:
        SchemaMismatchError: One has a type that Iceberg has not, or two differ only in case.
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
    comparison = _Comparison(target)
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
    """The type of Iceberg that holds the values of a column.

    Args:
        kind: Type of the stream's column.
        at: The column.
        target: The table, for errors.
        numbers: Ids for fields inside of it.

    Raises:
        SchemaMismatchError: There is none.
    """
    numbers = itertools.count(1) if numbers is None else numbers
    if holds_variant(kind) and not _has_variant_inside(kind):
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


def _has_variant_inside(kind: pa.DataType) -> bool:
    """Whether it is a field inside that is the VARIANT, which is found there."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return any(holds_variant(each) for each in inner)


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


class _Comparison:
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
        if isinstance(have, StructType) and pa.types.is_struct(want) and not _is_variant(want):
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


def _is_variant(kind: pa.DataType) -> bool:
    return holds_variant(kind) and not _has_variant_inside(kind)


def _is_wider(kind: IcebergType, *, than: IcebergType) -> bool:
    """Whether Iceberg promotes one type to another (its specification, "Schema Evolution")."""
    if isinstance(kind, DecimalType) and isinstance(than, DecimalType):
        return kind.scale == than.scale and kind.precision > than.precision
    return (type(than), type(kind)) in {(IntegerType, LongType), (FloatType, DoubleType)}
