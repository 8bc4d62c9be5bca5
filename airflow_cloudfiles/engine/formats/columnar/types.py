"""Turn the types of files into column types, and take nested values apart.

Parquet and ORC files carry their own types. They become Spark's types as Spark's readers map them
(`ParquetToSparkSchemaConverter`, `OrcUtils.toCatalystSchema`, Spark 4.3), and meet in the widest
type when files disagree (B10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from airflow_cloudfiles.engine.formats.base import Int32s, validity
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.types import (
    MAX_DECIMAL_PRECISION,
    VariantType,
    is_column_name,
    merge_types,
)

MAX_DEPTH: Final = 100
"""A type nested deeper is no column: Spark could not plan with it."""

_LEAVES: Final[dict[pa.DataType, DataType]] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    # As Spark: the next larger signed type holds every value of an unsigned one.
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.string_view(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.binary_view(): BinaryType(),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
}

_IS_LIST: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


_IS_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IS_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether it is a string in any of Arrow's layouts."""
    return any(test(kind) for test in _IS_TEXT)


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether it is binary in any of Arrow's layouts."""
    return any(test(kind) for test in _IS_BYTES)


def is_list(kind: pa.DataType) -> bool:
    """Tell whether it is a list in any of Arrow's layouts."""
    return any(test(kind) for test in _IS_LIST)


_METADATA, _VALUE, _TYPED = "metadata", "value", "typed_value"
_MARK: Final = {b"variant": b"true"}
"""As Spark marks the field `metadata` of a VARIANT in Arrow."""


def is_variant(kind: pa.DataType) -> bool:
    """Tell whether it is a VARIANT of a file, shredded or not, as `as_variant` marks it."""
    return has_variant_parts(kind) and kind.field(_METADATA).metadata == _MARK


def has_variant_parts(kind: pa.DataType) -> bool:
    """Tell whether it is a struct of the parts of a VARIANT, whatever it is meant to be."""
    if not pa.types.is_struct(kind):
        return False
    parts = {field.name: field.type for field in kind}
    return (
        len(parts) == kind.num_fields
        and parts.keys() <= {_METADATA, _VALUE, _TYPED}
        and len(parts) > 1
        and is_bytes(parts.get(_METADATA, pa.null()))
        and is_bytes(parts.get(_VALUE, pa.binary()))
    )


def is_variant_unshredded(kind: pa.DataType) -> bool:
    """Tell whether it is a struct of `metadata` and `value` and of nothing else."""
    return has_variant_parts(kind) and {each.name for each in kind} == {_METADATA, _VALUE}


def as_variant(kind: pa.DataType) -> pa.DataType:
    """Mark the type as a VARIANT."""
    fields = [field.with_metadata(_MARK if field.name == _METADATA else None) for field in kind]
    return pa.struct(fields)


