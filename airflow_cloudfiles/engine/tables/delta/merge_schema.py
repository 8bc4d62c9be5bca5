"""Merge the columns of a table with those of the rows that are written.

Delta's rules, walked over both schemas at once:

| the rows have | then |
| --- | --- |
| the table's type | they are written as they are |
| a type whose every value the table's holds | they are cast |
| void | they are null |
| a column or a nested field that the table lacks | it is added at the end, if `mergeSchema` |
| short or int where the table has byte or short; a type where it has void | the table's type \
changes, if `mergeSchema`; files stay |
| a wider type (`schema.widening`) | the table is widened, if `mergeSchema` and `typeWidening` |
| anything else | Delta's error |

Names are compared without case, and keep the table's spelling. A column that was renamed in the
table is found by the name of the column that feeds it (`SOURCE_NAME`). This module only decides: it
reads no table and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.messages import cut, few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.schema.widening import wider_type
from airflow_cloudfiles.engine.types import VariantType, inside_of, simple_ddl, with_inside

SOURCE_NAME: Final = "cloudFiles.sourceName"
"""Key in the metadata of a column: the name under which rows bring its values."""
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_MOST_DDL: Final = 300
_INTEGRAL: Final = (ByteType, ShortType, IntegerType, LongType)
_SAME_STORAGE: Final = (ByteType, ShortType, IntegerType)
"""Parquet stores all three as a 32-bit integer: files need no change for a wider one."""
_DIGITS: Final[dict[type[DataType], int]] = {
    ByteType: 3,
    ShortType: 5,
    IntegerType: 10,
    LongType: 19,
}
"""Digits of the largest value."""
_EXACT_IN: Final[dict[type[DataType], tuple[type[DataType], ...]]] = {
    FloatType: (ByteType, ShortType),
    DoubleType: (ByteType, ShortType, IntegerType, FloatType),
    TimestampNTZType: (DateType,),
}
"""Which types a type holds exactly, whole numbers and decimals apart."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A column, or something inside one, that has two types.

    Attributes:
        path: Which: `a`, `a.b`, `a.element`, `a.key`, `a.value`.
        have: The table's type.
        want: The rows' type.
    """

    path: tuple[str, ...]
    have: DataType
    want: DataType

    def __str__(self) -> str:
        """Write both types as a message has them."""
        return (
            f"{dotted(self.path)} is {cut(self.have.simpleString())} but "
            f"{cut(self.want.simpleString())}"
        )


@dataclass(slots=True)
class MergedSchema:
    """What writing rows asks of a table.

    Attributes:
        schema: The table's columns afterwards; those it had keep place, spelling and metadata.
        added: Columns and nested fields that the table lacks, by path.
        widened: Types that must be wider, of which the files of the table hold the narrower one.
        retyped: Types that change in the table's metadata alone.
        cast: Types of the rows that are cast to the table's.
    """

    schema: StructType
    added: list[tuple[str, ...]] = field(default_factory=list)
    widened: list[TypeChange] = field(default_factory=list)
    retyped: list[TypeChange] = field(default_factory=list)
    cast: list[TypeChange] = field(default_factory=list)

    @property
    def changes_table(self) -> bool:
        """Whether the table must get other columns before the rows."""
        return bool(self.added or self.widened or self.retyped)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """How two schemas are merged, and what messages call them.

    Attributes:
        target: The table.
        table_id: Its id.
        rows: What brings the rows.
        merge_schema: Whether the table may get columns (`mergeSchema`).
        widens: Whether its types may become wider (`typeWidening`).
        adds_void: Whether a column without a type may be added, as a batch write may.
    """

    target: str
    table_id: str = ""
    rows: str = "the stream"
    merge_schema: bool = False
    widens: bool = False
    adds_void: bool = False


def merge_schemas(table: StructType, rows: StructType, rules: MergeRules) -> MergedSchema:
    """Decide what writing rows asks of a table, and refuse what it does not allow.

    Args:
        table: The table's columns, with their metadata.
        rows: The columns of the rows; those that the table has and they lack are null.
        rules: What may be done about differences.

    Raises:
        SchemaMismatchError: The columns do not fit; nothing was changed. The message has both
            sides, and the option that would allow it, if one does.
    """
    walk = _SchemaWalk(rules)
    found = walk.found
    found.schema = walk.struct(table, rows, ())
    if found.widened and not (rules.merge_schema and rules.widens):
        raise _narrow(found, rules)
    if (found.added or found.retyped) and not rules.merge_schema:
        raise _mismatch(found, table, rows, rules)
    return found


def partners(table: StructType, rows: StructType, at: Sequence[str] = ()) -> list[int | None]:
    """Find, for each column of rows, the place of the table's column that it feeds.

    A column whose metadata names another source (`SOURCE_NAME`) is fed by that one; by its own
    name only where the rows lack the other. One that another writer has renamed is found by the
    name that files have it under.

    Args:
        table: Columns of the table, or fields of a struct in it.
        rows: Those of the rows.
        at: The path of both, for errors.

    Raises:
        SchemaMismatchError: Two columns of the rows differ only in case, or feed one column.
    """
    _refuse_twins(rows, at)
    key = CASE_INSENSITIVE.key
    names = [key(each.name) for each in rows.fields]
    by_name = {key(each.name): place for place, each in enumerate(table.fields)}
    by_source = {
        key(str(each.metadata[SOURCE_NAME])): place
        for place, each in enumerate(table.fields)
        if SOURCE_NAME in (each.metadata or {})
    }
    by_file = {
        key(str(each.metadata[_PHYSICAL_NAME])): place
        for place, each in enumerate(table.fields)
        if _PHYSICAL_NAME in (each.metadata or {}) and SOURCE_NAME not in each.metadata
    }
    found = [by_source.get(name, by_name.get(name, by_file.get(name))) for name in names]
    fed: dict[int, str] = {}
    for each, place in zip(rows.fields, found, strict=True):
        if place is None:
            continue
        if place in fed:
            name = table.fields[place].name
            raise SchemaMismatchError(
                f"Columns {dotted((*at, fed[place]))} and {dotted((*at, each.name))} both feed "
                f"column {dotted((*at, name))} of the table, which was renamed. Rename the column "
                "of the table (cloudfiles table rename-column), or leave one of the two out."
            )
        fed[place] = each.name
    return found


def casts_exactly(kind: DataType, to: DataType) -> bool:
    """Tell whether a type holds every value of another, so that a cast loses nothing."""
    if isinstance(to, DecimalType):
        digits = _DIGITS.get(type(kind))
        if digits is not None:
            return to.precision - to.scale >= digits
        return (
            isinstance(kind, DecimalType)
            and to.scale >= kind.scale
            and to.precision - to.scale >= kind.precision - kind.scale
        )
    if isinstance(kind, _INTEGRAL) and isinstance(to, _INTEGRAL):
        return _DIGITS[type(kind)] <= _DIGITS[type(to)]
    return type(kind) in _EXACT_IN.get(type(to), ())


def type_name(kind: DataType) -> str:
    """Write a type as Delta's messages have it: `IntegerType`, `DecimalType(5,2)`."""
    if isinstance(kind, DecimalType):
        return f"DecimalType({kind.precision},{kind.scale})"
    if isinstance(kind, (StructType, ArrayType, MapType)):
        return f"{type(kind).__name__} ({cut(kind.simpleString())})"
    return type(kind).__name__


