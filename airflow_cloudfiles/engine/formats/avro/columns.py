"""How do decoded values become columns?

`fastavro` decodes records one by one into Python values, by the wire schema (`schema`). Here
they are turned by 90 degrees: each column is gathered and converted at once, also within records,
arrays and maps. Nothing is judged here: a string that is no UTF-8, or a timestamp beyond the range
of Spark's, is in the array as it is in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.arrays import validity
from airflow_cloudfiles.engine.formats.avro.container import AvroDamagedError
from airflow_cloudfiles.engine.formats.avro.schema import KEY, VALUE, AvroNode

Values = Sequence[Any]
_DECIMAL_BYTES: Final = 16
_INT_BITS: Final = 31
_MOST_SYMBOLS_BYTES: Final = 2**30
"""Of the symbols of an enum in one batch: an array names each with a byte."""


def to_array(node: AvroNode, values: Values) -> pa.Array:
    """The array of some values of one type.

    Args:
        node: Their type.
        values: As they are decoded by its wire schema; `None` for null.

    Raises:
        AvroDamagedError: A value is none of its type.
    """
    return _MAKERS[node.kind](node, values)


def _simple(node: AvroNode, values: Values) -> pa.Array:
    return pa.array(values, node.arrow)


def _int(node: AvroNode, values: Values) -> pa.Array:
    try:
        return pa.array(values, pa.int32()).view(node.arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise AvroDamagedError(f"an int has more than 32 bits ({error})") from error


def _long(node: AvroNode, values: Values) -> pa.Array:
    return pa.array(values, pa.int64()).view(node.arrow)


def _bytes(node: AvroNode, values: Values) -> pa.Array:
    if pa.types.is_decimal(node.arrow):
        return _decimal(node.arrow, values)
    return pa.array(values, node.arrow)


def _string(_node: AvroNode, values: Values) -> pa.Array:
    # Whether they are UTF-8 is asked when they are fitted into their column.
    return pa.array(values, pa.binary()).view(pa.string())


def _decimal(kind: pa.DataType, values: Values) -> pa.Array:
    """Whole numbers of any length, the big end first, in two's complement."""
    limit = 10**kind.precision
    whole = bytearray()
    valid = np.ones(len(values), np.bool_)
    for place, value in enumerate(values):
        number = 0
        if value is None:
            valid[place] = False
        else:
            number = int.from_bytes(value, "big", signed=True)
            if not -limit < number < limit:
                raise AvroDamagedError(f"a decimal has more than {kind.precision} digits")
        whole += number.to_bytes(_DECIMAL_BYTES, "little", signed=True)
    buffers = [None if valid.all() else validity(valid), pa.py_buffer(bytes(whole))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _enum(node: AvroNode, values: Values) -> pa.Array:
    places = pa.array(values, pa.int64())
    found = places.drop_null().to_numpy(zero_copy_only=False)
    if ((found < 0) | (found >= len(node.symbols))).any():
        raise AvroDamagedError(f"an enum of {len(node.symbols)} symbols has a value beyond them")
    symbols = pa.array(node.symbols, pa.string())
    lengths = pc.binary_length(symbols).to_numpy().astype(np.int64)
    if len(found) and int(lengths[found].sum()) > _MOST_SYMBOLS_BYTES:
        raise AvroDamagedError(
            f"an array of an enum has symbols of more than {_MOST_SYMBOLS_BYTES} bytes, which no "
            "column can hold"
        )
    return symbols.take(places)


def _record(node: AvroNode, values: Values) -> pa.Array:
    present = [value for value in values if value is not None]
    children = [
        to_array(child, list(map(itemgetter(f"f{place}"), present)))
        for place, child in enumerate(node.children)
    ]
    return _structs(node.arrow, children, values, len(present))


def _union(node: AvroNode, values: Values) -> pa.Array:
    present = [value for value in values if value is not None]
    children = [
        to_array(child, [value.get(f"m{place}") for value in present])
        for place, child in enumerate(node.children)
    ]
    return _structs(node.arrow, children, values, len(present))


def _structs(kind: pa.DataType, children: list[pa.Array], values: Values, there: int) -> pa.Array:
    """Structs whose fields are given for those that are there."""
    if there == len(values):
        return pa.Array.from_buffers(kind, there, [None], children=children)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    spread = [child.take(places) for child in children]
    return pa.Array.from_buffers(kind, len(values), [validity(valid)], children=spread)


def _array(node: AvroNode, values: Values) -> pa.Array:
    elements = list(chain.from_iterable(value for value in values if value))
    return _nested(node.arrow, values, [to_array(node.children[0], elements)])


def _map(node: AvroNode, values: Values) -> pa.Array:
    pairs = list(chain.from_iterable(value for value in values if value))
    keys = pa.array(list(map(itemgetter(KEY), pairs)), pa.binary()).view(pa.string())
    items = to_array(node.children[0], list(map(itemgetter(VALUE), pairs)))
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[node.arrow.key_field, node.arrow.item_field]
    )
    return _nested(node.arrow, values, [entries])


def _nested(kind: pa.DataType, values: Values, children: list[pa.Array]) -> pa.Array:
    """Lists or maps of elements that lie one after another."""
    lengths = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    buffers = [None if valid.all() else validity(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=children)


def _wider(node: AvroNode, values: Values) -> pa.Array:
    return pa.array([value and value[VALUE] for value in values], node.arrow)


_MAKERS: Final[dict[str, Callable[[AvroNode, Values], pa.Array]]] = {
    "null": _simple,
    "boolean": _simple,
    "int": _int,
    "long": _long,
    "float": _simple,
    "double": _simple,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": _string,
    "enum": _enum,
    "record": _record,
    "array": _array,
    "map": _map,
    "union": _union,
    "wider": _wider,
}