def holds(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether it is a type of some kind, or has one inside."""
    inner = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return is_wanted(kind) or any(holds(kind.field(each).type, is_wanted) for each in inner)


def holds_variant(kind: pa.DataType) -> bool:
    """Tell whether it is a `VARIANT`, or has one inside."""
    return holds(kind, is_variant)


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types that hold no other, at or inside a type."""
    if pa.types.is_nested(kind):
        for place in range(kind.num_fields):
            yield from leaf_types(kind.field(place).type)
    else:
        yield kind


def list_of(kind: pa.DataType, element: pa.DataType) -> pa.DataType:
    """Build a list of the same layout with other elements."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Strip the type of its wrapping: dictionary, run-end encoding, extension.

    A duration is a number of units, as Parquet stores it and Spark reads it. A short decimal is
    one of 128 bits, for which Arrow has all the arithmetic.
    """
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
            return pa.decimal128(kind.precision, kind.scale)
        else:
            return pa.int64() if pa.types.is_duration(kind) else kind


def column_type(kind: pa.DataType, matcher: NameMatcher, depth: int = 0) -> DataType | None:
    """Find the type of the column that takes values of an Arrow type.

    Returns:
        `None` when there is none: times of day, intervals, unions, decimals of more than 38
        digits, structs without fields, what is nested deeper than `MAX_DEPTH`.
    """
    kind = plain_type(kind)
    if depth > MAX_DEPTH:
        return None
    leaf = VariantType() if is_variant(kind) else _LEAVES.get(kind)
    if leaf is not None:
        return leaf
    if pa.types.is_struct(kind):
        fields = column_types(kind, matcher, depth + 1)
        return StructType(fields) if fields else None
    if is_list(kind):
        element = column_type(kind.value_type, matcher, depth + 1)
        return None if element is None else ArrayType(element)
    if pa.types.is_map(kind):
        key = column_type(kind.key_type, matcher, depth + 1)
        value = column_type(kind.item_type, matcher, depth + 1)
        return None if key is None or value is None else MapType(key, value)
    return _parametric_type(kind)


def _parametric_type(kind: pa.DataType) -> DataType | None:
    """`column_type` of leaves with parameters."""
    if pa.types.is_fixed_size_binary(kind):
        return BinaryType()
    if pa.types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_DECIMAL_PRECISION:
        return DecimalType(kind.precision, kind.scale)
    return None


def column_types(
    fields: Iterable[pa.Field], matcher: NameMatcher, depth: int = 0
) -> list[StructField]:
    """List the fields that can be columns, in order; of several spellings of a name, the first."""
    found: dict[str, StructField] = {}
    for field in fields:
        key = matcher.key(field.name)
        if key in found or not is_column_name(field.name):
            continue
        kind = column_type(field.type, matcher, depth)
        if kind is not None:
            found[key] = StructField(field.name, kind)
    return list(found.values())


def clashes(left: DataType, right: DataType, matcher: NameMatcher) -> bool:
    """Tell whether two types have no wider one in common, so that values of one are rescued."""
    merged = merge_types(left, right, matcher, of_files=True)
    return isinstance(merged, StringType) and not all(
        isinstance(each, StringType | NullType) for each in (left, right)
    )


def plain(array: pa.Array) -> pa.Array:
    """Strip the array of its wrapping: dictionary, run-end encoding, extension."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            kind = plain_type(array.type)
            return array if kind == array.type else array.cast(kind)


def ranges(array: pa.Array) -> list[tuple[int, int] | None]:
    """Find where the elements of each list or map are in `elements(array)`; `None` for null."""
    offsets = array.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    return [
        (offsets[row] - first, offsets[row + 1] - first) if valid else None
        for row, valid in enumerate(array.is_valid().to_pylist())
    ]


def listed(array: pa.Array) -> pa.Array:
    """Convert a list of any layout to a plain one."""
    kind = array.type
    if pa.types.is_list(kind):
        return array
    return array.cast(pa.list_(kind.value_field))


def elements(array: pa.Array) -> pa.Array:
    """Return the elements of plain lists, also those behind nulls."""
    offsets = array.offsets
    return array.values[offsets[0].as_py() : offsets[-1].as_py()] if len(array) else array.values


def entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and values of maps, also those behind nulls."""
    offsets = array.offsets
    begin, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(array) else (0, 0)
    return array.keys[begin:end], array.items[begin:end]


def offsets_of(array: pa.Array) -> Int32s:
    """Find where the elements of each row begin and end, from 0."""
    found: Int32s = array.offsets.to_numpy().astype(np.int32)
    return found - found[0] if len(found) else np.zeros(1, np.int32)


def nest(kind: pa.DataType, like: pa.Array, child: pa.Array) -> pa.Array:
    """Build lists, or maps, of new elements, of which there are as many as before.

    Args:
        kind: Their type.
        like: The old ones.
        child: The elements, or pairs.
    """
    valid = validity(like.is_valid().to_numpy(zero_copy_only=False))
    buffers = [valid, pa.py_buffer(offsets_of(like))]
    return pa.Array.from_buffers(kind, len(like), buffers, children=[child])


def with_inner(array: pa.Array, kind: pa.DataType, inner: pa.Array) -> pa.Array:
    """Build the same array, a slice maybe, with other values in its one child."""
    own = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [inner])
