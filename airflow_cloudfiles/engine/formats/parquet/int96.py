"""Does an INT96 column need nanoseconds?

INT96 counts nanoseconds over more years than 64 bits of them hold. So a column is read in
microseconds and in nanoseconds, and what follows compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.columnar.nested import elements, entries, listed
from airflow_cloudfiles.engine.formats.columnar.types import is_list, list_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_NANOS: Final = 2**63 - 2000


def in_nanos(kind: pa.DataType) -> pa.DataType:
    """The type with its instants in nanoseconds."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, in_nanos(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_nanos(kind.key_type), in_nanos(kind.item_type))
    if is_list(kind):
        return list_of(kind, in_nanos(kind.value_type))
    return pa.timestamp("ns", "UTC") if kind == pa.timestamp("us", "UTC") else kind


def has_nanos(micros: pa.Array, nanos: pa.Array) -> bool:
    """Whether a column of INT96 has fractions of microseconds.

    Raises:
        OSError: It has, and beside them a time that 64 bits of nanoseconds cannot hold.
    """
    found = is_beyond = False
    for coarse, fine in zip(_instants(micros), _instants(nanos), strict=True):
        number = coarse.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        exact = fine.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        found = found or bool((exact != number * 1000).any())  # beyond 64 bits both wrap round
        is_beyond = is_beyond or bool((np.abs(number) > _MOST_NANOS // 1000).any())
    if found and is_beyond:
        raise OSError("an INT96 column has both nanoseconds and times beyond 1677 or 2262")
    return found


def _instants(array: pa.Array) -> Iterator[pa.Array]:
    """The leaves of an array that are timestamps."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _instants(child)
    elif pa.types.is_map(kind):
        for child in entries(array):
            yield from _instants(child)
    elif is_list(kind):
        yield from _instants(elements(listed(array)))
    elif pa.types.is_timestamp(kind):
        yield array