class _SchemaWalk:
    """Walks two schemas at once, and notes what differs."""

    def __init__(self, rules: MergeRules) -> None:
        self._rules = rules
        self.found = MergedSchema(StructType([]))

    def struct(self, have: StructType, want: StructType, at: tuple[str, ...]) -> StructType:
        """Merge the fields of `want` into those of `have`; those that only `want` has come last."""
        feeding: dict[int, StructField] = {}
        new: list[StructField] = []
        for each, place in zip(want.fields, partners(have, want, at), strict=True):
            if place is None:
                new.append(each)
            else:
                feeding[place] = each
        merged = list(self._merged(have, feeding, at))
        return StructType([*merged, *(self._added(each, (*at, each.name)) for each in new)])

    def _merged(
        self, have: StructType, feeding: dict[int, StructField], at: tuple[str, ...]
    ) -> Iterator[StructField]:
        for place, each in enumerate(have.fields):
            path = (*at, each.name)
            if place in feeding:
                kind = self._type(each.dataType, feeding[place].dataType, path)
                yield StructField(each.name, kind, each.nullable, each.metadata)
                continue
            if not each.nullable:
                raise SchemaMismatchError(
                    f"Column {dotted(path)}, which has a NOT NULL constraint, is missing from the "
                    f"data being written into {self._rules.target}. Write the column, or drop the "
                    "constraint where the table is maintained (ALTER TABLE ... DROP NOT NULL)."
                )
            yield each

    def _added(self, new: StructField, path: tuple[str, ...]) -> StructField:
        """Add a field that the table lacks; its older rows have null there."""
        if not self._rules.adds_void:
            self._refuse_void(new.dataType, path)
        self.found.added.append(path)
        return StructField(new.name, new.dataType, True, new.metadata)

    def _refuse_void(self, kind: DataType, path: tuple[str, ...]) -> None:
        if isinstance(kind, NullType):
            raise SchemaMismatchError(
                f"Column {dotted(path)} has no type (void), so {self._rules.target} cannot take "
                "it. Give it one with a schema hint (cloudFiles.schemaHints) or a cast."
            )
        for name, each in inside_of(kind):
            self._refuse_void(each, (*path, name))

    def _type(self, have: DataType, want: DataType, at: tuple[str, ...]) -> DataType:
        if isinstance(have, StructType) and isinstance(want, StructType):
            return self.struct(have, want, at)
        if isinstance(have, ArrayType | MapType) and type(have) is type(want):
            wanted = dict(inside_of(want))
            return with_inside(have, lambda name, kind: self._type(kind, wanted[name], (*at, name)))
        return self._leaf(TypeChange(at, have, want))

    def _leaf(self, change: TypeChange) -> DataType:
        """Decide the type of the table afterwards, where at least one side is not nested."""
        have, want = change.have, change.want
        if have == want:
            return have
        if isinstance(want, NullType) or casts_exactly(want, have):
            self.found.cast.append(change)
            return have
        grows = isinstance(have, _SAME_STORAGE) and isinstance(want, _SAME_STORAGE)
        if isinstance(have, NullType) or grows:
            self.found.retyped.append(change)
            return want
        if wider_type(have, want, is_parquet=True) == want:
            self.found.widened.append(change)
            return want
        raise _incompatible(change, self._rules)


