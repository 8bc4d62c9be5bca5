"""Into which partitions does a batch of rows fall?

Iceberg computes the values of partitions from columns: the column itself, a part of a time, a
bucket, a prefix. pyiceberg computes them for whole columns with a compiled package of its own, and
for single values without. So the different values of a column are found first, and few of them
remain: a time counts by its hour where its day, month or year is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError, UnsupportedTableError

_FIRST_FIELD_ID = 1000
_HOUR = 3600 * 10**6
_COLUMN = r"(?P<{}>`[^`]+`|[^\s,()`]+)"
_ITEM = re.compile(
    rf"\s*(?:(?P<transform>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?{_COLUMN.format('inside')}\s*\)"
    rf"|{_COLUMN.format('plain')})\s*(?:,|$)"
)
_TIMES: dict[str, tuple[Transform[Any, Any], str]] = {
    "year": (YearTransform(), "year"),
    "month": (MonthTransform(), "month"),
    "day": (DayTransform(), "day"),
    "hour": (HourTransform(), "hour"),
}
_OF_TIMES = (YearTransform, MonthTransform, DayTransform, HourTransform)


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """A partition field that was asked for: its column, its transform, and the field's name."""

    column: str
    transform: Transform[Any, Any]
    name: str


def parse(text: str) -> list[RequestedPartition]:
    """Read the option `partitionBy`.

    Args:
        text: Columns, or `year`, `month`, `day`, `hour` of one, `bucket(16, id)` or
            `truncate(4, name)`, with commas between them; a name may be in backquotes.

    Raises:
        OptionError: It is something else.
    """
    found, at = [], 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise OptionError(
                f"partitionBy={text!r} cannot be read from {text[at:]!r} on. Give columns, "
                "year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c), with commas "
                "between them."
            )
        found.append(_wanted(item, text))
        at = item.end()
    if not found:
        raise OptionError("partitionBy names no column.")
    return found


def _wanted(item: re.Match[str], text: str) -> RequestedPartition:
    column = (item["inside"] or item["plain"]).strip("`")
    name, width = (item["transform"] or "").lower().rstrip("s"), item["width"]
    if not name and width is None:
        return RequestedPartition(column, IdentityTransform(), column)
    if name in _TIMES and width is None:
        transform, suffix = _TIMES[name]
        return RequestedPartition(column, transform, f"{column}_{suffix}")
    if name == "bucket" and width and int(width):
        return RequestedPartition(column, BucketTransform(int(width)), f"{column}_bucket")
    if name == "truncate" and width and int(width):
        return RequestedPartition(column, TruncateTransform(int(width)), f"{column}_trunc")
    raise OptionError(
        f"partitionBy={text!r} has {item[0].strip(' ,')!r}, which is no partitioning of Iceberg. "
        "Give a column, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)."
    )


def new_spec(partition_by: str | None, schema: Schema, target: str) -> PartitionSpec:
    """The partitioning of a table that is created.

    Raises:
        OptionError: It cannot be read.
        SchemaMismatchError: A column is not there, or of a type that cannot be partitioned by.
    """
    fields = []
    columns = {each.name: each for each in schema.fields}
    for number, each in enumerate(parse(partition_by) if partition_by else []):
        column = columns.get(each.column)
        if column is None or not each.transform.can_transform(column.field_type):
            why = "which the stream lacks" if column is None else f"a {column.field_type}"
            raise SchemaMismatchError(
                f"{target} cannot be partitioned by {each.transform} of {each.column}, {why}. "
                "Correct partitionBy."
            )
        fields.append(
            PartitionField(column.field_id, _FIRST_FIELD_ID + number, each.transform, each.name)
        )
    return PartitionSpec(*fields)


