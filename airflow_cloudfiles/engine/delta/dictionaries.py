"""Which columns of a data file are worth a dictionary?

By default Parquet's writer makes a dictionary for each column and row group. Of a column whose
values are mostly different, that costs twice the time of writing them plainly, and makes the file
larger. So the first rows of a file decide, column by column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS: Final = 4096
MOST_DISTINCT: Final = 0.95
"""Share of different values in a sample from which on a column goes without a dictionary.

Of 4,096 values drawn from 40,000 that are equally frequent, 95 % are different. A row group has
some 60,000 rows, of which a dictionary of as many values saves next to nothing."""


def dictionary_columns(batch: pa.RecordBatch) -> list[str]:
    """Choose the columns that are written with a dictionary, by the first rows of a file.

    Returns:
        Paths of leaf columns, as Parquet writes them.
    """
    sample = batch.slice(0, SAMPLE_ROWS)
    return [
        path
        for column, field in zip(sample.columns, sample.schema, strict=True)
        for path in _worth_it(column, field.name)
    ]


def _worth_it(array: pa.Array, path: str) -> Iterator[str]:
    kind = array.type
    if isinstance(kind, pa.ExtensionType):
        yield from _worth_it(array.storage, path)
    elif pa.types.is_struct(kind):
        for child, field in zip(array.flatten(), kind, strict=True):
            yield from _worth_it(child, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        # Keys repeat, and their values come in as many kinds as there are keys.
        yield from _all_leaves(kind.key_type, f"{path}.key_value.key")
        yield from _all_leaves(kind.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _worth_it(array.flatten()[:SAMPLE_ROWS], f"{path}.list.element")
    elif _repeats(array):
        yield path


def _all_leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    yield from _worth_it(pa.nulls(0, kind), path)


def _repeats(values: pa.Array) -> bool:
    """Whether enough of some values come more than once."""
    count: int = len(values) - values.null_count
    distinct: int = pc.count_distinct(values).as_py() if count else 0
    return distinct <= MOST_DISTINCT * count
