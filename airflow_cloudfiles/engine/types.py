"""Merge the types of two records into one.

The common language of schemas is `pyspark.sql.types`, which imports without a JVM. The laws are
those of Spark's JSON inference (`JsonInferSchema` and `TypeCoercion.findTightestCommonType`),
with two differences of ours: names are matched without regard to case (unless the session is
case-sensitive), and columns stay in the order of their first appearance (Spark sorts them by name).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
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

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher, parts_of, quoted
from airflow_cloudfiles.engine.spark_types import VariantType

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


def merge_types(
    left: DataType, right: DataType, matcher: NameMatcher = CASE_INSENSITIVE
) -> DataType:
    """Find the narrowest type that holds the values of both: Spark's rule for JSON.

    Nothing (`NullType`) gives way to anything; numbers meet in the wider one; structs are merged
    field by field, arrays by their elements; whatever else meets becomes a string. Associative,
    and commutative but for the order and the spelling of fields, which follow `left`.
    """
    if left == right or isinstance(right, NullType):
        return left
    if isinstance(left, NullType):
        return right
    if isinstance(left, StructType) and isinstance(right, StructType):
        return merge_structs(left, right, matcher)
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        element = merge_types(left.elementType, right.elementType, matcher)
        return ArrayType(element, left.containsNull or right.containsNull)
    return _merge_numbers(left, right) or StringType()


def merge_structs(
    left: StructType, right: StructType, matcher: NameMatcher = CASE_INSENSITIVE
) -> StructType:
    """Merge the fields of both, each once; those of `left` first, the new ones of `right` after.

    A field that only one side has is nullable in the result: the other side's records lack it.
    """
    merged = {matcher.key(field.name): field for field in left.fields}
    shared = set()
    for field in right.fields:
        key = matcher.key(field.name)
        known = merged.get(key)
        if known is None:
            merged[key] = StructField(field.name, field.dataType, True, field.metadata)
            continue
        shared.add(key)
        merged[key] = StructField(
            known.name,
            merge_types(known.dataType, field.dataType, matcher),
            known.nullable or field.nullable,
            known.metadata,
        )
    return StructType(
        [
            field
            if key in shared or field.nullable
            else StructField(field.name, field.dataType, True, field.metadata)
            for key, field in merged.items()
        ]
    )


def _merge_numbers(left: DataType, right: DataType) -> DataType | None:
    """Find the wider of two number types; `None` when one of them is not a number."""
    if isinstance(left, _NUMERIC_ORDER) and isinstance(right, _NUMERIC_ORDER):
        return max(left, right, key=lambda each: _NUMERIC_ORDER.index(type(each)))
    one, other = _as_decimal(left), _as_decimal(right)
    if one is not None and other is not None:
        return _merge_decimals(one, other)
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


def _merge_decimals(left: DecimalType, right: DecimalType) -> DataType:
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


def seen_part(kind: DataType) -> Any:
    """Find as much of a type as values have shown (`dropFieldIfAllNull`); `None` when nothing."""
    if isinstance(kind, NullType):
        return None
    if isinstance(kind, ArrayType):
        element = seen_part(kind.elementType)
        return None if element is None else ArrayType(element, kind.containsNull)
    if isinstance(kind, MapType):
        key, value = seen_part(kind.keyType), seen_part(kind.valueType)
        return key and value and MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        kept = [
            with_type(each, found)
            for each in kind.fields
            if (found := seen_part(each.dataType)) is not None
        ]
        return StructType(kept) if kept else None
    return kind


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
    if isinstance(kind, ArrayType):
        element = canonical(kind.elementType, inside)
        return None if element is None else ArrayType(element, kind.containsNull)
    if isinstance(kind, MapType):
        key, value = canonical(kind.keyType, inside), canonical(kind.valueType, inside)
        return key and value and MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        resolved = canonical_struct(kind, inside)
        return resolved if resolved.fields else None
    return kind


def too_deep(schema: StructType) -> str | None:
    """Find the first column that is nested deeper than a table can be."""
    return next((each.name for each in schema.fields if not _has_room(each.dataType, ROOM)), None)


def _has_room(kind: DataType, room: Room) -> bool:
    inside = room.within(type(kind))
    return inside is not None and all(_has_room(each, inside) for _, each in inside_of(kind))


def canonical_struct(schema: StructType, room: Room = ROOM) -> StructType:
    """`canonical` for a whole schema, which may end up without columns."""
    fields = ((field, canonical(field.dataType, room)) for field in schema.fields)
    return StructType([with_type(field, kind) for field, kind in fields if kind is not None])


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
        if isinstance(kind, ArrayType) and part == "element":
            kind = kind.elementType
        elif isinstance(kind, MapType) and part in {"key", "value"}:
            kind = kind.keyType if part == "key" else kind.valueType
        else:
            keys.append(matcher.key(part))
            known = matcher.find(kind, part) if isinstance(kind, StructType) else None
            kind = None if known is None else known.dataType
    return tuple(keys), kind is not None