def _refuse_twins(rows: StructType, at: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for each in rows.fields:
        key = CASE_INSENSITIVE.key(each.name)
        if key in seen:
            raise SchemaMismatchError(
                f"Found duplicate columns in the data to save: {dotted((*at, seen[key]))} and "
                f"{dotted((*at, each.name))} differ only in case, so a Delta table cannot have "
                "both. Rename one of them."
            )
        seen[key] = each.name


def _incompatible(change: TypeChange, rules: MergeRules) -> SchemaMismatchError:
    """Build Delta's error for two types of which neither gives way."""
    have, want = change.have, change.want
    path, name = dotted(change.path), change.path[-1]
    if isinstance(have, DecimalType) and isinstance(want, DecimalType):
        said = f"Failed to merge decimal types with incompatible {_decimals(have, want)}"
    else:
        said = f"Failed to merge incompatible data types {type_name(have)} and {type_name(want)}"
    repair = ""
    if wider_type(want, have, is_parquet=True) == have:
        repair = (
            "If the stream has it in its schema log, a promotion was killed, or the schema was "
            f"rolled back: cloudfiles promote --field {path}={have.simpleString()} makes them "
            "agree. "
        )
    way = (
        "Give the column the table's type with a schema hint (cloudFiles.schemaHints) and "
        "`cloudfiles infer --again`"
    )
    if isinstance(have, VariantType):
        way = "A hint cannot make a column a VARIANT: remove the hint for it"
    return SchemaMismatchError(
        f"Failed to merge fields '{name}' and '{name}'. {said}: {path} is "
        f"{cut(have.simpleString())} in {rules.target} but {cut(want.simpleString())} in "
        f"{rules.rows}. {repair}{way}, or choose another target."
    )


def _decimals(have: DecimalType, want: DecimalType) -> str:
    pairs = {"precision": (have.precision, want.precision), "scale": (have.scale, want.scale)}
    return " & ".join(f"{name} {old} and {new}" for name, (old, new) in pairs.items() if old != new)


def _narrow(found: MergedSchema, rules: MergeRules) -> SchemaMismatchError:
    """Build the error for types that would have to become wider, and may not."""
    widened = few([f"{each} in {rules.rows}" for each in found.widened], characters=200)
    first = found.widened[0]
    name = first.path[-1]
    return SchemaMismatchError(
        f"Failed to merge fields of {rules.target}: {widened}. (Failed to merge fields '{name}' "
        f"and '{name}'. Failed to merge incompatible data types {type_name(first.have)} and "
        f"{type_name(first.want)}.) Set mergeSchema=true and typeWidening=true to have the table "
        "rewritten with the wider type (or changed in its metadata only, if it has "
        "delta.enableTypeWidening=true), or give the column the table's type with a schema hint "
        "(cloudFiles.schemaHints) and `cloudfiles infer --again`, or choose another target."
    )


def _mismatch(
    found: MergedSchema, table: StructType, rows: StructType, rules: MergeRules
) -> SchemaMismatchError:
    """Build the error for columns that the table lacks, or types that would change."""
    lacks = f"{rules.target} lacks {few([dotted(each) for each in found.added])}. "
    changes = f"{few([str(each) for each in found.retyped], characters=200)} in {rules.rows}. "
    return SchemaMismatchError(
        "A schema mismatch detected when writing to the Delta table (Table ID: "
        f"{rules.table_id or 'unknown'}). "
        "To enable schema migration using DataFrameWriter or DataStreamWriter, please set: "
        '\'.option("mergeSchema", "true")\'. '
        f"{lacks if found.added else ''}{changes if found.retyped else ''}"
        f"Table schema: {cut(simple_ddl(table), _MOST_DDL)}. "
        f"Data schema: {cut(simple_ddl(rows), _MOST_DDL)}. Set mergeSchema=true to add what is "
        "missing to the table."
    )
