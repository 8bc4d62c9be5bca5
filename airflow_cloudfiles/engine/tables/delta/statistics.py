"""Write what the log says of a data file, so that readers can skip it.

Row count, null counts, and bounds. A bound that is a little wrong hides rows, silently and for
every reader. So each bound is what the file has, or lies outside of it:

* Texts longer than `MOST_TEXT` characters are cut: a prefix is a lower bound; an upper bound ends
  with the greatest character there is.
* Timestamps have milliseconds in Delta's JSON: the lower bound is rounded down, the upper one up.
* Floats have bounds only in files without NaN, which Parquet's bounds leave out and Delta's order
  has above all others, and without infinity, which JSON lacks.
* Decimals are written with all their digits.
* Dates and times outside of the years 1 to 9999 have none: ISO 8601 agrees on no form of them.
* Booleans, binary values, VARIANTs, arrays and maps have none, as Delta keeps none.

Bounds are taken from the Parquet footer as numbers: Python has no dates of other years.

Columns of a data file that are worth a dictionary get one.

By default Parquet's writer makes a dictionary for each column and row group. Of a column whose
values are mostly different, that costs twice the time of writing them plainly, and makes the file
larger. So the first rows of a file decide, column by column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.formats.columnar.types import is_variant, leaf_types
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE

INDEXED_COLUMNS: Final = 32
"""Leaf columns with statistics where the table does not say, as Delta has it."""
NUMBER_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"
NAMES_PROPERTY: Final = "delta.dataSkippingStatsColumns"
MOST_TEXT: Final = 32
"""Characters of a bound, as Delta cuts them."""
_GREATEST: Final = "\U0010ffff"
_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_DAY_MS: Final = 86_400_000
_PATH: Final = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.,]+))([.,]|$)")


@dataclass(frozen=True, slots=True)
class IndexedColumns:
    """Which leaf columns of a table have statistics.

    Attributes:
        number: The first so many; -1 for all.
        names: These, and what is inside them, if the table names any.
    """

    number: int = INDEXED_COLUMNS
    names: tuple[tuple[str, ...], ...] | None = None

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> IndexedColumns:
        """Read the properties of a table; what is not valid counts as not set."""
        text = configuration.get(NUMBER_PROPERTY, "").strip()
        number = int(text) if re.fullmatch(r"-1|\d{1,9}", text) else INDEXED_COLUMNS
        listed = configuration.get(NAMES_PROPERTY)
        return cls(number, None if listed is None else tuple(_paths(listed)))

    def renamed(self, rename: Callable[[tuple[str, ...]], tuple[str, ...]]) -> IndexedColumns:
        """Rename the columns."""
        return self if self.names is None else replace(self, names=tuple(map(rename, self.names)))

    def chosen(self, leaves: Sequence[BoundedLeaf]) -> list[BoundedLeaf]:
        """Choose the leaf columns with statistics; names are compared without case."""
        if self.names is not None:
            key = CASE_INSENSITIVE.key
            wanted = {tuple(map(key, each)) for each in self.names}
            return [
                leaf
                for leaf in leaves
                if any(
                    tuple(map(key, leaf.path[:depth])) in wanted
                    for depth in range(1, len(leaf.path) + 1)
                )
            ]
        return list(leaves if self.number < 0 else leaves[: self.number])


@dataclass(frozen=True, slots=True)
class BoundedLeaf:
    """A column of a schema that is no struct.

    Attributes:
        path: Its name, behind those of the structs it is in.
        kind: Its type.
        index: Its place among the columns of a Parquet file; `None` if there it is several.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    index: int | None


def leaves_of(schema: pa.Schema) -> list[BoundedLeaf]:
    """List the leaf columns of a schema, in order."""
    return list(_leaves(list(schema), (), 0))


def _leaves(
    fields: Sequence[pa.Field], at: tuple[str, ...], index: int
) -> Generator[BoundedLeaf, None, int]:
    """Yield the leaves of some fields; return the index behind the last one."""
    for each in fields:
        path = (*at, each.name)
        if pa.types.is_struct(each.type) and not is_variant(each.type):
            index = yield from _leaves(list(each.type), path, index)
            continue
        yield BoundedLeaf(path, each.type, None if pa.types.is_nested(each.type) else index)
        index += len(list(leaf_types(each.type)))
    return index


