"""How do groups with a list of pairs become the maps that they are?

Some writers mark the keys of a map as optional, which Parquet does not allow and Spark reads. The
library refuses such a map; it gets a footer that does not call it one
(`footer.without_optional_keys`), and what it reads is made a map here. A key that is null
makes the file unreadable: Arrow has no such map.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.arrays import validity
from airflow_cloudfiles.engine.formats.columnar import nested
from airflow_cloudfiles.engine.formats.columnar.types import is_list

_PAIR: int = 2


def map_type(kind: pa.DataType) -> pa.DataType | None:
    """The map that a group with a list of pairs is; `None` if it is something else."""
    if kind.num_fields != 1 or not is_list(kind.field(0).type):
        return None
    pair = kind.field(0).type.value_type
    if not pa.types.is_struct(pair) or pair.num_fields != _PAIR:
        return None
    return pa.map_(pair.field(0).type, pair.field(1).type)


def holds_map(kind: pa.DataType) -> bool:
    """Whether it is a map, or has one inside."""
    inner = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return pa.types.is_map(kind) or any(holds_map(kind.field(each).type) for each in inner)


def as_maps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with maps in place of groups, wherever the type has one.

    Raises:
        OSError: A key is null.
    """
    if not holds_map(kind):
        return array if array.type == kind else array.view(kind)
    if pa.types.is_map(kind):
        if pa.types.is_struct(array.type):
            pairs = nested.listed(array.flatten()[0])
            parts = nested.elements(pairs).flatten()
        else:
            pairs, parts = array, nested.entries(array)
        if parts[0].null_count:
            raise OSError(
                "a map has a key that is null, which no map can have. Write the file anew with "
                "keys, or leave the column out of a schema of your own"
            )
        fields = [kind.key_field, kind.item_field]
        children = [as_maps(part, each.type) for part, each in zip(parts, fields, strict=True)]
        return _nest(kind, pairs, pa.StructArray.from_arrays(children, fields=fields))
    if is_list(kind):
        array = nested.listed(array)
        return _nest(kind, array, as_maps(nested.elements(array), kind.value_type))
    children = [
        as_maps(each, field.type) for each, field in zip(array.flatten(), kind, strict=True)
    ]
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)


def _nest(kind: pa.DataType, like: pa.Array, child: pa.Array) -> pa.Array:
    """Lists or maps of other elements, at the same places."""
    offsets = like.offsets.to_numpy().astype(np.int32)
    offsets = offsets - offsets[0] if len(offsets) else np.zeros(1, np.int32)
    valid = validity(like.is_valid().to_numpy(zero_copy_only=False)) if like.null_count else None
    return pa.Array.from_buffers(kind, len(like), [valid, pa.py_buffer(offsets)], children=[child])
