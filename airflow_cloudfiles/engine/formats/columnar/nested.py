"""What is inside an array of lists, maps or wrapped values?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.base import Int32s, validity
from airflow_cloudfiles.engine.formats.columnar.types import plain_type


def plain(array: pa.Array) -> pa.Array:
    """The array without its wrapping: dictionary, run-end encoding, extension."""
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
    """Where the elements of each list or map are in `elements(array)`; `None` for null."""
    offsets = array.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    return [
        (offsets[row] - first, offsets[row + 1] - first) if valid else None
        for row, valid in enumerate(array.is_valid().to_pylist())
    ]


def listed(array: pa.Array) -> pa.Array:
    """A list of any layout as a plain one."""
    kind = array.type
    if pa.types.is_list(kind):
        return array
    return array.cast(pa.list_(kind.value_field))


def elements(array: pa.Array) -> pa.Array:
    """The elements of plain lists, also those behind nulls."""
    offsets = array.offsets
    return array.values[offsets[0].as_py() : offsets[-1].as_py()] if len(array) else array.values


def entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and values of maps, also those behind nulls."""
    offsets = array.offsets
    begin, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(array) else (0, 0)
    return array.keys[begin:end], array.items[begin:end]


def offsets_of(array: pa.Array) -> Int32s:
    """Where the elements of each row begin and end, from 0."""
    found: Int32s = array.offsets.to_numpy().astype(np.int32)
    return found - found[0] if len(found) else np.zeros(1, np.int32)


def nest(kind: pa.DataType, like: pa.Array, child: pa.Array) -> pa.Array:
    """Lists, or maps, of new elements, of which there are as many as before.

    Args:
        kind: Their type.
        like: The old ones.
        child: The elements, or pairs.
    """
    valid = validity(like.is_valid().to_numpy(zero_copy_only=False)) if like.null_count else None
    buffers = [valid, pa.py_buffer(offsets_of(like))]
    return pa.Array.from_buffers(kind, len(like), buffers, children=[child])


def with_inner(array: pa.Array, kind: pa.DataType, inner: pa.Array) -> pa.Array:
    """The same array, a slice maybe, with other values in its one child."""
    own = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [inner])
