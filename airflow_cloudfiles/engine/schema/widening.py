"""Widen the type of a column when values do not fit it.

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

For formats whose files do not say types: the text of a rescued number determines the narrowest type
that holds it, and the matrix whether its column may become that. Rescued data is what
the reader made of it: one JSON object a row, offending leaves under their source names, nested ones
under their path.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

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
from airflow_cloudfiles.engine.schema.inference import diff
from airflow_cloudfiles.engine.types import (
    MAX_DECIMAL_PRECISION,
    inside_of,
    merge_decimals,
    with_inside,
    with_type,
)

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
    """Tell whether any value at all could widen the schema; text columns never widen."""
    return _Rule(options).can_widen(schema, ())


def wider_type(current: DataType, observed: DataType, *, is_parquet: bool) -> DataType | None:
    """Find the type by the matrix that holds the values of both.

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
    """Find a decimal with the digits of both before and after the point; `None` if none has."""
    if left is None or right is None:
        return None
    found = merge_decimals(left, right)
    return found if isinstance(found, DecimalType) else None


@functools.lru_cache(maxsize=64)
def _hinted(hints: str, matcher: NameMatcher) -> frozenset[Path]:
    """Return the paths that hints name, as keys."""
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
                field = with_type(field, kind)  # noqa: PLW2901
            fields.append(field)
        return StructType(fields)

    def _type(self, current: DataType, observed: DataType, at: Path) -> DataType:
        if at in self._kept:
            return current
        if isinstance(current, StructType) and isinstance(observed, StructType):
            return self.struct(current, observed, at)
        if type(current) is type(observed) and isinstance(current, ArrayType | MapType):
            others = dict(inside_of(observed))
            return with_inside(
                current, lambda name, each: self._type(each, others[name], (*at, name))
            )
        return wider_type(current, observed, is_parquet=self._is_parquet) or current

    def can_widen(self, kind: DataType, at: Path) -> bool:
        """Tell whether a column, or something inside it, has a wider type."""
        if at in self._kept:
            return False
        if inside := inside_of(kind):
            return any(self.can_widen(each, (*at, self._key(name))) for name, each in inside)
        if isinstance(kind, DateType):
            return self._is_parquet
        return isinstance(kind, (*_INTEGRAL, FloatType, DecimalType))


FILE_KEY: Final = "_file_path"
"""The last member of rescued data: the file the row came from."""

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_INTEGRAL_BITS: Final = ((ByteType(), 7), (ShortType(), 15), (IntegerType(), 31), (LongType(), 63))


class WiderTypes:
    """Learns from rescued data which types are too narrow.

    Args:
        schema: Columns of the records.
        options: The stream's options.

    Attributes:
        schema: The schema as wide as what was added asks for.
        files: The first file that asked for the wider type of a column, by the column's path.
    """

    def __init__(self, schema: StructType, options: CloudFilesOptions) -> None:
        self.schema = schema
        self.files: dict[str, str] = {}
        self._options = options
        self._without_hints = dataclasses.replace(options, schema_hints=None)
        self._reads_strings = options.format_options.HAS_ONLY_STRINGS
        # Where case matters, a name in another case is rescued for its name, not for its value.
        self._key = str if options.reader_case_sensitive else options.matcher.key
        self._columns = {
            self._key(field.name): position
            for position, field in enumerate(schema.fields)
            if can_widen(StructType([field]), options)
        }
        self._known: set[tuple[str, DataType]] = set()

    def add(self, rescued: Iterable[str | None]) -> bool:
        """Learn from the rescued data of some rows.

        Returns:
            Whether a column must be wider than it is.
        """
        for text in rescued if self._columns else ():
            if text is not None:
                self._add(_members(text))
        return bool(self.files)

    def _add(self, members: dict[str, Any]) -> None:
        for name, value in members.items():
            position = self._columns.get(self._key(name))
            if position is None:
                continue
            field = self.schema.fields[position]
            seen = self._type(field.dataType, value)
            if seen is not None and (field.name, seen) not in self._known:
                self._known.add((field.name, seen))
                self._widen(field.name, seen, str(members.get(FILE_KEY)))

    def _widen(self, name: str, seen: DataType, file_uri: str) -> None:
        observed = StructType([StructField(name, seen)])
        wider = widen(self.schema, observed, self._options)
        for change in diff(self.schema, wider):
            self.files.setdefault(change.path, file_uri)
        self.schema = wider

    def _type(self, kind: DataType, value: Any) -> DataType | None:
        """Find the type of a rescued value, in the shape of its column; `None` when it has none."""
        if isinstance(kind, StructType) and isinstance(value, dict):
            return self._struct(kind, value)
        if isinstance(kind, ArrayType) and isinstance(value, list):
            element = self._all(kind.elementType, value)
            return None if element is None else ArrayType(element)
        if isinstance(kind, MapType) and isinstance(value, dict):
            inside = self._all(kind.valueType, value.values())
            return None if inside is None else MapType(kind.keyType, inside)
        if isinstance(value, str) and self._reads_strings and _NUMBER.fullmatch(value):
            value = _decimal(value)
        return number_type(value) if isinstance(value, Decimal) else None

    def _struct(self, kind: StructType, value: dict[str, Any]) -> StructType | None:
        names = {self._key(field.name): field for field in kind.fields}
        fields = []
        for name, each in value.items():
            field = names.get(self._key(name))
            seen = None if field is None else self._type(field.dataType, each)
            if field is not None and seen is not None:
                fields.append(StructField(field.name, seen))
        return StructType(fields) if fields else None

    def _all(self, kind: DataType, values: Iterable[Any]) -> DataType | None:
        """Find one type for what is inside an array or a map, as wide as any value needs."""
        found: DataType | None = None
        for value in values:
            seen = self._type(kind, value)
            if seen is None or found is None:
                found = seen or found
                continue
            before, more = (StructType([StructField("a", each)]) for each in (found, seen))
            found = widen(before, more, self._without_hints).fields[0].dataType
        return found


def _members(text: str) -> dict[str, Any]:
    """Parse rescued data, with numbers exactly as they are written."""
    try:
        members = json.loads(text, parse_int=_decimal, parse_float=_decimal)
    except RecursionError:  # too deep for any column
        return {}
    return members if isinstance(members, dict) else {}


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent beyond everything
        return None


def number_type(value: Decimal) -> DataType | None:
    """Find the narrowest type that holds a number exactly; double for fractions past 38 digits."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    if precision > MAX_DECIMAL_PRECISION:
        return DoubleType() if exponent and math.isfinite(float(value)) else None
    if scale:
        return DecimalType(precision, scale)
    number = int(value)
    for kind, bits in _INTEGRAL_BITS:
        if -(2**bits) <= number < 2**bits:
            return kind
    return DecimalType(precision, 0)