def check_spec(partition_by: str | None, spec: PartitionSpec, schema: Schema, target: str) -> None:
    """Refuse a table that is partitioned otherwise than it was asked for.

    Raises:
        OptionError: It is.
    """
    if not partition_by:
        return
    wanted = [(each.column, str(each.transform)) for each in parse(partition_by)]
    have = [
        (str(schema.find_column_name(each.source_id)), str(each.transform)) for each in spec.fields
    ]
    if wanted != have:
        shown = ", ".join(f"{transform}({column})" for column, transform in have) or "nothing"
        raise OptionError(
            f"{target} is partitioned by {shown}, and partitionBy={partition_by!r} asks for "
            "another partitioning. Remove the option, or change the table."
        )


class Partitioner:
    """Divides batches of one schema among the partitions of a table.

    Args:
        spec: The partitioning.
        schema: The table's columns.
        target: The table, for errors.

    Raises:
        UnsupportedTableError: The table is partitioned by a transform that is not known.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, target: str) -> None:
        self._spec = spec
        self._schema = schema
        self._paths = []
        sources = [each.source_id for each in spec.fields]
        for each in spec.fields:
            kind = schema.find_field(each.source_id).field_type
            if not each.transform.can_transform(kind) or sources.count(each.source_id) > 1:
                raise UnsupportedTableError(
                    f"{target} is partitioned by {each.transform} of {kind}, or by one column "
                    "twice, which pyiceberg does not compute. Choose another target."
                )
            self._paths.append(_path(schema, each.source_id))

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey | None, pa.RecordBatch]]:
        """Give the rows of each partition, in their order."""
        if not self._spec.fields:
            yield None, batch
            return
        columns = [
            self._values(batch, path, each)
            for path, each in zip(self._paths, self._spec.fields, strict=True)
        ]
        codes = np.stack([codes for codes, _ in columns])
        groups, of_row = np.unique(codes, axis=1, return_inverse=True)
        order = np.argsort(of_row, kind="stable")
        ends = np.cumsum(np.bincount(of_row.ravel(), minlength=groups.shape[1]))
        begin = 0
        for group, end in zip(groups.T, ends, strict=True):
            values = [values[code] for code, (_, values) in zip(group, columns, strict=True)]
            yield self._key(values), batch.take(pa.array(order.ravel()[begin:end]))
            begin = end

    def _values(
        self, batch: pa.RecordBatch, path: Sequence[str], field: PartitionField
    ) -> tuple[np.ndarray[Any, Any], list[Any]]:
        """The partition values of a column: a code for each row, and the value of each code."""
        column = batch.column(path[0])
        if path[1:]:
            column = pc.struct_field(column, path[1:])
        distinct = _fewer(_plain(column), field.transform).dictionary_encode()
        source = self._schema.find_field(field.source_id).field_type
        transform = field.transform.transform(source)
        found = [transform(each) for each in distinct.dictionary.to_pylist()]
        indices = distinct.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        merged: dict[Any, int] = {}
        codes = [merged.setdefault(each, len(merged)) for each in [*found, transform(None)]]
        return np.asarray(codes)[indices], list(merged)

    def _key(self, values: Sequence[Any]) -> PartitionKey:
        pairs = zip(self._spec.fields, values, strict=True)
        found = [PartitionFieldValue(field, value) for field, value in pairs]
        return PartitionKey(found, self._spec, self._schema)


def _path(schema: Schema, field_id: int) -> list[str]:
    """The names that lead to a column, or to a field inside of structs."""
    for each in schema.fields:
        if each.field_id == field_id:
            return [each.name]
        inside = getattr(each.field_type, "fields", ())
        if inside:
            below = _path(Schema(*inside), field_id)
            if below:
                return [each.name, *below]
    return []


def _plain(column: pa.Array) -> pa.Array:
    """Values as Iceberg computes with them: days and microseconds as numbers."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.cast(pa.int64())
    return column


def _fewer(values: pa.Array, transform: Transform[Any, Any]) -> pa.Array:
    """Replace times by their hour where that is all that counts."""
    if not isinstance(transform, _OF_TIMES) or not pa.types.is_int64(values.type):
        return values
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    hours = pa.array(plain // _HOUR * _HOUR)
    return pc.if_else(values.is_null(), pa.scalar(None, pa.int64()), hours)
