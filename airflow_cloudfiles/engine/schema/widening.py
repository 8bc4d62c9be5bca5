"""Which wider type does a column take when values do not fit it?

Only in `addNewColumnsWithTypeWidening`, and only by this matrix, which is Auto Loader's:

| from | to |
| --- | --- |
| byte | short, int, long, decimal, double |
| short | int, long, decimal, double |
| int | long, decimal, double |
| long | decimal |
| float | double |
| decimal | a decimal with as many digits or more on both sides of the point |
| date | timestampNTZ, from Parquet files |

A byte, short or int counts as `decimal(10,0)`, a long as `decimal(20,0)`, so `int` and
`decimal(5,2)` give `decimal(12,2)` (B59). Whatever else meets stays as it is, and the value is
rescued: text (B60), long and double in either direction (B61), decimals beyond 38 digits. What a
hint names keeps the hinted type, and so does a column whose wider values somebody has decided to
leave in the rescued data.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

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
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from airflow_cloudfiles.engine.names import parts_of
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_INTEGRAL: Final = (ByteType, ShortType, IntegerType, LongType)
_STARTING_DIGITS: Final[dict[type[DataType], int]] = {
    ByteType: 10,
    ShortType: 10,
    IntegerType: 10,
    LongType: 20,
}
"""Precision of the decimal that an integral type begins with when it widens to one."""
_HELD: Final[dict[type[DataType], tuple[type[DataType], ...]]] = {
    ShortType: (ByteType,),
    IntegerType: (ByteType, ShortType),
    LongType: (ByteType, ShortType, IntegerType),
    DoubleType: (ByteType, ShortType, IntegerType, FloatType),
}
"""Which types give way to a type, decimals apart."""

Path = tuple[str, ...]


def widen(current: StructType, observed: StructType, options: CloudFilesOptions) -> StructType:
    """Widen the columns of a schema so that they hold what newer records have.

    Names, order and nullability stay, and so does every type for which the matrix has no wider one
    that holds both. Fields that only `observed` has are ignored: adding them is `evolve`'s. Doing
    it twice changes nothing more.

    Args:
        current: The schema that is widened.
        observed: The types of newer values, under the same names.
        options: The format, how names are compared, and the hints, whose columns are left alone.
    """
    return _Rule(options).struct(current, observed, ())


def can_widen(schema: StructType, options: CloudFilesOptions) -> bool:
    """Whether any value at all could widen the schema; text columns never widen."""
    return _Rule(options).can_widen(schema, ())


def wider_type(current: DataType, observed: DataType, *, is_parquet: bool) -> DataType | None:
    """The type by the matrix that holds the values of both.

    Args:
        current: Type of a column that is not nested.
        observed: Type of newer values.
        is_parquet: Whether they are in Parquet files.

    Returns:
        The current type itself when it holds both; `None` when no type of the matrix does.
    """
    if isinstance(current, DecimalType) or isinstance(observed, DecimalType):
        return _wider_decimal(_as_decimal(current), _as_decimal(observed))
    if current == observed or type(observed) in _HELD.get(type(current), ()):
        return current
    if is_parquet and isinstance(current, DateType) and isinstance(observed, TimestampNTZType):
        return observed
    return observed if type(current) in _HELD.get(type(observed), ()) else None


def _as_decimal(kind: DataType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    digits = _STARTING_DIGITS.get(type(kind))
    return None if digits is None else DecimalType(digits, 0)


def _wider_decimal(left: DecimalType | None, right: DecimalType | None) -> DecimalType | None:
    """A decimal with the digits of both before and after the point, if there is one."""
    if left is None or right is None:
        return None
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale)
    return DecimalType(digits + scale, scale) if digits + scale <= MAX_DECIMAL_PRECISION else None


@functools.lru_cache(maxsize=64)
def _hinted(hints: str, matcher: NameMatcher) -> frozenset[Path]:
    """The paths that hints name, as keys."""
    if not hints:
        return frozenset()
    columns = parse_columns(hints, matcher)
    return frozenset(tuple(map(matcher.key, hint.path)) for hint in columns)


class _Rule:
    """The matrix, and what it does not touch."""

    def __init__(self, options: CloudFilesOptions) -> None:
        self._is_parquet = options.format == "parquet"
        self._matcher = options.matcher
        self._key = options.matcher.key
        stay = (tuple(map(self._key, parts_of(path))) for path in options.stay_rescued)
        self._kept = _hinted(options.schema_hints or "", options.matcher).union(stay)

    def struct(self, current: StructType, observed: StructType, at: Path) -> StructType:
        """Widen the fields that both have."""
        positions = self._matcher.positions(observed)
        fields = []
        for field in current.fields:
            position = positions.get(self._key(field.name))
            if position is not None:
                path = (*at, self._key(field.name))
                kind = self._type(field.dataType, observed.fields[position].dataType, path)
                field = StructField(field.name, kind, field.nullable, field.metadata)  # noqa: PLW2901
            fields.append(field)
        return StructType(fields)

    def _type(self, current: DataType, observed: DataType, at: Path) -> DataType:
        if at in self._kept:
            return current
        if isinstance(current, StructType) and isinstance(observed, StructType):
            return self.struct(current, observed, at)
        if isinstance(current, ArrayType) and isinstance(observed, ArrayType):
            element = self._type(current.elementType, observed.elementType, (*at, "element"))
            return ArrayType(element, current.containsNull)
        if isinstance(current, MapType) and isinstance(observed, MapType):
            key = self._type(current.keyType, observed.keyType, (*at, "key"))
            value = self._type(current.valueType, observed.valueType, (*at, "value"))
            return MapType(key, value, current.valueContainsNull)
        return wider_type(current, observed, is_parquet=self._is_parquet) or current

    def can_widen(self, kind: DataType, at: Path) -> bool:
        """Whether a column, or something inside it, has a wider type."""
        if at in self._kept:
            return False
        if isinstance(kind, StructType):
            return any(
                self.can_widen(each.dataType, (*at, self._key(each.name))) for each in kind.fields
            )
        if isinstance(kind, ArrayType):
            return self.can_widen(kind.elementType, (*at, "element"))
        if isinstance(kind, MapType):
            inside = ((kind.keyType, "key"), (kind.valueType, "value"))
            return any(self.can_widen(each, (*at, part)) for each, part in inside)
        if isinstance(kind, DateType):
            return self._is_parquet
        return isinstance(kind, (*_INTEGRAL, FloatType, DecimalType))