class FileStatistics:
    """The statistics of one data file, while it is written and when its footer is known.

    Args:
        schema: Of the file.
        columns: Which columns have statistics.
        is_seen: Whether all rows are looked at (`add`). Where they are not, a float may be NaN.
    """

    def __init__(self, schema: pa.Schema, columns: IndexedColumns, *, is_seen: bool = True) -> None:
        self._leaves = columns.chosen(leaves_of(schema))
        self._names = schema.names
        self._floats = [each for each in self._leaves if pa.types.is_floating(each.kind)]
        self._with_nan = set() if is_seen else {each.path for each in self._floats}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look for what a footer does not tell."""
        for leaf in self._floats:
            if leaf.path not in self._with_nan and _has_nan(batch, self._names, leaf):
                self._with_nan.add(leaf.path)

    def to_json(self, footer: pq.FileMetaData, lacking: Sequence[str] = ()) -> str:
        """Write the statistics as the log has them.

        Args:
            footer: Of the file.
            lacking: Columns that the file lacks, so that they are null in all rows.
        """
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = dict.fromkeys(lacking, footer.num_rows)
        for leaf in self._leaves:
            if leaf.index is None:
                continue
            chunks = [footer.row_group(i).column(leaf.index) for i in range(footer.num_row_groups)]
            known = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
            if len(known) != len(chunks) or not all(each.has_null_count for each in known):
                continue
            _put(nulls, leaf.path, sum(each.null_count for each in known))
            bounds = None if leaf.path in self._with_nan else _bounds(leaf.kind, chunks, known)
            if bounds is not None:
                _put(low, leaf.path, bounds[0])
                _put(high, leaf.path, bounds[1])
        found = {
            "numRecords": footer.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
        }
        return stats_json(found)


def _has_nan(batch: pa.RecordBatch, names: list[str], leaf: BoundedLeaf) -> bool:
    """Tell whether a column has NaN, perhaps where a struct around it is null."""
    array = batch.column(names.index(leaf.path[0]))
    for name in leaf.path[1:]:
        array = array.field(array.type.get_field_index(name))
    return bool(pc.any(pc.is_nan(array)).as_py())


def _bounds(
    kind: pa.DataType, chunks: Sequence[Any], known: Sequence[pq.Statistics]
) -> tuple[Any, Any] | None:
    """Find the bounds of a column; `None` where it has none, or may not have any."""
    bounded = [each for each in known if each.has_min_max]
    with_values = sum(
        each.null_count < chunk.num_values for each, chunk in zip(known, chunks, strict=True)
    )
    if len(bounded) != with_values or not bounded:
        return None
    lows, highs = [each.min_raw for each in bounded], [each.max_raw for each in bounded]
    if pa.types.is_decimal(kind):
        lows, highs = [_unscaled(each) for each in lows], [_unscaled(each) for each in highs]
    low = _bound(kind, min(lows), is_upper=False)
    high = _bound(kind, max(highs), is_upper=True)
    return None if low is None or high is None else (low, high)


def _bound(kind: pa.DataType, raw: Any, *, is_upper: bool) -> Any:
    """Convert a bound to the log's form; `None` for kinds without one, or if none fits."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _text(raw)
        if text is None:
            return None
        return _raised(text) if is_upper else text[:MOST_TEXT]
    if pa.types.is_timestamp(kind):
        return _moment(kind, -(-raw // 1000) if is_upper else raw // 1000)
    return _exact(kind, raw)


def _exact(kind: pa.DataType, raw: Any) -> Any:
    """Convert a bound that needs no rounding."""
    if pa.types.is_date32(kind):
        is_plain = _FIRST_DAY <= raw <= _LAST_DAY
        return date.fromordinal(_EPOCH + raw).isoformat() if is_plain else None
    if pa.types.is_signed_integer(kind):
        return raw
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return raw if isfinite(raw) else None
    if pa.types.is_decimal(kind):
        return Decimal((int(raw < 0), tuple(map(int, str(abs(raw)))), -kind.scale))
    return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:  # cut by a writer, or not text
        return None


def _raised(text: str) -> str:
    """Shorten a text to one that is not below it, by code points as by UTF-8's bytes."""
    if len(text) <= MOST_TEXT:
        return text
    for end in range(MOST_TEXT, len(text)):
        if text[end] < _GREATEST:
            return text[:end] + _GREATEST
    return text


def _moment(kind: pa.DataType, milliseconds: int) -> str | None:
    """Write a moment in ISO 8601, with the zone if its column has one."""
    if kind.unit != "us" or not _FIRST_DAY <= milliseconds // _DAY_MS <= _LAST_DAY:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if kind.tz is None else f"{text}Z"


def _unscaled(raw: int | bytes) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _put(into: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Put a value where its column is, below the structs it is in."""
    *above, name = path
    for each in above:
        into = into.setdefault(each, {})
    into[name] = value


def stats_json(value: object) -> str:
    """Encode a value as JSON; decimals keep all digits, which Python's encoder cannot do.

    Texts are not escaped: delta-kernel misreads escapes of characters beyond the basic plane.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{stats_json(k)}: {stats_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _paths(text: str) -> Iterator[tuple[str, ...]]:
    """Parse names of columns: separated by commas, with dots between a struct and its fields."""
    at: list[str] = []
    for quoted, plain, end in _PATH.findall(text):
        at.append(quoted.replace("``", "`") if quoted else plain.strip())
        if end != ".":
            yield tuple(at)
            at = []


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
        yield from _worth_it(pa.nulls(0, kind.key_type), f"{path}.key_value.key")
        yield from _worth_it(pa.nulls(0, kind.item_type), f"{path}.key_value.value")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _worth_it(array.flatten()[:SAMPLE_ROWS], f"{path}.list.element")
    elif _repeats(array):
        yield path


def _repeats(values: pa.Array) -> bool:
    """Tell whether enough of the values occur more than once."""
    count: int = len(values) - values.null_count
    distinct: int = pc.count_distinct(values).as_py() if count else 0
    return distinct <= MOST_DISTINCT * count
