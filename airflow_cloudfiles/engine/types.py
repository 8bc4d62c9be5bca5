"""Merge the types of two records into one.

The common language of schemas is `pyspark.sql.types`, which imports without a JVM. The laws are
those of Spark's JSON inference (`JsonInferSchema` and `TypeCoercion.findTightestCommonType`),
with two differences of ours: names are matched without regard to case (unless the session is
case-sensitive), and columns stay in the order of their first appearance (Spark sorts them by name).

`VariantType` is Spark's own from 4.0. Before, it is a class of this module, which schemas in JSON
are read with, too: rows of a job whose tasks read and write them never enter Spark, so a table gets
its VARIANT columns from any Spark. Where rows do enter, `require_types` refuses by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, SparkVersionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher, parts_of, quoted

if TYPE_CHECKING:
    from pyspark.sql.types import VariantType
else:
    try:
        from pyspark.sql.types import VariantType
    except ImportError:

        class VariantType(spark_types.AtomicType):
            """VARIANT, for a Spark before 4.0."""

        # What `StructType.fromJson` of Spark 3.5 finds the types in.
        spark_types._all_atomic_types[VariantType.typeName()] = VariantType  # noqa: SLF001

__all__ = ["VariantType"]

HAS_VARIANT: Final = hasattr(spark_types, "VariantType")
"""Whether the installed Spark knows VARIANT."""


def has_variant(kind: DataType) -> bool:
    """Tell whether a type is VARIANT, or holds one."""
    return isinstance(kind, VariantType) or any(has_variant(each) for _, each in inside_of(kind))


def require_types(schema: StructType, version: str) -> None:
    """Refuse rows that a function over micro-batches gives to a Spark which lacks their types.

    Args:
        schema: Of the rows.
        version: Of the Spark, such as `3.5.6`.

    Raises:
        SparkVersionError: A column is VARIANT, and Spark is older than 4.0.
    """
    found = next((each.name for each in schema.fields if has_variant(each.dataType)), None)
    if found is not None and not HAS_VARIANT:
        raise SparkVersionError(
            f"Column {found} is VARIANT, which Spark {version} does not have, and a function over "
            "micro-batches gives its rows to Spark. Use Spark 4.0 or later; a table that only "
            "tasks of this package write gets VARIANT columns with any Spark."
        )


MAX_DECIMAL_PRECISION: Final = 38
_NUMERIC_ORDER: Final = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)
_INTEGRAL_DIGITS: Final[dict[type[DataType], int]] = {
    ByteType: 3,
    ShortType: 5,
    IntegerType: 10,
    LongType: 20,
}
"""Digits of the decimal that holds every value of a type (Spark's `DecimalType.forType`)."""


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def is_column_name(name: str) -> bool:
    r"""Tell whether a field can be a column.

    Not the empty name, nor half a character (`"\ud800"`), nor one with a control character: of
    `"k\u0000a"` some libraries make `k`. Tabs and line breaks of headers stay.
    """
    return bool(name) and is_unicode(name) and not _CONTROL.search(name)


def is_unicode(text: str) -> bool:
    """Tell whether it is a text, which half a character (a lone surrogate) is not."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


_TIMES: Final = (DateType, TimestampNTZType, TimestampType)
"""Each holds the values of those before it: a date is its midnight, no zone means UTC."""


def merge_types(
    left: DataType,
    right: DataType,
    matcher: NameMatcher = CASE_INSENSITIVE,
    *,
    of_files: bool = False,
) -> DataType:
    """Find the narrowest type that holds the values of both: Spark's rule for JSON.

    Nothing (`NullType`) gives way to anything; numbers meet in the wider one; structs are merged
    field by field, arrays by their elements; whatever else meets becomes a string. Associative,
    and commutative but for the order and the spelling of fields, which follow `left`.

    Args:
        left: A type.
        right: Another one.
        matcher: How names of fields are compared.
        of_files: Whether maps meet, too, by their keys and values, and dates and timestamps in the
            wider one, as in Spark's `TypeCoercion`: values have these types of their own (B10).
    """
    if left is right or isinstance(right, NullType) or left == right:
        return left
    if isinstance(left, NullType):
        return right
    if isinstance(left, StructType) and isinstance(right, StructType):
        return merge_structs(left, right, matcher, of_files=of_files)
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        element = merge_types(left.elementType, right.elementType, matcher, of_files=of_files)
        return ArrayType(element, left.containsNull or right.containsNull)
    found = _merge_of_files(left, right, matcher) if of_files else None
    return found or _merge_numbers(left, right) or StringType()


def _merge_of_files(left: DataType, right: DataType, matcher: NameMatcher) -> DataType | None:
    """Merge what meets only where files say types; `None` for anything else."""
    if isinstance(left, MapType) and isinstance(right, MapType):
        key = merge_types(left.keyType, right.keyType, matcher, of_files=True)
        return MapType(key, merge_types(left.valueType, right.valueType, matcher, of_files=True))
    if isinstance(left, _TIMES) and isinstance(right, _TIMES):
        return max(left, right, key=lambda each: _TIMES.index(type(each)))
    return None


def merge_structs(
    left: StructType,
    right: StructType,
    matcher: NameMatcher = CASE_INSENSITIVE,
    *,
    of_files: bool = False,
) -> StructType:
    """Merge the fields of both, each once; those of `left` first, the new ones of `right` after.

    A field that only one side has is nullable in the result: the other side's records lack it.
    """
    merged = {matcher.key(field.name): field for field in left.fields}
    shared = set()
    for field in right.fields:
        key = matcher.key(field.name)
        known = merged.setdefault(key, field)
        if known is not field:
            shared.add(key)
            kind = merge_types(known.dataType, field.dataType, matcher, of_files=of_files)
            is_nullable = known.nullable or field.nullable
            merged[key] = StructField(known.name, kind, is_nullable, known.metadata)
    return StructType(
        [
            StructField(
                field.name, field.dataType, field.nullable or key not in shared, field.metadata
            )
            for key, field in merged.items()
        ]
    )


def _merge_numbers(left: DataType, right: DataType) -> DataType | None:
    """Find the wider of two number types; `None` when one of them is not a number."""
    if isinstance(left, _NUMERIC_ORDER) and isinstance(right, _NUMERIC_ORDER):
        return max(left, right, key=lambda each: _NUMERIC_ORDER.index(type(each)))
    one, other = _as_decimal(left), _as_decimal(right)
    if one is not None and other is not None:
        return merge_decimals(one, other)
    fractions = (FloatType, DoubleType, DecimalType)
    if isinstance(left, fractions) and isinstance(right, fractions):
        return DoubleType()
    return None


def _as_decimal(kind: DataType) -> DecimalType | None:
    """Find the decimal that holds every value of an exact number type, otherwise `None`."""
    if isinstance(kind, DecimalType):
        return kind
    digits = _INTEGRAL_DIGITS.get(type(kind))
    return None if digits is None else DecimalType(digits, 0)


def merge_decimals(left: DecimalType, right: DecimalType) -> DataType:
    """Find a decimal with the digits of both before and after the point; a double past 38."""
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale)
    if digits + scale > MAX_DECIMAL_PRECISION:
        return DoubleType()
    return DecimalType(digits + scale, scale)


def inside_of(kind: DataType) -> list[tuple[str, DataType]]:
    """List the types right inside of a type, as the field's name, `element`, `key` or `value`."""
    if isinstance(kind, StructType):
        return [(each.name, each.dataType) for each in kind.fields]
    if isinstance(kind, ArrayType):
        return [("element", kind.elementType)]
    if isinstance(kind, MapType):
        return [("key", kind.keyType), ("value", kind.valueType)]
    return []


def with_inside(kind: DataType, change: Callable[[str, DataType], DataType]) -> DataType:
    """Replace the types right inside of a type; `change` gets the names of `inside_of`."""
    if isinstance(kind, StructType):
        return StructType(
            [with_type(each, change(each.name, each.dataType)) for each in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(change("element", kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        key, value = change("key", kind.keyType), change("value", kind.valueType)
        return MapType(key, value, kind.valueContainsNull)
    return kind


def with_type(field: StructField, kind: DataType) -> StructField:
    """Build the same field of another type."""
    return StructField(field.name, kind, field.nullable, field.metadata)


def grown(
    known: DataType, found: DataType, matcher: NameMatcher, *, maps_take_structs: bool = False
) -> Any:
    """Add to a type the fields that another one has besides, at the end of each struct.

    What is there keeps its name, its type and its place; an unknown type becomes the other.

    Args:
        known: The type.
        found: The other one.
        matcher: How names are compared.
        maps_take_structs: Whether the fields of a struct are values of a map: inference finds a
            struct where a hint says map.
    """

    def grow(inside: DataType, other: DataType) -> Any:
        return grown(inside, other, matcher, maps_take_structs=maps_take_structs)

    if isinstance(known, NullType):
        return found
    if isinstance(known, StructType) and isinstance(found, StructType):
        fields, places = list(known.fields), matcher.positions(known)
        for field in found.fields:
            place = places.setdefault(matcher.key(field.name), len(fields))
            if place == len(fields):
                fields.append(StructField(field.name, field.dataType, True, field.metadata))
            else:
                kind = grow(fields[place].dataType, field.dataType)
                fields[place] = with_type(fields[place], kind)
        return StructType(fields)
    if maps_take_structs and isinstance(known, MapType) and isinstance(found, StructType):
        value = reduce(grow, (each.dataType for each in found.fields), known.valueType)
        return MapType(known.keyType, value, known.valueContainsNull)
    if type(known) is not type(found):
        return known
    others = dict(inside_of(found))
    # The key of a map stays as it is.
    return with_inside(
        known, lambda name, each: each if name == "key" else grow(each, others[name])
    )


def _some_inside(kind: DataType, change: Callable[[DataType], DataType | None]) -> Any:
    """Replace the types right inside of a type; `None` where none, or a necessary one, is left."""
    if isinstance(kind, ArrayType):
        element = change(kind.elementType)
        return None if element is None else ArrayType(element, kind.containsNull)
    if isinstance(kind, MapType):
        key, value = change(kind.keyType), change(kind.valueType)
        return key and value and MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        found = ((field, change(field.dataType)) for field in kind.fields)
        kept = [with_type(field, inside) for field, inside in found if inside is not None]
        return StructType(kept) if kept else None
    return kind


def seen_part(kind: DataType) -> Any:
    """Find as much of a type as values have shown (`dropFieldIfAllNull`); `None` when nothing."""
    return None if isinstance(kind, NullType) else _some_inside(kind, seen_part)


def seen_columns(schema: StructType) -> StructType:
    """List the columns whose type is known, of files that say their types.

    One that no file says yet, as of a column without values that pandas wrote, waits for the first
    that does. Where there is no other column, they are begun with.
    """
    found: StructType | None = seen_part(schema)
    return schema if found is None else found


@dataclass(frozen=True, slots=True)
class Room:
    """How much deeper types may be nested at some place of a schema.

    What carries rows to a table, and what reads the table, bound it. All of it is counted without
    the columns themselves, whose values may be anything.

    Attributes:
        arrow: Levels that Arrow's IPC takes, of 64.
        json: Levels of the JSON of a Delta table's schema that deltalake and others read, of 128.
        parquet: Levels of groups in a data file that deltalake reads, of 100.
    """

    arrow: int = 62
    json: int = 123
    parquet: int = 98

    def within(self, kind: type[DataType]) -> Room | None:
        """Return the room inside of a type; `None` where the type itself has none."""
        arrow, in_json, parquet = _LEVELS.get(kind, (0, 0, 0))
        left = Room(self.arrow - arrow, self.json - in_json, self.parquet - parquet)
        return None if min(left.arrow, left.json, left.parquet) < 0 else left


_LEVELS: Final[dict[type[DataType], tuple[int, int, int]]] = {
    StructType: (1, 3, 1),
    ArrayType: (1, 1, 2),
    MapType: (2, 1, 2),
    VariantType: (1, 0, 1),
}
ROOM: Final = Room()
"""That of a column."""
NO_ROOM: Final = Room(0, 0, 0)


def canonical(kind: DataType, room: Room = ROOM) -> DataType | None:
    """Resolve a type as inference does: unseen values are strings, empty structs are gone.

    So is what is nested too deep at a place with so much room.

    Returns:
        `None` when nothing is left: a struct without fields (SPARK-8093), or an array of them.
    """
    if isinstance(kind, NullType):
        return StringType()
    inside = room.within(type(kind))
    if inside is None:
        return None
    found: DataType | None = _some_inside(kind, lambda each: canonical(each, inside))
    return found


def too_deep(schema: StructType) -> str | None:
    """Find the first column that is nested deeper than a table can be."""
    return next((each.name for each in schema.fields if not _has_room(each.dataType, ROOM)), None)


def _has_room(kind: DataType, room: Room) -> bool:
    inside = room.within(type(kind))
    return inside is not None and all(_has_room(each, inside) for _, each in inside_of(kind))


def canonical_struct(schema: StructType) -> StructType:
    """`canonical` for a whole schema, which may end up without columns."""
    found: StructType | None = _some_inside(schema, canonical)
    return StructType([]) if found is None else found


def as_nullable(kind: DataType) -> DataType:
    """Remove `NOT NULL` from the type, at any depth: a record may lack anything."""
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(field.name, as_nullable(field.dataType), True, field.metadata)
                for field in kind.fields
            ]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(as_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(as_nullable(kind.keyType), as_nullable(kind.valueType), True)
    return kind


def all_strings(kind: DataType) -> DataType:
    """Make every leaf a string (Auto Loader's default for text formats, B5)."""
    inside = with_inside(kind, lambda _, each: all_strings(each))
    return StringType() if inside is kind else inside


def to_arrow(schema: StructType) -> pa.Schema:
    """Build the Arrow schema that Spark expects record batches of `schema` to have.

    Identical to what PySpark's own `to_arrow_schema(schema, timezone="UTC")` gives, which Spark
    compares with `equals`; written out here because that function is private and its signature
    moves between releases.

    Raises:
        IncompatibleSchemaError: A column has a type that no file format here can be read into.
    """
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


_METADATA_KEY: Final = b"SPARK::metadata::json"
"""Under which Spark keeps the metadata of a field (`ArrowUtils.metadataKey`)."""

VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""The Arrow type that Spark takes for a VARIANT."""

_ARROW_LEAVES: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
    NullType: pa.null(),
    VariantType: VARIANT,
}


def _arrow_field(field: StructField, where: str) -> pa.Field:
    """Build one field, with its metadata in the form Spark gives it."""
    metadata = {_METADATA_KEY: json.dumps(field.metadata).encode()} if field.metadata else None
    return pa.field(
        field.name,
        _arrow_type(field.dataType, where),
        nullable=field.nullable,
        metadata=metadata,
    )


def _arrow_type(kind: DataType, where: str) -> pa.DataType:
    """Build one type; `where` is its place in the schema, for the error."""
    leaf = _ARROW_LEAVES.get(type(kind))
    if leaf is not None:
        return leaf
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(each, f"{where}.{each.name}") for each in kind.fields])
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType, f"{where}.element")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, MapType):
        return pa.map_(
            pa.field("key", _arrow_type(kind.keyType, f"{where}.key"), nullable=False),
            pa.field(
                "value",
                _arrow_type(kind.valueType, f"{where}.value"),
                nullable=kind.valueContainsNull,
            ),
        )
    raise IncompatibleSchemaError(
        f"Column {where} has type {short_type(kind)}, which files cannot be read into here. "
        "Give it another type, for instance string."
    )


def short_type(kind: DataType) -> str:
    """Format a type as Spark writes it, as much of it as a message shows."""
    return cut(kind.simpleString())


def simple_ddl(schema: StructType) -> str:
    """Format the schema on one line, in Spark's DDL, for people and for error messages."""
    return ", ".join(_ddl_field(field, " ") for field in schema.fields)


def _ddl_field(field: StructField, between: str) -> str:
    """Format one field of a DDL text: name, type and whether it may be null."""
    not_null = "" if field.nullable else " NOT NULL"
    return f"{quoted(field.name)}{between}{_ddl_type(field.dataType)}{not_null}"


def _ddl_type(kind: DataType) -> str:
    """Format one type of a DDL text."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(_ddl_field(field, ': ') for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_ddl_type(kind.keyType)}, {_ddl_type(kind.valueType)}>"
    return kind.simpleString().upper()


def schema_tree(schema: StructType) -> str:
    """Format the schema as a tree, a field on each line, as `StructType.treeString` of Spark 4."""
    return "\n".join(("root", *_branches(schema, " |"), ""))


def _branches(kind: DataType, prefix: str) -> Iterator[str]:
    inside: tuple[tuple[str, DataType, str], ...] = ()
    if isinstance(kind, StructType):
        inside = tuple(
            (each.name, each.dataType, f" (nullable = {str(each.nullable).lower()})")
            for each in kind.fields
        )
    elif isinstance(kind, ArrayType):
        contains = f" (containsNull = {str(kind.containsNull).lower()})"
        inside = (("element", kind.elementType, contains),)
    elif isinstance(kind, MapType):
        contains = f" (valueContainsNull = {str(kind.valueContainsNull).lower()})"
        inside = (("key", kind.keyType, ""), ("value", kind.valueType, contains))
    for name, each, null in inside:
        shown = each.simpleString() if isinstance(each, DecimalType) else each.typeName()
        yield f"{prefix}-- {name}: {shown}{null}"
        yield from _branches(each, f"{prefix}    |")


def missing_fields(
    paths: Iterable[str], schema: StructType, matcher: NameMatcher
) -> frozenset[tuple[str, ...]]:
    """Find which of some fields a schema lacks, as readers of records meet them.

    Args:
        paths: As differences of schemas name them: `a`, `a.b`, `a.element.b`, `a.value.b`.
        schema: Columns of the records.
        matcher: How names are compared.

    Returns:
        The keys of the names on each path; elements of arrays and values of maps have none.
    """
    found = (_keys_on(path, schema, matcher) for path in paths)
    return frozenset(keys for keys, is_there in found if not is_there)


def _keys_on(path: str, schema: StructType, matcher: NameMatcher) -> tuple[tuple[str, ...], bool]:
    """Compute the keys of the names on a path, and tell whether the schema has all of it."""
    kind: DataType | None = schema
    keys: list[str] = []
    for part in parts_of(path):
        if isinstance(kind, ArrayType | MapType) and part in (inside := dict(inside_of(kind))):
            kind = inside[part]
        else:
            keys.append(matcher.key(part))
            known = matcher.find(kind, part) if isinstance(kind, StructType) else None
            kind = None if known is None else known.dataType
    return tuple(keys), kind is not None
